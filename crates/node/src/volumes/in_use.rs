//! `node.status.volumesInUse`: what must not be detached from this node.
//!
//! This is its only writer. An entry is on record before the volume is touched, and goes
//! only when nothing of it can be left. What counts as reported shrinks before a write
//! that removes an entry and grows after a write that adds one, so that whatever becomes
//! of the write, nobody relies on an entry that is not there.
//!
//! A life begins with what the API server itself says, and whatever makes the object say something
//! else later (it is made anew, or a write of an earlier life arrives) is answered by the next turn.

use std::collections::BTreeSet;
use std::time::Duration;

use orlop_model::{Key, Node};
use orlop_runtime::{Backoff, Outcome, Patch};
use serde_json::json;
use tracing::warn;

use super::{DeviceKey, Lifetime, Volumes};

/// What is known of the node's `volumesInUse`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Report {
    /// It says this.
    Says(BTreeSet<String>),
    /// A write was begun and not acknowledged: it says this, and perhaps more.
    Open(BTreeSet<String>),
}

impl Default for Report {
    fn default() -> Self {
        Self::Says(BTreeSet::new())
    }
}

impl Report {
    /// What may be relied on.
    pub(super) fn certain(&self) -> &BTreeSet<String> {
        match self {
            Self::Says(names) | Self::Open(names) => names,
        }
    }

    /// Takes in what the newest known version of the node says.
    fn heed(&mut self, said: &[String]) {
        match self {
            Self::Says(names) => *names = said.iter().cloned().collect(),
            // That version may be older than the write; the next answer tells.
            Self::Open(_) => {}
        }
    }

    /// Begins to say this; whether that takes a write.
    fn begin(&mut self, wanted: &BTreeSet<String>) -> bool {
        if *self == Self::Says(wanted.clone()) {
            return false;
        }
        *self = Self::Open(self.certain().intersection(wanted).cloned().collect());
        true
    }
}

impl Volumes {
    /// Reads what the node object says, from the API server and not from a cache, trying for as long
    /// as it takes: a cache that is behind shows entries that are gone, and lacks others that would
    /// then stand for ever.
    pub(crate) async fn read_report(&self) {
        let backoff = Backoff {
            first: Duration::from_millis(100),
            most: Duration::from_secs(7),
        };
        let key = Key::cluster(&self.parts.node_name);
        let mut failures = 0;
        let node = loop {
            match self.parts.cluster.get::<Node>(&key).await {
                Ok(node) => break node,
                Err(error) => {
                    failures += 1;
                    let error = error.chain();
                    warn!(error, "could not read which volumes are reported in use");
                    tokio::time::sleep(backoff.after(failures)).await;
                }
            }
        };
        // One that isn't there will be made, and says nothing.
        if let Some(node) = node {
            self.parts.node.absorb(node);
        }
        self.heed_node();
    }

    /// Asks for a look at the report, should the node say something else.
    pub(crate) fn look_at_report(&self, node: &Node) {
        let says = Report::Says(node.status.volumes_in_use.iter().cloned().collect());
        if self.state().report != says {
            self.in_use_queue.add(());
        }
    }

    fn heed_node(&self) -> bool {
        // Never older than the last answer, which was absorbed.
        let node = self.parts.node.named(&self.parts.node_name);
        let said = node.as_ref().map(|node| &*node.status.volumes_in_use);
        self.state().report.heed(said.unwrap_or_default());
        node.is_some()
    }

    /// Makes the report true.
    pub(crate) async fn report_turn(&self, (): ()) -> Outcome {
        // Nowhere to write; that it is made tells of itself.
        if !self.heed_node() {
            return Outcome::Done;
        }
        let (wanted, shrunk) = {
            let mut state = self.state();
            let reported = state.report.certain();
            let wanted: BTreeSet<String> = state
                .devices
                .iter()
                .filter(|(key, device)| {
                    let persists = device.lifetime == Lifetime::Persistent;
                    persists && self.is_attachable(&key.driver)
                        || reported.contains(&key.unique_name())
                })
                .map(|(key, _)| DeviceKey::unique_name(key))
                .collect();
            let shrunk = !reported.is_subset(&wanted);
            if !state.report.begin(&wanted) {
                return Outcome::Done;
            }
            (wanted, shrunk)
        };
        let patch = Patch::Merge(json!({"status": {"volumesInUse": wanted}}));
        let key = Key::cluster(&self.parts.node_name);
        match self.parts.cluster.patch_status::<Node>(&key, &patch).await {
            Ok(node) => {
                self.state().report = Report::Says(wanted);
                // The attachments are read from a version that has this report.
                self.parts.node.absorb(node);
                self.look_at_all(None);
                Outcome::Done
            }
            Err(error) => {
                warn!(
                    error = error.chain(),
                    shrunk, "could not report the volumes in use"
                );
                Outcome::Retry
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn nobody_relies_on_an_entry_that_a_write_may_have_taken_away() {
        let mut report = Report::Says(names(&["a", "b"]));
        assert!(report.begin(&names(&["b", "c"])));
        assert_eq!(*report.certain(), names(&["b"]));
        // The write failed: whatever is wanted next is written.
        assert!(report.begin(&names(&["b"])));
        assert!(report.begin(&names(&["a", "b"])));
        assert_eq!(*report.certain(), names(&["b"]));
    }

    #[test]
    fn what_is_said_already_takes_no_write() {
        let mut report = Report::Says(names(&["a"]));
        assert!(!report.begin(&names(&["a"])));
        assert_eq!(report, Report::Says(names(&["a"])));
    }

    #[test]
    fn what_the_node_says_counts_unless_a_write_is_open() {
        let mut report = Report::Says(names(&["a"]));
        report.heed(&[]);
        assert!(report.begin(&names(&["a"])), "made anew, it says it again");
        report.heed(&["a".to_owned()]);
        assert_eq!(report, Report::Open(names(&[])), "that may be the old one");
        let mut report = Report::default();
        report.heed(&["a".to_owned()]);
        assert!(report.begin(&names(&[])), "an entry of long ago goes");
    }
}
