//! What all ranks must know alike before a step is decided: which gradients arrived, how long they are, and whether any
//! of their elements is not finite.

use crate::Result;
use crate::bridge::Bridge;
use crate::cast;
use crate::engine::Engine;
use crate::gather::here;
use crate::settings::Stage;
use crate::unit::{ParameterId, UnitId};
use stoker_core::HostBuffer;
use stoker_kernels::norm::sum_of_squares;

/// A gradient that is not finite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotFinite {
    /// Path of the first parameter that has one, in the order of the model.
    pub parameter: String,
    /// The first rank that computed it; `None` if it came of adding up what was finite on every rank.
    pub rank: Option<usize>,
}

/// The gradients of a step, over all ranks and micro-batches.
#[derive(Debug)]
pub(crate) struct Gradients {
    /// Sum of the squares of all elements of the summed gradient.
    pub(crate) sum_of_squares: f64,
    pub(crate) not_finite: Option<NotFinite>,
}

impl<B: Bridge> Engine<B> {
    /// Reduces what was not reduced yet, and makes all ranks see the same. `what` they must all mean.
    pub(crate) fn agree_on_gradients(&mut self, what: &str) -> Result<Gradients> {
        let culprits = self.exchange_flags(what)?;
        let sums = self.sums_of_squares()?;
        let alone = self.plugins.communicator.world() == 1;
        // In the order of the model, whatever the order in which they came.
        let sum_of_squares = sums.iter().map(|(_, sum)| sum).sum();
        let first = sums.iter().find(|(_, sum)| !sum.is_finite()).map(|(place, _)| *place);
        let culprit = culprits.into_iter().enumerate().filter_map(|(rank, place)| Some((place?, rank))).min();
        // The sums decide: nothing finite comes of adding to what is not. Culprits only tell whose it was.
        let not_finite = match (culprit, first) {
            (_, None) => None,
            (Some((place, rank)), Some(_)) => Some(NotFinite { parameter: self.path(place), rank: Some(rank) }),
            (None, Some(place)) => Some(NotFinite { parameter: self.path(place), rank: alone.then_some(0) }),
        };
        Ok(Gradients { sum_of_squares, not_finite })
    }

    fn path(&self, (unit, parameter): (UnitId, ParameterId)) -> String {
        self.parameter(unit, parameter).map_or_else(String::new, |placed| placed.spec.path.clone())
    }

    /// Parameters of trained units, in the order of the model.
    fn trained_parameters(&self) -> Vec<(UnitId, ParameterId)> {
        let units = self.units.iter().enumerate().filter(|(_, unit)| unit.trainable);
        units.flat_map(|(id, unit)| (0..unit.plan.parameters.len()).map(move |parameter| (id, parameter))).collect()
    }

    /// Makes all ranks see which parameters got a gradient on any of them, and reduces what was not reduced yet. Gives for
    /// every rank its first parameter whose own gradient was not finite.
    fn exchange_flags(&mut self, what: &str) -> Result<Vec<Option<(UnitId, ParameterId)>>> {
        let places = self.trained_parameters();
        let mut pending: Vec<bool> = (0..self.units.len()).map(|unit| self.buckets[unit].is_some()).collect();
        let (rank, world) = (self.plugins.communicator.rank(), self.plugins.communicator.world());
        if world > 1 {
            for unit in 0..self.units.len() {
                self.ask_whether_finite(unit)?;
            }
            for unit in 0..self.units.len() {
                self.hear_whether_finite(unit)?;
            }
        }
        let own = places.iter().position(|&(unit, parameter)| self.units[unit].gradient.not_finite[parameter]);
        // In range here and below: a communicator's rank is below its world, and `places` was made of these units.
        let mut culprits = vec![None; world];
        culprits[rank] = own;
        if world > 1 {
            // A sum of zeros and ones: more than zero where any rank has something. Behind them a number a rank, from 1.
            let arrived = places.iter().map(|&(unit, parameter)| self.units[unit].gradient.arrived[parameter]);
            let flags = pending.iter().copied().chain(arrived).map(|flag| f64::from(u8::from(flag)));
            let numbers = culprits.iter().map(|culprit| culprit.map_or(0.0, |at: usize| at as f64 + 1.0));
            let buffer = HostBuffer::from_slice(&flags.chain(numbers).collect::<Vec<_>>());
            let summed = self.plugins.communicator.all_reduce(what, buffer)?.wait()?;
            let mut summed = summed.as_slice::<f64>().iter();
            for (flag, sum) in pending.iter_mut().zip(&mut summed) {
                *flag = *sum > 0.0;
            }
            for (&(unit, parameter), sum) in places.iter().zip(&mut summed) {
                self.units[unit].gradient.arrived[parameter] = *sum > 0.0;
            }
            for (culprit, sum) in culprits.iter_mut().zip(summed) {
                *culprit = (*sum > 0.0).then(|| *sum as usize - 1);
            }
        }
        for (unit, pending) in pending.into_iter().enumerate() {
            if pending {
                self.start_reduction(unit)?;
                if world > 1 {
                    self.finish_reductions()?;
                }
            }
        }
        self.finish_reductions()?;
        Ok(culprits.into_iter().map(|culprit| places.get(culprit?).copied()).collect())
    }

    /// [Note: Whose it was] A device that works in the background does not tell of a gradient that lands whether it is
    /// finite. Among several ranks it is asked for the squares of what is in the bucket before that is reduced, and heard
    /// when ranks exchange their flags, or before the next bucket of the same unit: nobody waits for it in between. The
    /// sums of a rank alone tell it anyhow.
    pub(crate) fn ask_whether_finite(&mut self, unit: UnitId) -> Result<()> {
        self.hear_whether_finite(unit)?;
        let Some(bucket) = &self.buckets[unit] else { return Ok(()) };
        let ranges = self.units[unit].parameter_ranges();
        self.units[unit].gradient.own_squares = self.bridge.sums_of_squares(&bucket.buffer, &ranges)?;
        Ok(())
    }

    fn hear_whether_finite(&mut self, unit: UnitId) -> Result<()> {
        let state = &mut self.units[unit].gradient;
        let Some(squares) = state.own_squares.take() else { return Ok(()) };
        for (not_finite, sum) in state.not_finite.iter_mut().zip(squares.wait()?) {
            *not_finite |= !sum.is_finite();
        }
        Ok(())
    }

    /// Of every trained parameter's summed gradient.
    fn sums_of_squares(&mut self) -> Result<Vec<((UnitId, ParameterId), f64)>> {
        let places = self.trained_parameters();
        let mut sums = Vec::with_capacity(places.len());
        for unit in 0..self.units.len() {
            if self.units[unit].trainable {
                sums.extend(self.sums_of_unit(unit)?);
            }
        }
        // At stage 0 every rank has the whole gradient, and the same one.
        if self.settings.stage != Stage::Zero && self.plugins.communicator.world() > 1 {
            let buffer = HostBuffer::from_slice(&sums);
            let total = self.plugins.communicator.all_reduce("gradient norm", buffer)?.wait()?;
            sums = total.as_slice::<f64>().to_vec();
        }
        Ok(places.into_iter().zip(sums).collect())
    }

    /// Of this rank's part of each parameter of a unit.
    pub(crate) fn sums_of_unit(&mut self, unit: UnitId) -> Result<Vec<f64>> {
        if let Some(sums) = self.units[unit].gradient.sums_of_squares.take() {
            return Ok(sums.wait()?);
        }
        let rank = self.plan_rank(unit);
        let plan = &self.units[unit].plan;
        let pieces: Vec<_> = plan.parameters.iter().map(|parameter| plan.overlap(rank, &parameter.range)).collect();
        if !self.units[unit].gradient.region_filled {
            return Ok(vec![0.0; pieces.len()]);
        }
        let Some(gradient) = &mut here(&mut self.units[unit].shard)?.gradient else {
            return Ok(vec![0.0; pieces.len()]);
        };
        let staged = match gradient.host() {
            Some(_) => None,
            None => {
                let spec = gradient.spec();
                let staging = HostBuffer::zeros_of(spec.dtype, spec.elements);
                Some(gradient.read(0, staging)?.wait()?)
            }
        };
        let Some(values) = staged.as_ref().or(gradient.host().map(|memory| &*memory)) else {
            return Ok(vec![0.0; pieces.len()]);
        };
        let sum = |pieces: Vec<(std::ops::Range<usize>, std::ops::Range<usize>)>| {
            pieces.into_iter().map(|(_, local)| cast::with_f32(values, local, sum_of_squares)).sum()
        };
        Ok(pieces.into_iter().map(sum).collect())
    }
}
