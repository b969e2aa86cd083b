//! What keeps pods in number: StatefulSets with their claims, Deployments and their
//! ReplicaSets, DaemonSets and Jobs.
//!
//! They belong to `orlop up`, where nobody else runs them; on a cluster they are
//! kube-controller-manager's. Each role is a `start` on a [`Process`]: a turn looks at the
//! caches, calls a pure `decide`, and carries its steps out until the first that fails.
//!
//! Nothing is made twice, whatever is lost or repeated: a StatefulSet's pods and claims are
//! named by their number, a deployment's ReplicaSets by their template, and a ReplicaSet's
//! pods by a number of its own choice (see `names`). A request that is sent again meets
//! what the first one made.
//!
//! Must never: delete a pod other than the very one that was looked at; touch what another
//! controller owns; adopt anything for an owner that is being deleted.

mod children;
mod conditions;
pub mod daemon_set;
pub mod deployment;
mod history;
pub mod job;
mod names;
mod pods;
pub mod replica_set;
pub mod stateful_set;
mod turn;

#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod trials;

use orlop_runtime::Process;

/// Starts all of them.
pub fn start(process: &Process) {
    stateful_set::start(process);
    deployment::start(process);
    replica_set::start(process);
    daemon_set::start(process);
    job::start(process);
}
