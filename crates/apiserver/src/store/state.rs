//! The current objects and the recent events, in memory. No I/O and no waiting.
//!
//! [`State::apply`] makes a batch visible at once, after it has become durable. Readers
//! therefore see commits only, in the order of their revisions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use tokio::sync::watch;

use super::Key;
use super::audience::{Audience, News};
use super::batch::{Batch, OVERHEAD};
use super::bell::{Bell, Listener};
use super::feed::Scope;
use super::object::{Sort, Stored};

/// How many events of one resource are kept for watches to resume from.
const WINDOW_EVENTS: usize = 10_000;
/// How many bytes of object text the window of one resource may hold, a floor of
/// [`WINDOW_FLOOR`] events aside.
const WINDOW_BYTES: usize = 16 << 20;
const WINDOW_FLOOR: usize = 128;
/// After how many changes that don't matter an alarm rings all the same, so that whoever waits for
/// it stays within every window.
const ALARM_AFTER: u64 = 1024;

/// One change to one object.
#[derive(Debug, Clone)]
pub struct Event {
    /// Which object.
    pub key: Key,
    /// The object after the change; of a deletion, its last state under the deletion's revision.
    pub object: Arc<Stored>,
    /// The object before the change.
    pub before: Option<Arc<Stored>>,
    /// Whether the change removed the object.
    pub deleted: bool,
}

impl Event {
    /// The revision of the change.
    pub fn revision(&self) -> u64 {
        self.object.revision
    }

    /// What happened, to those who see every object.
    pub fn sort(&self) -> Sort {
        match (&self.before, self.deleted) {
            (_, true) => Sort::Deleted,
            (None, false) => Sort::Added,
            (Some(_), false) => Sort::Modified,
        }
    }
}

/// Everything readers can see.
#[derive(Debug)]
pub struct State {
    revision: u64,
    /// The revision the process started from: older events are unknown.
    base: u64,
    resources: BTreeMap<Arc<str>, Resource>,
    dependents: BTreeMap<Box<str>, BTreeSet<Key>>,
    /// How long a file of all objects is, at most.
    weight: u64,
    revisions: watch::Sender<u64>,
    alarms: Vec<Alarm>,
}

/// Says which changes matter to somebody.
pub type Matters = fn(&State, &Event) -> bool;

/// One who is to hear of what matters to it, of whatever resource.
#[derive(Debug)]
struct Alarm {
    matters: Matters,
    bell: Arc<Bell>,
    rung: u64,
}

/// The objects of one namespace, by name.
pub(super) type Names = BTreeMap<Arc<str>, Arc<Stored>>;

#[derive(Debug)]
struct Resource {
    objects: BTreeMap<Arc<str>, Names>,
    window: Window,
    changed_at: u64,
    audience: Audience,
}

#[derive(Debug)]
struct Window {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// The newest revision that is no longer in the window.
    forgotten: u64,
}

/// What is asked for lies before the oldest event that is still known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("revision {asked} is older than the oldest known event, {oldest}")]
pub struct Expired {
    /// The revision asked for.
    pub asked: u64,
    /// The oldest revision that could have been asked for.
    pub oldest: u64,
}

impl State {
    pub(super) fn new(revision: u64) -> Self {
        Self {
            revision,
            base: revision,
            resources: BTreeMap::new(),
            dependents: BTreeMap::new(),
            weight: 0,
            revisions: watch::Sender::new(revision),
            alarms: Vec::new(),
        }
    }

    /// Puts an object that was read from disk, without an event.
    pub(super) fn load(&mut self, key: &Key, object: Stored) {
        let object = Arc::new(object);
        self.index(key, None, Some(&object));
        self.resource(&key.resource).put(key, object);
    }

    /// The newest revision.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// How long a file of all objects is, at most.
    pub(super) fn weight(&self) -> u64 {
        self.weight
    }

    /// The object under this key.
    pub fn get(&self, key: &Key) -> Option<&Arc<Stored>> {
        self.resources
            .get(&key.resource)?
            .objects
            .get(&key.namespace)?
            .get(&key.name)
    }

    /// The same key with the names that stand here already: the window keeps thousands of them.
    pub(super) fn known(&self, mut key: Key) -> Key {
        let Some((resource, kept)) = self.resources.get_key_value(&key.resource) else {
            return key;
        };
        key.resource = Arc::clone(resource);
        if let Some((namespace, names)) = kept.objects.get_key_value(&key.namespace) {
            key.namespace = Arc::clone(namespace);
            if let Some((name, _)) = names.get_key_value(&key.name) {
                key.name = Arc::clone(name);
            }
        }
        key
    }

    /// All objects of a resource, of one namespace or of all, ordered by namespace and name.
    pub fn list<'s>(
        &'s self,
        resource: &str,
        namespace: Option<&'s str>,
    ) -> impl Iterator<Item = (&'s Arc<str>, &'s Arc<str>, &'s Arc<Stored>)> + use<'s> {
        let objects = self
            .resources
            .get(resource)
            .map(|resource| &resource.objects);
        objects
            .into_iter()
            .flatten()
            .filter(move |(at, _)| namespace.is_none_or(|wanted| wanted == &***at))
            .flat_map(|(at, names)| names.iter().map(move |(name, object)| (at, name, object)))
    }

    /// How many objects a resource has.
    pub fn count(&self, resource: &str) -> usize {
        let objects = self
            .resources
            .get(resource)
            .map(|resource| &resource.objects);
        objects
            .into_iter()
            .flatten()
            .map(|(_, names)| names.len())
            .sum()
    }

    /// The resources that have, or had, objects.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<str>> {
        self.resources.keys()
    }

    /// Everything at this moment: the revision and the objects.
    pub(super) fn all(&self) -> (u64, Vec<(Key, Arc<Stored>)>) {
        let names = self.resources.keys();
        let objects = names.flat_map(|resource| self.entries(resource, None));
        (self.revision, objects.collect())
    }

    /// The objects of one namespace of a resource.
    pub(super) fn names(&self, resource: &str, namespace: &str) -> Option<(&Arc<str>, &Names)> {
        let objects = &self.resources.get(resource)?.objects;
        objects.get_key_value(namespace)
    }

    /// The namespaces of a resource from one on, and their objects.
    pub(super) fn namespaces_from<'s>(
        &'s self,
        resource: &str,
        from: Bound<&str>,
    ) -> impl Iterator<Item = (&'s Arc<str>, &'s Names)> + use<'s> {
        let resource = self.resources.get(resource);
        let range =
            resource.map(|resource| resource.objects.range::<str, _>((from, Bound::Unbounded)));
        range.into_iter().flatten()
    }

    /// Like [`State::list`], with whole keys.
    pub fn entries<'s>(
        &'s self,
        resource: &str,
        namespace: Option<&'s str>,
    ) -> impl Iterator<Item = (Key, Arc<Stored>)> + use<'s> {
        let resource: Arc<str> = resource.into();
        let objects = self.list(&resource, namespace);
        objects.map(move |(namespace, name, object)| {
            let key = Key {
                resource: Arc::clone(&resource),
                namespace: Arc::clone(namespace),
                name: Arc::clone(name),
            };
            (key, Arc::clone(object))
        })
    }

    /// The events of a resource after a revision, oldest first.
    pub fn events_after(
        &self,
        resource: &str,
        revision: u64,
    ) -> Result<impl Iterator<Item = &Arc<Event>>, Expired> {
        let window = self
            .resources
            .get(resource)
            .map(|resource| &resource.window);
        let oldest = window.map_or(self.base, |window| window.forgotten);
        if revision < oldest {
            return Err(Expired {
                asked: revision,
                oldest,
            });
        }
        Ok(window.into_iter().flat_map(move |window| {
            let first = window
                .events
                .partition_point(|event| event.revision() <= revision);
            window.events.range(first..)
        }))
    }

    /// The revision of the last change to a resource that this process has seen.
    pub fn changed_at(&self, resource: &str) -> u64 {
        let resource = self.resources.get(resource);
        resource.map_or(0, |resource| resource.changed_at)
    }

    /// Tells when something of a resource changes.
    pub(super) fn changes(&mut self, resource: &str, scope: &Scope) -> Listener {
        self.resource(resource).audience.listen(scope)
    }

    /// Tells when something has changed that matters, and now and then besides.
    pub(super) fn alarm(&mut self, matters: Matters) -> Listener {
        self.alarms.retain(|alarm| alarm.bell.listeners() > 0);
        let bell = Arc::<Bell>::default();
        let listener = bell.listen();
        let rung = self.revision;
        self.alarms.push(Alarm {
            matters,
            bell,
            rung,
        });
        listener
    }

    /// Tells when the newest revision changes.
    pub(super) fn revisions(&self) -> watch::Receiver<u64> {
        self.revisions.subscribe()
    }

    /// The objects that name this uid among their owners.
    pub fn dependents(&self, uid: &str) -> impl Iterator<Item = &Key> {
        self.dependents.get(uid).into_iter().flatten()
    }

    /// Makes a batch visible; answers with those who wait for what is in it.
    pub(super) fn apply(&mut self, batch: &Batch) -> News {
        let mut news = News::default();
        for event in &batch.events {
            let now = (!event.deleted).then_some(&event.object);
            self.index(&event.key, event.before.as_ref(), now);
            let resource = self.resource(&event.key.resource);
            if event.deleted {
                resource.remove(&event.key);
            } else {
                resource.put(&event.key, Arc::clone(&event.object));
            }
            resource.changed_at = event.revision();
            resource.audience.concerned(&event.key, &mut news);
            resource.window.push(Arc::clone(event));
        }
        self.revision = batch.revision;
        let mut alarms = std::mem::take(&mut self.alarms);
        for alarm in &mut alarms {
            let matters = |event: &Arc<Event>| (alarm.matters)(self, event);
            if self.revision >= alarm.rung + ALARM_AFTER || batch.events.iter().any(matters) {
                alarm.rung = self.revision;
                news.add_first(&alarm.bell);
            }
        }
        self.alarms = alarms;
        self.revisions.send_replace(self.revision);
        news
    }

    fn resource(&mut self, name: &str) -> &mut Resource {
        if !self.resources.contains_key(name) {
            let window = Window {
                events: VecDeque::new(),
                bytes: 0,
                forgotten: self.base,
            };
            let resource = Resource {
                objects: BTreeMap::new(),
                window,
                changed_at: self.base,
                audience: Audience::default(),
            };
            self.resources.insert(name.into(), resource);
        }
        self.resources.get_mut(name).expect("it was inserted above")
    }

    fn index(&mut self, key: &Key, before: Option<&Arc<Stored>>, now: Option<&Arc<Stored>>) {
        let weight = |object: &Arc<Stored>| (key.len() + object.json().len()) as u64 + OVERHEAD;
        self.weight += now.map_or(0, weight);
        self.weight -= before.map_or(0, weight);
        for owner in before.iter().flat_map(|object| object.meta.owners()) {
            if let Some(keys) = self.dependents.get_mut(owner) {
                keys.remove(key);
                if keys.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
        for owner in now.iter().flat_map(|object| object.meta.owners()) {
            self.dependents
                .entry(owner.into())
                .or_default()
                .insert(key.clone());
        }
    }
}

impl Resource {
    fn put(&mut self, key: &Key, object: Arc<Stored>) {
        let names = self.objects.entry(Arc::clone(&key.namespace)).or_default();
        names.insert(Arc::clone(&key.name), object);
    }

    fn remove(&mut self, key: &Key) {
        if let Some(names) = self.objects.get_mut(&key.namespace) {
            names.remove(&key.name);
            if names.is_empty() {
                self.objects.remove(&key.namespace);
            }
        }
    }
}

impl Window {
    fn push(&mut self, event: Arc<Event>) {
        self.bytes += event.object.json().len();
        self.events.push_back(event);
        while self.events.len() > WINDOW_EVENTS
            || (self.bytes > WINDOW_BYTES && self.events.len() > WINDOW_FLOOR)
        {
            let Some(oldest) = self.events.pop_front() else {
                break;
            };
            self.bytes -= oldest.object.json().len();
            self.forgotten = oldest.revision();
        }
    }
}
