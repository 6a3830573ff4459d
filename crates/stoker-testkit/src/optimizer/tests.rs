//! The suite passes a right optimizer and finds wrong ones.

use super::*;
use stoker_core::{Result, StateSlot};

/// `p -= lr * (b + wd * p)` with a buffer `b = b / update + g`, and a fault.
#[derive(Debug, Clone, Copy)]
struct Buffered {
    fault: Fault,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    None,
    NeverCuts,
    CutsBeforeItScales,
    CutsNan,
    CountsByTheFirstSegment,
    MindsTheShardsStart,
    CutsOffBits,
}

impl Optimizer for Buffered {
    fn state_slots(&self) -> &'static [StateSlot] {
        const { &[StateSlot::f32("buffer")] }
    }

    fn granularity(&self) -> Granularity {
        Granularity::Element
    }

    fn update(&self, mut shard: ShardUpdate<'_>, context: &StepContext) -> Result<()> {
        shard.check(self.state_slots())?;
        let accumulated: Vec<f32> = match shard.gradient {
            Values::F16(values) => values.iter().map(|value| value.to_f32()).collect(),
            Values::BF16(values) => values.iter().map(|value| value.to_f32()).collect(),
            Values::F32(values) => values.to_vec(),
        };
        let ValuesMut::F32(state) = &mut shard.state[0] else { panic!("the check let it pass") };
        let cut = |gradient: f32| gradient.clamp(-context.clip_value, context.clip_value);
        for segment in shard.segments {
            let counted = match self.fault {
                Fault::CountsByTheFirstSegment => shard.segments[0].update,
                _ => segment.update,
            };
            for at in segment.range.clone() {
                let scaled = accumulated[at] * context.gradient_scale;
                let gradient = match self.fault {
                    Fault::NeverCuts => scaled,
                    Fault::CutsBeforeItScales => cut(accumulated[at]) * context.gradient_scale,
                    Fault::CutsNan if scaled.is_nan() => 0.0,
                    Fault::MindsTheShardsStart if at == 0 => 0.0,
                    _ => cut(scaled),
                };
                let buffer = &mut state[at];
                *buffer = *buffer / counted as f32 + gradient;
                let decay = segment.weight_decay.unwrap_or(0.1) as f32 * shard.parameters[at];
                shard.parameters[at] -= segment.learning_rate as f32 * (*buffer + decay);
            }
        }
        for segment in shard.segments {
            for at in segment.range.clone() {
                match &mut shard.rounded {
                    Some(ValuesMut::F16(rounded)) => rounded[at] = f16::from_f32(shard.parameters[at]),
                    Some(ValuesMut::BF16(rounded)) if self.fault == Fault::CutsOffBits => {
                        rounded[at] = bf16::from_bits((shard.parameters[at].to_bits() >> 16) as u16);
                    }
                    Some(ValuesMut::BF16(rounded)) => rounded[at] = bf16::from_f32(shard.parameters[at]),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

#[test]
fn a_right_optimizer_passes() {
    conforms(&Buffered { fault: Fault::None });
}

#[test]
#[should_panic(expected = "a gradient that was cut: element")]
fn one_that_never_cuts_is_found() {
    conforms(&Buffered { fault: Fault::NeverCuts });
}

#[test]
#[should_panic(expected = "a gradient that was cut: element")]
fn one_that_cuts_before_it_scales_is_found() {
    conforms(&Buffered { fault: Fault::CutsBeforeItScales });
}

#[test]
#[should_panic(expected = "a gradient of NaN shows in the parameter or in its state, clip_value inf")]
fn one_that_hides_nan_is_found() {
    conforms(&Buffered { fault: Fault::CutsNan });
}

#[test]
#[should_panic(expected = "a segment among others and alone, Segment { range: 300..600, update: 4")]
fn one_that_counts_updates_by_the_first_segment_is_found() {
    conforms(&Buffered { fault: Fault::CountsByTheFirstSegment });
}

#[test]
#[should_panic(expected = "chunks of 1: element")]
fn one_that_minds_where_a_shard_starts_is_found() {
    conforms(&Buffered { fault: Fault::MindsTheShardsStart });
}

#[test]
#[should_panic(expected = "is rounded to the nearest")]
fn one_that_rounds_to_zero_is_found() {
    conforms(&Buffered { fault: Fault::CutsOffBits });
}
