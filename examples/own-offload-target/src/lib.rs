//! An offload target of your own: every region is a file that has no name.
//!
//! Nothing in stoker knows of this crate. A program links it (`use own_offload_target as _;`) and its configuration says
//! `offload.name = "file"`; the test below holds it to the same laws as stoker's own targets.
#![forbid(unsafe_code)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use stoker::core::registry::{Build, Plugin};
use stoker::core::{
    Error, HostBuffer, OffloadTarget, Place, Region, RegionSpec, Result, TargetTraits, Ticket, inventory,
};

inventory::submit! {
    Plugin {
        name: "file",
        description: "shards in temporary files",
        options: &[],
        build: Build::OffloadTarget(|_options, _context| Ok(Arc::new(Files::new(std::env::temp_dir())))),
    }
}

/// Keeps shards in files of one directory.
#[derive(Debug)]
pub struct Files {
    directory: PathBuf,
}

impl Files {
    /// Files in `directory`; they vanish with their regions.
    pub fn new(directory: PathBuf) -> Self {
        Self { directory }
    }
}

impl OffloadTarget for Files {
    fn traits(&self) -> TargetTraits {
        TargetTraits { place: Place::Disk, host_addressable: false, capacity_left: None }
    }

    fn allocate(&self, spec: RegionSpec) -> Result<Box<dyn Region>> {
        let file = tempfile::tempfile_in(&self.directory).map_err(failed("creating a file"))?;
        // A file that is only lengthened reads as zeros.
        file.set_len(spec.bytes()).map_err(failed("making room"))?;
        Ok(Box::new(FileRegion { spec, file }))
    }
}

#[derive(Debug)]
struct FileRegion {
    spec: RegionSpec,
    file: File,
}

fn failed(doing: &'static str) -> impl Fn(std::io::Error) -> Error {
    move |source| Error::Plugin { plugin: "file".to_owned(), doing: doing.to_owned(), source: source.into() }
}

impl Region for FileRegion {
    fn spec(&self) -> &RegionSpec {
        &self.spec
    }

    fn read(&mut self, at: usize, mut into: HostBuffer) -> Result<Ticket<HostBuffer>> {
        self.spec.check(at, &into, "read")?;
        let offset = (at * self.spec.dtype.size()) as u64;
        self.file.read_exact_at(into.as_mut_bytes(), offset).map_err(failed("reading"))?;
        Ok(Ticket::ready(into))
    }

    fn write(&mut self, at: usize, from: HostBuffer) -> Result<Ticket<HostBuffer>> {
        self.spec.check(at, &from, "write")?;
        let offset = (at * self.spec.dtype.size()) as u64;
        self.file.write_all_at(from.as_bytes(), offset).map_err(failed("writing"))?;
        Ok(Ticket::ready(from))
    }

    fn host(&mut self) -> Option<&mut HostBuffer> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_keeps_the_laws_of_offload_targets() {
        let directory = tempfile::tempdir().unwrap();
        stoker_testkit::offload::conforms(|| Arc::new(Files::new(directory.path().to_path_buf())));
    }
}
