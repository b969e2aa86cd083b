//! What a restart may forget: requests whose outcome isn't in the caches yet, who waits for room,
//! and since when a node keeps what nobody wants.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// What became of a deletion that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It was accepted, or is on its way.
    Sent,
    /// Its answer was lost: only the server knows.
    Doubtful,
}

/// An attachment that was asked for, until it is in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) storage: String,
    pub(super) driver: String,
    pub(super) node: String,
    pub(super) fate: Fate,
}

#[derive(Default)]
pub(super) struct Memory {
    inner: Mutex<Inner>,
}

#[derive(Default)]
pub(super) struct Inner {
    /// Attachments, by uid, whose deletion was sent, until the watch shows it. A node must
    /// not be told of one of these, even if a pod wants it again.
    pub(super) given_back: BTreeMap<String, Fate>,
    /// By the attachment's name.
    pub(super) asked: BTreeMap<String, Asked>,
    /// Storage that waits for room, by node.
    short: BTreeMap<String, BTreeSet<String>>,
    /// Since when nobody wants an attachment, by its uid.
    unwanted: BTreeMap<String, Instant>,
}

impl Memory {
    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many were asked for on a node, of a driver, that aren't `seen` yet.
    pub(super) fn asked_on(&self, node: &str, driver: &str, seen: impl Fn(&str) -> bool) -> usize {
        let inner = self.lock();
        let on_their_way = inner
            .asked
            .iter()
            .filter(|(name, asked)| asked.node == node && asked.driver == driver && !seen(name));
        on_their_way.count()
    }

    pub(super) fn is_short(&self, node: &str, storage: &str) {
        let mut inner = self.lock();
        let waiting = inner.short.entry(node.to_owned()).or_default();
        waiting.insert(storage.to_owned());
    }

    /// Who waits for room on a node; they will look for themselves.
    pub(super) fn short_on(&self, node: &str) -> BTreeSet<String> {
        self.lock().short.remove(node).unwrap_or_default()
    }

    /// How long nobody has wanted an attachment; it begins now if it is news.
    pub(super) fn unwanted_for(&self, uid: &str, wanted: bool) -> Duration {
        let mut inner = self.lock();
        if wanted {
            inner.unwanted.remove(uid);
            return Duration::ZERO;
        }
        let since = inner.unwanted.entry(uid.to_owned());
        since.or_insert_with(Instant::now).elapsed()
    }

    /// An attachment is gone.
    pub(super) fn gone(&self, uid: &str) {
        self.lock().unwanted.remove(uid);
    }
}
