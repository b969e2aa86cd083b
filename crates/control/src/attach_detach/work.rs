//! Attach-detach's shell: wakes, looks, asks `decide`, and carries the answer out.

use std::sync::Arc;

use futures::future::join_all;
use orlop_model::{Key, Kind, Node, Pod, Volume, VolumeAttachment, node::AttachedVolume};
use orlop_runtime::{
    ApiError, Change, Clock, Cluster, EventType, Outcome, Patch, Process, Queue, Recorder, work,
};
use serde_json::json;
use tokio::sync::Semaphore;

mod ask;
mod first_look;
mod flex;
mod give_back;
mod known;
mod memory;

pub(super) use flex::Flex;
pub(super) use known::Known;
use memory::Memory;

use super::{
    COMPONENT, Config, FORCE_DETACH_AFTER, actual, by_word,
    decide::{NodeView, Standing, decide_node},
    flex::{is_left_alone, on_node as flex_on_node},
    metrics::Metrics,
};
use crate::{Evidence, turn};

/// How many volumes, and how many nodes, are worked on at once, and how many attachments are
/// given back at once. They have lanes of their own: a wave of detaches never keeps an attach
/// waiting, nor the other way round.
const AT_ONCE: usize = 32;

#[derive(Clone)]
struct AttachDetach {
    config: Config,
    cluster: Cluster,
    recorder: Recorder,
    metrics: Metrics,
    volume_queue: Queue<String>,
    node_queue: Queue<String>,
    known: Known,
    memory: Arc<Memory>,
    clock: Clock,
    flex: Option<Flex>,
    lane: Arc<Semaphore>,
}

/// Starts attach-detach.
pub fn start(process: &Process) {
    start_with(process, Config::default());
}

/// Starts attach-detach as kube-controller-manager's is by default: it detaches under a node
/// that hasn't been ready for long.
pub fn start_forcing(process: &Process) {
    let config = Config {
        force_detach_after: Some(FORCE_DETACH_AFTER),
        ..Config::default()
    };
    start_with(process, config);
}

/// Starts attach-detach, as it is chosen.
pub fn start_with(process: &Process, config: Config) {
    let known = Known::new(process);
    let queue = |name| Queue::new(turn::backoff()).measured(&process.metrics, name);
    let flex = config.flex.clone();
    let flex = flex.map(|drivers| Flex::new(process, drivers));
    let role = AttachDetach {
        config,
        cluster: process.cluster.clone(),
        recorder: process.recorder(COMPONENT),
        metrics: Metrics::register(process, &known, flex.as_ref()),
        volume_queue: queue("attach_detach_attach"),
        node_queue: queue("attach_detach_detach"),
        known,
        memory: Arc::default(),
        clock: process.clock,
        flex,
        lane: Arc::new(Semaphore::new(AT_ONCE)),
    };
    process.spawn("attach-detach", role.run());
}

impl AttachDetach {
    async fn run(self) {
        self.known.synced().await;
        self.first_look().await;
        self.subscribe();
        let (volumes, nodes) = (self.volume_queue.clone(), self.node_queue.clone());
        futures::join!(
            work(volumes, AT_ONCE, |name| self.volume_turn(name)),
            work(nodes, AT_ONCE, |name| self.node_turn(name)),
            self.serve_flex(),
        );
    }

    fn subscribe(&self) {
        let role = self.clone();
        let changed = move |change: &Change<'_, _>| role.attachment_changed(change);
        self.known.attachments.subscribe(changed);
        let role = self.clone();
        let changed = move |change: &Change<'_, _>| role.pod_changed(change);
        self.known.pods.subscribe(changed);
        let role = self.clone();
        self.known.claims.subscribe(move |change| {
            let name = &change.object().spec.volume_name;
            if let Some(volume) = role.known.volumes.named(name) {
                role.wake_if_concerned(&volume);
            }
        });
        let role = self.clone();
        self.known.volumes.subscribe(move |change| {
            role.wake_if_concerned(change.object());
        });
        let role = self.clone();
        let changed = move |change: &Change<'_, _>| role.node_changed(change);
        self.known.nodes.subscribe(changed);
        let role = self.clone();
        self.known.csi_nodes.subscribe(move |change| {
            role.wake_short(&change.object().metadata.name);
        });
        let role = self.clone();
        self.known.drivers.subscribe(move |change| {
            let name = &change.object().metadata.name;
            let of_driver = |unique: &String| actual::parts(unique).is_some_and(|(d, _)| d == name);
            let all = role.known.all().into_iter().filter(of_driver);
            all.for_each(|unique| role.volume_queue.add(unique));
        });
    }

    fn wake_if_concerned(&self, volume: &Volume) {
        // One that was made anew for other storage leaves what was attached to be given back.
        for node in self.known.nodes_with_former(volume) {
            self.node_queue.add(node);
        }
        if self.known.concerns(volume)
            && let Some(unique) = self.known.note(volume)
        {
            self.volume_queue.add(unique);
        }
    }

    /// Those who wait for room on a node look again.
    fn wake_short(&self, node: &str) {
        for unique in self.memory.short_on(node) {
            self.volume_queue.add(unique);
        }
    }

    fn attachment_changed(&self, change: &Change<'_, VolumeAttachment>) {
        let migrated = self.known.is_migrated(change.object());
        self.metrics.attachment_changed(change, migrated);
        if let Some(flex) = &self.flex {
            flex.attachment_changed(change);
        }
        let attachment = change.object();
        let (uid, node) = (&attachment.metadata.uid, &attachment.spec.node_name);
        let gone = matches!(change, Change::Deleted(_));
        if gone || attachment.metadata.is_deleting() {
            self.memory.lock().given_back.remove(uid);
        }
        if gone {
            self.memory.gone(attachment);
            self.wake_short(node);
        }
        if let Some(volume) = self.known.volumes.named(attachment.volume_name()) {
            self.known.note(&volume);
        }
        if let Some(unique) = self.known.note_attached(attachment) {
            self.volume_queue.add(unique);
        }
        if gone {
            self.known.gone(attachment);
        }
        self.node_queue.add(node.clone());
    }

    fn pod_changed(&self, change: &Change<'_, Pod>) {
        let pod = change.object();
        if !pod.is_placed() {
            return;
        }
        if let Change::Applied { old: Some(old), .. } = change {
            let weight = |p: &Pod| (p.is_placed(), p.has_ended(), p.metadata.is_deleting());
            if weight(old) == weight(pod) && old.metadata.uid == pod.metadata.uid {
                return;
            }
        }
        self.node_queue.add(pod.spec.node_name.clone());
        self.wake_volumes_of(pod);
    }

    fn wake_volumes_of(&self, pod: &Pod) {
        for unique in self.known.storage_of(pod) {
            self.volume_queue.add(unique);
        }
    }

    fn node_changed(&self, change: &Change<'_, Node>) {
        let node = change.object();
        let name = &node.metadata.name;
        let old = match change {
            Change::Applied { old, .. } => *old,
            Change::Deleted(_) => None,
        };
        // Whose volumes we attach: all, and FlexVolumes.
        let is_ours = |node| (actual::is_managed(node), is_left_alone(node));
        if let Some(old) = old {
            // Heartbeats are none of our business.
            let same = old.status.volumes_in_use == node.status.volumes_in_use
                && old.status.volumes_attached == node.status.volumes_attached
                && old.spec.taints == node.spec.taints
                && old.metadata.uid == node.metadata.uid
                && old.is_ready() == node.is_ready()
                && is_ours(old) == is_ours(node);
            if same {
                return;
            }
        }
        self.node_queue.add(name.clone());
        // Whoever waits for what this node had by its own word.
        let word = |node: &Node| [by_word::on_node(node), flex_on_node(node)].concat();
        let (gone, now) = match change {
            Change::Applied {
                old: Some(old),
                new,
            } => (word(old), word(new)),
            Change::Applied { old: None, .. } => (Vec::new(), Vec::new()),
            Change::Deleted(old) => (word(old), Vec::new()),
        };
        for unique in gone.into_iter().filter(|unique| !now.contains(unique)) {
            self.volume_queue.add(unique);
        }
        self.flex_used(old.map(|old| &**old), node);
        let taken_over = old.is_none_or(|old| is_ours(old) != is_ours(node));
        if taken_over {
            for pod in self.known.pods_by_node.get(name) {
                self.wake_volumes_of(&pod);
            }
        }
    }

    async fn node_turn(&self, name: String) -> Outcome {
        self.settle_node(&name)
            .await
            .unwrap_or_else(|error| turn::retry(&error))
    }

    async fn settle_node(&self, name: &str) -> Result<Outcome, ApiError> {
        self.clear_doubts(name).await?;
        let node = self.known.nodes.named(name);
        self.adopt(name, node.as_deref()).await?;
        let view = self.node_view(name, node.clone(), Evidence::Cached);
        let decision = decide_node(&view);
        if decision.more_to_come
            && let Some(left) = self.memory.may_gather(name, &view.untold())
        {
            return Ok(Outcome::After(left));
        }
        // What the node uses, from when it was told or later: see the handshake. The answer to
        // the telling is as good as a look afterwards.
        let live = match (&decision.tell, &node) {
            (Some(attached), Some(node)) => {
                self.memory.keeps(node, attached);
                let told = Arc::new(self.tell(node, attached).await?);
                self.memory.told(name, attached, &view.attachments);
                Some(told)
            }
            _ if decision.detach.is_empty() => None,
            _ => {
                let live = self.cluster.get::<Node>(&Key::cluster(name)).await?;
                if let Some(live) = &live {
                    self.known.nodes.absorb(live.clone());
                }
                live.map(Arc::new)
            }
        };
        if decision.detach.is_empty() {
            return Ok(self.look_again(&view));
        }
        let view = self.node_view(name, live, Evidence::Live);
        let confirmed = decide_node(&view);
        if confirmed.tell.is_some() {
            // Meanwhile there is more to tell.
            self.node_queue.add(name.to_owned());
        }
        let results = join_all(confirmed.detach.iter().map(|a| self.give_back(a))).await;
        results.into_iter().collect::<Result<(), _>>()?;
        Ok(self.look_again(&view))
    }

    /// When a node that keeps what nobody wants was waited for long enough.
    fn look_again(&self, view: &NodeView) -> Outcome {
        let Some(limit) = self.config.force_detach_after else {
            return Outcome::Done;
        };
        let kept = view.attachments.iter().filter(|s| !s.wanted && !s.leaving);
        let left = kept.filter(|standing| !standing.overdue).map(|standing| {
            let uid = &standing.attachment.metadata.uid;
            limit.saturating_sub(self.memory.unwanted_for(uid, false))
        });
        left.min().map_or(Outcome::Done, Outcome::After)
    }

    fn node_view(&self, name: &str, node: Option<Arc<Node>>, evidence: Evidence) -> NodeView {
        let mut standings = Vec::new();
        for attachment in self.known.attachments_by_node.get(name) {
            if !actual::is_ours(&attachment) || !self.is_served(&attachment) {
                continue;
            }
            let unique = self.known.storage(&attachment);
            let uid = &attachment.metadata.uid;
            let wanted = unique.as_ref().is_some_and(|unique| {
                let wishes = self.known.unit(unique).wishes;
                self.is_attachable(unique)
                    && wishes.iter().any(|wish| wish.pod.spec.node_name == name)
            });
            let given_back = self.memory.lock().given_back.contains_key(uid);
            let limit = self.config.force_detach_after;
            let overdue = limit
                .is_some_and(|limit| !wanted && self.memory.unwanted_for(uid, wanted) >= limit);
            standings.push(Standing {
                unique_name: unique.or_else(|| actual::listed_name(&attachment, node.as_deref())),
                wanted,
                leaving: given_back || attachment.metadata.is_deleting(),
                overdue,
                attachment,
            });
        }
        standings.extend(self.words(name, node.as_deref()));
        NodeView {
            asking: self.memory.is_asking(name),
            node,
            attachments: standings,
            evidence,
        }
    }

    /// The disks that a node reaches by itself, and was told of or is to be.
    fn words(&self, name: &str, node: Option<&Node>) -> Vec<Standing> {
        let mut disks = node.map(by_word::on_node).unwrap_or_default();
        let granted = self.memory.granted_to(name);
        disks.extend(granted.iter().cloned());
        disks.sort();
        disks.dedup();
        let mut words = Vec::new();
        for disk in disks {
            let wishes = self.known.unit(&disk).wishes;
            let wanted = wishes.iter().any(|wish| wish.pod.spec.node_name == name);
            let told = node.is_some_and(|node| by_word::is_told(node, &disk));
            let has_it = told || granted.contains(&disk);
            if wanted && !has_it {
                // It waits.
                continue;
            }
            let mut attachment = by_word::standing(&disk, name);
            attachment.status.attached = has_it;
            let waited = self.memory.unwanted_for(&attachment.metadata.uid, wanted);
            let limit = self.config.force_detach_after;
            words.push(Standing {
                unique_name: Some(disk),
                wanted,
                leaving: false,
                overdue: limit.is_some_and(|limit| !wanted && waited >= limit),
                attachment: Arc::new(attachment),
            });
        }
        words
    }

    /// Tells a node what is attached. The list is this controller's alone, so the patch
    /// holds for any version of the very node.
    async fn tell(&self, node: &Node, attached: &[AttachedVolume]) -> Result<Node, ApiError> {
        let patch = Patch::Merge(json!({
            "metadata": {"uid": node.metadata.uid},
            "status": {"volumesAttached": attached},
        }));
        let told: Node = self.cluster.patch_status(&node.key(), &patch).await?;
        self.known.nodes.absorb(told.clone());
        for volume in attached {
            if !node.status.volumes_attached.contains(volume) {
                self.announce(&node.metadata.name, &volume.name);
            }
        }
        Ok(told)
    }

    fn announce(&self, node: &str, unique_name: &str) {
        for wish in self.known.unit(unique_name).wishes {
            if wish.pod.spec.node_name == node {
                let name = &wish.volume.metadata.name;
                let message = format!("AttachVolume.Attach succeeded for volume \"{name}\" ");
                let reason = "SuccessfulAttachVolume";
                self.recorder
                    .say(&*wish.pod, EventType::Normal, reason, message);
            }
        }
    }
}
