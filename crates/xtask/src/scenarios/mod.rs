//! The scenarios, one file each. `docs/development/real-kubernetes.md` tells how to add one.

mod by_image;
mod deployed;
mod deployed_local;
mod drop_in;
mod embedded;
mod flex_volume;
mod go_sidecars;
mod go_snapshots;
mod host_path;
mod kubelet;
mod likeness;
mod mock;
mod our_control;
mod our_snapshots;
mod runner;
mod sanity;
mod suite;
mod take_over;

use anyhow::{Result, bail};
use futures::future::BoxFuture;

pub(crate) use self::runner::run;
use self::suite::{Driver, Server};
use crate::stage::Stage;

/// Something that must hold on the real Kubernetes.
pub(crate) struct Scenario {
    /// What it is called on the command line; also its namespace.
    pub(crate) name: &'static str,
    /// What holds when it passes.
    pub(crate) law: &'static str,
    /// Programs that a person has to bring; without them it is skipped.
    brought: &'static [&'static str],
    /// What may run meanwhile.
    company: Company,
    run: for<'a> fn(&'a Stage) -> BoxFuture<'a, Result<()>>,
}

/// What may run beside a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Company {
    /// Anything.
    Any,
    /// Anything: a snapshot controller of it takes turns with others by their common lease, and
    /// may serve others' snapshots.
    SharedSnapshots,
    /// Nothing that has a snapshot controller: whose works is the question.
    OwnSnapshots,
    /// Nothing: it changes the cluster itself.
    None,
}

/// All scenarios.
const ALL: [Scenario; 20] = [
    Scenario {
        name: "sanity",
        law: "csi-sanity finds no fault with our local driver",
        brought: &[],
        company: Company::Any,
        run: |stage| Box::pin(sanity::run(stage)),
    },
    Scenario {
        name: "mock",
        law: "our provisioner and attacher lead a claim through its life with Kubernetes' mock driver",
        brought: &[],
        company: Company::Any,
        run: |stage| Box::pin(mock::run(stage)),
    },
    Scenario {
        name: "host-path",
        law: "our provisioner and attacher lead a claim through its life with the host-path driver",
        brought: &["hostpathplugin"],
        company: Company::Any,
        run: |stage| Box::pin(host_path::run(stage)),
    },
    Scenario {
        name: "kubelet",
        law: "a pod in a real container writes into our driver's volume, and another reads it",
        brought: &[],
        company: Company::Any,
        run: |stage| Box::pin(kubelet::run(stage)),
    },
    Scenario {
        name: "go-sidecars",
        law: "the Go sidecars lead a claim of our driver through its life, and let it grow",
        brought: &[],
        company: Company::Any,
        run: |stage| Box::pin(go_sidecars::run(stage)),
    },
    Scenario {
        name: "go-snapshots",
        law: "the Go snapshotter cuts our driver's volumes, and a claim is made from a snapshot",
        brought: &[],
        company: Company::OwnSnapshots,
        run: |stage| Box::pin(go_snapshots::run(stage)),
    },
    Scenario {
        name: "embedded",
        law: "the Go sidecars are clients of our API server, and our roles do the rest",
        brought: &[],
        company: Company::Any,
        run: |stage| Box::pin(embedded::run(stage)),
    },
    Scenario {
        name: "our-control",
        law: "with our binder, attach-detach and protection the API server holds what it holds with the originals",
        brought: &[],
        company: Company::None,
        run: |stage| Box::pin(our_control::run(stage)),
    },
    Scenario {
        name: "flex-volume",
        law: "kubelet and FlexVolume driver are told the same by our attach-detach as by kube-controller-manager's",
        brought: &[],
        company: Company::None,
        run: |stage| Box::pin(flex_volume::run(stage)),
    },
    Scenario {
        name: "our-snapshots",
        law: "with our snapshotter and snapshot controller the API server holds what it holds with the originals",
        brought: &[],
        company: Company::OwnSnapshots,
        run: |stage| Box::pin(our_snapshots::run(stage)),
    },
    Scenario {
        name: "take-over",
        law: "the kubelet takes a node's folder over from ours and ours from the kubelet's, and both leave the same in it",
        brought: &[],
        company: Company::None,
        run: |stage| Box::pin(take_over::run(stage)),
    },
    Scenario {
        name: "drop-in",
        law: "our sidecars by their old names serve our driver before a real API server",
        brought: &[],
        company: Company::OwnSnapshots,
        run: |stage| Box::pin(drop_in::real(stage, drop_in::Driver::Local)),
    },
    Scenario {
        name: "drop-path",
        law: "our sidecars by their old names serve the host-path driver before a real API server",
        brought: &["hostpathplugin"],
        company: Company::OwnSnapshots,
        run: |stage| Box::pin(drop_in::real(stage, drop_in::Driver::HostPath)),
    },
    Scenario {
        name: "deployed",
        law: "the manifests' pods serve a driver, and when the leading replica is killed the other one does",
        brought: &[],
        company: Company::Any,
        run: |stage| Box::pin(deployed::run(stage)),
    },
    Scenario {
        name: "local-nodes",
        law: "the local driver's manifest puts it on a node, whose own sidecars make, grow and delete its volumes",
        brought: &[],
        company: Company::Any,
        run: |stage| Box::pin(deployed_local::run(stage)),
    },
    Scenario {
        name: "by-image",
        law: "a driver's manifest for the Go sidecars, with their rights, needs no change but the images",
        brought: &[],
        company: Company::OwnSnapshots,
        run: |stage| Box::pin(by_image::run(stage)),
    },
    Scenario {
        name: "real-loc",
        law: "our sidecars do all that they are for: our driver, a real API server",
        brought: &[],
        company: Company::SharedSnapshots,
        run: |stage| Box::pin(suite::run(stage, Driver::Local, Server::Real)),
    },
    Scenario {
        name: "real-hp",
        law: "our sidecars do all that they are for: the host-path driver, a real API server",
        brought: &["hostpathplugin"],
        company: Company::SharedSnapshots,
        run: |stage| Box::pin(suite::run(stage, Driver::HostPath, Server::Real)),
    },
    Scenario {
        name: "emb-loc",
        law: "our sidecars do all that they are for: our driver, our API server",
        brought: &[],
        company: Company::Any,
        run: |stage| Box::pin(suite::run(stage, Driver::Local, Server::Embedded)),
    },
    Scenario {
        name: "emb-hp",
        law: "our sidecars do all that they are for: the host-path driver, our API server",
        brought: &["hostpathplugin"],
        company: Company::Any,
        run: |stage| Box::pin(suite::run(stage, Driver::HostPath, Server::Embedded)),
    },
];

/// The scenarios of these names; all without a name.
pub(crate) fn choose(names: &[String]) -> Result<Vec<&'static Scenario>> {
    if let Some(unknown) = names
        .iter()
        .find(|name| !ALL.iter().any(|one| one.name == **name))
    {
        let known = ALL.map(|scenario| scenario.name).join(", ");
        bail!("there is no scenario {unknown}; there are {known}");
    }
    Ok(ALL
        .iter()
        .filter(|one| names.is_empty() || names.iter().any(|name| name == one.name))
        .collect())
}
