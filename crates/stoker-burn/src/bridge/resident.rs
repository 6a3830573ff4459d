//! Shards that stay on LibTorch's device: their regions, and their update by its own kernels.

use super::libtorch::{LibTorchBridge, LibTorchSlab, failed, kind, narrow};
use std::any::Any;
use std::ops::Range;
use stoker_core::{
    DeviceMemory, DeviceRule, Error, HostBuffer, Region, RegionSpec, Result, Segment, StepContext, Ticket,
};
use stoker_engine::{Landing, OnDevice, ShardOnDevice};
use stoker_libtorch::Adam;

/// Elements whose gradient is widened at once: 32 MiB, which a GPU's cache keeps from one kernel to the next.
const CHUNK: usize = 8 << 20;

/// The memory of a LibTorch device, for targets.
#[derive(Debug)]
pub(crate) struct LibTorchMemory(pub(crate) tch::Device);

impl DeviceMemory for LibTorchMemory {
    fn region(&self, spec: RegionSpec) -> Result<Box<dyn Region>> {
        let slab = LibTorchSlab::zeros(self.0, spec.dtype, spec.elements)?;
        Ok(Box::new(LibTorchRegion { spec, slab }))
    }
}

#[derive(Debug)]
struct LibTorchRegion {
    spec: RegionSpec,
    slab: LibTorchSlab,
}

impl LibTorchRegion {
    fn part(&self, at: usize, elements: usize) -> Result<tch::Tensor> {
        // In range: the caller has checked.
        narrow(&self.slab.tensor.tensor, &(at..at + elements))
    }
}

impl Region for LibTorchRegion {
    fn spec(&self) -> &RegionSpec {
        &self.spec
    }

    fn read(&mut self, at: usize, mut into: HostBuffer) -> Result<Ticket<HostBuffer>> {
        self.spec.check(at, &into, "reading")?;
        let elements = into.len();
        let part = self.part(at, elements)?;
        part.f_copy_data_u8(into.as_mut_bytes(), elements).map_err(failed("reading a region"))?;
        Ok(Ticket::ready(into))
    }

    fn write(&mut self, at: usize, from: HostBuffer) -> Result<Ticket<HostBuffer>> {
        self.spec.check(at, &from, "writing")?;
        let values = tch::Tensor::f_from_data_size(from.as_bytes(), &[from.len() as i64], kind(from.dtype()));
        let values = values.map_err(failed("reading a host buffer"))?;
        self.part(at, from.len())?.f_copy_(&values).map_err(failed("writing a region"))?;
        Ok(Ticket::ready(from))
    }

    fn host(&mut self) -> Option<&mut HostBuffer> {
        None
    }

    fn device(&mut self) -> Option<&mut dyn Any> {
        Some(&mut self.slab)
    }
}

impl OnDevice<LibTorchSlab> for LibTorchBridge {
    fn copy(&mut self, source: &LibTorchSlab, target: &mut LibTorchSlab, landing: Landing) -> Result<()> {
        let (source, target) = (&source.tensor.tensor, &mut target.tensor.tensor);
        match landing {
            Landing::Set => target.f_copy_(source).map_err(failed("copying on the device")),
            Landing::Add => target.f_add_(source).map(drop).map_err(failed("adding on the device")),
        }
    }

    fn update(
        &mut self,
        rule: &DeviceRule,
        shard: ShardOnDevice<'_, LibTorchSlab>,
        segments: &[Segment],
        context: &StepContext,
    ) -> Result<()> {
        let DeviceRule::Adam { decoupled, betas, eps, weight_decay } = *rule else { return Err(no_kernel(rule)) };
        let ShardOnDevice { parameters, gradient, mut state, rounded } = shard;
        let [first, second] = state.as_mut_slice() else { return Err(no_kernel(rule)) };
        for segment in segments {
            let adam = Adam {
                decoupled,
                update: segment.update,
                learning_rate: segment.learning_rate,
                betas,
                eps,
                weight_decay: segment.weight_decay.unwrap_or(weight_decay),
            };
            for range in chunks(&segment.range) {
                let part = |slab: &LibTorchSlab| narrow(&slab.tensor.tensor, &range);
                let gradient = scaled(&part(gradient)?, context)?;
                let (mut parameters, mut first, mut second) = (part(parameters)?, part(first)?, part(second)?);
                let updated = adam.update(&mut parameters, &gradient, [&mut first, &mut second]);
                updated.map_err(|source| Error::Plugin {
                    plugin: "libtorch".to_owned(),
                    doing: "updating a shard on the device".to_owned(),
                    source: source.into(),
                })?;
                if let Some(rounded) = &rounded {
                    part(rounded)?.f_copy_(&parameters).map_err(failed("rounding parameters"))?;
                }
            }
        }
        Ok(())
    }
}

fn no_kernel(rule: &DeviceRule) -> Error {
    Error::Plugin {
        plugin: "libtorch".to_owned(),
        doing: format!("updating a shard on the device by {rule:?}"),
        source: "there is no kernel for this rule and its state; choose offload target `cpu-offload`".into(),
    }
}

fn chunks(range: &Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.clone().step_by(CHUNK).map(move |start| start..(start + CHUNK).min(end))
}

/// The gradient that the rule sees, in f32.
fn scaled(gradient: &tch::Tensor, context: &StepContext) -> Result<tch::Tensor> {
    let doing = failed("scaling a gradient");
    // A copy in any case: `to_kind` gives the same memory if there is nothing to do.
    let mut wide = gradient.f_to_dtype(tch::Kind::Float, false, true).map_err(&doing)?;
    let scaled = wide.f_mul_scalar_(f64::from(context.gradient_scale)).map_err(&doing)?;
    if context.clip_value.is_finite() {
        let limit = f64::from(context.clip_value);
        return wide.f_clamp_(-limit, limit).map_err(&doing);
    }
    Ok(scaled)
}
