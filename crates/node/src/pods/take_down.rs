//! Takes a pod down once nothing of it runs: volumes, folder, object.

use orlop_model::{Kind as _, Pod};
use orlop_runtime::{Outcome, Preconditions};
use tracing::{info, warn};

use super::Pods;
use super::decide::Then;
use crate::layout::PodUid;
use crate::runner::ContainerId;
use crate::words::chain;

impl Pods {
    pub(super) async fn release(&self, uid: &PodUid) -> Option<Outcome> {
        self.parts.volumes.release(uid);
        if let Err(error) = self.tear_down(uid).await {
            warn!(pod_uid = %uid, error, "could not take a pod's volumes away");
            return Some(Outcome::Retry);
        }
        if let Some(record) = self.records().get_mut(uid) {
            record.released = true;
            record.volumes_ready = false;
            record.renew.clear();
            record.stale.clear();
        }
        self.parts.sources.release(uid);
        None
    }

    /// On a thread of its own, since a full volume takes its time.
    async fn tear_down(&self, uid: &PodUid) -> Result<(), String> {
        if !crate::plugins::any_set_up(&self.parts.layout, uid) {
            return Ok(());
        }
        let (layout, pod) = (self.parts.layout.clone(), uid.clone());
        let work = tokio::task::spawn_blocking(move || crate::plugins::tear_down(&layout, &pod));
        match work.await {
            Ok(done) => done.map_err(|error| chain(&error)),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The folder is all but empty by now: volumes and containers are gone.
    fn remove_folder(&self, uid: &PodUid) -> Result<(), String> {
        let folder = self.parts.layout.pod(uid);
        orlop_host::remove_tree_one_fs(&folder).map_err(|error| chain(&error))
    }

    /// Removes what is left of a pod, and the pod itself once nothing is left.
    pub(super) async fn remove(&self, uid: &PodUid, pod: Option<&Pod>, then: Then) -> Outcome {
        // Its last status first: whoever watches the pod sees how it ended.
        if self.report(uid, Outcome::Done).await == Outcome::Retry {
            return Outcome::Retry;
        }
        for (container, attempts) in self.parts.runner.attempts(uid) {
            for attempt in attempts {
                let id = ContainerId {
                    pod: uid.clone(),
                    container: container.clone(),
                    attempt,
                };
                if let Err(error) = self.parts.runner.remove(&id).await {
                    warn!(container = %id, error = chain(&error), "could not remove a container");
                    return Outcome::Retry;
                }
            }
        }
        if let Err(error) = self.remove_folder(uid) {
            warn!(pod_uid = %uid, error, "could not remove a pod's folder");
            return Outcome::Retry;
        }
        if let (Some(pod), Then::RemoveAndDelete) = (pod, then) {
            let only_if = Preconditions {
                grace_period_seconds: Some(0),
                ..Preconditions::same_object(pod)
            };
            match self.parts.cluster.delete::<Pod>(&pod.key(), &only_if).await {
                Ok(()) => {}
                Err(error) if error.is_conflict() => {}
                Err(error) => {
                    warn!(pod = %pod.key(), error = error.chain(), "could not delete a pod for good");
                    return Outcome::Retry;
                }
            }
        }
        self.records().remove(uid);
        info!(pod_uid = %uid, "pod left the node");
        Outcome::Done
    }
}
