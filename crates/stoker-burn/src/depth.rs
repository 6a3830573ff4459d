//! How deep a tensor lies in Burn's graph, and nodes of a chosen depth.
//!
//! [Note: The order of backward] Burn runs backward steps by depth, deepest first. A gather that hung from a leaf would
//! have depth 1: its backward would run last, and all gradients would wait until the whole model's backward is done. So
//! each call makes a one-element **mark** that is as deep as the call's input, and its gathers hang from the mark: they
//! run right after the unit's own operations, and before those of the units before it. The mark's own backward runs
//! when all its gathers' have: the unit's gradients are complete.
//!
//! Calls are put in one order, that in which they were made: a mark is also deeper than the end of the call before it,
//! and the call's end, its **token**, is deeper than all that the call made. So backward comes by the calls in exactly
//! the opposite order, whatever depends on what, and on every rank: collectives agree even if one rank skips a unit, or
//! has no use for an output.
//!
//! The input itself must not be the mark's parent. It would then belong to every backward that reaches the unit, also
//! when the unit makes no use of it, and the units before would get gradients of zero where the plain module has none
//! (which AdamW treats differently: a zero gradient decays the weights). But Burn takes a node's depth from all its
//! parents, and walks only those that are tracked: so the mark hangs from a **rung**, an untracked node of the wanted
//! depth. Rungs hold nothing and are made once.

use crate::ops::rung_above;
use crate::{Error, Result};
use burn::backend::autodiff::ops::NodeGuard;
use burn::tensor::{Device, Tensor};
use std::fmt::{self, Write};
use std::sync::{Mutex, PoisonError};

/// Untracked one-element tensors, the n-th of depth n.
#[derive(Debug, Default)]
pub(crate) struct Ladder(Mutex<Vec<Tensor<1>>>);

impl Ladder {
    /// The rung of this depth.
    pub(crate) fn rung(&self, depth: usize, device: &Device) -> Tensor<1> {
        let mut rungs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut top = match rungs.last() {
            Some(top) => top.clone(),
            None => {
                let ground = Tensor::zeros([1], device);
                rungs.push(ground.clone());
                ground
            }
        };
        while rungs.len() <= depth {
            top = rung_above(top);
            rungs.push(top.clone());
        }
        rungs.get(depth).cloned().unwrap_or(top)
    }
}

/// The depth of a node.
///
/// # Errors
/// [`Error::Misuse`] if this Burn is not the one that we pin.
pub(crate) fn depth_of(node: &NodeGuard) -> Result<usize> {
    // Burn 0.22 gives an operation no other sight of the depth of its parents before backward. The version is pinned,
    // and a test holds this to what backward sees.
    let mut reader = DepthReader { text: String::new(), depth: None };
    // The reader ends the formatting as soon as it has the number.
    let _ = write!(reader, "{node:?}");
    reader.depth.ok_or(Error::Misuse("this Burn does not show the depth of its nodes; stoker-burn pins 0.22.1"))
}

/// Reads `order: 12,` out of a node's debug form, which begins with its parents and its order.
struct DepthReader {
    text: String,
    depth: Option<usize>,
}

impl Write for DepthReader {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        self.text.push_str(part);
        let Some((_, rest)) = self.text.split_once("order: ") else { return Ok(()) };
        let Some((digits, _)) = rest.split_once(|c: char| !c.is_ascii_digit()) else { return Ok(()) };
        self.depth = digits.parse().ok();
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops;

    fn depth(tensor: Tensor<1>) -> usize {
        ops::place(tensor).depth
    }

    #[test]
    fn depths_are_what_the_operations_made() {
        for device in [Device::flex().autodiff(), Device::flex().autodiff().gradient_checkpointing()] {
            let leaf = Tensor::<1>::ones([1], &device).require_grad();
            assert_eq!(depth(leaf.clone()), 0);
            let deep = (0..5).fold(leaf.clone(), |x, _| x + leaf.clone());
            assert_eq!(depth(deep.clone()), 5);
            // Deeper than either parent.
            assert_eq!(depth(deep.clone() * (deep + 1.0)), 7);
            assert_eq!(depth(Tensor::<1>::ones([1], &device.without_autodiff())), 0);
        }
    }

    #[test]
    fn rungs_have_their_depth_and_no_gradient_reaches_them() {
        let device = Device::flex().autodiff();
        let ladder = Ladder::default();
        for wanted in [3, 0, 40, 7] {
            assert_eq!(depth(ladder.rung(wanted, &device)), wanted);
        }
        let leaf = Tensor::<1>::ones([1], &device).require_grad();
        let hung = leaf.clone() * ladder.rung(9, &device);
        assert_eq!(depth(hung.clone()), 10);
        let gradients = hung.backward();
        assert!(leaf.grad(&gradients).is_some());
    }
}
