//! What the node side is doing with volumes: their `node.json`.
//!
//! It names every mount that may exist, though not every mount that it names need exist. So what is
//! added must be on record before it is done, and what is taken away is fine if it cannot be written
//! down: a pool that is full or broken keeps nobody from letting go of a volume.

use std::fs;
use std::io;

use orlop_host::durable;

use super::{FILE_MODE, Pool, StoreError, to_json};
use crate::local::volume::{NodeRecord, VolumeId};

impl Pool {
    /// What the node side is doing with a volume, as far as it holds in this boot.
    pub fn node_record(&self, id: &VolumeId) -> Result<NodeRecord, StoreError> {
        self.check()?;
        let unused = || self.unused_node_record();
        match fs::read(self.volume(id).join("node.json")) {
            // The file is not synced: what a power cut left of it is from another boot anyway.
            Ok(bytes) => Ok(serde_json::from_slice::<NodeRecord>(&bytes)
                .ok()
                .filter(|record| record.boot == self.boot)
                .unwrap_or_else(unused)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(unused()),
            Err(error) => Err(StoreError::at("read the node's record")(error)),
        }
    }

    /// A volume that the node side does nothing with.
    #[must_use]
    pub fn unused_node_record(&self) -> NodeRecord {
        NodeRecord::unused(self.boot.clone())
    }

    /// Replaces what the node side is doing with a volume.
    pub fn write_node_record(&self, id: &VolumeId, record: &NodeRecord) -> Result<(), StoreError> {
        self.check()?;
        let path = self.volume(id).join("node.json");
        let written = if record.is_unused() {
            match fs::remove_file(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                other => other,
            }
        } else {
            durable::write_volatile(&path, &to_json(record), FILE_MODE)
        };
        written.map_err(StoreError::at("write the node's record"))
    }

    /// Replaces what the node side is doing with a volume by less than that.
    pub fn reduce_node_record(&self, id: &VolumeId, record: &NodeRecord) -> Result<(), StoreError> {
        match self.write_node_record(id, record) {
            Err(
                error @ (StoreError::Full(_)
                | StoreError::ReadOnly(_)
                | StoreError::Failing(_)
                | StoreError::Gone(_)),
            ) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(volume_id = %id, error, "the record names mounts that are gone");
                Ok(())
            }
            other => other,
        }
    }
}
