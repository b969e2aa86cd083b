//! A node for real: the embedded API server, the local driver with its loop devices and
//! mounts, and containers as host processes. Needs root.
//!
//! This program is also the containers' shim, which has to be a process with one thread;
//! that is why it has a `main` of its own.

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;

mod cases;
mod containerd;
mod crashes;
mod cri;
mod csi;
mod disks;
mod files;
mod flex;
mod groups;
mod history;
mod hostile;
mod image;
mod inline;
mod mock;
mod world;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [shim, state_dir] = args.as_slice()
        && shim == "container-shim"
    {
        return orlop_host::sandbox::shim_main(state_dir.as_ref());
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: mounts, loop devices and containers need root");
        return ExitCode::SUCCESS;
    }
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .init();
    let wanted: Vec<&String> = args.iter().filter(|arg| !arg.starts_with('-')).collect();
    let mut failures = 0;
    for (name, case) in cases::ALL {
        if !wanted.is_empty() && !wanted.iter().any(|part| name.contains(part.as_str())) {
            continue;
        }
        let began = std::time::Instant::now();
        let passed = std::panic::catch_unwind(AssertUnwindSafe(|| {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                tokio::time::timeout(std::time::Duration::from_secs(300), case())
                    .await
                    .expect("in time");
            });
            runtime.shutdown_timeout(std::time::Duration::from_secs(5));
        }))
        .is_ok();
        println!(
            "test {name} ... {} ({:?})",
            if passed { "ok" } else { "FAILED" },
            began.elapsed()
        );
        failures += usize::from(!passed);
    }
    if failures == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
