//! Compiles the container runtimes' interface without a system protoc.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.open_files(["cri.proto"])?;
    tonic_prost_build::configure()
        .btree_map(".")
        .build_server(false)
        .build_transport(false)
        // Variables of containers may be secrets.
        .skip_debug([".runtime.v1.KeyValue"])
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}
