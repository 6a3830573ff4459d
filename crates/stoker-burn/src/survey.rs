//! A model is measured: which units it has, and which parameters of which shapes they hold. Nothing is initialised.

use crate::boundary::{Link, current};
use crate::{Error, Result};
use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::Tensor;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use stoker_core::ParameterSpec;
use stoker_engine::{ParameterId, UnitSpec};

/// A unit of the model.
#[derive(Debug)]
pub(crate) struct SurveyedUnit {
    pub(crate) link: Link,
    pub(crate) spec: UnitSpec,
    /// Its parameters by Burn's id.
    pub(crate) parameters: HashMap<u64, ParameterId>,
}

/// What a survey found.
#[derive(Debug)]
pub(crate) struct Survey {
    pub(crate) units: Vec<SurveyedUnit>,
    /// Paths of float tensors that are no parameters (running statistics).
    pub(crate) buffers: HashSet<String>,
}

/// Surveys `model`.
///
/// # Errors
/// Parameters outside units, tied parameters, a model that was built before.
pub(crate) fn survey<M: Module>(model: &M) -> Result<Survey> {
    let mut buffers = Buffers::default();
    model.clone().map(&mut Thaw).visit(&mut buffers);
    let mut surveyor =
        Surveyor { path: Vec::new(), buffers: buffers.paths, units: Vec::new(), seen: HashMap::new(), error: None };
    model.visit(&mut surveyor);
    if let Some(error) = surveyor.error {
        return Err(error);
    }
    let mut units = surveyor.units;
    name_units(&mut units);
    Ok(Survey { units, buffers: surveyor.buffers })
}

/// A unit is called by what its parameters' modules have in common.
fn name_units(units: &mut [SurveyedUnit]) {
    let mut taken: HashSet<String> = HashSet::new();
    for unit in units {
        let modules = unit.spec.parameters.iter().map(|parameter| {
            let mut segments: Vec<_> = parameter.path.split('.').collect();
            segments.pop();
            segments
        });
        let common = modules.reduce(|common, module| {
            common.into_iter().zip(module).take_while(|(a, b)| a == b).map(|(a, _)| a).collect()
        });
        let name = common.map(|segments| segments.join(".")).filter(|name| !name.is_empty());
        let name = name.unwrap_or_else(|| "model".to_owned());
        let mut unique = name.clone();
        let mut number = 2;
        while !taken.insert(unique.clone()) {
            unique = format!("{name}#{number}");
            number += 1;
        }
        unit.spec.name = unique;
    }
}

/// A running statistic is visited like a frozen parameter; the difference is that it cannot be made to require a
/// gradient. Parameters that are not initialised are left alone: clones share them, so the model would be thawed too.
struct Thaw;

impl ModuleMapper for Thaw {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if param.is_initialized() { param.set_require_grad(true) } else { param }
    }
}

#[derive(Default)]
struct Buffers {
    path: Vec<String>,
    paths: HashSet<String>,
}

impl ModuleVisitor for Buffers {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if param.is_initialized() && !param.is_require_grad() {
            self.paths.insert(self.path.join("."));
        }
    }
}

struct Surveyor {
    path: Vec<String>,
    buffers: HashSet<String>,
    units: Vec<SurveyedUnit>,
    seen: HashMap<u64, String>,
    error: Option<Error>,
}

impl Surveyor {
    fn refuse(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }
}

impl ModuleVisitor for Surveyor {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let path = self.path.join(".");
        if self.buffers.contains(&path) {
            return;
        }
        let Some(link) = current() else {
            return self.refuse(Error::OutsideUnits { path });
        };
        if link.get().is_some() {
            return self.refuse(Error::Misuse("the model was built by a rank before; build a new one"));
        }
        let id = param.id.val();
        if let Some(first) = self.seen.insert(id, path.clone()) {
            return self.refuse(Error::Tied { first, second: path });
        }
        let spec = ParameterSpec { path, shape: param.lazy_shape().as_slice().to_vec() };
        let known = self.units.iter().position(|unit| Arc::ptr_eq(&unit.link, &link));
        let at = known.unwrap_or_else(|| {
            let spec = UnitSpec { name: String::new(), parameters: Vec::new() };
            self.units.push(SurveyedUnit { link, spec, parameters: HashMap::new() });
            self.units.len() - 1
        });
        if let Some(unit) = self.units.get_mut(at) {
            unit.parameters.insert(id, unit.spec.parameters.len());
            unit.spec.parameters.push(spec);
        }
    }
}
