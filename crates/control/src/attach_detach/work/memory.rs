//! What a restart may forget: requests whose outcome isn't in the caches yet, who waits for room,
//! since when a node keeps what nobody wants, and how long news may wait.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use orlop_model::{Node, VolumeAttachment, node::AttachedVolume};
use tokio::time::Instant;

use crate::attach_detach::{by_word, decide::Standing};

/// How long a node that waits for more volumes isn't told of those that it has. Never longer than
/// these took: whoever attaches quickly is told quickly.
const GATHER: Duration = Duration::from_millis(500);

/// How long a volume that nobody wants where it is may take to come off before that is news.
const NEWS: Duration = Duration::from_secs(1);

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
    /// Disks that nodes reach by themselves, and the nodes that are to be told of them, or may have them
    /// though they aren't told any more.
    pub(super) granted: BTreeSet<(String, String)>,
    /// By the attachment's name.
    pub(super) asked: BTreeMap<String, Asked>,
    /// Storage that waits for room, by node.
    short: BTreeMap<String, BTreeSet<String>>,
    /// Since when nobody wants an attachment, by its uid.
    unwanted: BTreeMap<String, Instant>,
    /// When attachments were asked for, by name, until their node is told.
    pub(super) begun: BTreeMap<String, Instant>,
    /// When a node is told at the latest what it has.
    untold: BTreeMap<String, Instant>,
    /// Since when storage is waited for that another node has and nobody wants there.
    awaited: BTreeMap<String, Instant>,
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

    /// The disks that a node is about to be told of.
    pub(super) fn granted_to(&self, node: &str) -> BTreeSet<String> {
        let inner = self.lock();
        let granted = inner.granted.iter().filter(|(_, to)| to == node);
        granted.map(|(disk, _)| disk.clone()).collect()
    }

    /// Whether attachments to a node are being asked for at this moment.
    pub(super) fn is_asking(&self, node: &str) -> bool {
        let inner = self.lock();
        let mut asked = inner.asked.values();
        asked.any(|asked| asked.node == node && asked.fate == Fate::Sent)
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
    pub(super) fn gone(&self, attachment: &VolumeAttachment) {
        let mut inner = self.lock();
        inner.unwanted.remove(&attachment.metadata.uid);
        inner.begun.remove(&attachment.metadata.name);
    }

    /// An attachment is about to be asked for.
    pub(super) fn begins(&self, name: &str) {
        self.lock().begun.insert(name.to_owned(), Instant::now());
    }

    /// How much longer a node needn't be told that it has some of these.
    pub(super) fn may_gather(&self, node: &str, attached: &[&str]) -> Option<Duration> {
        let mut inner = self.lock();
        let now = Instant::now();
        let took = |name: &&str| inner.begun.get(*name).map(|begun| now - *begun);
        // What was asked for before a restart took nobody knows how long.
        let shortest = attached.iter().map(|name| took(name).unwrap_or_default());
        let patience = shortest.min().unwrap_or_default().min(GATHER);
        let latest = inner.untold.entry(node.to_owned());
        let left = latest
            .or_insert(now + patience)
            .saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }

    /// A node was told what it has, of these attachments.
    pub(super) fn told(&self, node: &str, attached: &[AttachedVolume], of: &[Standing]) {
        let mut inner = self.lock();
        inner.untold.remove(node);
        for standing in of {
            inner.begun.remove(&standing.attachment.metadata.name);
        }
        // From here on the node's list says so.
        let told = |disk: &String| attached.iter().any(|volume| volume.name == *disk);
        inner.granted.retain(|(disk, to)| to != node || !told(disk));
    }

    /// A node is about to be told that it has no more than this. A disk that it reaches by itself stays its
    /// own until the answer shows that it doesn't use it: nothing else is on record of one that it took into
    /// use at that moment.
    pub(super) fn keeps(&self, node: &Node, attached: &[AttachedVolume]) {
        let stays = |disk: &String| attached.iter().any(|volume| volume.name == *disk);
        let disks = by_word::on_node(node).into_iter();
        let leaving = disks.filter(|disk| by_word::is_told(node, disk) && !stays(disk));
        let kept = leaving.map(|disk| (disk, node.metadata.name.clone()));
        self.lock().granted.extend(kept);
    }

    /// Storage is waited for that may come off at any moment: how much longer that is no news.
    pub(super) fn no_news_yet(&self, storage: &str) -> Option<Duration> {
        let mut inner = self.lock();
        let since = inner.awaited.entry(storage.to_owned());
        let waited = since.or_insert_with(Instant::now).elapsed();
        NEWS.checked_sub(waited).filter(|left| !left.is_zero())
    }

    /// Storage isn't waited for any more.
    pub(super) fn came_off(&self, storage: &str) {
        self.lock().awaited.remove(storage);
    }
}
