//! FlexVolumes: what is known of their drivers, whose turn it is, and what others before us have attached.
//!
//! Each attachment has turns of its own, as many at a time as there are attachments, so that a driver
//! that hangs keeps nobody waiting but those who want this very volume.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use orlop_model::{Node, VolumeAttachment, flex as names, well_known};
use orlop_runtime::{ApiError, Backoff, Change, Outcome, Process, Queue, work};
use tracing::{info, warn};

mod calls;
mod crowd;

use crowd::{FirstSight, Places};

use super::AttachDetach;
use crate::attach_detach::{
    actual,
    decide::Verdict,
    flex::{self, Ability, FlexDrivers, Step, Trouble},
};

/// How soon a driver that failed is called again: kube-controller-manager's times.
const BACKOFF: Backoff = Backoff {
    first: Duration::from_millis(500),
    most: Duration::from_secs(122),
};

/// When a driver that isn't there is looked for again. It is noticed when it comes, unless its folder can't be
/// watched.
const LOOK_AGAIN: Duration = Duration::from_secs(5 * 60);

/// What a driver is known to do, or why that isn't known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is being asked.
    Asked,
    Known(Ability),
    Troubled(Trouble),
}

/// What is needed to serve FlexVolumes.
#[derive(Clone)]
pub(in super::super) struct Flex {
    drivers: Arc<dyn FlexDrivers>,
    /// Attachments, by name.
    queue: Queue<String>,
    /// Drivers that are to be asked what they do.
    asking: Queue<String>,
    /// An attach that waits keeps no detach waiting, nor the other way round.
    attaching: Places,
    detaching: Places,
    first_sight: FirstSight,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    known: BTreeMap<String, Standing>,
    /// What drivers were told when they attached, by attachment: they may be asked whether a volume
    /// is attached when nobody wants it any more.
    options: BTreeMap<String, String>,
    /// Attachments that nobody wanted when their turn came.
    idle: BTreeSet<String>,
}

impl Flex {
    pub(super) fn new(process: &Process, drivers: Arc<dyn FlexDrivers>) -> Self {
        let queue = Queue::new(BACKOFF);
        Self {
            drivers,
            queue: queue.measured(&process.metrics, "attach_detach_flex"),
            asking: Queue::new(BACKOFF),
            attaching: Places::default(),
            detaching: Places::default(),
            first_sight: FirstSight::default(),
            inner: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a driver. One that isn't known is asked; who wants its volumes is woken then.
    pub(super) fn standing(&self, driver: &str) -> Standing {
        let mut inner = self.lock();
        if let Some(standing) = inner.known.get(driver) {
            return standing.clone();
        }
        inner.known.insert(driver.to_owned(), Standing::Asked);
        drop(inner);
        self.asking.add(driver.to_owned());
        Standing::Asked
    }

    /// Whether a driver's volumes are known not to be ours.
    pub(super) fn is_left_to_nodes(&self, driver: &str) -> bool {
        self.standing(driver) == Standing::Known(Ability::LeftToNodes)
    }

    /// Whether a driver has said that it attaches; it isn't asked for that.
    pub(in super::super) fn is_known_to_attach(&self, driver: &str) -> bool {
        self.lock().known.get(driver) == Some(&Standing::Known(Ability::Attaches))
    }

    fn attaches(&self, driver: &str) -> bool {
        self.standing(driver) == Standing::Known(Ability::Attaches)
    }

    /// An attachment stands at its begin, and a pod wants it.
    pub(super) fn is_wanted(&self, name: &str) {
        if self.lock().idle.remove(name) {
            self.queue.add(name.to_owned());
        }
    }

    /// A driver is about to be called to attach.
    fn begins(&self, name: &str, options: String) {
        let mut inner = self.lock();
        inner.idle.remove(name);
        inner.options.insert(name.to_owned(), options);
    }

    /// Whoever is called for changes is called for them alone, and not for what the calls' own outcomes
    /// say: those have their own pace.
    pub(super) fn attachment_changed(&self, change: &Change<'_, VolumeAttachment>) {
        let attachment = change.object();
        if !flex::is_ours(attachment) {
            return;
        }
        let name = &attachment.metadata.name;
        match change {
            Change::Deleted(_) => {
                let mut inner = self.lock();
                inner.options.remove(name);
                inner.idle.remove(name);
            }
            Change::Applied { old, new } => {
                let same = |old: &Arc<VolumeAttachment>| {
                    old.metadata.uid == new.metadata.uid && flex::step(old) == flex::step(new)
                };
                if !old.is_some_and(same) {
                    self.queue.add(name.clone());
                }
            }
        }
    }
}

impl AttachDetach {
    /// Whether its driver wants some storage attached, as far as we know.
    pub(super) fn is_attachable(&self, unique: &str) -> bool {
        if let Some((driver, _)) = actual::parts(unique) {
            return self.known.is_attachable(driver);
        }
        let left = |flex: &Flex| {
            let driver = names::parts(unique).map(|(driver, _)| driver);
            driver.is_some_and(|driver| flex.is_left_to_nodes(driver))
        };
        !self.flex.as_ref().is_some_and(left)
    }

    /// Lets go of storage that nobody wants and that is attached nowhere, and with the last of it of what is
    /// known of its driver.
    pub(super) fn forget(&self, unique: &str) {
        self.known.forget(unique);
        if let (Some(flex), Some((driver, _))) = (&self.flex, names::parts(unique))
            && !self.known.has_any_of(driver)
        {
            flex.lock().known.remove(driver);
        }
    }

    /// Whether an attachment's driver is called by us, or by an attacher of its own.
    pub(super) fn is_served(&self, attachment: &VolumeAttachment) -> bool {
        self.flex.is_some() || attachment.spec.attacher != well_known::FLEX_ATTACHER
    }

    /// A verdict on some storage, as far as its driver can be called for it; `None` if that will be
    /// known later, or is nobody's business.
    pub(super) fn as_its_driver_may(
        &self,
        unique: &str,
        node: &str,
        verdict: Verdict,
    ) -> Option<Verdict> {
        let (Some(flex), Some((driver, _))) = (&self.flex, names::parts(unique)) else {
            return Some(verdict);
        };
        match &verdict {
            Verdict::Attach => {}
            Verdict::Held | Verdict::Refused(_) => {
                flex.is_wanted(&flex::record(unique, node, None).metadata.name);
                return Some(verdict);
            }
            _ => return Some(verdict),
        }
        match flex.standing(driver) {
            Standing::Known(_) => Some(verdict),
            Standing::Asked => None,
            Standing::Troubled(trouble) => {
                // A driver that doesn't attach needn't be here. Its kubelet knows: only for one that
                // does is a volume in use before it is mounted.
                let node = self.known.nodes.named(node)?;
                let waits = flex::used(&node).any(|used| used == unique);
                waits.then(|| Verdict::Refused(trouble.to_string()))
            }
        }
    }

    /// A node begins to use FlexVolumes: pods there may have to be told of their drivers.
    pub(super) fn flex_used(&self, old: Option<&Node>, node: &Node) {
        if self.flex.is_none() {
            return;
        }
        let old: Vec<&String> = old.iter().flat_map(|old| flex::used(old)).collect();
        for unique in flex::used(node).filter(|unique| !old.contains(unique)) {
            self.volume_queue.add(unique.clone());
        }
    }

    /// Serves FlexVolumes, for ever.
    pub(super) async fn serve_flex(&self) {
        let Some(flex) = &self.flex else { return };
        let came = async {
            loop {
                flex.drivers.came().await;
                let known: Vec<String> = flex.lock().known.keys().cloned().collect();
                known.into_iter().for_each(|driver| flex.asking.add(driver));
            }
        };
        let (queue, asking) = (flex.queue.clone(), flex.asking.clone());
        futures::join!(
            work(queue, usize::MAX, |name| self.flex_turn(flex, name)),
            work(asking, usize::MAX, |driver| self.ask(flex, driver)),
            came,
        );
    }

    /// Asks a driver what it does, and wakes whom that concerns.
    async fn ask(&self, flex: &Flex, driver: String) -> Outcome {
        // Whatever names pods have made up, they are forgotten with them.
        if !flex.lock().known.contains_key(&driver) {
            return Outcome::Done;
        }
        let answer = flex.drivers.ability(&driver).await;
        let (standing, outcome) = match answer {
            Ok(ability) => (Standing::Known(ability), Outcome::Done),
            Err(missing @ Trouble::Missing(_)) => {
                (Standing::Troubled(missing), Outcome::After(LOOK_AGAIN))
            }
            Err(trouble) => {
                warn!(driver, error = %trouble, "a FlexVolume driver doesn't say what it does");
                (Standing::Troubled(trouble), Outcome::Retry)
            }
        };
        match flex.lock().known.get_mut(&driver) {
            None => return Outcome::Done,
            Some(before) if *before == standing => return outcome,
            Some(before) => *before = standing,
        }
        let of_driver = |unique: &str| names::parts(unique).is_some_and(|(of, _)| of == driver);
        let all = self.known.all().into_iter();
        for unique in all.filter(|unique| of_driver(unique)) {
            self.volume_queue.add(unique);
        }
        for attachment in self.known.attachments.all() {
            if flex::unique_name(&attachment).is_some_and(of_driver) {
                flex.queue.add(attachment.metadata.name.clone());
            }
        }
        for node in self.known.nodes.all() {
            if flex::told(&node).any(|volume| of_driver(&volume.name)) {
                self.node_queue.add(node.metadata.name.clone());
            }
        }
        outcome
    }

    /// Takes down as ours what a node was told to have by somebody before us.
    pub(super) async fn adopt(&self, name: &str, node: Option<&Node>) -> Result<(), ApiError> {
        let Some(flex) = &self.flex else {
            return Ok(());
        };
        let Some(node) = node.filter(|node| !flex::is_left_alone(node)) else {
            flex.first_sight.forget(name);
            return Ok(());
        };
        let first_seen = flex.first_sight.of(node);
        for told in flex::told(node) {
            let before_us = first_seen.contains(&told.name);
            let awaited = || !self.known.unit(&told.name).wishes.is_empty();
            let attaches = || names::parts(&told.name).is_some_and(|(of, _)| flex.attaches(of));
            let record = match self.known.flex_record(&told.name, name) {
                _ if told.device_path.len() > flex::LONGEST_DEVICE => None,
                // Taking it over was broken off. Until that is done the node would be told that the volume
                // isn't there any more.
                Some(record) if before_us && flex::step(&record) == Step::Attach => {
                    Some(VolumeAttachment::clone(&record))
                }
                // Of what wasn't there before us, what a pod waits for may have to come off first.
                None if (before_us || awaited()) && attaches() => {
                    let volume = self.known.flex_object(&told.name);
                    let record = flex::record(&told.name, name, volume.as_deref());
                    Some(self.cluster.create(&record).await?)
                }
                Some(_) | None => None,
            };
            if let Some(record) = record {
                info!(volume = told.name, node = name, "attachment taken over");
                let taken = self.say_attached(&record, &told.device_path).await?;
                self.known.attachments.absorb(taken);
            }
        }
        Ok(())
    }
}
