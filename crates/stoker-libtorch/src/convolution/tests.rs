use super::*;
use tch::{Device, Kind};

const PLAIN: Convolution = Convolution { stride: [1, 1], padding: [0, 0], dilation: [1, 1], groups: 1 };

fn ones(shape: &[i64]) -> Tensor {
    Tensor::ones(shape, (Kind::Float, Device::Cpu))
}

#[test]
fn every_operand_gets_its_own() {
    let (input, weight, gradient) = (ones(&[2, 3, 5, 6]), ones(&[4, 3, 2, 3]), ones(&[2, 4, 4, 4]));
    let of = |operand| PLAIN.gradient(operand, &gradient, &input, &weight).unwrap();
    assert_eq!(of(Operand::Input).size(), input.size());
    // A corner takes part once, for each of four output channels.
    assert_eq!(of(Operand::Input).double_value(&[0, 0, 0, 0]), 4.0);
    assert_eq!(of(Operand::Weight).size(), weight.size());
    // Two images of 4 x 4 outputs.
    assert_eq!(of(Operand::Weight).double_value(&[0, 0, 0, 0]), 32.0);
}

#[test]
fn what_libtorch_throws_comes_back() {
    let error = PLAIN.gradient(Operand::Weight, &ones(&[2, 9, 4, 4]), &ones(&[2, 3, 5, 6]), &ones(&[4, 3, 2, 3]));
    let text = error.unwrap_err().to_string();
    assert!(text.starts_with("the gradient of a convolution: ") && !text.contains('\n'), "{text}");
}
