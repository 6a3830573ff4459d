//! Weights in safetensors files, keyed by path: what `burn-store` reads and writes for the plain model.
//!
//! Reading goes through `burn-store`, lazily. Writing cannot: its collector takes a module whose values are all there.
//! So the file is written tensor by tensor with the `safetensors` crate below it, each one gathered when the writer
//! asks for it, beside the target, and renamed when it is complete.

use crate::adopt::Sharded;
use crate::raise::raise;
use crate::shared::{Shared, with_engine};
use crate::{Error, Result};
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Bool, DType, Int, Tensor, TensorData};
use burn_store::{ModuleStore, SafetensorsStore};
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

/// What a tensor's elements are. A float of another width is rounded; an integer in its place is another file's.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Float,
    Integer,
    Bool,
}

impl Kind {
    fn is_of(self, dtype: DType) -> bool {
        match self {
            Self::Float => dtype.is_float(),
            Self::Integer => dtype.is_int() || dtype.is_uint(),
            Self::Bool => matches!(dtype, DType::Bool(_)),
        }
    }
}

/// A weights file that is read from.
pub(crate) struct WeightsFile {
    name: String,
    store: SafetensorsStore,
}

impl WeightsFile {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let mut store = SafetensorsStore::from_file(path);
        store.keys().map_err(|error| Error::WeightsFile { file: name.clone(), problem: error.to_string() })?;
        Ok(Self { name, store })
    }

    /// One tensor, of this kind and shape.
    pub(crate) fn read(&mut self, path: &str, kind: Kind, shape: &[usize]) -> Result<TensorData> {
        let problem = |problem: String| Error::Weights { file: self.name.clone(), path: path.to_owned(), problem };
        let found = self.store.get_tensor(path).map_err(|error| problem(error.to_string()))?;
        let tensor = found.ok_or_else(|| problem("is missing".to_owned()))?;
        let data = burn_store::bridge::to_data(tensor).map_err(|error| problem(error.to_string()))?;
        if !kind.is_of(data.dtype()) {
            let wanted = match kind {
                Kind::Float => "a float type",
                Kind::Integer => "an integer type",
                Kind::Bool => "bool",
            };
            return Err(problem(format!("is in {:?}, the model wants {wanted}", data.dtype())));
        }
        if data.shape().as_slice() != shape {
            return Err(problem(format!("has shape {:?}, the model wants {shape:?}", data.shape().as_slice())));
        }
        Ok(data)
    }
}

/// A tensor of the file.
enum Entry<'a> {
    /// Gathered when it is written.
    Sharded(&'a Sharded),
    /// Held by the model: buffers, int and bool parameters.
    Held(TensorData),
}

/// Writes all of `model` to `path`; every rank must call it, the first one writes.
///
/// # Errors
/// What a gather or the file system failed with; an earlier file at `path` is then still there.
pub(crate) fn save<M: Module>(
    model: &M,
    path: &Path,
    shared: &Shared,
    sharded: &HashMap<String, Sharded>,
    writes: bool,
) -> Result<()> {
    let mut collect = Collect { path: Vec::new(), sharded, entries: Vec::new() };
    model.visit(&mut collect);
    let mut entries = collect.entries.into_iter().map(Entry::with_file_type).collect::<Result<Vec<_>>>()?;
    // The order in which the writer asks: by type, the largest first, then by name. Gathers are collective, so all ranks
    // must follow it.
    entries.sort_by(|(x, a, _), (y, b, _)| y.cmp(x).then_with(|| a.cmp(b)));
    if !writes {
        for (_, _, entry) in &entries {
            if let Entry::Sharded(sharded) = entry {
                gathered(shared, sharded)?;
            }
        }
        return Ok(());
    }
    let file = path.display().to_string();
    let failed = |problem: String| Error::WeightsFile { file: file.clone(), problem };
    // The file is put in place by renaming it, which would replace a device or fail on a directory.
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(failed("something that is no regular file is there; choose another path".to_owned()));
    }
    let (scratch, reserved) = burn_store::burn_pack::AtomicFile::create(path).map_err(|e| failed(e.to_string()))?;
    // The writer opens the path itself.
    drop(reserved);
    let views = entries.iter().map(|(dtype, name, entry)| (name.clone(), View { shared, entry, dtype: *dtype }));
    // What readers of PyTorch's files ask for. One entry only: `safetensors` writes several in an order that changes from
    // run to run, and the same weights would not be the same file.
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    safetensors::serialize_to_file(views, Some(metadata), scratch.path()).map_err(|e| failed(e.to_string()))?;
    scratch.commit().map_err(|e| failed(e.to_string()))
}

fn gathered(shared: &Shared, sharded: &Sharded) -> Result<TensorData> {
    let values = with_engine!(&mut *shared.engine(), engine => engine.read_parameter(sharded.unit, sharded.parameter))?;
    let data = TensorData::new(values.as_slice::<f32>().to_vec(), sharded.shape.clone());
    Ok((sharded.for_save)(data))
}

impl Entry<'_> {
    fn dtype(&self) -> DType {
        match self {
            Entry::Sharded(sharded) => sharded.dtype,
            Entry::Held(data) => data.dtype(),
        }
    }

    fn with_file_type((path, entry): (String, Self)) -> Result<(safetensors::Dtype, String, Self)> {
        Ok((entry.file_type(&path)?, path, entry))
    }

    fn file_type(&self, path: &str) -> Result<safetensors::Dtype> {
        Ok(match self.dtype() {
            DType::F64 => safetensors::Dtype::F64,
            DType::F32 => safetensors::Dtype::F32,
            DType::F16 => safetensors::Dtype::F16,
            DType::BF16 => safetensors::Dtype::BF16,
            DType::I64 => safetensors::Dtype::I64,
            DType::I32 => safetensors::Dtype::I32,
            DType::U8 => safetensors::Dtype::U8,
            DType::Bool(_) => safetensors::Dtype::BOOL,
            other => {
                return Err(Error::UnsupportedType {
                    path: path.to_owned(),
                    found: format!("{other:?}, in a weights file"),
                });
            }
        })
    }

    fn shape(&self) -> &[usize] {
        match self {
            Entry::Sharded(sharded) => &sharded.shape,
            Entry::Held(data) => data.shape().as_slice(),
        }
    }
}

struct View<'a> {
    shared: &'a Shared,
    entry: &'a Entry<'a>,
    dtype: safetensors::Dtype,
}

impl safetensors::View for View<'_> {
    fn dtype(&self) -> safetensors::Dtype {
        self.dtype
    }

    fn shape(&self) -> &[usize] {
        self.entry.shape()
    }

    fn data(&self) -> Cow<'_, [u8]> {
        match self.entry {
            // The writer has no way for an error but this; `Rank::save` catches it.
            Entry::Sharded(sharded) => match gathered(self.shared, sharded) {
                Ok(data) => Cow::Owned(data.as_bytes().to_vec()),
                Err(error) => raise(error),
            },
            Entry::Held(data) => Cow::Borrowed(data.as_bytes()),
        }
    }

    fn data_len(&self) -> usize {
        self.entry.shape().iter().product::<usize>() * self.entry.dtype().size()
    }
}

struct Collect<'a> {
    path: Vec<String>,
    sharded: &'a HashMap<String, Sharded>,
    entries: Vec<(String, Entry<'a>)>,
}

impl ModuleVisitor for Collect<'_> {
    fn enter_module(&mut self, name: &str, _container: &str) {
        self.path.push(name.to_owned());
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.pop();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let path = self.path.join(".");
        let entry = match self.sharded.get(&path) {
            Some(sharded) => Entry::Sharded(sharded),
            None => Entry::Held(param.val().into_data()),
        };
        self.entries.push((path, entry));
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        self.entries.push((self.path.join("."), Entry::Held(param.val().into_data())));
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        self.entries.push((self.path.join("."), Entry::Held(param.val().into_data())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::tensor::TensorView;

    #[test]
    fn what_does_not_fit_is_refused_with_what_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("weights.safetensors");
        let view = |dtype, bytes| TensorView::new(dtype, vec![2], bytes).unwrap();
        let tensors = [
            ("float", view(safetensors::Dtype::F32, &[0, 0, 128, 63, 0, 0, 0, 64])),
            ("narrow", view(safetensors::Dtype::BF16, &[128, 63, 0, 64])),
            ("integer", view(safetensors::Dtype::I32, &[1, 0, 0, 0, 2, 0, 0, 0])),
            ("bool", view(safetensors::Dtype::BOOL, &[1, 0])),
        ];
        safetensors::serialize_to_file(tensors, None, &path).unwrap();
        let mut file = WeightsFile::open(&path).unwrap();
        for name in ["float", "narrow"] {
            let values = file.read(name, Kind::Float, &[2]).unwrap().convert::<f32>();
            assert_eq!(values.as_slice::<f32>().unwrap(), [1.0, 2.0]);
        }
        assert_eq!(file.read("integer", Kind::Integer, &[2]).unwrap().as_slice::<i32>().unwrap(), [1, 2]);
        assert_eq!(file.read("bool", Kind::Bool, &[2]).unwrap().as_slice::<bool>().unwrap(), [true, false]);
        let mut refused = |name, kind, shape: &[usize]| file.read(name, kind, shape).unwrap_err().to_string();
        for (error, wanted) in [
            (refused("integer", Kind::Float, &[2]), "is in I32, the model wants a float type"),
            (refused("float", Kind::Integer, &[2]), "is in F32, the model wants an integer type"),
            (refused("integer", Kind::Bool, &[2]), "is in I32, the model wants bool"),
            (refused("float", Kind::Float, &[2, 1]), "has shape [2], the model wants [2, 1]"),
            (refused("other", Kind::Float, &[2]), "is missing"),
        ] {
            assert!(error.contains(wanted), "`{wanted}` is missing: {error}");
        }
    }
}
