//! A kind's objects in memory, as the watch last showed them.
//!
//! Reads never wait. Versions only go forward: an answer to one of our own writes may
//! be put in ahead of the watch ([`Cache::absorb`]), but neither it nor a late watch
//! event can bring back an older version or an object that was deleted since.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, hash_map::Entry},
    ops::{Bound, ControlFlow},
    sync::{
        Arc, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use orlop_model::{Key, Kind};
use serde_json::value::RawValue;
use tokio::sync::Notify;

use crate::{library::Library, watch::Mirror};

mod ends;

use ends::Ends;

/// A change of one object.
#[derive(Debug)]
pub enum Change<'a, K> {
    /// It appeared or changed.
    Applied {
        /// What it was.
        old: Option<&'a Arc<K>>,
        /// What it is.
        new: &'a Arc<K>,
    },
    /// It is gone.
    Deleted(&'a Arc<K>),
}

impl<K: Kind> Change<'_, K> {
    /// The object, as it is or was.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Self::Applied { new, .. } => new,
            Self::Deleted(old) => old,
        }
    }
}

type Subscriber<K> = Box<dyn Fn(&Change<'_, K>) + Send + Sync>;
type Extract<K> = fn(&K) -> Vec<String>;
/// Values and the keys under them. Keys are shared with the objects: an entry costs little more
/// than its value.
type Entries = BTreeSet<(Box<str>, Arc<Key>)>;

struct Shelf<K> {
    /// In no order: in one of names, each of the many looks costs a dozen comparisons of keys that lie
    /// all over the memory.
    objects: HashMap<Arc<Key>, Arc<K>>,
    /// The newest version that the watch has told of.
    frontier: u64,
    indexes: BTreeMap<&'static str, (Extract<K>, Entries)>,
    ends: Ends,
}

/// Whether the first list is in. Those who wait are told in the order in which they came, on which a
/// `watch` channel leaves chance to decide.
#[derive(Default)]
struct Synced {
    done: AtomicBool,
    told: Notify,
}

/// A kind's objects.
pub struct Cache<K> {
    shelf: Arc<RwLock<Shelf<K>>>,
    subscribers: Arc<RwLock<Vec<Subscriber<K>>>>,
    synced: Arc<Synced>,
    /// Where other processes of this program may have read the same.
    reads_at: Option<Library>,
}

impl<K> Clone for Cache<K> {
    fn clone(&self) -> Self {
        Self {
            shelf: self.shelf.clone(),
            subscribers: self.subscribers.clone(),
            synced: self.synced.clone(),
            reads_at: self.reads_at.clone(),
        }
    }
}

impl<K: Kind> Cache<K> {
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        Self::reading_from(None)
    }

    pub(crate) fn reading_from(library: Option<Library>) -> Self {
        let shelf = Shelf {
            objects: HashMap::new(),
            frontier: 0,
            indexes: BTreeMap::new(),
            ends: Ends::default(),
        };
        Self {
            shelf: Arc::new(RwLock::new(shelf)),
            subscribers: Arc::default(),
            synced: Arc::default(),
            reads_at: library,
        }
    }

    fn decode(&self, json: &[u8]) -> Result<Arc<K>, serde_json::Error> {
        match &self.reads_at {
            Some(library) => library.read(json),
            None => K::decode(json).map(Arc::new),
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Shelf<K>> {
        self.shelf
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Shelf<K>> {
        self.shelf
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The object, if it is there.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.read().objects.get(key).cloned()
    }

    /// The cluster-scoped object of that name, if it is there.
    pub fn named(&self, name: &str) -> Option<Arc<K>> {
        self.get(&Key::cluster(name))
    }

    /// Whether the watch has told of the end of the object of this uid, which is proof for good. `false`
    /// says nothing: only the last ones are remembered, and lists don't tell of ends.
    pub fn saw_end_of(&self, uid: &str) -> bool {
        self.read().ends.has(uid)
    }

    /// All objects, by key.
    pub fn all(&self) -> Vec<Arc<K>> {
        let mut all: Vec<(Arc<Key>, Arc<K>)> = {
            let shelf = self.read();
            let pairs = shelf.objects.iter();
            pairs
                .map(|(key, object)| (key.clone(), object.clone()))
                .collect()
        };
        all.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        all.into_iter().map(|(_, object)| object).collect()
    }

    /// All objects, in no order: for who counts them.
    pub fn in_any_order(&self) -> Vec<Arc<K>> {
        self.read().objects.values().cloned().collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.read().objects.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Calls back on every change from now on, and at once for everything that is there.
    /// The callback must be quick: it puts a key into a queue.
    pub fn subscribe(&self, callback: impl Fn(&Change<'_, K>) + Send + Sync + 'static) {
        // Held while replaying, so that no change slips between replay and subscription;
        // a change may be told twice, which is harmless.
        let mut subscribers = self
            .subscribers
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        for object in self.all() {
            callback(&Change::Applied {
                old: None,
                new: &object,
            });
        }
        subscribers.push(Box::new(callback));
    }

    /// Keeps an index of the objects by what `extract` says of them, under a name that is
    /// unique per kind. Asking for the same name again gives the same index.
    pub fn index(&self, name: &'static str, extract: fn(&K) -> Vec<String>) -> Index<K> {
        let mut shelf = self.write();
        let shelf = &mut *shelf;
        shelf.indexes.entry(name).or_insert_with(|| {
            let mut entries = Entries::new();
            for (key, object) in &shelf.objects {
                for value in extract(object) {
                    entries.insert((value.into(), key.clone()));
                }
            }
            (extract, entries)
        });
        Index {
            cache: self.clone(),
            name,
        }
    }

    /// Waits until the first list is in.
    pub async fn synced(&self) {
        // Made before the look, so that it hears of what happens after it.
        let told = self.synced.told.notified();
        if !self.is_synced() {
            told.await;
        }
    }

    /// Whether the first list is in.
    pub fn is_synced(&self) -> bool {
        self.synced.done.load(Ordering::Acquire)
    }

    /// Takes in the answer to one of our own writes, so that the next decision sees it
    /// even if the watch is behind.
    pub fn absorb(&self, object: K) {
        let revision = object.meta().revision();
        let known = {
            let shelf = self.read();
            match shelf.objects.get(&object.key()) {
                Some(have) => revision <= have.meta().revision(),
                // Not there, though the watch is past it: it was deleted since.
                None => revision <= shelf.frontier,
            }
        };
        let done = object.meta().is_deleting() && object.meta().finalizers.is_empty();
        if !known && !done {
            self.put(&Arc::new(object));
        }
    }

    /// As [`Cache::absorb`], of what is gone if nothing held it any more: not for pods, whose deletion
    /// takes its time.
    pub fn absorb_or_end(&self, object: K) {
        let meta = object.meta();
        if !meta.is_deleting() || !meta.finalizers.is_empty() {
            return self.absorb(object);
        }
        self.end(&object);
    }

    /// Takes out what the API server has told to be gone, ahead of the watch.
    pub fn end(&self, object: &K) {
        let (key, uid) = (object.key(), &object.meta().uid);
        self.end_of(uid);
        if self.get(&key).is_some_and(|have| have.meta().uid == *uid) {
            self.remove(&key);
        }
    }

    pub(crate) fn put(&self, new: &Arc<K>) {
        let key = new.key();
        let old = {
            let mut shelf = self.write();
            // A late event must not bring back what is gone.
            if shelf.ends.has(&new.meta().uid) {
                return;
            }
            match shelf.insert(key, new) {
                Put::Late => return,
                Put::Done(old) => old,
            }
        };
        // Another of its name, whose beginning and whose forerunner's end were missed: who followed
        // the one has nothing to do with the other.
        let old = match old {
            Some(old) if old.meta().uid != new.meta().uid => {
                self.tell(&Change::Deleted(&old));
                None
            }
            old => old,
        };
        self.tell(&Change::Applied {
            old: old.as_ref(),
            new,
        });
    }

    pub(crate) fn remove(&self, key: &Key) {
        let old = self.write().take(key);
        if let Some(old) = old {
            self.tell(&Change::Deleted(&old));
        }
    }

    /// The API server has told that the object of this uid, which isn't here, is gone: a watch that is
    /// behind doesn't bring it back.
    pub fn end_of(&self, uid: &str) {
        self.write().ends.add(uid);
    }

    pub(crate) fn advance(&self, revision: u64) {
        let mut shelf = self.write();
        shelf.frontier = shelf.frontier.max(revision);
    }

    /// Makes the cache equal to a full list.
    pub(crate) fn replace(&self, listed: &[Arc<K>], revision: u64) {
        let keep: HashSet<Key> = listed.iter().map(|object| object.key()).collect();
        let mut gone: Vec<Arc<Key>> = self
            .read()
            .objects
            .keys()
            .filter(|k| !keep.contains(&***k))
            .cloned()
            .collect();
        gone.sort_unstable();
        for key in gone {
            self.remove(&key);
        }
        for object in listed {
            self.put(object);
        }
        self.advance(revision);
        self.synced.done.store(true, Ordering::Release);
        self.synced.told.notify_waiters();
    }

    fn tell(&self, change: &Change<'_, K>) {
        let subscribers = self
            .subscribers
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        for subscriber in subscribers.iter() {
            subscriber(change);
        }
    }
}

impl<K: Kind> Mirror for Cache<K> {
    fn put(&self, json: &[u8]) -> Result<String, serde_json::Error> {
        let object = self.decode(json)?;
        let version = object.meta().resource_version.clone();
        Cache::put(self, &object);
        Ok(version)
    }

    fn remove(&self, key: &Key) {
        Cache::remove(self, key);
    }

    fn ended(&self, uid: &str) {
        self.end_of(uid);
    }

    fn advance(&self, revision: u64) {
        Cache::advance(self, revision);
    }

    fn replace(&self, items: &[Box<RawValue>], revision: u64) -> Vec<(usize, serde_json::Error)> {
        let mut objects = Vec::with_capacity(items.len());
        let mut unreadable = Vec::new();
        for (index, item) in items.iter().enumerate() {
            match self.decode(item.get().as_bytes()) {
                Ok(object) => objects.push(object),
                Err(error) => unreadable.push((index, error)),
            }
        }
        Cache::replace(self, &objects, revision);
        unreadable
    }
}

/// What became of an object that was put in.
enum Put<K> {
    /// A newer version of it is there.
    Late,
    /// It is in; this was there before.
    Done(Option<Arc<K>>),
}

impl<K: Kind> Shelf<K> {
    fn insert(&mut self, key: Key, object: &Arc<K>) -> Put<K> {
        let entry = self.objects.entry(Arc::new(key));
        let (key, old) = match entry {
            Entry::Occupied(mut there) => {
                let (have, new) = (there.get().meta(), object.meta());
                if have.uid == new.uid && have.revision() > new.revision() {
                    return Put::Late;
                }
                let old = there.insert(object.clone());
                (there.key().clone(), Some(old))
            }
            Entry::Vacant(free) => {
                let key = free.key().clone();
                free.insert(object.clone());
                (key, None)
            }
        };
        for (extract, entries) in self.indexes.values_mut() {
            let new = extract(object);
            if let Some(old) = &old {
                let before = extract(old);
                // Most changes leave most values alone.
                if before == new {
                    continue;
                }
                drop_entries(entries, &key, before);
            }
            for value in new {
                entries.insert((value.into(), key.clone()));
            }
        }
        Put::Done(old)
    }

    fn take(&mut self, key: &Key) -> Option<Arc<K>> {
        let (key, old) = self.objects.remove_entry(key)?;
        for (extract, entries) in self.indexes.values_mut() {
            drop_entries(entries, &key, extract(&old));
        }
        Some(old)
    }
}

fn drop_entries(entries: &mut Entries, key: &Arc<Key>, values: Vec<String>) {
    for value in values {
        entries.remove(&(value.into(), key.clone()));
    }
}

/// The entries from a value on.
fn from<'a>(
    entries: &'a Entries,
    value: &str,
) -> impl Iterator<Item = &'a (Box<str>, Arc<Key>)> + use<'a> {
    // No key is less than the empty one.
    let first = (value.into(), Arc::default());
    entries.range((Bound::Included(first), Bound::Unbounded))
}

/// Finds a kind's objects by something other than their key.
pub struct Index<K> {
    cache: Cache<K>,
    name: &'static str,
}

impl<K> Clone for Index<K> {
    fn clone(&self) -> Self {
        Self {
            cache: self.cache.clone(),
            name: self.name,
        }
    }
}

impl<K: Kind> Index<K> {
    /// The objects under this value, by key.
    pub fn get(&self, value: &str) -> Vec<Arc<K>> {
        let shelf = self.cache.read();
        let Some((_, entries)) = shelf.indexes.get(self.name) else {
            return Vec::new();
        };
        from(entries, value)
            .take_while(|(here, _)| **here == *value)
            .filter_map(|(_, key)| shelf.objects.get(key).cloned())
            .collect()
    }

    /// Visits the objects in the order of their values, from one value on and as long as
    /// values begin with `prefix`, until the visitor breaks off. The cache is held still
    /// meanwhile: the visitor must be quick and must not use it.
    pub fn scan<R>(
        &self,
        start: &str,
        prefix: &str,
        mut visit: impl FnMut(&Arc<K>) -> ControlFlow<R>,
    ) -> Option<R> {
        let shelf = self.cache.read();
        let (_, entries) = shelf.indexes.get(self.name)?;
        from(entries, start)
            .take_while(|(value, _)| value.starts_with(prefix))
            .filter_map(|(_, key)| shelf.objects.get(key))
            .find_map(|object| visit(object).break_value())
    }

    /// The last object of each group of values, in order, at most so many. `group` gives the
    /// part of a value, at its beginning, that all values of a group share.
    pub fn lasts(&self, group: fn(&str) -> &str, most: usize) -> Vec<Arc<K>> {
        let shelf = self.cache.read();
        let Some((_, entries)) = shelf.indexes.get(self.name) else {
            return Vec::new();
        };
        let mut lasts = Vec::new();
        let mut start = String::new();
        while lasts.len() < most {
            let Some((value, _)) = from(entries, &start).next() else {
                break;
            };
            start = format!("{}{}", group(value), char::MAX);
            let end = (start.as_str().into(), Arc::default());
            let mut here = entries.range((Bound::Unbounded, Bound::Excluded(end)));
            let last = here.next_back();
            lasts.extend(last.and_then(|(_, key)| shelf.objects.get(key)).cloned());
        }
        lasts
    }
}

#[cfg(test)]
mod tests;
