//! `orlop up`: every role in one process over the embedded API server.

mod bootstrap;
mod definitions;
mod identities;
mod layout;
pub(crate) mod preflight;
mod print;
mod system;

use crate::voice::say;
use anyhow::{Context as _, Result};
use orlop_apiserver::store::{backup, restore};
use tokio::signal::unix::{SignalKind, signal};

pub(crate) use self::{
    layout::Layout,
    system::{Admission, Options, System},
};
use crate::cli;

impl From<cli::Admission> for Admission {
    fn from(args: cli::Admission) -> Self {
        let disabled = &args.disable_admission_plugins;
        Self {
            service_accounts: !disabled.contains(&cli::AdmissionPlugin::ServiceAccount),
        }
    }
}

pub(crate) async fn run(args: cli::Up) -> Result<()> {
    let cli::Up {
        data_dir,
        listen,
        nodes,
        driver,
        cri,
        quiet,
        admission,
    } = args;
    let stop = terminated();
    tokio::pin!(stop);
    let starting = System::start(
        Options {
            data_dir,
            listen,
            nodes,
            driver,
            cri,
            admission: admission.into(),
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

/// `orlop apiserver backup` and `restore`.
fn store_command(command: &cli::StoreCommand) -> Result<()> {
    let (summary, done, file, layout) = match command {
        cli::StoreCommand::Backup { file, data_dir } => {
            let layout = Layout::new(data_dir.clone());
            let summary = backup(&layout.store(), file).context("there is no backup")?;
            (summary, "written to", file, layout)
        }
        cli::StoreCommand::Restore { file, data_dir } => {
            let layout = Layout::new(data_dir.clone());
            let summary = restore(file, &layout.store()).context("nothing was restored")?;
            (summary, "restored from", file, layout)
        }
    };
    println!(
        "{} objects at revision {} {done} {}",
        summary.objects,
        summary.revision,
        file.display()
    );
    let pki = layout.pki();
    match command {
        cli::StoreCommand::Backup { .. } => println!(
            "the certificates and the key of tokens are not in it: copy {} as well",
            pki.display()
        ),
        cli::StoreCommand::Restore { .. } if !pki.exists() => println!(
            "there is no {}: put the old one there, or the next start makes new certificates, and \
             old kubeconfigs and tokens are refused",
            pki.display()
        ),
        cli::StoreCommand::Restore { .. } => {}
    }
    Ok(())
}

/// `orlop apiserver`: the API server alone, for roles in processes of their own.
pub(crate) async fn apiserver(args: cli::Apiserver) -> Result<()> {
    let cli::Apiserver {
        store,
        data_dir,
        listen,
        admission,
    } = args;
    if let Some(command) = store {
        return store_command(&command);
    }
    system::apiserver(
        data_dir,
        listen,
        admission.into(),
        print::part,
        terminated(),
    )
    .await
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
