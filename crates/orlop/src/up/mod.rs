//! `orlop up`: every role in one process over the embedded API server.

mod bootstrap;
mod layout;
pub(crate) mod preflight;
mod print;
mod system;

use crate::voice::say;
use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};

pub(crate) use self::{
    layout::Layout,
    system::{Options, System},
};
use crate::cli;

pub(crate) async fn run(args: cli::Up) -> Result<()> {
    let cli::Up {
        data_dir,
        listen,
        nodes,
        driver,
        quiet,
    } = args;
    let stop = terminated();
    tokio::pin!(stop);
    let starting = System::start(
        Options {
            data_dir,
            listen,
            nodes,
            driver,
        },
        print::part,
    );
    let system = tokio::select! {
        system = starting => system?,
        // Nothing is half done that the next start would not finish.
        () = &mut stop => return Ok(()),
    };
    if !quiet {
        tokio::spawn(print::happenings(system.chronicle.listen()));
    }
    print::part("ready", "press Ctrl-C to stop");
    stop.await;
    say("");
    print::part(
        "stopping",
        "pods end, volumes are unmounted; press Ctrl-C again to leave at once",
    );
    tokio::select! {
        stopped = system.stop() => stopped,
        // What stays mounted is found again by the next start, or cleared by `orlop down`.
        () = terminated() => Ok(()),
    }
}

/// `orlop apiserver`: the API server alone, for roles in processes of their own.
pub(crate) async fn apiserver(args: cli::Apiserver) -> Result<()> {
    let cli::Apiserver { data_dir, listen } = args;
    system::apiserver(data_dir, listen, print::part, terminated()).await
}

/// Resolves when the process is asked to end: Ctrl-C or SIGTERM.
pub(crate) async fn terminated() {
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        // Without handlers the signals end the process by themselves.
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
