//! Tensors of a safetensors file, each of a type and a shape that is wanted.

use crate::error::Problem;
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeSet;

/// The tensors of a file, and which of them were asked for.
pub(crate) struct Tensors<'a> {
    file: SafeTensors<'a>,
    /// The network, for messages.
    model: String,
    asked: BTreeSet<String>,
}

impl<'a> Tensors<'a> {
    /// Those of a file with these bytes.
    pub(crate) fn new(bytes: &'a [u8], model: &str) -> Result<Self, Problem> {
        let file = SafeTensors::deserialize(bytes).map_err(Problem::NotSafetensors)?;
        Ok(Self { file, model: model.to_owned(), asked: BTreeSet::new() })
    }

    /// A tensor of numbers.
    pub(crate) fn f32s(&mut self, name: &str, shape: &[usize]) -> Result<Vec<f32>, Problem> {
        let bytes = self.bytes(name, Dtype::F32, shape)?;
        Ok(bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    /// A tensor of whole numbers.
    pub(crate) fn i64s(&mut self, name: &str, shape: &[usize]) -> Result<Vec<i64>, Problem> {
        let bytes = self.bytes(name, Dtype::I64, shape)?;
        Ok(bytes.as_chunks().0.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect())
    }

    /// A tensor of bytes.
    pub(crate) fn u8s(&mut self, name: &str, shape: &[usize]) -> Result<Vec<u8>, Problem> {
        Ok(self.bytes(name, Dtype::U8, shape)?.to_vec())
    }

    fn bytes(&mut self, name: &str, wanted: Dtype, shape: &[usize]) -> Result<&'a [u8], Problem> {
        self.has_its_place(name);
        let missing = |_| Problem::Missing { tensor: name.to_owned(), model: self.model.clone() };
        let tensor = self.file.tensor(name).map_err(missing)?;
        if tensor.dtype() != wanted {
            return Err(Problem::Type { tensor: name.to_owned(), found: tensor.dtype(), wanted });
        }
        if tensor.shape() != shape {
            let (found, wanted) = (tensor.shape().to_vec(), shape.to_vec());
            return Err(Problem::Shape { tensor: name.to_owned(), found, wanted });
        }
        Ok(tensor.data())
    }

    /// A tensor that may be there and is of no use.
    pub(crate) fn has_its_place(&mut self, name: &str) {
        self.asked.insert(name.to_owned());
    }

    /// Refuses a file with a tensor that nobody asked for: it would be of another run than the one that was made of it.
    pub(crate) fn nothing_is_left(self) -> Result<(), Problem> {
        let mut names = self.file.names();
        names.sort_unstable();
        match names.into_iter().find(|name| !self.asked.contains(*name)) {
            Some(stray) => Err(Problem::Stray { tensor: stray.to_owned(), model: self.model }),
            None => Ok(()),
        }
    }
}
