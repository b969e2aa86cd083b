//! What is wrong with the disks, told once each, and at `/ready` as long as it is so.

use std::collections::BTreeMap;

use orlop_model::{Kind, Node, ObjectRef, Volume};
use orlop_runtime::{EventType, Outcome};
use tracing::warn;

use super::Provisioner;
use crate::config::Config;

/// Not at `/ready`: the original asks for nothing of the kind, and its manifests go on.
const BLIND: &str = "In this container, what pods have mounted and which devices they write to can't be seen: a \
                     disk may be cleaned while processes of a pod that was deleted by force still have it. Let the \
                     provisioner's pod have hostPID: true";

/// What is wrong, and the volumes that it is told of besides the node.
#[derive(Debug, Default)]
pub(super) struct Wrongs(BTreeMap<String, Option<ObjectRef>>);

impl Wrongs {
    /// Something isn't offered.
    pub(super) fn add(&mut self, wrong: String) {
        self.0.insert(wrong, None);
    }

    /// The disk of a volume isn't there.
    pub(super) fn add_of(&mut self, volume: &Volume, wrong: String) {
        self.0.insert(wrong, Some(volume.reference()));
    }
}

impl Provisioner {
    /// Says if pods can't be seen that may still have a disk.
    pub(super) fn tell_sight(&self, node: &Node) {
        if self.in_pod && !orlop_host::disk::sees_first_process().unwrap_or(false) {
            warn!("{BLIND}");
            self.recorder
                .say(node, EventType::Warning, "LocalPodsNotSeen", BLIND);
        }
    }

    pub(super) fn tell_config(&self, config: &Config, wrongs: &mut Wrongs) {
        for (class, what) in &config.unusable {
            wrongs.add(format!("storageClassMap: {class}: {what}"));
        }
        if let Some(why) = &self.shared().unreadable {
            wrongs.add(format!(
                "the configuration can't be used, and the last one stays: {why}"
            ));
        }
    }

    pub(super) fn told(&self, node: &Node, wrongs: Wrongs) -> Outcome {
        let mut shared = self.shared();
        let warning = EventType::Warning;
        for (wrong, volume) in &wrongs.0 {
            if shared.told.0.contains_key(wrong) {
                continue;
            }
            let reason = match volume {
                None => "LocalDiskNotOffered",
                Some(_) => "LocalDiskMissing",
            };
            self.recorder.say(node, warning, reason, wrong.as_str());
            if let Some(volume) = volume {
                let volume = volume.clone();
                self.recorder
                    .say_of(volume, warning, reason, wrong.as_str());
            }
        }
        let all: Vec<&str> = wrongs.0.keys().map(String::as_str).collect();
        let (ready, outcome) = match all.is_empty() {
            true => (Ok(()), Outcome::Done),
            false => (Err(all.join("; ")), Outcome::Retry),
        };
        self.ready.set(ready);
        shared.told = wrongs;
        outcome
    }
}
