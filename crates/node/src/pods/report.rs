//! Tells the API server, and people, how a pod is.

use orlop_model::{Kind as _, Pod};
use orlop_runtime::{EventType, Outcome, Patch};
use serde_json::json;
use tracing::warn;

use super::{Pods, status};
use crate::layout::PodUid;

impl Pods {
    /// Makes the pod's status true, unless all is being stopped: then it stays as it is.
    pub(super) async fn report(&self, uid: &PodUid, outcome: Outcome) -> Outcome {
        let pod = self.by_uid.get(uid.as_str()).into_iter().next();
        let (Some(pod), None) = (pod, self.drain()) else {
            return outcome;
        };
        let Some(view) = self.look(uid, Some(&pod)) else {
            return outcome;
        };
        let wanted = match self.records().get(uid) {
            Some(record) => status::status(&pod, uid, record, &view),
            None => return outcome,
        };
        if !status::differs(&pod, &wanted) {
            return outcome;
        }
        let mut body = json!({"metadata": {"uid": uid.as_str()}, "status": wanted});
        let address = &self.parts.address;
        // In the place of those that another node role of this name, or a kubelet, has told.
        let addresses = json!([{"$patch": "replace"}, {"ip": address}]);
        body["status"]["hostIP"] = json!(address);
        body["status"]["hostIPs"] = addresses.clone();
        if wanted
            .container_statuses
            .iter()
            .any(|container| container.state.running.is_some())
        {
            body["status"]["podIP"] = json!(address);
            body["status"]["podIPs"] = addresses;
        }
        match self
            .parts
            .cluster
            .patch_status::<Pod>(&pod.key(), &Patch::Strategic(body))
            .await
        {
            Ok(written) => {
                for container in status::backing_off(&pod, &wanted) {
                    let message = format!(
                        "Back-off restarting failed container {container} in pod {}_{}({uid})",
                        pod.metadata.name, pod.metadata.namespace
                    );
                    self.say_warning(&pod, container, "BackOff", message);
                }
                self.parts.pods.absorb(written);
                outcome
            }
            // Gone, or another pod of that name: the watch tells.
            Err(error) if error.is_not_found() || error.is_conflict() => outcome,
            Err(error) => {
                warn!(pod = %pod.key(), error = error.chain(), "could not write a pod's status");
                Outcome::Retry
            }
        }
    }

    pub(super) fn trouble(&self, uid: &PodUid, pod: &Pod, reason: &str, message: String) {
        self.parts
            .recorder
            .say(pod, EventType::Warning, reason, message.clone());
        if let Some(record) = self.records().get_mut(uid) {
            record.trouble = Some(message);
        }
    }

    pub(super) fn say(&self, pod: &Pod, container: &str, reason: &str, message: String) {
        self.say_of(pod, container, (EventType::Normal, reason), message);
    }

    pub(super) fn say_warning(&self, pod: &Pod, container: &str, reason: &str, message: String) {
        self.say_of(pod, container, (EventType::Warning, reason), message);
    }

    fn say_of(
        &self,
        pod: &Pod,
        container: &str,
        (type_, reason): (EventType, &str),
        message: String,
    ) {
        let mut about = pod.reference();
        let list = if pod.spec.containers.iter().any(|c| c.name == container) {
            "containers"
        } else {
            "initContainers"
        };
        about.field_path = format!("spec.{list}{{{container}}}");
        self.parts.recorder.say_of(about, type_, reason, message);
    }
}
