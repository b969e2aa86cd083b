//! Attach-detach's shell: wakes, looks, asks `decide`, and carries the answer out.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures::future::join_all;
use orlop_model::{
    Claim, CsiDriver, Key, Kind, Meta, Node, Pod, Volume, VolumeAttachment,
    attachment::{AttachmentSource, AttachmentSpec},
    matching,
    node::AttachedVolume,
    pod,
};
use orlop_runtime::{
    ApiError, Cache, Change, Cluster, EventType, Index, Outcome, Patch, Process, Queue, Recorder,
    work,
};
use serde_json::json;
use tracing::{debug, info};

mod give_back;

use super::{
    COMPONENT, actual,
    decide::{NodeView, Standing, Verdict, VolumeView, decide_node, decide_volume},
    desired,
};
use crate::{Evidence, turn};

/// How many volumes, and how many nodes, are worked on at once. They have lanes of their
/// own: a wave of detaches never keeps an attach waiting.
const AT_ONCE: usize = 32;

#[derive(Clone)]
struct AttachDetach {
    cluster: Cluster,
    recorder: Recorder,
    volume_queue: Queue<String>,
    node_queue: Queue<String>,
    pods: Cache<Pod>,
    claims: Cache<Claim>,
    volumes: Cache<Volume>,
    nodes: Cache<Node>,
    drivers: Cache<CsiDriver>,
    attachments: Cache<VolumeAttachment>,
    pods_by_claim: Index<Pod>,
    pods_by_node: Index<Pod>,
    volumes_by_driver: Index<Volume>,
    volumes_by_claim: Index<Volume>,
    attachments_by_volume: Index<VolumeAttachment>,
    attachments_by_node: Index<VolumeAttachment>,
    /// Attachments, by uid, whose deletion was sent, until the watch shows it. A node must
    /// not be told of one of these, even if a pod wants it again.
    given_back: Arc<Mutex<BTreeMap<String, Fate>>>,
}

/// What became of a deletion that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It was accepted, or is on its way.
    Sent,
    /// Its answer was lost: only the server knows.
    Doubtful,
}

fn driver_of(volume: &Volume) -> Vec<String> {
    volume.spec.csi.iter().map(|c| c.driver.clone()).collect()
}

fn volume_of(attachment: &VolumeAttachment) -> Vec<String> {
    vec![attachment.volume_name().to_owned()]
}

fn node_of(attachment: &VolumeAttachment) -> Vec<String> {
    vec![attachment.spec.node_name.clone()]
}

/// Starts attach-detach.
pub fn start(process: &Process) {
    let pods = process.cache::<Pod>();
    let volumes = process.cache::<Volume>();
    let attachments = process.cache::<VolumeAttachment>();
    let role = AttachDetach {
        cluster: process.cluster.clone(),
        recorder: process.recorder(COMPONENT),
        volume_queue: Queue::new(turn::backoff()),
        node_queue: Queue::new(turn::backoff()),
        claims: process.cache(),
        nodes: process.cache(),
        drivers: process.cache(),
        pods_by_claim: pods.index(pod::BY_CLAIM, pod::claims_used),
        pods_by_node: pods.index(pod::BY_NODE, pod::node_used),
        volumes_by_driver: volumes.index("attach-detach/driver", driver_of),
        volumes_by_claim: volumes.index(matching::BY_CLAIMANT, matching::claimant),
        attachments_by_volume: attachments.index("attach-detach/volume", volume_of),
        attachments_by_node: attachments.index("attach-detach/node", node_of),
        given_back: Arc::default(),
        pods,
        volumes,
        attachments,
    };
    process.spawn("attach-detach", role.run());
}

impl AttachDetach {
    async fn run(self) {
        self.synced().await;
        self.subscribe();
        let (volumes, nodes) = (self.volume_queue.clone(), self.node_queue.clone());
        futures::join!(
            work(volumes, AT_ONCE, |name| self.volume_turn(name)),
            work(nodes, AT_ONCE, |name| self.node_turn(name)),
        );
    }

    async fn synced(&self) {
        self.pods.synced().await;
        self.claims.synced().await;
        self.volumes.synced().await;
        self.nodes.synced().await;
        self.drivers.synced().await;
        self.attachments.synced().await;
    }

    fn subscribe(&self) {
        let role = self.clone();
        self.pods.subscribe(move |change| role.pod_changed(change));
        let role = self.clone();
        self.claims.subscribe(move |change| {
            let name = &change.object().spec.volume_name;
            if !name.is_empty() {
                role.volume_queue.add(name.clone());
            }
        });
        let queue = self.volume_queue.clone();
        self.volumes
            .subscribe(move |change| queue.add(change.object().metadata.name.clone()));
        let role = self.clone();
        self.attachments.subscribe(move |change| {
            let attachment = change.object();
            if matches!(change, Change::Deleted(_)) || attachment.metadata.is_deleting() {
                role.given_back().remove(&attachment.metadata.uid);
            }
            role.volume_queue.add(attachment.volume_name().to_owned());
            role.node_queue.add(attachment.spec.node_name.clone());
        });
        let role = self.clone();
        self.nodes
            .subscribe(move |change| role.node_changed(change));
        let role = self.clone();
        self.drivers.subscribe(move |change| {
            for volume in role.volumes_by_driver.get(&change.object().metadata.name) {
                role.volume_queue.add(volume.metadata.name.clone());
            }
        });
    }

    fn pod_changed(&self, change: &Change<'_, Pod>) {
        let pod = change.object();
        if !pod.is_placed() {
            return;
        }
        if let Change::Applied { old: Some(old), .. } = change {
            let weight = |p: &Pod| (p.is_placed(), p.is_finished(), p.metadata.is_deleting());
            if weight(old) == weight(pod) {
                return;
            }
        }
        self.node_queue.add(pod.spec.node_name.clone());
        self.wake_volumes_of(pod);
    }

    fn wake_volumes_of(&self, pod: &Pod) {
        for (_, key) in pod.claims() {
            for volume in self.volumes_by_claim.get(&key.to_string()) {
                self.volume_queue.add(volume.metadata.name.clone());
            }
        }
    }

    fn node_changed(&self, change: &Change<'_, Node>) {
        let name = &change.object().metadata.name;
        if let Change::Applied {
            old: Some(old),
            new,
        } = change
        {
            // Heartbeats are none of our business.
            let same = old.status.volumes_in_use == new.status.volumes_in_use
                && old.status.volumes_attached == new.status.volumes_attached
                && old.spec.taints == new.spec.taints
                && old.metadata.uid == new.metadata.uid;
            if same {
                return;
            }
        }
        self.node_queue.add(name.clone());
        if let Change::Applied { old: None, .. } = change {
            for pod in self.pods_by_node.get(name) {
                self.wake_volumes_of(&pod);
            }
        }
    }

    fn given_back(&self) -> MutexGuard<'_, BTreeMap<String, Fate>> {
        self.given_back
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The pods that want the volume on a node.
    fn wishers(&self, volume: &Volume) -> Vec<Arc<Pod>> {
        let Some(owner) = &volume.spec.claim_ref else {
            return Vec::new();
        };
        let Some(claim) = self.claims.get(&owner.key()) else {
            return Vec::new();
        };
        if !desired::is_bound(&claim, volume) {
            return Vec::new();
        }
        let mut pods = self.pods_by_claim.get(&claim.key().to_string());
        pods.retain(|pod| {
            let node = self.nodes.named(&pod.spec.node_name);
            desired::wants(pod, node.as_deref())
        });
        pods
    }

    async fn volume_turn(&self, name: String) -> Outcome {
        let mut attachments = self.attachments_by_volume.get(&name);
        let volume = self.volumes.named(&name);
        let Some((volume, csi)) = volume.and_then(|v| Some((v.clone(), v.spec.csi.clone()?)))
        else {
            self.wake_nodes_of(&attachments);
            return Outcome::Done;
        };
        let mut wishes = desired::Wishes::new();
        for pod in self.wishers(&volume) {
            if self.nodes.named(&pod.spec.node_name).is_some() {
                wishes
                    .entry(pod.spec.node_name.clone())
                    .or_default()
                    .push(pod);
            }
        }
        let named = |node: &String| {
            let name = actual::attachment_name(&csi.driver, &csi.volume_handle, node);
            self.attachments.named(&name)
        };
        if attachments
            .iter()
            .any(|a| !wishes.contains_key(&a.spec.node_name))
        {
            self.wake_nodes_of(&attachments);
        }
        // Also those to the same storage, made when its object had another name.
        attachments.extend(wishes.keys().filter_map(named));
        attachments.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        attachments.dedup_by(|a, b| a.metadata.name == b.metadata.name);
        let driver = self.drivers.named(&csi.driver);
        let view = VolumeView {
            attachable: driver.is_none_or(|d| d.attach_required()),
            volume: volume.clone(),
            wishes,
            attachments,
        };
        for (node, verdict) in decide_volume(&view) {
            debug!(volume = name, node, ?verdict, "decided");
            for pod in view.wishes.get(&node).into_iter().flatten() {
                if let Some(message) = verdict.news(&name, pod) {
                    let reason = "FailedAttachVolume";
                    self.recorder
                        .say(&**pod, EventType::Warning, reason, message);
                }
            }
            if verdict == Verdict::Attach
                && let Err(error) = self.attach(&volume, &node).await
            {
                return turn::retry(&error);
            }
        }
        Outcome::Done
    }

    /// What nobody wants is given back by its node's turn.
    fn wake_nodes_of(&self, attachments: &[Arc<VolumeAttachment>]) {
        for attachment in attachments {
            self.node_queue.add(attachment.spec.node_name.clone());
        }
    }

    async fn attach(&self, volume: &Volume, node: &str) -> Result<(), ApiError> {
        let Some(csi) = &volume.spec.csi else {
            return Ok(());
        };
        let name = actual::attachment_name(&csi.driver, &csi.volume_handle, node);
        let attachment = VolumeAttachment {
            metadata: Meta::named(&Key::cluster(name)),
            spec: AttachmentSpec {
                attacher: csi.driver.clone(),
                node_name: node.to_owned(),
                source: AttachmentSource {
                    persistent_volume_name: Some(volume.metadata.name.clone()),
                    ..AttachmentSource::default()
                },
            },
            ..VolumeAttachment::default()
        };
        let made = self.cluster.create(&attachment).await?;
        info!(volume = volume.metadata.name, node, "attachment asked for");
        self.attachments.absorb(made);
        Ok(())
    }

    async fn node_turn(&self, name: String) -> Outcome {
        self.settle_node(&name)
            .await
            .unwrap_or_else(|error| turn::retry(&error))
    }

    async fn settle_node(&self, name: &str) -> Result<Outcome, ApiError> {
        self.clear_doubts(name).await?;
        let node = self.nodes.named(name);
        let decision = decide_node(&self.node_view(name, node.clone(), Evidence::Cached));
        if let (Some(attached), Some(node)) = (&decision.tell, &node) {
            self.tell(node, attached).await?;
        }
        if decision.detach.is_empty() {
            return Ok(Outcome::Done);
        }
        // Read after the node was told: see the handshake.
        let live = self.cluster.get::<Node>(&Key::cluster(name)).await?;
        if let Some(live) = &live {
            self.nodes.absorb(live.clone());
        }
        let view = self.node_view(name, live.map(Arc::new), Evidence::Live);
        let confirmed = decide_node(&view);
        if confirmed.tell.is_some() {
            return Ok(Outcome::Retry);
        }
        let results = join_all(confirmed.detach.iter().map(|a| self.give_back(a))).await;
        results.into_iter().collect::<Result<(), _>>()?;
        Ok(Outcome::Done)
    }

    fn node_view(&self, name: &str, node: Option<Arc<Node>>, evidence: Evidence) -> NodeView {
        let mut standings = Vec::new();
        for attachment in self.attachments_by_node.get(name) {
            let volume = self.volumes.named(attachment.volume_name());
            if !actual::is_ours(&attachment, volume.as_deref()) {
                continue;
            }
            let wanted = volume.as_deref().is_some_and(|volume| {
                let wishers = self.wishers(volume);
                wishers.iter().any(|pod| pod.spec.node_name == name)
            });
            let given_back = self.given_back().contains_key(&attachment.metadata.uid);
            standings.push(Standing {
                unique_name: actual::unique_name(&attachment, volume.as_deref(), node.as_deref()),
                wanted,
                leaving: given_back || attachment.metadata.is_deleting(),
                attachment,
            });
        }
        NodeView {
            node,
            attachments: standings,
            evidence,
        }
    }

    /// Tells a node what is attached. The list is this controller's alone, so the patch
    /// holds for any version of the very node.
    async fn tell(&self, node: &Node, attached: &[AttachedVolume]) -> Result<(), ApiError> {
        let patch = Patch::Merge(json!({
            "metadata": {"uid": node.metadata.uid},
            "status": {"volumesAttached": attached},
        }));
        let told: Node = self.cluster.patch_status(&node.key(), &patch).await?;
        self.nodes.absorb(told);
        for volume in attached {
            if !node.status.volumes_attached.contains(volume) {
                self.announce(&node.metadata.name, &volume.name);
            }
        }
        Ok(())
    }

    fn announce(&self, node: &str, unique_name: &str) {
        for attachment in self.attachments_by_node.get(node) {
            let Some(volume) = self.volumes.named(attachment.volume_name()) else {
                continue;
            };
            if volume.unique_name().as_deref() != Some(unique_name) {
                continue;
            }
            for pod in self.wishers(&volume) {
                if pod.spec.node_name == node {
                    let name = &volume.metadata.name;
                    let message = format!("AttachVolume.Attach succeeded for volume \"{name}\" ");
                    let reason = "SuccessfulAttachVolume";
                    self.recorder.say(&*pod, EventType::Normal, reason, message);
                }
            }
        }
    }
}
