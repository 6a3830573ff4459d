//! Running statistics, which belong to the model and not to the engine: they are never sharded and never cast.

use crate::Result;
use crate::boundary::Link;
use crate::shared::{Shared, UnitLink, with_engine};
use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, Tensor, TensorData};
use std::collections::HashSet;

/// Makes the last update of a unit's running statistics visible to walks over the model.
///
/// Burn keeps it aside until the next one, or until a module is made `valid`. A sharded unit never is: its parameters are
/// not here. So a copy is, that has other parameters and the same statistics.
pub(crate) fn settle<M: Module>(link: &Link, module: &M) {
    if let Some(link) = link.get() {
        let _ = module.clone().map(&mut WithoutParameters { link }).valid();
    }
}

struct WithoutParameters<'a> {
    link: &'a UnitLink,
}

impl ModuleMapper for WithoutParameters<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if self.link.parameter(param.id.val()).is_none() {
            return param;
        }
        Param::initialized(param.id, Tensor::zeros([1; D], &self.link.call.shared.device))
    }
}

/// Gives every rank the first rank's running statistics. Every rank must call it.
///
/// # Errors
/// What the broadcast failed with.
pub(crate) fn broadcast<M: Module>(model: &M, shared: &Shared, buffers: &HashSet<String>) -> Result<()> {
    let mut broadcast = Broadcast { shared, buffers, path: Vec::new(), result: Ok(()) };
    // Statistics are shared by a model's clones: what is set in one is set in all.
    let _ = model.clone().map(&mut broadcast);
    broadcast.result
}

struct Broadcast<'a> {
    shared: &'a Shared,
    buffers: &'a HashSet<String>,
    path: Vec<String>,
    result: Result<()>,
}

impl Broadcast<'_> {
    fn exchange<const D: usize>(&self, path: &str, value: &Tensor<D>) -> Result<Tensor<D>> {
        let (device, dtype, shape) = (value.device(), value.dtype(), value.shape());
        // Exact for every type that statistics have.
        let own: Vec<f64> = value.clone().cast(DType::F64).into_data().iter::<f64>().collect();
        let call = format!("running statistics {path}");
        let values = with_engine!(&*self.shared.engine(), engine => engine.broadcast(&call, &own))?;
        Ok(Tensor::from_data(TensorData::new(values, shape), (&device, dtype)))
    }
}

impl ModuleMapper for Broadcast<'_> {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let path = self.path.join(".");
        if self.result.is_err() || !self.buffers.contains(&path) {
            return param;
        }
        match self.exchange(&path, &param.val()) {
            Ok(value) => Param::initialized(param.id, value),
            Err(error) => {
                self.result = Err(error);
                param
            }
        }
    }
}
