//! A model is measured: which units it has, and which parameters of which shapes they hold. Nothing is initialised.
//!
//! [Note: Engine units] What a user wraps in a [`Unit`](crate::Unit) is gathered together. For the engine it is one unit
//! for the parameters that are trained, and others for those that differ: frozen ones have neither gradients nor optimizer
//! state; a flat vector has one element type; and parameters that several units share (tied weights) must be reduced once,
//! when the last of these units' calls is done. So parameters are grouped by owners, by whether they are trained, and by
//! type; nearly always that is one group a unit.

use crate::boundary::{Link, current};
use crate::buffers::buffers;
use crate::parameters::{Resolver, Said};
use crate::{Error, ParameterRules, Result};
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Tensor};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use stoker_core::ParameterSpec;
use stoker_engine::{ParameterId, UnitId, UnitSpec};

/// What a survey found.
#[derive(Debug)]
pub(crate) struct Survey {
    /// The engine's units.
    pub(crate) specs: Vec<UnitSpec>,
    /// The model's units.
    pub(crate) units: Vec<SurveyedUnit>,
    /// Paths of float tensors that are no parameters (running statistics).
    pub(crate) buffers: HashSet<String>,
}

/// A unit of the model.
#[derive(Debug)]
pub(crate) struct SurveyedUnit {
    pub(crate) link: Link,
    /// The engine units that hold its parameters, ascending.
    pub(crate) groups: Vec<UnitId>,
    /// Its parameters by Burn's id.
    pub(crate) parameters: HashMap<u64, (UnitId, ParameterId)>,
}

/// Surveys `model`, whose f32 parameters will be computed with as `compute`.
///
/// # Errors
/// Parameters outside units, tied parameters of different shapes, types that cannot be sharded, rules that fit nothing, a
/// model that was built before.
pub(crate) fn survey<M: Module>(model: &M, rules: &ParameterRules, compute: DType) -> Result<Survey> {
    let buffers = buffers(model);
    if compute != DType::F32
        && let Some((path, _)) = buffers.iter().filter(|(_, container)| is_burns_batch_norm(container)).min()
    {
        return Err(Error::NarrowBatchNorm { path: path.clone(), compute: format!("{compute:?}") });
    }
    let mut surveyor = Surveyor {
        path: Vec::new(),
        buffers: buffers.into_keys().collect(),
        resolver: Resolver::new(rules)?,
        links: Vec::new(),
        parameters: Vec::new(),
        by_id: HashMap::new(),
        error: None,
    };
    model.visit(&mut surveyor);
    if let Some(error) = surveyor.error {
        return Err(error);
    }
    surveyor.resolver.all_used(surveyor.parameters.iter().map(|parameter| parameter.spec.path.as_str()))?;
    Ok(group(surveyor, compute))
}

/// Burn's batch norm mixes its running statistics, which are f32, with statistics in the type of its input.
fn is_burns_batch_norm(container: &str) -> bool {
    container == "Struct:BatchNorm"
}

/// A parameter of the model.
struct Surveyed {
    id: u64,
    spec: ParameterSpec,
    said: Said,
    kind: Kind,
}

/// What the parameters of an engine unit have in common.
#[derive(Clone, PartialEq)]
struct Kind {
    /// Which of the model's units hold it, ascending.
    owners: Vec<usize>,
    trainable: bool,
    own_dtype: DType,
}

/// Sorts parameters into engine units, in the order of the model.
fn group(surveyor: Surveyor<'_>, compute: DType) -> Survey {
    let mut kinds: Vec<Kind> = Vec::new();
    let mut specs: Vec<UnitSpec> = Vec::new();
    let mut units: Vec<_> = surveyor
        .links
        .into_iter()
        .map(|link| SurveyedUnit { link, groups: Vec::new(), parameters: HashMap::new() })
        .collect();
    for Surveyed { id, spec, said, kind } in surveyor.parameters {
        let group = kinds.iter().position(|known| *known == kind).unwrap_or_else(|| {
            let mut unit = UnitSpec::new("", Vec::new());
            unit.own_dtype = element_type(kind.own_dtype);
            unit.dtype = element_type(if kind.own_dtype == DType::F32 { compute } else { kind.own_dtype });
            unit.trainable = kind.trainable;
            unit.calls = kind.owners.clone();
            specs.push(unit);
            kinds.push(kind.clone());
            kinds.len() - 1
        });
        let Some(unit) = specs.get_mut(group) else { continue };
        for &owner in &kind.owners {
            if let Some(owner) = units.get_mut(owner) {
                owner.parameters.insert(id, (group, unit.parameters.len()));
                if !owner.groups.contains(&group) {
                    owner.groups.push(group);
                }
            }
        }
        unit.parameters.push(spec);
        unit.rules.push(said.rule);
    }
    name_units(&mut specs);
    Survey { specs, units, buffers: surveyor.buffers }
}

fn element_type(dtype: DType) -> stoker_core::DType {
    match dtype {
        DType::BF16 => stoker_core::DType::BF16,
        DType::F16 => stoker_core::DType::F16,
        // The surveyor lets no other pass.
        _ => stoker_core::DType::F32,
    }
}

/// A unit is called by what its parameters' modules have in common.
fn name_units(units: &mut [UnitSpec]) {
    let mut taken: HashSet<String> = HashSet::new();
    for unit in units {
        let modules = unit.parameters.iter().map(|parameter| {
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
        unit.name = unique;
    }
}

struct Surveyor<'a> {
    path: Vec<String>,
    buffers: HashSet<String>,
    resolver: Resolver<'a>,
    links: Vec<Link>,
    parameters: Vec<Surveyed>,
    /// Where the parameter of an id is in `parameters`.
    by_id: HashMap<u64, usize>,
    error: Option<Error>,
}

impl Surveyor<'_> {
    fn survey<const D: usize>(&mut self, param: &Param<Tensor<D>>, path: String) -> Result<()> {
        let Some(link) = current() else { return Err(Error::OutsideUnits { path }) };
        if link.get().is_some() {
            return Err(Error::Misuse("the model was built by a rank before; build a new one"));
        }
        let known = self.links.iter().position(|other| Arc::ptr_eq(other, &link));
        let owner = known.unwrap_or_else(|| {
            self.links.push(link);
            self.links.len() - 1
        });
        let id = param.id.val();
        let spec = ParameterSpec { path, shape: param.lazy_shape().as_slice().to_vec() };
        if let Some(tied) = self.by_id.get(&id).and_then(|&at| self.parameters.get_mut(at)) {
            if tied.spec.shape != spec.shape {
                return Err(Error::Tied { first: tied.spec.path.clone(), second: spec.path });
            }
            if !tied.kind.owners.contains(&owner) {
                tied.kind.owners.push(owner);
            }
            if self.resolver.said_of(&spec)? != tied.said {
                return Err(Error::TiedRules { first: tied.spec.path.clone(), second: spec.path });
            }
            return Ok(());
        }
        let own_dtype = if param.is_initialized() { param.base().dtype() } else { DType::F32 };
        if !matches!(own_dtype, DType::F32 | DType::BF16 | DType::F16) {
            return Err(Error::UnsupportedType { path: spec.path, found: format!("{own_dtype:?}") });
        }
        let said = self.resolver.said_of(&spec)?;
        let trainable = !said.frozen && is_trainable(param);
        let kind = Kind { owners: vec![owner], trainable, own_dtype };
        self.by_id.insert(id, self.parameters.len());
        self.parameters.push(Surveyed { id, spec, said, kind });
        Ok(())
    }
}

/// Whether the parameter is to have a gradient, without making it.
fn is_trainable<const D: usize>(param: &Param<Tensor<D>>) -> bool {
    if param.is_initialized() {
        return param.is_require_grad();
    }
    // Burn shows this of a parameter that does not exist yet only by passing it on to what is loaded in its place.
    let stand_in = Tensor::zeros([1; D], &param.lazy_device());
    param.clone().transform_for_load(stand_in, param.id).is_require_grad()
}

impl ModuleVisitor for Surveyor<'_> {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let path = self.path.join(".");
        if self.error.is_some() || self.buffers.contains(&path) {
            return;
        }
        self.error = self.survey(param, path).err();
    }
}
