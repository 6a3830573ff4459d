//! What is there once a model was built.

use burn::nn::{Linear, LinearConfig};
use burn::tensor::Device;
use stoker_burn::{Checkpointing, Rank, Unit};
use stoker_tests::Setup;
use stoker_tests::memory::status;

const WIDTH: usize = 4096;

/// Resident memory that building a model of one layer adds, in GiB.
fn added(checkpointing: Checkpointing) -> Option<f64> {
    let mut setup = Setup::new(1, 3);
    setup.device.checkpointing = checkpointing;
    let added = setup.run(|rank: &Rank| {
        let make = |device: &Device| -> Unit<Linear> {
            Unit::new(LinearConfig::new(WIDTH, WIDTH).with_bias(false).init(device))
        };
        let empty = status("VmRSS")?;
        let _model = rank.build(make, None).unwrap();
        Some(status("VmRSS")? - empty)
    });
    added.into_iter().next().flatten()
}

/// Where handing a parameter over counted as part of a graph, balanced checkpointing kept it until the first backward.
#[test]
#[cfg_attr(not(feature = "libtorch"), ignore = "Flex's values are on the host, and handed over whole")]
fn checkpointing_keeps_no_parameter_that_was_handed_over() {
    let parameter = (4 * WIDTH * WIDTH) as f64 / f64::from(1 << 30);
    let Some((plain, balanced)) = added(Checkpointing::None).zip(added(Checkpointing::Balanced)) else { return };
    assert!(plain >= parameter, "{plain} GiB cannot hold the parameter: this measures nothing");
    assert!(balanced < plain + parameter / 2.0, "{balanced} GiB with checkpointing, {plain} without");
}
