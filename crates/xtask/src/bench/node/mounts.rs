//! When volumes come and go, as the kernel tells it: the mount table, followed without polling.
//!
//! It is the one sign of a ready volume that every node gives alike.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{Read as _, Seek as _},
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};

use anyhow::{Context as _, Result};
use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::Notify;

/// Mounts of CSI volumes, and when each came and went.
#[derive(Clone)]
pub(super) struct Mounts {
    seen: Arc<Mutex<Seen>>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct Seen {
    there: BTreeSet<String>,
    came: BTreeMap<String, Instant>,
    went: BTreeMap<String, Instant>,
}

impl Mounts {
    /// Follows the table for as long as this process lives.
    pub(super) fn follow() -> Result<Self> {
        let table = File::open("/proc/self/mountinfo").context("could not read the mount table")?;
        let mounts = Self {
            seen: Arc::default(),
            changed: Arc::default(),
        };
        let follower = mounts.clone();
        follower.read(&table)?;
        std::thread::spawn(move || {
            // The kernel tells of a change as of an exceptional condition.
            let wanted = PollFlags::PRI | PollFlags::ERR;
            while poll(&mut [PollFd::new(&table, wanted)], None).is_ok() {
                if follower.read(&table).is_err() {
                    return;
                }
            }
        });
        Ok(mounts)
    }

    fn read(&self, mut table: &File) -> Result<()> {
        let mut text = String::new();
        table.rewind()?;
        table.read_to_string(&mut text)?;
        self.note(of_csi(&text), Instant::now());
        Ok(())
    }

    fn note(&self, there: BTreeSet<String>, now: Instant) {
        {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let seen = &mut *seen;
            for path in there.difference(&seen.there) {
                seen.came.insert(path.clone(), now);
            }
            for path in seen.there.difference(&there) {
                seen.went.insert(path.clone(), now);
            }
            seen.there = there;
        }
        self.changed.notify_waiters();
    }

    fn look<T>(&self, at: impl FnOnce(&Seen) -> T) -> T {
        at(&self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// When a pod, known by its uid, had so many volumes; none if it has fewer.
    pub(super) fn all_came(&self, uid: &str, volumes: usize) -> Option<Instant> {
        let of = |path: &&String| path.contains(uid);
        self.look(|seen| {
            let came = seen.came.iter().filter(|(path, _)| of(path));
            let times: Vec<Instant> = came.map(|(_, at)| *at).collect();
            (times.len() >= volumes)
                .then(|| times.into_iter().max())
                .flatten()
        })
    }

    /// When the last of a pod's volumes went; none while one is there, or if it had none.
    pub(super) fn all_went(&self, uid: &str) -> Option<Instant> {
        self.look(|seen| {
            if seen.there.iter().any(|path| path.contains(uid)) {
                return None;
            }
            let went = seen.went.iter().filter(|(path, _)| path.contains(uid));
            went.map(|(_, at)| *at).max()
        })
    }

    /// Waits until nothing is mounted for pods or staged; answers when the last went.
    pub(super) async fn none_left(&self) -> Option<Instant> {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Told of what changes from here on, not only from the first wait.
            changed.as_mut().enable();
            if self.look(|seen| seen.there.is_empty()) {
                return self.look(|seen| seen.went.values().max().copied());
            }
            changed.await;
        }
    }

    /// How many volumes are published.
    pub(super) fn published(&self) -> usize {
        self.look(|seen| seen.there.iter().filter(|path| is_published(path)).count())
    }
}

fn is_published(path: &str) -> bool {
    path.contains("/volumes/kubernetes.io~csi/") && path.ends_with("/mount")
}

/// The places of CSI volumes in a mount table: pods' own, and where they are staged.
fn of_csi(table: &str) -> BTreeSet<String> {
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let staged =
        |path: &str| path.contains("/plugins/kubernetes.io/csi/") && path.ends_with("/globalmount");
    points
        .filter(|path| is_published(path) || staged(path))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const POD: &str = "/k/pods/u1/volumes/kubernetes.io~csi/pv/mount";

    fn table(paths: &[&str]) -> BTreeSet<String> {
        let line = |path: &&str| format!("30 29 8:1 / {path} rw - ext4 /dev/x rw\n");
        of_csi(&paths.iter().map(line).collect::<String>())
    }

    #[test]
    fn only_volumes_of_drivers_count() {
        let staged = "/k/plugins/kubernetes.io/csi/d/h/globalmount";
        let others = ["/", "/k/pods/u1/volumes/kubernetes.io~empty-dir/x", "/proc"];
        assert!(table(&others).is_empty());
        assert_eq!(table(&[POD, staged]).len(), 2);
    }

    #[test]
    fn a_pod_has_its_volumes_when_the_last_came_and_none_when_the_last_went() {
        let mounts = Mounts {
            seen: Arc::default(),
            changed: Arc::default(),
        };
        let (first, second) = (Instant::now(), Instant::now());
        mounts.note(table(&[POD]), first);
        assert_eq!(mounts.all_came("u1", 1), Some(first));
        assert_eq!(mounts.all_came("u1", 2), None);
        assert_eq!((mounts.all_went("u1"), mounts.published()), (None, 1));
        mounts.note(table(&[]), second);
        assert_eq!(mounts.all_went("u1"), Some(second));
        assert_eq!(mounts.all_came("u2", 1), None);
    }
}
