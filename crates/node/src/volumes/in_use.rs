//! `node.status.volumesInUse`: what must not be detached from this node.
//!
//! This is its only writer. An entry is on record before the volume is touched, and goes
//! only when nothing of it can be left. What counts as reported shrinks before a write
//! that removes an entry and grows after a write that adds one, so that whatever becomes
//! of the write, nobody relies on an entry that is not there.

use std::collections::BTreeSet;

use orlop_model::{Key, Node};
use orlop_runtime::{Outcome, Patch};
use serde_json::json;
use tracing::warn;

use super::{DeviceKey, Lifetime, Volumes};

impl Volumes {
    /// Takes what the node object says for reported; once, at the start.
    pub(crate) fn trust_report(&self) {
        if let Some(node) = self.parts.node.named(&self.parts.node_name) {
            self.state().reported = node.status.volumes_in_use.iter().cloned().collect();
        }
    }

    /// Makes the report true.
    pub(crate) async fn report_turn(&self, (): ()) -> Outcome {
        let (wanted, shrunk) = {
            let mut state = self.state();
            let wanted: BTreeSet<String> = state
                .devices
                .iter()
                .filter(|(key, device)| {
                    let persists = device.lifetime == Lifetime::Persistent;
                    persists && self.is_attachable(&key.driver)
                        || state.reported.contains(&key.unique_name())
                })
                .map(|(key, _)| DeviceKey::unique_name(key))
                .collect();
            if wanted == state.reported && !state.report_open {
                return Outcome::Done;
            }
            let kept: BTreeSet<String> = state.reported.intersection(&wanted).cloned().collect();
            let shrunk = kept.len() < state.reported.len();
            state.reported = kept;
            state.report_open = true;
            (wanted, shrunk)
        };
        let patch = Patch::Merge(json!({"status": {"volumesInUse": wanted}}));
        let key = Key::cluster(&self.parts.node_name);
        match self.parts.cluster.patch_status::<Node>(&key, &patch).await {
            Ok(node) => {
                {
                    let mut state = self.state();
                    state.reported = wanted;
                    state.report_open = false;
                }
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
