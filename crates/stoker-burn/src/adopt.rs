//! A model is sharded: each parameter is initialised, handed to the engine and dropped before the next one is made.

use crate::boundary::current;
use crate::init::draw;
use crate::shared::{Shared, UnitLink, with_engine};
use crate::weights::{Kind, WeightsFile};
use crate::{Error, Result};
use burn::module::{Module, ModuleMapper, Param, ParamMapper};
use burn::tensor::{Bool, DType, Device, Int, Tensor, TensorData};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use stoker_engine::{ParameterId, UnitId};

/// Elements of a parameter that are handed over at once.
const PIECE: usize = 1 << 18;

/// Turns a parameter's values as the model holds them into what a file holds.
type ForSave = Box<dyn Fn(TensorData) -> TensorData + Send + Sync>;

/// Where a sharded parameter is found again, for export.
pub(crate) struct Sharded {
    pub(crate) unit: UnitId,
    pub(crate) parameter: ParameterId,
    pub(crate) shape: Vec<usize>,
    /// Type in which the model holds it, and a file of its weights.
    pub(crate) dtype: DType,
    pub(crate) for_save: ForSave,
}

impl std::fmt::Debug for Sharded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sharded(unit {}, parameter {}, {:?})", self.unit, self.parameter, self.shape)
    }
}

/// Shards `model`, whose units are linked already. Values come from `weights` if given, else from `seed`. `trainable`: of
/// every engine unit.
///
/// # Errors
/// Types that are not sharded; what the weights file lacks; what the engine failed with.
pub(crate) fn adopt<M: Module>(
    model: M,
    shared: &Arc<Shared>,
    buffers: &HashSet<String>,
    trainable: &[bool],
    seed: u64,
    weights: Option<&mut WeightsFile>,
) -> Result<(M, HashMap<String, Sharded>)> {
    let mut adopter = Adopter {
        shared,
        buffers,
        trainable,
        seed,
        weights,
        path: Vec::new(),
        sharded: HashMap::new(),
        first_paths: HashMap::new(),
        error: None,
    };
    let model = model.map(&mut adopter);
    match adopter.error {
        Some(error) => Err(error),
        None => Ok((model, adopter.sharded)),
    }
}

struct Adopter<'a> {
    shared: &'a Arc<Shared>,
    buffers: &'a HashSet<String>,
    trainable: &'a [bool],
    seed: u64,
    weights: Option<&'a mut WeightsFile>,
    path: Vec<String>,
    sharded: HashMap<String, Sharded>,
    /// Where a parameter was met first, by Burn's id: tied ones are met again.
    first_paths: HashMap<u64, String>,
    error: Option<Error>,
}

impl Adopter<'_> {
    fn refuse(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }

    /// Gives the parameter's values to the engine; what is left knows its shape and how to say that it is not here.
    fn shard<const D: usize>(&mut self, param: Param<Tensor<D>>, link: &UnitLink, path: &str) -> Param<Tensor<D>> {
        let Some(&(unit, parameter)) = link.parameters.get(&param.id.val()) else { return param };
        let (id, shape) = (param.id, param.lazy_shape());
        let trainable = self.trainable.get(unit).copied().unwrap_or_default();
        if let Err(error) = self.hand_over(param, unit, parameter, path) {
            self.refuse(error);
        }
        let path = path.to_owned();
        let absent = move |_: &Device, _: bool| -> Tensor<D> {
            // A lazy parameter cannot return an error.
            #[allow(clippy::panic, reason = "the user reads a parameter outside a call of its unit")]
            {
                panic!("{}", Error::Sharded { path })
            }
        };
        Param::uninitialized(id, absent, self.shared.device.clone(), trainable, shape)
    }

    /// Nothing else may hold `param`, unless it is tied: its values are then moved, not copied.
    fn hand_over<const D: usize>(
        &mut self,
        param: Param<Tensor<D>>,
        unit: UnitId,
        parameter: ParameterId,
        path: &str,
    ) -> Result<()> {
        let device = self.shared.device.clone().without_autodiff();
        let first = self.first_paths.get(&param.id.val()).cloned();
        let is_first = first.is_none();
        self.first_paths.entry(param.id.val()).or_insert_with(|| path.to_owned());
        // A parameter in two places has one value: that of the first.
        let first = first.unwrap_or_else(|| path.to_owned());
        let stored = match &mut self.weights {
            Some(weights) => Some(weights.read(&first, Kind::Float, param.lazy_shape().as_slice())?),
            None => None,
        };
        let param = if stored.is_none() { draw(param, self.seed, &first) } else { param };
        let (_, value, mapper) = param.consume();
        let (shape, dtype) = (value.shape().as_slice().to_vec(), value.dtype());
        if is_first {
            let value = match stored {
                Some(data) => mapper.on_load(Tensor::from_data(data, (&device, DType::F32))),
                None => value,
            };
            self.load(value, unit, parameter, path)?;
        }
        let for_save = for_save(mapper, dtype, &device);
        self.sharded.insert(path.to_owned(), Sharded { unit, parameter, shape, dtype, for_save });
        Ok(())
    }

    fn load<const D: usize>(&self, value: Tensor<D>, unit: UnitId, parameter: ParameterId, path: &str) -> Result<()> {
        let unsupported = |found: DType| Error::UnsupportedType { path: path.to_owned(), found: format!("{found:?}") };
        // What is done with it below is no part of a graph. Under balanced checkpointing autodiff would keep the value, to
        // do it again, until the first backward.
        let value = value.without_autodiff();
        let value = match value.dtype() {
            DType::F32 => value,
            DType::BF16 | DType::F16 => value.cast(DType::F32),
            other => return Err(unsupported(other)),
        };
        let load = |start: usize, data: TensorData| {
            let values = data.as_slice::<f32>().map_err(|_| unsupported(data.dtype()))?;
            Ok(with_engine!(&mut *self.shared.engine(), engine => engine.load(unit, parameter, start, values))?)
        };
        if self.shared.engine().values_are_on_the_host() {
            return load(0, value.into_data());
        }
        // Copies of them need host memory, which is nearly full by now.
        let count = value.shape().num_elements();
        let flat = value.reshape([count]);
        let piece = |start: usize| flat.clone().narrow(0, start, PIECE.min(count - start)).into_data();
        (0..count).step_by(PIECE).try_for_each(|start| load(start, piece(start)))
    }

    /// What the weights file, if there is one, has in this place of the model.
    fn stored(&mut self, kind: Kind, shape: &[usize]) -> Option<TensorData> {
        let found = self.weights.as_mut()?.read(&self.path.join("."), kind, shape);
        found.map_err(|error| self.refuse(error)).ok()
    }
}

fn for_save<const D: usize>(mapper: ParamMapper<Tensor<D>>, dtype: DType, device: &Device) -> ForSave {
    let device = device.clone();
    Box::new(move |data| mapper.on_save(Tensor::<D>::from_data(data, (&device, DType::F32))).cast(dtype).into_data())
}

impl ModuleMapper for Adopter<'_> {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if self.error.is_some() {
            return param;
        }
        let path = self.path.join(".");
        if self.buffers.contains(&path) {
            return match self.stored(Kind::Float, param.lazy_shape().as_slice()) {
                Some(data) => param.map(|old| Tensor::from_data(data, (&old.device(), old.dtype()))),
                None => param,
            };
        }
        match current().as_ref().and_then(|link| link.get()) {
            Some(link) => self.shard(param, link, &path),
            None => {
                self.refuse(Error::OutsideUnits { path });
                param
            }
        }
    }

    fn map_int<const D: usize>(&mut self, param: Param<Tensor<D, Int>>) -> Param<Tensor<D, Int>> {
        match self.stored(Kind::Integer, param.lazy_shape().as_slice()) {
            Some(data) => param.map(|old| Tensor::from_data(data, (&old.device(), old.dtype()))),
            None => param,
        }
    }

    fn map_bool<const D: usize>(&mut self, param: Param<Tensor<D, Bool>>) -> Param<Tensor<D, Bool>> {
        match self.stored(Kind::Bool, param.lazy_shape().as_slice()) {
            Some(data) => param.map(|old| Tensor::from_data(data, (&old.device(), old.dtype()))),
            None => param,
        }
    }
}
