//! Runs one container from its state folder, without the rest of orlop: for
//! tests, and for looking at a container's shim by itself.

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args_os().nth(1) {
        Some(state_dir) => orlop_host::sandbox::shim_main(state_dir.as_ref()),
        None => {
            eprintln!("usage: container-shim <state folder>");
            ExitCode::FAILURE
        }
    }
}
