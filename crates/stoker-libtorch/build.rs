//! Compiles `cpp/` against the headers of the libtorch that torch-sys found.

fn main() {
    println!("cargo::rerun-if-changed=cpp");
    #[cfg(feature = "libtorch")]
    compile();
}

#[cfg(feature = "libtorch")]
fn compile() {
    use std::path::{Path, PathBuf};
    for name in ["DEP_TCH_LIBTORCH_LIB", "LIBTORCH_INCLUDE", "LIBTORCH_CXX11_ABI"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let variable = |name| std::env::var_os(name).map(PathBuf::from);
    // Headers lie beside the libraries, unless the user says where, by the variable that torch-sys reads too.
    let beside = || variable("DEP_TCH_LIBTORCH_LIB").and_then(|lib| lib.parent().map(Path::to_path_buf));
    let Some(root) = variable("LIBTORCH_INCLUDE").or_else(beside) else {
        println!("cargo::error=torch-sys does not say where libtorch is; set LIBTORCH to its directory");
        return;
    };
    let include = root.join("include");
    if !include.join("ATen/ops/convolution_backward.h").is_file() {
        println!(
            "cargo::error=no headers of libtorch in {}; set LIBTORCH_INCLUDE to the directory that has `include/ATen`",
            include.display()
        );
        return;
    }
    let abi = std::env::var("LIBTORCH_CXX11_ABI").unwrap_or_else(|_| "1".to_owned());
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .warnings(false)
        .include(&include)
        .define("_GLIBCXX_USE_CXX11_ABI", abi.as_str())
        .files(["cpp/adam.cpp", "cpp/convolution.cpp", "cpp/cuda.cpp"])
        .compile("stoker_libtorch");
}
