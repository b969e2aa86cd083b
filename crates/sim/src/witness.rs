//! Sees every change of an object in the order of its commit, and what the backend does
//! between them; writes down what must never be.
//!
//! It reads the API server's store directly, so that no cache and no delay stands between
//! it and the truth. It decides nothing and changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use orlop_apiserver::store::{Event, Store};
use orlop_model::{
    Claim, CsiStorageCapacity, Key, Kind, Node, Pod, Volume, VolumeAttachment, VolumeGroupSnapshot,
    VolumeGroupSnapshotContent, VolumeSnapshot, VolumeSnapshotContent,
};
use tokio::sync::watch;

use crate::backend::{Backend, Breach};
use crate::trace::Trace;

mod rules;
mod snapshots;

/// The objects that the rules are about, as they are now.
#[derive(Debug, Default)]
pub struct Objects {
    /// Claims.
    pub claims: BTreeMap<Key, Claim>,
    /// Volumes, by name.
    pub volumes: BTreeMap<String, Volume>,
    /// Attachments, by name.
    pub attachments: BTreeMap<String, VolumeAttachment>,
    /// Pods.
    pub pods: BTreeMap<Key, Pod>,
    /// Nodes, by name.
    pub nodes: BTreeMap<String, Node>,
    /// How much room is told of, by the object's name.
    pub capacities: BTreeMap<String, CsiStorageCapacity>,
    /// Snapshots.
    pub snapshots: BTreeMap<Key, VolumeSnapshot>,
    /// Their contents, by name.
    pub contents: BTreeMap<String, VolumeSnapshotContent>,
    /// Group snapshots.
    pub groups: BTreeMap<Key, VolumeGroupSnapshot>,
    /// Their contents, by name.
    pub group_contents: BTreeMap<String, VolumeGroupSnapshotContent>,
}

/// What the witness knows of the backend.
#[derive(Debug, Default)]
struct Facts {
    volumes: BTreeSet<String>,
    /// Pods that ended well, by uid.
    succeeded: BTreeSet<String>,
    /// Sizes of the file systems, by volume.
    file_systems: BTreeMap<String, i64>,
    /// Volume and node.
    attached: BTreeSet<(String, String)>,
    snapshots: BTreeSet<String>,
    groups: BTreeSet<String>,
    /// Uids of pods whose processes run.
    running: BTreeSet<String>,
}

struct State {
    store: Store,
    trace: Trace,
    seen: u64,
    objects: Objects,
    facts: Facts,
    breaches: Vec<Breach>,
    /// Those by calls to the backend of processes that were deposed.
    by_deposed: Vec<Breach>,
    /// Whom a uid belongs to, in words that are the same in every run.
    names: BTreeMap<String, String>,
    /// Changes so far, those of nodes left out: a heartbeat is no change of the world.
    changes: u64,
}

/// The witness; clones share what it saw.
#[derive(Clone)]
pub struct Witness {
    state: Arc<Mutex<State>>,
    changed: Arc<watch::Sender<u64>>,
    /// Whether the process whose calls it is told of was deposed.
    deposed: Arc<AtomicBool>,
}

impl Witness {
    /// Looks at this store from now on.
    pub fn new(store: Store, trace: Trace) -> Self {
        let seen = store.read().revision();
        let state = State {
            store,
            trace,
            seen,
            objects: Objects::default(),
            facts: Facts::default(),
            breaches: Vec::new(),
            by_deposed: Vec::new(),
            names: BTreeMap::new(),
            changes: 0,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            changed: Arc::new(watch::Sender::new(0)),
            deposed: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what was committed since the last look.
    pub fn look(&self) {
        let mut state = self.lock();
        let events = state.news();
        for event in &events {
            state.take_in(event);
        }
        drop(state);
        if !events.is_empty() {
            self.changed.send_modify(|count| *count += 1);
        }
    }

    /// Tells when there was something to see.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// How many changes there were, heartbeats of nodes left out.
    pub fn count(&self) -> u64 {
        self.lock().changes
    }

    /// Looks at the objects.
    pub fn objects<T>(&self, look: impl FnOnce(&Objects) -> T) -> T {
        look(&self.lock().objects)
    }

    /// Every rule that was broken, but by calls of who was deposed.
    pub fn breaches(&self) -> Vec<Breach> {
        self.lock().breaches.clone()
    }

    /// Every rule that was broken by a call of who was deposed.
    pub fn breaches_by_deposed(&self) -> Vec<Breach> {
        self.lock().by_deposed.clone()
    }

    /// The same witness, told of the calls of a process that is deposed when this says so.
    #[must_use]
    pub fn of_calls_by(&self, deposed: Arc<AtomicBool>) -> Self {
        Self {
            deposed,
            ..self.clone()
        }
    }

    /// The text with every uid replaced by words that are the same in every run.
    pub fn without_uids(&self, mut text: String) -> String {
        for (uid, name) in &self.lock().names {
            if text.contains(uid.as_str()) {
                text = text.replace(uid, name);
            }
        }
        text
    }

    /// Takes the backend's complaints and its present state.
    pub fn backend_is(&self, backend: &Backend, breaches: Vec<Breach>) {
        let mut state = self.lock();
        state.facts.volumes = backend.volumes().keys().cloned().collect();
        let sizes = backend.volumes().iter();
        state.facts.file_systems = sizes
            .map(|(id, volume)| (id.clone(), volume.file_system))
            .collect();
        let attached = backend.volumes().iter().flat_map(|(id, volume)| {
            volume
                .attached
                .keys()
                .map(|node| (id.clone(), node.clone()))
        });
        state.facts.attached = attached.collect();
        state.facts.snapshots = backend.snapshots().keys().cloned().collect();
        state.facts.groups = backend.groups().keys().cloned().collect();
        self.blame_caller(state, breaches);
    }

    /// Writes down that rules were broken.
    pub fn blame(&self, breaches: Vec<Breach>) {
        self.lock().blame(breaches);
    }

    /// A volume is about to be made.
    pub fn before_create(&self, name: &str) {
        self.judge(|objects, _| rules::create(objects, name));
    }

    /// A volume is about to be cloned.
    pub fn before_clone(&self, source: &str) {
        self.judge(|objects, _| rules::clone(objects, source));
    }

    /// A volume is about to be deleted.
    pub fn before_delete(&self, id: &str) {
        self.judge(|objects, _| rules::delete(objects, id));
    }

    /// A volume is about to grow.
    pub fn before_expand(&self, id: &str, bytes: i64) {
        self.judge(|objects, _| rules::expand(objects, id, bytes));
    }

    /// A volume's attributes are about to change.
    pub fn before_modify(&self, id: &str) {
        self.judge(|objects, _| rules::modify(objects, id));
    }

    /// A volume is about to grow on its node.
    pub fn before_expand_on_node(&self, id: &str) {
        self.judge(|objects, _| rules::expand_on_node(objects, id));
    }

    /// A volume is about to be attached.
    pub fn before_attach(&self, id: &str, node: &str) {
        self.judge(|objects, _| rules::attach(objects, id, node));
    }

    /// A volume is about to be mounted on a node.
    pub fn before_stage(&self, id: &str, node: &str) {
        self.judge(|objects, _| rules::stage(objects, id, node));
    }

    /// A container of a pod is about to start.
    pub fn before_start(&self, uid: &str) {
        self.judge(|objects, _| rules::start(objects, uid));
    }

    /// A volume is about to be taken from a pod.
    pub fn before_unpublish(&self, path: &str) {
        self.judge(|_, facts| rules::unpublish(facts, path));
    }

    /// A volume is about to be made from a snapshot.
    pub fn before_restore(&self, id: &str) {
        self.judge(|objects, _| snapshots::restore(objects, id));
    }

    /// A snapshot is about to be cut.
    pub fn before_cut(&self, name: &str) {
        self.judge(|objects, _| snapshots::cut(objects, name));
    }

    /// A snapshot is about to be deleted.
    pub fn before_uncut(&self, id: &str) {
        self.judge(|objects, facts| snapshots::uncut(objects, facts, id));
    }

    /// A group is about to be cut.
    pub fn before_cut_group(&self, name: &str) {
        self.judge(|objects, _| snapshots::cut_group(objects, name));
    }

    /// A group is about to be deleted.
    pub fn before_uncut_group(&self, id: &str) {
        self.judge(|objects, facts| snapshots::uncut_group(objects, facts, id));
    }

    /// A pod's processes run, or do so no more.
    pub fn pod_runs(&self, uid: &str, runs: bool) {
        let mut state = self.lock();
        if runs {
            state.facts.running.insert(uid.to_owned());
        } else {
            state.facts.running.remove(uid);
        }
    }

    fn judge(&self, rule: impl FnOnce(&Objects, &Facts) -> Vec<Breach>) {
        let state = self.lock();
        let breaches = rule(&state.objects, &state.facts);
        self.blame_caller(state, breaches);
    }

    fn blame_caller(&self, mut state: MutexGuard<'_, State>, breaches: Vec<Breach>) {
        if !self.deposed.load(Ordering::Relaxed) {
            return state.blame(breaches);
        }
        for Breach { rule, what } in &breaches {
            state
                .trace
                .say(format!("BREACH {rule} by one who was deposed: {what}"));
        }
        state.by_deposed.extend(breaches);
    }
}

impl State {
    /// The events of every resource since the last look, in the order of their commits.
    fn news(&mut self) -> Vec<Arc<Event>> {
        let store = self.store.read();
        let mut events: Vec<Arc<Event>> = store
            .resources()
            .filter(|resource| !matches!(&***resource, "events" | "leases.coordination.k8s.io"))
            .flat_map(|resource| {
                let news = store.events_after(resource, self.seen);
                news.expect("the window is larger than what one call changes")
                    .cloned()
            })
            .collect();
        events.sort_by_key(|event| event.revision());
        self.seen = store.revision();
        drop(store);
        events
    }

    fn take_in(&mut self, event: &Event) {
        let what = if event.deleted { "gone" } else { "is" };
        self.trace
            .say(format!("  {} {what} at {}", event.key, event.revision()));
        let uid = event.object.meta.uid().to_owned();
        self.names
            .entry(uid)
            .or_insert_with(|| format!("<uid of {}>", event.key));
        match &*event.key.resource {
            "persistentvolumeclaims" => {
                let before = put(&mut self.objects.claims, event, Key::clone);
                self.changes += 1;
                if !event.deleted {
                    let claim = Claim::decode(event.object.json()).expect("the server wrote it");
                    let breaches =
                        rules::claim_size(&self.objects, &self.facts, before.as_ref(), &claim);
                    self.blame(breaches);
                }
            }
            "persistentvolumes" => {
                let before = put(&mut self.objects.volumes, event, |key| key.name.clone());
                self.changes += 1;
                match before {
                    Some(volume) if event.deleted => {
                        self.blame(rules::volume_gone(&self.facts, &volume));
                    }
                    Some(before) => {
                        let breaches = rules::given_on(&self.objects, &self.facts, &before);
                        self.blame(breaches);
                    }
                    None => {}
                }
            }
            "volumeattachments.storage.k8s.io" => {
                let before = put(&mut self.objects.attachments, event, |key| key.name.clone());
                self.changes += 1;
                if let (true, Some(attachment)) = (event.deleted, before) {
                    self.blame(rules::attachment_gone(
                        &self.objects,
                        &self.facts,
                        &attachment,
                    ));
                }
            }
            "pods" => {
                put(&mut self.objects.pods, event, Key::clone);
                self.changes += 1;
                let pod = Pod::decode(event.object.json()).expect("the server wrote it");
                if pod.phase() == orlop_model::PodPhase::Succeeded {
                    self.facts.succeeded.insert(pod.metadata.uid.clone());
                }
                self.blame(rules::scrub(&self.objects, &pod));
            }
            "nodes" => {
                put(&mut self.objects.nodes, event, |key| key.name.clone());
            }
            "csistoragecapacities.storage.k8s.io" => {
                put(&mut self.objects.capacities, event, |key| key.name.clone());
                self.changes += 1;
            }
            "volumesnapshots.snapshot.storage.k8s.io" => {
                put(&mut self.objects.snapshots, event, Key::clone);
                self.changes += 1;
            }
            "volumesnapshotcontents.snapshot.storage.k8s.io" => {
                let before = put(&mut self.objects.contents, event, |key| key.name.clone());
                self.changes += 1;
                if let (true, Some(content)) = (event.deleted, before) {
                    self.blame(snapshots::content_gone(&self.facts, &content));
                }
            }
            "volumegroupsnapshots.groupsnapshot.storage.k8s.io" => {
                put(&mut self.objects.groups, event, Key::clone);
                self.changes += 1;
                let breaches = snapshots::groups(&self.objects);
                self.blame(breaches);
            }
            "volumegroupsnapshotcontents.groupsnapshot.storage.k8s.io" => {
                let before = put(&mut self.objects.group_contents, event, |key| {
                    key.name.clone()
                });
                self.changes += 1;
                if let (true, Some(content)) = (event.deleted, before) {
                    self.blame(snapshots::group_content_gone(&self.facts, &content));
                }
            }
            _ => self.changes += 1,
        }
        self.blame(rules::bindings(&self.objects));
    }

    fn blame(&mut self, breaches: Vec<Breach>) {
        for breach in breaches {
            // A state that lasts is one breach, not one per look.
            if !self.breaches.contains(&breach) {
                self.trace
                    .say(format!("BREACH {}: {}", breach.rule, breach.what));
                self.breaches.push(breach);
            }
        }
    }
}

/// Applies an event to a map; returns what was there before.
fn put<K: Kind, I: Ord>(
    map: &mut BTreeMap<I, K>,
    event: &Event,
    by: impl FnOnce(&Key) -> I,
) -> Option<K> {
    let object = K::decode(event.object.json()).expect("the server wrote it");
    let at = by(&object.key());
    if event.deleted {
        map.remove(&at)
    } else {
        map.insert(at, object)
    }
}
