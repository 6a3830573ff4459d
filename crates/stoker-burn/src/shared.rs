//! One rank's engine, as operations and units see it.

use crate::bridge::flex::FlexBridge;
#[cfg(feature = "libtorch")]
use crate::bridge::libtorch::LibTorchBridge;
use crate::depth::Ladder;
use crate::raise::{or_raise, raise};
use crate::{Error, Result};
use burn::tensor::{Device, Shape};
use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stoker_engine::{Engine, ParameterId, UnitId};

/// The engine over the bridge of the device's backend.
#[derive(Debug)]
pub(crate) enum AnyEngine {
    Flex(Engine<FlexBridge>),
    #[cfg(feature = "libtorch")]
    LibTorch(Engine<LibTorchBridge>),
}

/// Runs an expression on whichever engine it is.
macro_rules! with_engine {
    ($any:expr, $engine:ident => $run:expr) => {
        match $any {
            $crate::shared::AnyEngine::Flex($engine) => $run,
            #[cfg(feature = "libtorch")]
            $crate::shared::AnyEngine::LibTorch($engine) => $run,
        }
    };
}
pub(crate) use with_engine;

/// What the rank is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mode {
    /// Calls are plain forwards without a graph.
    Evaluating = 0,
    /// Calls build a graph whose backward feeds the engine.
    Training = 1,
}

/// What units, operations and the rank share.
#[derive(Debug)]
pub(crate) struct Shared {
    engine: Mutex<AnyEngine>,
    mode: AtomicU8,
    /// With autodiff.
    pub(crate) device: Device,
    /// Elements below which a parameter is copied out of the slab.
    copy_below: usize,
    /// Where marks hang.
    pub(crate) ladder: Ladder,
    /// Depth of the last unit's output: that of the mark of a unit without a float input.
    depth_reached: AtomicUsize,
}

impl Shared {
    pub(crate) fn new(engine: AnyEngine, device: Device, copy_below: u64) -> Self {
        let copy_below = usize::try_from(copy_below / 4).unwrap_or(usize::MAX);
        Self {
            engine: Mutex::new(engine),
            mode: AtomicU8::new(0),
            device,
            copy_below,
            ladder: Ladder::default(),
            depth_reached: AtomicUsize::new(0),
        }
    }

    pub(crate) fn engine(&self) -> MutexGuard<'_, AnyEngine> {
        // An unwinding error stops the engine itself, which then refuses further work; the lock adds nothing to that.
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn mode(&self) -> Mode {
        if self.mode.load(Ordering::Relaxed) == Mode::Training as u8 { Mode::Training } else { Mode::Evaluating }
    }

    pub(crate) fn set_mode(&self, mode: Mode) -> Result<()> {
        self.mode.store(mode as u8, Ordering::Relaxed);
        self.reached(0);
        with_engine!(&mut *self.engine(), engine => engine.set_training(mode == Mode::Training))?;
        Ok(())
    }

    pub(crate) fn reached(&self, depth: usize) {
        self.depth_reached.store(depth, Ordering::Relaxed);
    }

    pub(crate) fn depth_reached(&self) -> usize {
        self.depth_reached.load(Ordering::Relaxed)
    }
}

/// What a unit knows once its model was built by a rank.
#[derive(Debug, Clone)]
pub(crate) struct UnitLink {
    pub(crate) unit: UnitHandle,
    /// The unit's own parameters by Burn's id, which is unique in the process.
    pub(crate) parameters: Arc<HashMap<u64, ParameterId>>,
}

/// A unit of an engine, for operations.
#[derive(Debug, Clone)]
pub(crate) struct UnitHandle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: UnitId,
}

impl UnitHandle {
    /// The mark's backward.
    pub(crate) fn backward_done(&self) {
        or_raise(with_engine!(&mut *self.shared.engine(), engine => engine.backward_done(self.id)));
    }

    /// The leave node's backward.
    pub(crate) fn before_backward(&self) {
        or_raise(with_engine!(&mut *self.shared.engine(), engine => engine.before_backward(self.id)));
    }

    pub(crate) fn parameter(&self, parameter: ParameterId) -> ParameterHandle {
        ParameterHandle { unit: self.clone(), parameter }
    }
}

/// A parameter of a unit, for operations.
#[derive(Debug, Clone)]
pub(crate) struct ParameterHandle {
    unit: UnitHandle,
    parameter: ParameterId,
}

impl ParameterHandle {
    /// A gradient of whichever backend arrives.
    pub(crate) fn land(&self, gradient: Box<dyn Any>) {
        let landed = match &mut *self.unit.shared.engine() {
            AnyEngine::Flex(engine) => {
                gradient.downcast().ok().map(|gradient| engine.land(self.unit.id, self.parameter, *gradient))
            }
            #[cfg(feature = "libtorch")]
            AnyEngine::LibTorch(engine) => {
                gradient.downcast().ok().map(|gradient| engine.land(self.unit.id, self.parameter, *gradient))
            }
        };
        match landed {
            Some(landed) => or_raise(landed),
            None => raise(wrong_backend()),
        }
    }

    /// The gathered parameter as a Flex tensor: a view of the slab, or a copy if it is small.
    pub(crate) fn flex(&self) -> burn_flex::FlexTensor {
        let mut engine = self.unit.shared.engine();
        #[cfg_attr(
            not(feature = "libtorch"),
            allow(clippy::infallible_destructuring_match, reason = "there are more backends with the feature")
        )]
        let engine = match &mut *engine {
            AnyEngine::Flex(engine) => engine,
            #[cfg(feature = "libtorch")]
            AnyEngine::LibTorch(_) => raise(wrong_backend()),
        };
        let (range, shape) = self.place(engine);
        let slab = or_raise(engine.slab(self.unit.id));
        let view = slab.view(&range, shape);
        if range.len() < self.unit.shared.copy_below { copy(&view) } else { view }
    }

    /// The gathered parameter as a LibTorch tensor.
    #[cfg(feature = "libtorch")]
    pub(crate) fn libtorch(&self) -> burn_tch::TchTensor {
        let mut engine = self.unit.shared.engine();
        let AnyEngine::LibTorch(engine) = &mut *engine else { raise(wrong_backend()) };
        let (range, shape) = self.place(engine);
        let slab = or_raise(engine.slab(self.unit.id));
        let view = or_raise(slab.view(&range, &shape));
        if range.len() < self.unit.shared.copy_below { burn_tch::TchTensor::new(view.tensor.copy()) } else { view }
    }

    fn place<B: stoker_engine::Bridge>(&self, engine: &Engine<B>) -> (std::ops::Range<usize>, Shape) {
        match engine.parameter(self.unit.id, self.parameter) {
            Some(placed) => (placed.range.clone(), Shape::from(placed.spec.shape.clone())),
            None => raise(Error::Misuse("a unit was asked for a parameter that it does not have")),
        }
    }
}

fn copy(view: &burn_flex::FlexTensor) -> burn_flex::FlexTensor {
    let values = view.as_slice::<f32>().unwrap_or_default().to_vec();
    burn_flex::FlexTensor::from_data(burn::tensor::TensorData::new(values, view.layout().shape().clone()))
}

fn wrong_backend() -> Error {
    Error::Misuse("a tensor of another backend was used in a unit; use tensors of the rank's device")
}
