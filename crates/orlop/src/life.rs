//! What happens to volumes, as it happens: one [`Happening`] per step.
//!
//! Steps that stand on the API server are read off the caches; steps that only a driver
//! sees are heard at the gate that every CSI call passes. Nothing here takes part: a
//! happening is told after the fact, to whoever listens, and to nobody if nobody does.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use orlop_csi::{
    Gate, Method,
    client::{CallSite, Passage},
};
use orlop_model::{
    Claim, ClaimPhase, Key, Kind, Pod, PodPhase, Volume, VolumeAttachment, VolumePhase, well_known,
};
use orlop_runtime::{Change, Process};
use tokio::sync::mpsc;

/// One step in a volume's life.
#[derive(Debug, Clone)]
pub(crate) struct Happening {
    /// When.
    pub(crate) at: Instant,
    /// Which step.
    pub(crate) step: Step,
    /// To what: a claim, a volume, a pod, or what a driver call was about.
    pub(crate) object: String,
    /// More about it, for people; may be empty.
    pub(crate) detail: String,
    /// How long it took, where that is known.
    pub(crate) took: Option<Duration>,
}

/// The steps of a volume's life, in the order of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Step {
    ClaimCreated,
    NodeSelected,
    VolumeCreated,
    /// As the one before, by a person.
    VolumeAdded,
    Bound,
    PodPlaced,
    AttachmentWanted,
    Attached,
    PodRunning,
    PodEnded,
    Resized,
    PodDeleting,
    PodGone,
    Detached,
    ClaimDeleting,
    ClaimGone,
    Released,
    VolumeGone,
    /// As the one before, of a volume that a person added.
    VolumeRemoved,
    /// A driver was called; the method is in it.
    Call(Method, Answer),
}

/// How a driver answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Answer {
    Ok,
    Refused,
}

impl Step {
    /// Which part of the system took the step.
    pub(crate) fn actor(self) -> &'static str {
        match self {
            Self::ClaimCreated
            | Self::ClaimDeleting
            | Self::PodDeleting
            | Self::VolumeAdded
            | Self::VolumeRemoved => "user",
            Self::NodeSelected | Self::PodPlaced => "scheduler",
            Self::VolumeCreated | Self::VolumeGone => "provisioner",
            Self::Bound | Self::Released => "binder",
            Self::AttachmentWanted => "attach-detach",
            Self::Attached | Self::Detached => "attacher",
            Self::PodRunning | Self::PodEnded | Self::PodGone => "node",
            Self::Resized => "resizer",
            Self::ClaimGone => "protection",
            Self::Call(..) => "driver",
        }
    }

    /// The step in a few words.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::ClaimCreated => "claim created",
            Self::NodeSelected => "node selected for the claim",
            Self::VolumeCreated => "volume recorded",
            Self::VolumeAdded => "volume created",
            Self::Bound => "claim bound",
            Self::PodPlaced => "pod placed",
            Self::AttachmentWanted => "attachment asked for",
            Self::Attached => "attached",
            Self::PodRunning => "pod running",
            Self::PodEnded => "pod ended",
            Self::Resized => "volume resized",
            Self::PodDeleting => "pod deletion asked for",
            Self::PodGone => "pod gone",
            Self::Detached => "detached",
            Self::ClaimDeleting => "claim deletion asked for",
            Self::ClaimGone => "claim gone",
            Self::Released => "volume released",
            Self::VolumeGone | Self::VolumeRemoved => "volume gone",
            Self::Call(method, _) => method.name(),
        }
    }
}

/// Where happenings are told.
#[derive(Clone)]
pub(crate) struct Chronicle {
    listeners: Arc<Mutex<Vec<mpsc::UnboundedSender<Happening>>>>,
    calls: Arc<Mutex<BTreeMap<(Method, String), Instant>>>,
}

impl Chronicle {
    pub(crate) fn new() -> Self {
        Self {
            listeners: Arc::default(),
            calls: Arc::default(),
        }
    }

    /// Everything that happens from now on.
    pub(crate) fn listen(&self) -> mpsc::UnboundedReceiver<Happening> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(sender);
        receiver
    }

    fn tell(&self, step: Step, object: impl Into<String>, detail: impl Into<String>) {
        self.tell_timed(step, object.into(), detail.into(), None);
    }

    fn tell_timed(&self, step: Step, object: String, detail: String, took: Option<Duration>) {
        let happening = Happening {
            at: Instant::now(),
            step,
            object,
            detail,
            took,
        };
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .retain(|listener| listener.send(happening.clone()).is_ok());
    }

    /// Reads along on the API server.
    pub(crate) async fn follow(&self, process: &Process) {
        // What was there before we came is no news.
        let (claims, volumes) = (process.cache::<Claim>(), process.cache::<Volume>());
        let (pods, attachments) = (process.cache::<Pod>(), process.cache::<VolumeAttachment>());
        claims.synced().await;
        volumes.synced().await;
        pods.synced().await;
        attachments.synced().await;
        let known = |keys: Vec<Key>| {
            Mutex::new(keys.into_iter().collect::<std::collections::BTreeSet<_>>())
        };
        let old_claims = known(claims.all().iter().map(|c| c.key()).collect());
        let old_volumes = known(volumes.all().iter().map(|c| c.key()).collect());
        let old_pods = known(pods.all().iter().map(|c| c.key()).collect());
        let old_attachments = known(attachments.all().iter().map(|c| c.key()).collect());
        let news = self.clone();
        claims.subscribe(move |change| news_only(&old_claims, change, |c| news.claim(c)));
        let news = self.clone();
        volumes.subscribe(move |change| news_only(&old_volumes, change, |c| news.volume(c)));
        let news = self.clone();
        pods.subscribe(move |change| news_only(&old_pods, change, |c| news.pod(c)));
        let news = self.clone();
        attachments
            .subscribe(move |change| news_only(&old_attachments, change, |c| news.attachment(c)));
    }

    fn claim(&self, change: &Change<'_, Claim>) {
        let name = change.object().key().to_string();
        match change {
            Change::Applied { old: None, new } => {
                let class = match new.class() {
                    Some("") | None => "no class".to_owned(),
                    Some(class) => format!("class {class}"),
                };
                let size = new.spec.resources.requests.storage();
                let size = size.map_or_else(|| "?".to_owned(), ToString::to_string);
                self.tell(Step::ClaimCreated, &name, format!("{size} of {class}"));
            }
            Change::Applied {
                old: Some(old),
                new,
            } => {
                if old.selected_node() != new.selected_node()
                    && let Some(node) = new.selected_node()
                {
                    self.tell(Step::NodeSelected, &name, node);
                }
                if old.phase() != new.phase() && new.phase() == ClaimPhase::Bound {
                    self.tell(Step::Bound, &name, format!("to {}", new.spec.volume_name));
                }
                let (before, after) =
                    (old.status.capacity.storage(), new.status.capacity.storage());
                if let (Some(before), Some(after)) = (before, after)
                    && before != after
                {
                    self.tell(Step::Resized, &name, format!("from {before} to {after}"));
                }
                if !old.metadata.is_deleting() && new.metadata.is_deleting() {
                    self.tell(Step::ClaimDeleting, &name, "");
                }
            }
            Change::Deleted(_) => self.tell(Step::ClaimGone, &name, ""),
        }
    }

    fn volume(&self, change: &Change<'_, Volume>) {
        let name = change.object().metadata.name.clone();
        match change {
            Change::Applied { old: None, new } => {
                let size = new.spec.capacity.storage();
                let size = size.map_or_else(|| "?".to_owned(), ToString::to_string);
                let driver = new.spec.csi.as_ref().map(|csi| csi.driver.as_str());
                let (step, maker) = match new.metadata.annotation(well_known::PROVISIONED_BY) {
                    Some(maker) => (Step::VolumeCreated, Some(driver.unwrap_or(maker))),
                    None => (Step::VolumeAdded, driver),
                };
                let of = maker.map_or_else(String::new, |maker| format!(" of {maker}"));
                self.tell(step, name, format!("{size}{of}"));
            }
            Change::Applied {
                old: Some(old),
                new,
            } => {
                if old.phase() != new.phase() && new.phase() == VolumePhase::Released {
                    self.tell(
                        Step::Released,
                        name,
                        format!("policy {:?}", new.reclaim_policy()),
                    );
                }
            }
            Change::Deleted(old) => {
                let step = match old.metadata.annotation(well_known::PROVISIONED_BY) {
                    Some(_) => Step::VolumeGone,
                    None => Step::VolumeRemoved,
                };
                self.tell(step, name, "");
            }
        }
    }

    fn pod(&self, change: &Change<'_, Pod>) {
        let name = change.object().key().to_string();
        match change {
            Change::Applied { old: None, .. } => {}
            Change::Applied {
                old: Some(old),
                new,
            } => {
                if !old.is_placed() && new.is_placed() {
                    self.tell(Step::PodPlaced, &name, format!("on {}", new.spec.node_name));
                }
                if !old.metadata.is_deleting() && new.metadata.is_deleting() {
                    self.tell(Step::PodDeleting, &name, "");
                }
                if old.phase() != new.phase() {
                    match new.phase() {
                        // How a deleted pod's processes end is no news.
                        _ if new.metadata.is_deleting() => {}
                        PodPhase::Running => self.tell(Step::PodRunning, &name, ""),
                        phase @ (PodPhase::Succeeded | PodPhase::Failed) => {
                            self.tell(Step::PodEnded, &name, format!("{phase:?}"));
                        }
                        PodPhase::Pending | PodPhase::Unknown => {}
                    }
                }
            }
            Change::Deleted(_) => self.tell(Step::PodGone, &name, ""),
        }
    }

    fn attachment(&self, change: &Change<'_, VolumeAttachment>) {
        let object = change.object();
        let (volume, node) = (
            object.volume_name().to_owned(),
            object.spec.node_name.clone(),
        );
        match change {
            Change::Applied { old: None, .. } => {
                self.tell(Step::AttachmentWanted, volume, format!("on {node}"));
            }
            Change::Applied {
                old: Some(old),
                new,
            } => {
                if !old.status.attached && new.status.attached {
                    self.tell(Step::Attached, volume, format!("to {node}"));
                }
            }
            Change::Deleted(_) => self.tell(Step::Detached, volume, format!("from {node}")),
        }
    }
}

/// Leaves out the first sight of objects that were there before.
fn news_only<K: Kind>(
    old: &Mutex<std::collections::BTreeSet<Key>>,
    change: &Change<'_, K>,
    tell: impl FnOnce(&Change<'_, K>),
) {
    let first_sight = matches!(change, Change::Applied { old: None, .. });
    let known = old
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .remove(&change.object().key());
    if !(first_sight && known) {
        tell(change);
    }
}

impl Gate for Chronicle {
    fn before<'a>(&'a self, call: &'a CallSite) -> Passage<'a> {
        let id = (call.method, call.subject.clone());
        self.calls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id, Instant::now());
        Box::pin(std::future::ready(Ok(())))
    }

    fn after<'a>(&'a self, call: &'a CallSite, code: tonic::Code) -> Passage<'a> {
        let id = (call.method, call.subject.clone());
        let started = self
            .calls
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&id);
        if tells_of_a_volume(call.method) {
            let (answer, detail) = match code {
                tonic::Code::Ok => (Answer::Ok, String::new()),
                code => (Answer::Refused, format!("{code:?}")),
            };
            self.tell_timed(
                Step::Call(call.method, answer),
                call.subject.clone(),
                detail,
                started.map(|s| s.elapsed()),
            );
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

/// Whether a call does something to a volume, rather than asking something.
fn tells_of_a_volume(method: Method) -> bool {
    matches!(
        method,
        Method::CreateVolume
            | Method::DeleteVolume
            | Method::ControllerPublishVolume
            | Method::ControllerUnpublishVolume
            | Method::ControllerExpandVolume
            | Method::NodeStageVolume
            | Method::NodeUnstageVolume
            | Method::NodePublishVolume
            | Method::NodeUnpublishVolume
            | Method::NodeExpandVolume
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// What is told of a volume that comes and goes.
    fn told(annotations: &Value, spec: &Value) -> Vec<String> {
        let volume = json!({"metadata": {"name": "v", "annotations": annotations}, "spec": spec});
        let volume = Arc::new(Volume::decode(volume.to_string().as_bytes()).unwrap());
        let chronicle = Chronicle::new();
        let mut heard = chronicle.listen();
        let (old, new) = (None, &volume);
        chronicle.volume(&Change::Applied { old, new });
        chronicle.volume(&Change::Deleted(&volume));
        let mut told = Vec::new();
        while let Ok(Happening { step, detail, .. }) = heard.try_recv() {
            told.push(format!("{} {} {detail}", step.actor(), step.words()));
        }
        told
    }

    #[test]
    fn a_volume_that_a_person_makes_is_not_told_to_be_a_provisioners() {
        let size = json!({"capacity": {"storage": "1Gi"}});
        assert_eq!(
            told(&Value::Null, &size),
            ["user volume created 1Gi", "user volume gone "]
        );
        let csi = json!({"capacity": {"storage": "1Gi"},
                         "csi": {"driver": "d", "volumeHandle": "h"}});
        let told = told(&json!({"pv.kubernetes.io/provisioned-by": "d"}), &csi);
        assert_eq!(
            told,
            [
                "provisioner volume recorded 1Gi of d",
                "provisioner volume gone "
            ]
        );
    }
}
