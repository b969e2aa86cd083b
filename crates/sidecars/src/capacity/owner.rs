//! Who owns the objects that tell capacity, so that they go when the driver's workload goes.

use orlop_model::{Key, Kind, Meta, OwnerReference, Pod, ReplicaSet};
use orlop_runtime::{ApiError, Backoff, Cluster};
use tokio::time::sleep;
use tracing::warn;

/// Why an owner can't be found.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// It isn't there.
    #[error("{0} does not exist; is its namespace right?")]
    Missing(String),
    /// Nobody controls it.
    #[error("{0} has no controller; choose a lower level of owner")]
    NoController(String),
    /// It belongs to a kind whose own owner isn't known here.
    #[error("{0} can't be looked behind; choose a lower level of owner")]
    Unknown(String),
    /// It couldn't be read.
    #[error("the owner could not be read")]
    Read(#[from] ApiError),
}

/// The owner so many steps above a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Above {
    /// The pod.
    pub pod: Key,
    /// 0 for the pod, 1 for what controls it (a DaemonSet, StatefulSet or ReplicaSet), 2 for
    /// what controls that (a Deployment).
    pub level: u8,
}

impl Above {
    /// Finds the owner.
    ///
    /// # Errors
    /// If somebody on the way isn't there, can't be read or has no controller.
    pub async fn find(&self, cluster: &Cluster) -> Result<OwnerReference, OwnerError> {
        let Self { pod, level } = self;
        let found = cluster.get::<Pod>(pod).await?;
        let found = found.ok_or_else(|| OwnerError::Missing(format!("Pod {pod}")))?;
        let mut owner = reference(&found);
        let mut meta = found.metadata;
        for step in 1..=*level {
            owner = controller(&owner, &meta)?;
            if step < *level {
                meta = read(cluster, pod, &owner).await?;
            }
        }
        Ok(owner)
    }

    /// Finds the owner, however long it takes.
    pub(super) async fn insist(&self, cluster: &Cluster, retry: Backoff) -> OwnerReference {
        let mut failures = 0;
        loop {
            match self.find(cluster).await {
                Ok(owner) => return owner,
                Err(error) => {
                    failures += 1;
                    warn!(%error, "nobody is found to own what tells capacity; asking again");
                    // No event tells: pods are not watched here.
                    sleep(retry.after(failures)).await;
                }
            }
        }
    }
}

fn reference<K: Kind>(object: &K) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(),
        kind: K::KIND.to_owned(),
        name: object.meta().name.clone(),
        uid: object.meta().uid.clone(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

fn controller(of: &OwnerReference, meta: &Meta) -> Result<OwnerReference, OwnerError> {
    let none = || OwnerError::NoController(format!("{} {}", of.kind, of.name));
    let found = meta.controller().cloned().ok_or_else(none)?;
    Ok(OwnerReference {
        // That would need the right to change the owner.
        block_owner_deletion: None,
        ..found
    })
}

async fn read(cluster: &Cluster, pod: &Key, owner: &OwnerReference) -> Result<Meta, OwnerError> {
    let what = format!("{} {}", owner.kind, owner.name);
    if owner.kind != ReplicaSet::KIND {
        return Err(OwnerError::Unknown(what));
    }
    let key = Key::namespaced(&pod.namespace, &owner.name);
    let found = cluster.get::<ReplicaSet>(&key).await?;
    Ok(found.ok_or(OwnerError::Missing(what))?.metadata)
}
