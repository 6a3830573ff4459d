//! One rank's engine, as operations and units see it.

use crate::bridge::flex::FlexBridge;
#[cfg(feature = "libtorch")]
use crate::bridge::libtorch::LibTorchBridge;
use crate::depth::Ladder;
use crate::raise::{or_raise, raise};
use crate::{Error, Result};
use burn::backend::TensorMetadata;
use burn::tensor::{DType, Device, Shape, Tensor};
use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stoker_engine::{Engine, ParameterId, UnitId};

/// The engine over the bridge of the device's backend.
#[derive(Debug)]
#[cfg_attr(feature = "libtorch", allow(clippy::large_enum_variant, reason = "there is one of them a rank"))]
pub(crate) enum AnyEngine {
    Flex(Engine<FlexBridge>),
    #[cfg(feature = "libtorch")]
    LibTorch(Engine<LibTorchBridge>),
}

impl AnyEngine {
    /// Whether a tensor's values can be read without a copy.
    pub(crate) fn values_are_on_the_host(&self) -> bool {
        matches!(self, Self::Flex(_))
    }
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
    /// Bytes below which a parameter is copied out of the slab.
    copy_below: u64,
    /// Where marks hang.
    pub(crate) ladder: Ladder,
    /// Depth of the last call, as far as it has come.
    depth_reached: AtomicUsize,
    /// Ends of the calls since the last backward.
    tokens: Mutex<Vec<Tensor<1>>>,
}

impl Shared {
    pub(crate) fn new(engine: AnyEngine, device: Device, copy_below: u64) -> Self {
        Self {
            engine: Mutex::new(engine),
            mode: AtomicU8::new(0),
            device,
            copy_below,
            ladder: Ladder::default(),
            depth_reached: AtomicUsize::new(0),
            tokens: Mutex::default(),
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
        self.depth_reached.store(0, Ordering::Relaxed);
        self.take_tokens();
        with_engine!(&mut *self.engine(), engine => engine.set_training(mode == Mode::Training))?;
        Ok(())
    }

    pub(crate) fn depth_reached(&self) -> usize {
        self.depth_reached.load(Ordering::Relaxed)
    }

    /// Whether there are no other ranks.
    pub(crate) fn is_alone(&self) -> bool {
        with_engine!(&*self.engine(), engine => engine.world() == 1)
    }

    /// A call has come that deep.
    pub(crate) fn reached(&self, depth: usize) {
        self.depth_reached.fetch_max(depth, Ordering::Relaxed);
    }

    /// A call has ended, that deep.
    pub(crate) fn call_ended(&self, token: Tensor<1>, depth: usize) {
        self.reached(depth);
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner).push(token);
    }

    /// The ends of the calls since the last backward.
    pub(crate) fn take_tokens(&self) -> Vec<Tensor<1>> {
        std::mem::take(&mut self.tokens.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a unit knows once its model was built by a rank.
///
/// The engine's units are finer: a part of a model that is gathered together is one engine unit for its trained
/// parameters, one for its frozen ones, one for those that it shares with other parts, and so by type. See `survey`.
#[derive(Debug, Clone)]
pub(crate) struct UnitLink {
    pub(crate) call: CallHandle,
    /// Where the unit's parameters are, by Burn's id, which is unique in the process.
    pub(crate) parameters: Arc<HashMap<u64, (UnitId, ParameterId)>>,
    /// Whether any of them is trained.
    pub(crate) trainable: bool,
    /// What float inputs are cast to.
    pub(crate) input: Option<DType>,
}

impl UnitLink {
    /// The unit's parameter of this id.
    pub(crate) fn parameter(&self, id: u64) -> Option<ParameterHandle> {
        let &(unit, parameter) = self.parameters.get(&id)?;
        Some(ParameterHandle { shared: self.call.shared.clone(), unit, parameter })
    }
}

/// The engine units that a call gathers, for operations.
#[derive(Debug, Clone)]
pub(crate) struct CallHandle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) units: Arc<[UnitId]>,
}

impl CallHandle {
    /// The call begins; `tracked`: a backward will come by.
    pub(crate) fn begin(&self, tracked: bool) {
        self.for_each(|engine, unit| with_engine!(engine, engine => engine.begin_call(unit, tracked)));
    }

    /// The call is over.
    pub(crate) fn end(&self) {
        self.for_each(|engine, unit| {
            with_engine!(engine, engine => engine.end_call(unit));
            Ok(())
        });
    }

    /// The token's backward.
    pub(crate) fn before_backward(&self) {
        self.for_each(|engine, unit| with_engine!(engine, engine => engine.before_backward(unit)));
    }

    /// The mark's backward.
    pub(crate) fn backward_done(&self) {
        self.for_each(|engine, unit| with_engine!(engine, engine => engine.backward_done(unit)));
    }

    fn for_each(&self, tell: impl Fn(&mut AnyEngine, UnitId) -> stoker_engine::Result<()>) {
        for &unit in self.units.iter() {
            // The guard is gone before anything unwinds.
            let told = tell(&mut self.shared.engine(), unit);
            or_raise(told);
        }
    }
}

/// A parameter, for operations.
#[derive(Debug, Clone)]
pub(crate) struct ParameterHandle {
    shared: Arc<Shared>,
    unit: UnitId,
    parameter: ParameterId,
}

impl ParameterHandle {
    /// A gradient of whichever backend arrives.
    pub(crate) fn land(&self, gradient: Box<dyn Any>) {
        let landed = match &mut *self.shared.engine() {
            AnyEngine::Flex(engine) => {
                gradient.downcast().ok().map(|gradient| engine.land(self.unit, self.parameter, *gradient))
            }
            #[cfg(feature = "libtorch")]
            AnyEngine::LibTorch(engine) => {
                gradient.downcast().ok().map(|gradient| engine.land(self.unit, self.parameter, *gradient))
            }
        };
        match landed {
            Some(landed) => or_raise(landed),
            None => raise(wrong_backend()),
        }
    }

    /// The gathered parameter as a Flex tensor: a view of the slab, or a copy if it is small.
    pub(crate) fn flex(&self) -> burn_flex::FlexTensor {
        let mut engine = self.shared.engine();
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
        let slab = or_raise(engine.slab(self.unit));
        let view = slab.view(&range, shape);
        if self.is_small(&view) { copy(&view) } else { view }
    }

    /// Whether the parameter is copied, so that a graph that keeps it does not keep the slab.
    fn is_small(&self, view: &impl TensorMetadata) -> bool {
        ((view.shape().num_elements() * view.dtype().size()) as u64) < self.shared.copy_below
    }

    /// The gathered parameter as a LibTorch tensor.
    #[cfg(feature = "libtorch")]
    pub(crate) fn libtorch(&self) -> burn_tch::TchTensor {
        let mut engine = self.shared.engine();
        let AnyEngine::LibTorch(engine) = &mut *engine else { raise(wrong_backend()) };
        let (range, shape) = self.place(engine);
        let slab = or_raise(engine.slab(self.unit));
        let view = or_raise(slab.view(&range, &shape));
        if self.is_small(&view) { burn_tch::TchTensor::new(view.tensor.copy()) } else { view }
    }

    fn place<B: stoker_engine::Bridge>(&self, engine: &Engine<B>) -> (std::ops::Range<usize>, Shape) {
        match engine.parameter(self.unit, self.parameter) {
            Some(placed) => (placed.range.clone(), Shape::from(placed.spec.shape.clone())),
            None => raise(Error::Misuse("a unit was asked for a parameter that it does not have")),
        }
    }
}

fn copy(view: &burn_flex::FlexTensor) -> burn_flex::FlexTensor {
    burn_flex::FlexTensor::from_data(view.to_contiguous().into_data())
}

fn wrong_backend() -> Error {
    Error::Misuse("a tensor of another backend was used in a unit; use tensors of the rank's device")
}
