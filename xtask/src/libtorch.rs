//! `cargo xtask libtorch`: libtorch from the PyPI package `torch`, where torch-sys cannot download its own.
//!
//! There is no package of libtorch for the CPU alone, and the one that there is needs a gigabyte of CUDA libraries to be
//! loaded whole. Its CPU half needs two of them. So a directory of links leaves out the CUDA half, and has in its place a
//! stand-in with the two functions that burn-tch refers to. A program that is built with it computes on the CPU here, and
//! on CUDA where the real `libtorch_cuda.so` is found first.

use crate::{cargo, durable};
use anyhow::{Context, Result, bail};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Prepares libtorch and prints the environment to build with.
#[derive(Debug, clap::Args)]
pub(crate) struct LibTorchCommand {
    /// Version of PyTorch.
    #[arg(long, default_value = TORCH)]
    torch: String,
}

/// The version that is tested.
pub(crate) const TORCH: &str = "2.11.0";

/// What burn-tch refers to, so that the linker keeps the library.
const STAND_IN: &str = r#"
#include <stdexcept>
struct cublasContext;
namespace at::cuda {
cublasContext *getCurrentCUDABlasHandle() { throw std::runtime_error("libtorch_cuda.so is a stand-in"); }
int warp_size() { throw std::runtime_error("libtorch_cuda.so is a stand-in"); }
}
"#;

pub(crate) fn run(command: &LibTorchCommand) -> Result<()> {
    let directory = prepare(&command.torch)?;
    for (name, value) in environment(&directory) {
        println!("export {name}={value}");
    }
    Ok(())
}

/// The environment to build and run with.
pub(crate) fn environment(directory: &Path) -> [(&'static str, String); 3] {
    let libraries = directory.join("lib").display().to_string();
    [
        ("LIBTORCH", directory.display().to_string()),
        // tch names one version; torch 2.11 was tried with it.
        ("LIBTORCH_BYPASS_VERSION_CHECK", "1".to_owned()),
        ("LD_LIBRARY_PATH", libraries),
    ]
}

/// Where cargo builds with it: Burn is another one with this feature, and in one directory either would be built again and
/// again.
pub(crate) fn target_directory() -> Result<PathBuf> {
    let mut beside = cargo::target_directory()?.into_os_string();
    beside.push("-libtorch");
    Ok(beside.into())
}

/// The directory that has `include` and `lib`; made if it is not there.
pub(crate) fn prepare(torch: &str) -> Result<PathBuf> {
    let home = std::env::var_os("HOME").context("HOME is not set")?;
    let cache = Path::new(&home).join(".cache/stoker");
    let done = cache.join(format!("libtorch-{torch}"));
    if done.is_dir() {
        return Ok(done);
    }
    // Renamed when it is whole.
    let part = cache.join(format!("libtorch-{torch}.part-{}", std::process::id()));
    fs::create_dir_all(&part).with_context(|| format!("{} cannot be made", part.display()))?;
    let made = fill(&part, torch).and_then(|()| {
        durable::sync_tree(&part).with_context(|| format!("{} cannot be written", part.display()))?;
        match fs::rename(&part, &done) {
            // Another one was faster.
            Err(_) if done.is_dir() => Ok(()),
            renamed => Ok(renamed.and_then(|()| durable::sync_rename(&done))?),
        }
    });
    // After a rename it is not there.
    let _ = fs::remove_dir_all(&part);
    made?;
    Ok(done)
}

fn fill(part: &Path, torch: &str) -> Result<()> {
    let python = part.join("python");
    install(&python, &["--no-deps", &format!("torch=={torch}")])?;
    let metadata = python.join(format!("torch-{torch}.dist-info/METADATA"));
    let metadata = fs::read_to_string(&metadata).with_context(|| format!("{}", metadata.display()))?;
    let needed = cuda_packages(&metadata);
    if needed.is_empty() {
        bail!("torch {torch} does not say which CUDA packages it needs: another version of it may");
    }
    install(&python, &needed.iter().map(String::as_str).collect::<Vec<_>>())?;
    symlink("python/torch/include", part.join("include"))?;
    let lib = part.join("lib");
    fs::create_dir(&lib)?;
    let mut found = Vec::new();
    for directory in [python.join("torch/lib"), python.join("nvidia")] {
        libraries(&directory, &mut found)?;
    }
    for library in found {
        let (Some(name), Ok(inside)) = (library.file_name(), library.strip_prefix(part)) else { continue };
        if is_wanted(&name.to_string_lossy()) {
            symlink(Path::new("..").join(inside), lib.join(name))?;
        }
    }
    let source = part.join("stand_in.cpp");
    fs::write(&source, STAND_IN)?;
    let mut compile = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
    compile.args(["-std=c++17", "-shared", "-fPIC", "-Wl,-soname,libtorch_cuda.so", "-o"]);
    compile.arg(lib.join("libtorch_cuda.so")).arg(&source);
    cargo::must(compile)
}

fn install(into: &Path, packages: &[&str]) -> Result<()> {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"]).arg(into).args(packages);
    cargo::must(pip).context("pip, which brings libtorch")
}

/// The packages of the CUDA runtime and profiler that this version of torch asks for: its CPU half is linked to both.
fn cuda_packages(metadata: &str) -> Vec<String> {
    let requirements = metadata.lines().filter_map(|line| line.strip_prefix("Requires-Dist: "));
    let requirements = requirements.filter_map(|line| line.split(';').next()).map(str::trim);
    requirements
        .filter_map(|requirement| match requirement.split_once("]==") {
            Some((extras, version)) if extras.starts_with("cuda-toolkit[") => {
                Some(format!("cuda-toolkit[cudart,cupti]=={version}"))
            }
            _ => ["nvidia-cuda-runtime", "nvidia-cuda-cupti"]
                .iter()
                .any(|package| requirement.starts_with(package))
                .then(|| requirement.to_owned()),
        })
        .collect()
}

fn libraries(directory: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory).with_context(|| format!("{}", directory.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            libraries(&path, found)?;
        } else if path.to_string_lossy().contains(".so") {
            found.push(path);
        }
    }
    Ok(())
}

/// What the CPU half of libtorch consists of and is linked to.
fn is_wanted(name: &str) -> bool {
    let stem = name.split_once(".so").map_or(name, |(stem, _)| stem);
    ["libc10", "libshm", "libtorch", "libtorch_cpu", "libtorch_global_deps", "libgomp", "libcudart", "libcupti"]
        .contains(&stem)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_torch_asks_for_is_read() {
        let newer = "Name: torch\nRequires-Dist: sympy>=1.13.3\n\
                     Requires-Dist: cuda-toolkit[cublas,cudart,cupti]==13.0.2; platform_system == \"Linux\"\n";
        assert_eq!(cuda_packages(newer), ["cuda-toolkit[cudart,cupti]==13.0.2"]);
        let older = "Requires-Dist: nvidia-cuda-runtime-cu12==12.8.90; platform_system == \"Linux\"\n\
                     Requires-Dist: nvidia-cublas-cu12==12.8.4.1\nRequires-Dist: nvidia-cuda-cupti-cu12==12.8.90\n";
        assert_eq!(cuda_packages(older), ["nvidia-cuda-runtime-cu12==12.8.90", "nvidia-cuda-cupti-cu12==12.8.90"]);
    }

    #[test]
    fn the_cuda_half_is_left_out() {
        let names = ["libtorch_cpu.so", "libgomp.so.1", "libcudart.so.13", "libtorch_cuda.so", "libtorch_python.so"];
        assert_eq!(names.map(is_wanted), [true, true, true, false, false]);
    }
}
