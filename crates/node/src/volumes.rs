//! The CSI volumes of the node: which shall be here, which are, and the steps between.
//!
//! One turn works on one volume at a time (the queue sees to that), different volumes
//! side by side. A turn looks, [`decide`](decide::decide)s, carries one step out and
//! looks again. What is not certain is held for possible, so that it is undone before it
//! is forgotten: a volume leaves `volumesInUse` only when nothing of it can be left.
//!
//! Never unmounts what a pod that may run still wants; who wants what is told by the
//! pods' side through [`Volumes::want`] and [`Volumes::release`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use orlop_host::group::{Wanted, When};
use orlop_model::{Claim, CsiDriver, Node, Volume, well_known};
use orlop_runtime::{Backoff, Cache, Clock, Cluster, Outcome, Queue, Recorder};
use tokio::sync::Notify;
use tracing::{debug, info};

use crate::checkpoint::Found;
use crate::drivers::Drivers;
use crate::layout::{Layout, PodUid};
use crate::workers::Workers;
pub(crate) use inline::{Lifetime, volume as inline_volume};

use decide::{Attachment, Because, DriverState, Step, View, decide};
use in_use::Report;

mod csi;
mod decide;
mod group;
mod growth;
mod in_use;
mod inline;
pub(crate) mod labels;
mod lookup;
mod mapped;
mod measure;
mod places;
mod tokens;

/// A CSI volume, by what its driver calls it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DeviceKey {
    pub(crate) driver: String,
    pub(crate) handle: String,
}

impl DeviceKey {
    /// The name that attach-detach and the node use.
    pub(crate) fn unique_name(&self) -> String {
        well_known::unique_volume_name(&self.driver, &self.handle)
    }
}

/// Whether pods see a volume's files or its device; decides where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    Files,
    /// The paths of devices go by the PersistentVolume's name.
    Block {
        volume: String,
    },
}

/// What is known of an effect that was announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hold {
    /// It is there.
    Certain,
    /// It may be there, wholly or in part, or may come to be.
    Uncertain,
}

/// A volume as the node knows it.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) shape: Shape,
    pub(crate) lifetime: Lifetime,
    pub(crate) staging: Option<Hold>,
    /// The SELinux label that it is mounted with, as long as anything of it is.
    pub(crate) label: Option<String>,
    pub(crate) publications: BTreeMap<PodUid, Publication>,
    pub(crate) wants: BTreeMap<PodUid, Arc<Want>>,
    /// Pods known from checkpoints alone, whose side has neither wanted nor released the
    /// volume yet: their containers may run, so nothing is taken from them.
    pub(crate) undecided: BTreeSet<PodUid>,
    /// Why it does not move, for people.
    pub(crate) trouble: Option<String>,
    /// How large it is here.
    size: growth::Size,
    /// The size that the driver refused because the volume is used.
    refused: Option<i64>,
}

/// A volume's place in a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Publication {
    /// The PersistentVolume's name, which the path goes by.
    pub(crate) volume: String,
    pub(crate) hold: Hold,
    /// Whose its files are.
    pub(crate) group: Grouped,
    /// When its driver wants to be asked again, if ever.
    pub(crate) again_at: Option<Timestamp>,
}

impl Publication {
    /// One that may be there.
    fn maybe(volume: String) -> Self {
        Self {
            volume,
            hold: Hold::Uncertain,
            group: Grouped::Settled,
            again_at: None,
        }
    }
}

/// Whether a published volume's files are for the pod's group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grouped {
    /// Nothing is to be done about it.
    Settled,
    /// The node has to walk through them.
    Open { wanted: Wanted, when: When },
}

/// A pod's wish for a volume.
#[derive(Debug, Clone, Default)]
pub(crate) struct Want {
    pub(crate) pod: Arc<orlop_model::Pod>,
    pub(crate) volume: Arc<Volume>,
    pub(crate) read_only: bool,
    pub(crate) lifetime: Lifetime,
    /// The SELinux label that it must be mounted with.
    pub(crate) label: Option<String>,
    /// A container of the pod runs, so the volume was ready before.
    pub(crate) in_use: bool,
    /// Told when the pod wants it no more.
    pub(crate) given_up: Arc<Notify>,
}

/// A volume that is not yet taken away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Left {
    pub(crate) key: DeviceKey,
    /// The PersistentVolume's name.
    pub(crate) volume: String,
    pub(crate) why: Option<String>,
}

/// What a pod may conclude of one of its volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Readiness {
    Ready,
    NotYet {
        why: Option<String>,
        /// Attach-detach is not done with it.
        unattached: bool,
    },
}

/// What the volumes' side needs.
pub(crate) struct Parts {
    pub(crate) node_name: String,
    pub(crate) layout: Layout,
    pub(crate) cluster: Cluster,
    pub(crate) recorder: Recorder,
    pub(crate) node: Cache<Node>,
    pub(crate) csi_drivers: Cache<CsiDriver>,
    pub(crate) claims: Cache<Claim>,
    pub(crate) clock: Clock,
    pub(crate) drivers: Drivers,
    pub(crate) workers: Workers,
    /// How often a driver that wants it is asked again.
    pub(crate) republish: Duration,
    /// How long an operation on files may make no progress.
    pub(crate) patience: Duration,
    /// Woken when a volume of theirs has changed.
    pub(crate) pods: Queue<PodUid>,
}

/// The CSI volumes of the node.
pub(crate) struct Volumes {
    parts: Parts,
    pub(crate) queue: Queue<DeviceKey>,
    pub(crate) in_use_queue: Queue<()>,
    /// Told whenever a volume was published.
    pub(crate) arrival: Notify,
    state: Mutex<State>,
    tokens: tokens::Tokens,
    /// What SELinux calls containers' files here, if it is on.
    contexts: Option<orlop_host::selinux::Contexts>,
}

struct State {
    devices: BTreeMap<DeviceKey, Device>,
    report: Report,
}

impl Volumes {
    /// Starts from what the checkpoints tell: all of it possible, nothing certain.
    pub(crate) fn new(parts: Parts, found: Found) -> Self {
        let devices = found.devices.into_iter().map(|(key, found)| {
            let undecided = found.maybe_published.keys().cloned().collect();
            let publications = found.maybe_published.into_iter();
            let publications = publications.map(|(pod, name)| (pod, Publication::maybe(name)));
            let device = Device {
                shape: found.shape,
                lifetime: found.lifetime,
                staging: found.maybe_staged.then_some(Hold::Uncertain),
                label: found.label,
                publications: publications.collect(),
                wants: BTreeMap::new(),
                undecided,
                trouble: None,
                size: growth::Size::Unknown,
                refused: None,
            };
            (key, device)
        });
        let state = State {
            devices: devices.collect(),
            report: Report::default(),
        };
        Self {
            parts,
            queue: Queue::new(Backoff::default()),
            in_use_queue: Queue::new(Backoff::default()),
            arrival: Notify::new(),
            state: Mutex::new(state),
            tokens: tokens::Tokens::default(),
            contexts: orlop_host::selinux::contexts(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pod wants a volume. Telling the same again changes nothing.
    pub(crate) fn want(&self, key: &DeviceKey, pod: &PodUid, want: Want) {
        let shape = match want.volume.volume_mode() {
            orlop_model::VolumeMode::Filesystem => Shape::Files,
            orlop_model::VolumeMode::Block => Shape::Block {
                volume: want.volume.metadata.name.clone(),
            },
        };
        let mut state = self.state();
        let device = state.devices.entry(key.clone()).or_insert_with(|| Device {
            shape,
            lifetime: want.lifetime,
            staging: None,
            label: want.label.clone(),
            publications: BTreeMap::new(),
            wants: BTreeMap::new(),
            undecided: BTreeSet::new(),
            trouble: None,
            size: growth::Size::Unknown,
            refused: None,
        });
        device.undecided.remove(pod);
        // A checkpoint of long ago may not have told.
        device.lifetime = want.lifetime;
        if device.wants.insert(pod.clone(), Arc::new(want)).is_none() {
            self.queue.add(key.clone());
        }
    }

    /// A pod wants none of its volumes any more.
    pub(crate) fn release(&self, pod: &PodUid) {
        self.tokens.forget(pod);
        for (key, device) in &mut self.state().devices {
            let wanted = device.wants.remove(pod);
            if let Some(want) = &wanted {
                want.given_up.notify_one();
            }
            device.undecided.remove(pod);
            if wanted.is_some() || device.publications.contains_key(pod) {
                self.queue.add(key.clone());
            }
        }
    }

    /// The SELinux label that a volume has to be mounted with for a pod.
    pub(crate) fn label(
        &self,
        pod: &orlop_model::Pod,
        name: &str,
        (volume, lifetime): (&Volume, Lifetime),
    ) -> Result<Option<String>, labels::Labels> {
        let driver = volume.spec.csi.as_ref().map(|csi| csi.driver.as_str());
        let traits = driver.and_then(|driver| self.parts.csi_drivers.named(driver));
        let used = labels::Used {
            pod,
            name,
            mode: volume.volume_mode(),
            lifetime,
            traits: traits.as_deref(),
        };
        labels::label(self.contexts.as_ref(), &used)
    }

    /// Whether this node is among those that a volume says it can be reached from.
    pub(crate) fn reaches(&self, volume: &Volume) -> bool {
        let node = self.parts.node.named(&self.parts.node_name);
        let meta = node.as_ref().map(|node| &node.metadata);
        meta.is_none_or(|meta| volume.reachable_from(&meta.name, &meta.labels))
    }

    /// Whether a volume is ready for a pod.
    pub(crate) fn readiness(&self, key: &DeviceKey, pod: &PodUid) -> Readiness {
        let state = self.state();
        let Some(device) = state.devices.get(key) else {
            return Readiness::NotYet {
                why: None,
                unattached: false,
            };
        };
        match device.publications.get(pod) {
            Some(Publication {
                hold: Hold::Certain,
                group: Grouped::Settled,
                ..
            }) if device.wants.contains_key(pod) => Readiness::Ready,
            _ => Readiness::NotYet {
                why: device.trouble.clone(),
                unattached: device.lifetime == Lifetime::Persistent
                    && matches!(
                        self.attachment(key, state.report.certain()),
                        Attachment::NotReported | Attachment::Pending
                    ),
            },
        }
    }

    /// Whether something of a volume may be left in a pod's folder.
    pub(crate) fn holds(&self, pod: &PodUid) -> bool {
        let state = self.state();
        let mut devices = state.devices.values();
        devices.any(|d| d.publications.contains_key(pod) || d.wants.contains_key(pod))
    }

    /// What may be left in a pod's folder, and why.
    pub(crate) fn left_of(&self, pod: &PodUid) -> Vec<Left> {
        let state = self.state();
        let left = state.devices.iter().filter_map(|(key, device)| {
            let publication = device.publications.get(pod)?;
            Some(Left {
                key: key.clone(),
                volume: publication.volume.clone(),
                why: device.trouble.clone(),
            })
        });
        left.collect()
    }

    /// Whether no volume is left on the node.
    pub(crate) fn is_empty(&self) -> bool {
        self.state().devices.is_empty()
    }

    /// The pods that volumes are, or may be, published for.
    pub(crate) fn pods(&self) -> BTreeSet<PodUid> {
        let state = self.state();
        state
            .devices
            .values()
            .flat_map(|device| device.publications.keys().cloned())
            .collect()
    }

    /// Asks for a look at every volume, of one driver or of all.
    pub(crate) fn look_at_all(&self, driver: Option<&str>) {
        for key in self.state().devices.keys() {
            if driver.is_none_or(|driver| driver == key.driver) {
                self.queue.add(key.clone());
            }
        }
    }

    /// Asks for a look at the volumes with these unique names.
    pub(crate) fn look_at(&self, names: &BTreeSet<String>) {
        if names.is_empty() {
            return;
        }
        for key in self.state().devices.keys() {
            if names.contains(&key.unique_name()) {
                self.queue.add(key.clone());
            }
        }
    }

    /// One turn of one volume: steps until nothing can be done, or something failed.
    pub(crate) async fn turn(&self, key: DeviceKey) -> Outcome {
        // Pods whose step failed in this turn; the others need not wait for them.
        let mut skip = BTreeSet::new();
        let mut failed = false;
        let mut grown = false;
        loop {
            let driver = match self.parts.drivers.get(&key.driver) {
                None => DriverState::Missing,
                Some(driver) => match driver.info().await {
                    Ok(info) => DriverState::Present {
                        stages: csi::stages(&info),
                    },
                    Err(error) => {
                        self.set_trouble(&key, error.to_string());
                        return Outcome::Retry;
                    }
                },
            };
            let now = self.parts.clock.now();
            let step = {
                let state = self.state();
                let Some(device) = state.devices.get(&key) else {
                    return Outcome::Done;
                };
                let attachment = self.attachment(&key, state.report.certain());
                decide(&View {
                    device,
                    driver,
                    attachment,
                    skip: &skip,
                    grows: !grown && self.grows(device),
                    now,
                })
            };
            debug!(driver = key.driver, volume_id = key.handle, ?step, "volume");
            let (pod, result) = match step {
                Step::Until(at) if !failed => return Outcome::After(until(now, at)),
                Step::Rest | Step::Until(_) => break,
                Step::Wait(because) => {
                    if because == Because::NotReported {
                        self.in_use_queue.add(());
                    }
                    let words = because.words(&key.driver, &self.parts.node_name);
                    self.set_trouble(&key, words);
                    break;
                }
                Step::Forget => {
                    self.state().devices.remove(&key);
                    self.in_use_queue.add(());
                    info!(
                        driver = key.driver,
                        volume_id = key.handle,
                        "volume left the node"
                    );
                    break;
                }
                Step::Grow => {
                    // Once a turn; a pod need not wait for growth that fails.
                    grown = true;
                    match self.grow(&key).await {
                        growth::Grown::Enough | growth::Grown::Wait => {}
                        growth::Grown::TryAgain => failed = true,
                    }
                    continue;
                }
                Step::Stage => (None, self.stage(&key).await),
                Step::Unstage => (None, self.unstage(&key).await),
                Step::Publish(pod) => {
                    let result = self.publish(&key, &pod).await;
                    (Some(pod), result)
                }
                Step::Own(pod) => {
                    let result = self.own(&key, &pod).await;
                    (Some(pod), result)
                }
                Step::Unpublish(pod) => {
                    let result = self.unpublish(&key, &pod).await;
                    (Some(pod), result)
                }
            };
            match (result, pod) {
                (Ok(()), Some(pod)) => self.parts.pods.add(pod),
                (Ok(()), None) => {}
                (Err(trouble), Some(pod)) => {
                    self.tell(&key, &trouble);
                    skip.insert(pod);
                    failed = true;
                }
                (Err(trouble), None) => {
                    self.tell(&key, &trouble);
                    return Outcome::Retry;
                }
            }
        }
        if failed {
            Outcome::Retry
        } else {
            Outcome::Done
        }
    }

    /// Where the volume stands with attach-detach.
    fn attachment(&self, key: &DeviceKey, reported: &BTreeSet<String>) -> Attachment {
        if !self.is_attachable(&key.driver) {
            return Attachment::NotNeeded;
        }
        let name = key.unique_name();
        if !reported.contains(&name) {
            return Attachment::NotReported;
        }
        // At least as new as our own report, whose answer was absorbed: attach-detach
        // takes an entry away only on a version that has no such report.
        let node = self.parts.node.named(&self.parts.node_name);
        let attached = node.is_some_and(|node| {
            node.status
                .volumes_attached
                .iter()
                .any(|attached| attached.name == name)
        });
        if attached {
            Attachment::Attached
        } else {
            Attachment::Pending
        }
    }

    /// A driver that says nothing wants its volumes attached.
    fn is_attachable(&self, driver: &str) -> bool {
        self.parts
            .csi_drivers
            .named(driver)
            .is_none_or(|driver| driver.attach_required())
    }

    /// Asks for a look at a volume; to be called when something that hung has ended.
    fn look_again(&self, key: &DeviceKey) -> Box<dyn FnOnce() + Send> {
        let (queue, key) = (self.queue.clone(), key.clone());
        Box::new(move || queue.add(key))
    }

    /// Changes what is known of a volume, if it is still known.
    fn note(&self, key: &DeviceKey, change: impl FnOnce(&mut Device)) {
        if let Some(device) = self.state().devices.get_mut(key) {
            change(device);
        }
    }

    fn set_trouble(&self, key: &DeviceKey, words: String) {
        let waiting: Vec<PodUid> = {
            let mut state = self.state();
            let Some(device) = state.devices.get_mut(key) else {
                return;
            };
            if device.trouble.as_ref() == Some(&words) {
                return;
            }
            device.trouble = Some(words);
            // Those that leave are told, too.
            let concerned = device.wants.keys().chain(device.publications.keys());
            let concerned: BTreeSet<&PodUid> = concerned.collect();
            concerned.into_iter().cloned().collect()
        };
        for pod in waiting {
            self.parts.pods.add(pod);
        }
    }

    fn tell(&self, key: &DeviceKey, trouble: &csi::Trouble) {
        let words = trouble.to_string();
        let wants: Vec<Arc<Want>> = {
            let state = self.state();
            state
                .devices
                .get(key)
                .map(|d| d.wants.values().cloned().collect())
                .unwrap_or_default()
        };
        for want in &wants {
            let message = format!(
                "{} for volume {:?}: {words}",
                trouble.doing, want.volume.metadata.name
            );
            let warning = orlop_runtime::EventType::Warning;
            self.parts
                .recorder
                .say(&*want.pod, warning, trouble.reason(), message);
        }
        if wants.is_empty() {
            tracing::warn!(
                driver = key.driver,
                volume_id = key.handle,
                trouble = words,
                "{}",
                trouble.doing
            );
        }
        self.set_trouble(key, words);
    }
}

fn until(now: Timestamp, at: Timestamp) -> Duration {
    let wait = at.duration_since(now).max(SignedDuration::ZERO);
    wait.try_into().unwrap_or_default()
}

#[cfg(test)]
mod tests;
