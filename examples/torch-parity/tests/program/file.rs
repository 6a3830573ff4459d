//! Trajectories that can be changed and written.

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// A tensor as a file has it.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

/// A file in memory.
#[derive(Debug, Clone)]
pub(crate) struct File {
    /// `spec`, if it has one.
    pub(crate) spec: Option<Value>,
    pub(crate) tensors: BTreeMap<String, Stored>,
}

impl Stored {
    pub(crate) fn f32s(shape: &[usize], values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self { dtype: Dtype::F32, shape: shape.to_vec(), bytes }
    }

    pub(crate) fn zeros(shape: &[usize]) -> Self {
        Self::f32s(shape, &vec![0.0; shape.iter().product()])
    }

    pub(crate) fn i64s(shape: &[usize], values: &[i64]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self { dtype: Dtype::I64, shape: shape.to_vec(), bytes }
    }

    pub(crate) fn values(&self) -> Vec<f32> {
        assert_eq!(self.dtype, Dtype::F32);
        self.bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }
}

impl File {
    pub(crate) fn read(path: &Path) -> Self {
        let bytes = std::fs::read(path).unwrap();
        let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
        let spec = header.metadata().as_ref().unwrap().get("spec").unwrap();
        let stored = |view: TensorView<'_>| Stored {
            dtype: view.dtype(),
            shape: view.shape().to_vec(),
            bytes: view.data().to_vec(),
        };
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        Self {
            spec: Some(serde_json::from_str(spec).unwrap()),
            tensors: tensors.iter().map(|(name, view)| (name.to_owned(), stored(view))).collect(),
        }
    }

    /// Changes the values of a tensor.
    pub(crate) fn change(&mut self, name: &str, change: impl FnOnce(&mut [f32])) {
        let stored = self.tensors.get_mut(name).unwrap();
        let mut values = stored.values();
        change(&mut values);
        *stored = Stored::f32s(&stored.shape, &values);
    }

    pub(crate) fn write(&self, directory: &Path) -> PathBuf {
        let path = directory.join("run.safetensors");
        let views = self.tensors.iter().map(|(name, stored)| {
            (name.as_str(), TensorView::new(stored.dtype, stored.shape.clone(), &stored.bytes).unwrap())
        });
        let metadata = self.spec.as_ref().map(|spec| HashMap::from([("spec".to_owned(), spec.to_string())]));
        safetensors::serialize_to_file(views, metadata, &path).unwrap();
        path
    }
}
