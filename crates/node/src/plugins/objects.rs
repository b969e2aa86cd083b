//! The config maps and secrets that volumes of this node's pods show.
//!
//! Each is followed by a watch of its own, as the kubelet does it: a node reads what its pods
//! name and nothing else. Who shows an older version than the one that came is told; what
//! never changes is not watched. Secrets are followed where the API server knows nodes by their
//! names: elsewhere who may watch one may list them all, and they are asked for again and again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use orlop_model::{ConfigMap, Key, Kind, Secret};
use orlop_runtime::{ApiError, Change, Cluster, Followed, Informers};

use crate::layout::PodUid;

/// A volume of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Shown {
    pub(crate) pod: PodUid,
    pub(crate) volume: String,
}

/// How new what is read has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// As new as the API server has it: for a volume that nobody has seen yet.
    Live,
    /// As the watch has it, which tells what comes later.
    Followed,
}

type Tell = Arc<dyn Fn(Shown) + Send + Sync>;

/// The objects of all volumes.
pub(crate) struct Objects {
    pub(super) config_maps: Follows<ConfigMap>,
    secrets: Follows<Secret>,
    /// Whether secrets may be followed, once that is known.
    may_follow: OnceLock<bool>,
}

impl Objects {
    /// `tell` is called with every volume that shows something old.
    pub(crate) fn new(
        cluster: &Cluster,
        informers: &Informers,
        tell: impl Fn(Shown) + Send + Sync + 'static,
    ) -> Self {
        let tell: Tell = Arc::new(tell);
        Self {
            config_maps: Follows::new(cluster, informers, tell.clone()),
            secrets: Follows::new(cluster, informers, tell),
            may_follow: OnceLock::new(),
        }
    }

    /// A secret, and whether the volume is told when it changes.
    pub(super) async fn secret(
        &self,
        key: &Key,
        user: &Shown,
        freshness: Freshness,
    ) -> Result<(Option<Arc<Secret>>, Told), ApiError> {
        if !self.may_follow(key).await {
            let found = self.secrets.cluster.get::<Secret>(key).await?;
            return Ok((found.map(Arc::new), Told::Never));
        }
        let found = self.secrets.get(key, user, freshness).await?;
        Ok((found, self.secrets.told(key)))
    }

    /// Looks out for a secret that somebody else reads: its user is told when it comes or changes.
    pub(crate) async fn look_out_for(&self, key: &Key, user: &Shown) {
        if self.may_follow(key).await {
            let _told_later = self.secrets.known(key, user);
        }
    }

    /// Asks once, with the first secret that is needed.
    async fn may_follow(&self, key: &Key) -> bool {
        if let Some(known) = self.may_follow.get() {
            return *known;
        }
        let by_name = format!("metadata.name={}", key.name);
        let cluster = &self.secrets.cluster;
        let asked = cluster.list_where::<Secret>(Some(&key.namespace), &by_name);
        let may = match asked.await {
            Ok(_) => true,
            Err(error) if error.is_forbidden() => {
                tracing::info!(
                    "this node may not follow secrets by their names, so that their changes reach \
                     pods within a minute; give it a certificate of the group system:nodes"
                );
                false
            }
            // Nobody knows; the next one asks again.
            Err(_) => return false,
        };
        *self.may_follow.get_or_init(|| may)
    }

    /// A pod shows nothing any more.
    pub(crate) fn release(&self, pod: &PodUid) {
        self.config_maps.release(pod);
        self.secrets.release(pod);
    }
}

/// Whether a volume hears of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// It will be told.
    AtOnce,
    /// It has to ask.
    Never,
}

/// Objects that may be said never to change.
pub(super) trait MayBeFixed: Kind {
    fn is_fixed(&self) -> bool;
}

impl MayBeFixed for ConfigMap {
    fn is_fixed(&self) -> bool {
        self.immutable == Some(true)
    }
}

impl MayBeFixed for Secret {
    fn is_fixed(&self) -> bool {
        self.immutable == Some(true)
    }
}

/// The objects of one kind.
pub(super) struct Follows<K> {
    cluster: Cluster,
    informers: Informers,
    tell: Tell,
    entries: Arc<Mutex<BTreeMap<Key, Entry<K>>>>,
}

struct Entry<K> {
    state: State<K>,
    /// Who shows it, and which version; 0 if none is known.
    users: BTreeMap<Shown, u64>,
}

enum State<K> {
    Watched(Followed<K>),
    Fixed(Arc<K>),
}

impl<K: MayBeFixed> Follows<K> {
    fn new(cluster: &Cluster, informers: &Informers, tell: Tell) -> Self {
        Self {
            cluster: cluster.clone(),
            informers: informers.clone(),
            tell,
            entries: Arc::default(),
        }
    }

    /// The object, for a volume that is told from now on when it changes.
    pub(super) async fn get(
        &self,
        key: &Key,
        user: &Shown,
        freshness: Freshness,
    ) -> Result<Option<Arc<K>>, ApiError> {
        if let Some(known) = self.known(key, user)
            && freshness == Freshness::Followed
        {
            if let Some(known) = known.as_ref().filter(|known| known.is_fixed()) {
                self.learn(key, known);
            }
            self.shows(key, user, known.as_deref());
            return Ok(known);
        }
        let found = self.cluster.get::<K>(key).await?.map(Arc::new);
        if let Some(found) = &found {
            self.learn(key, found);
        }
        self.shows(key, user, found.as_deref());
        Ok(found)
    }

    /// Whether changes of an object are heard of.
    fn told(&self, key: &Key) -> Told {
        match lock(&self.entries).get(key).map(|entry| &entry.state) {
            Some(State::Fixed(_)) => Told::AtOnce,
            Some(State::Watched(followed)) if followed.cache.is_synced() => Told::AtOnce,
            Some(State::Watched(_)) | None => Told::Never,
        }
    }

    /// Begins to follow; `None` as long as nothing is known of the object.
    fn known(&self, key: &Key, user: &Shown) -> Option<Option<Arc<K>>> {
        // Not under the lock: whoever subscribes is told at once of what is there already.
        let is_new = !lock(&self.entries).contains_key(key);
        let followed = is_new.then(|| self.follow(key));
        let mut entries = lock(&self.entries);
        if let Some(followed) = followed {
            entries.entry(key.clone()).or_insert_with(|| Entry {
                state: State::Watched(followed),
                users: BTreeMap::new(),
            });
        }
        let entry = entries.get_mut(key)?;
        entry.users.entry(user.clone()).or_insert(0);
        match &entry.state {
            State::Fixed(object) => Some(Some(object.clone())),
            State::Watched(followed) if followed.cache.is_synced() => Some(followed.cache.get(key)),
            State::Watched(_) => None,
        }
    }

    fn follow(&self, key: &Key) -> Followed<K> {
        let followed = self.informers.follow::<K>(key);
        let entries: Weak<_> = Arc::downgrade(&self.entries);
        let tell = self.tell.clone();
        followed.cache.subscribe(move |change| {
            let Some(entries) = entries.upgrade() else {
                return;
            };
            let version = match change {
                Change::Applied { new, .. } => new.meta().revision(),
                // Later than anything that is shown.
                Change::Deleted(_) => u64::MAX,
            };
            let behind: Vec<Shown> = {
                let entries = lock(&entries);
                let users = entries.get(&change.object().key());
                let users = users.into_iter().flat_map(|entry| &entry.users);
                let behind = users.filter(|(_, shown)| **shown < version);
                behind.map(|(user, _)| user.clone()).collect()
            };
            behind.into_iter().for_each(|user| tell(user));
        });
        followed
    }

    /// Takes in what the API server said.
    fn learn(&self, key: &Key, found: &Arc<K>) {
        let cache = match lock(&self.entries).get_mut(key) {
            None => return,
            Some(entry) if found.is_fixed() => {
                entry.state = State::Fixed(found.clone());
                return;
            }
            Some(entry) => match &entry.state {
                State::Watched(followed) => Some(followed.cache.clone()),
                State::Fixed(_) => None,
            },
        };
        match cache {
            Some(cache) => cache.absorb((**found).clone()),
            // Made anew under its name, and now it may change.
            None => {
                let followed = self.follow(key);
                if let Some(entry) = lock(&self.entries).get_mut(key) {
                    entry.state = State::Watched(followed);
                }
            }
        }
    }

    fn shows(&self, key: &Key, user: &Shown, object: Option<&K>) {
        let version = object.map_or(0, |object| object.meta().revision());
        let newest = {
            let mut entries = lock(&self.entries);
            let Some(entry) = entries.get_mut(key) else {
                return;
            };
            let Some(shown) = entry.users.get_mut(user) else {
                return;
            };
            *shown = version;
            match &entry.state {
                State::Watched(followed) => followed.cache.get(key),
                State::Fixed(_) => None,
            }
        };
        // It may have changed between the read and the line above, with nobody told.
        if newest.is_some_and(|newest| newest.meta().revision() > version) {
            (self.tell)(user.clone());
        }
    }

    fn release(&self, pod: &PodUid) {
        lock(&self.entries).retain(|_, entry| {
            entry.users.retain(|user, _| user.pod != *pod);
            !entry.users.is_empty()
        });
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
