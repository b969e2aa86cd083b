//! The person at the keyboard: creates and deletes objects, and waits for what they want
//! to see. Their requests never fail and never get lost.

use std::time::Duration;

use orlop_model::{
    Claim, CsiDriver, Key, Kind, Namespace, Pod, Quantity, StorageClass, Volume,
    VolumeAttributesClass,
};
use orlop_runtime::{Cluster, Patch, Preconditions};
use serde_json::{Value, json};

use crate::driver::{self, FakeDriver};
use crate::witness::{Objects, Witness};
use crate::world::machines::Machines;

mod machines;
mod snapshots;

/// How long the user waits, in simulated time, before saying that something is stuck.
pub const PATIENCE: Duration = Duration::from_secs(30 * 60);

/// How long somebody waits for a name to be free before they give up the thing.
const REPLACED: Duration = Duration::from_secs(30);

/// What the user waited for in vain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("after {} simulated minutes still not: {what}", PATIENCE.as_secs() / 60)]
pub struct Stuck {
    /// What did not come true.
    pub what: String,
}

/// The user.
#[derive(Clone)]
pub struct User {
    pub(crate) cluster: Cluster,
    pub(crate) witness: Witness,
    pub(crate) driver: FakeDriver,
    pub(crate) machines: Machines,
}

impl User {
    /// Creates an object from JSON; `apiVersion` and `kind` are filled in.
    pub async fn create<K: Kind>(&self, object: Value) {
        let created = self.cluster.create_json::<K>(&object).await;
        created.expect("the user's objects are valid");
        self.witness.look();
    }

    /// Changes an object.
    pub async fn change<K: Kind>(&self, key: &Key, change: Value) {
        let patched = self.cluster.patch::<K>(key, &Patch::Merge(change)).await;
        patched.expect("the user's changes are valid");
        self.witness.look();
    }

    /// Creates the driver's object and a class.
    pub async fn class(&self, mode: &str, policy: &str) {
        self.create::<CsiDriver>(json!({
            "metadata": {"name": driver::NAME},
            "spec": {"attachRequired": true},
        }))
        .await;
        self.create::<StorageClass>(json!({
            "metadata": {"name": "fast"},
            "provisioner": driver::NAME,
            "parameters": {"tier": "fast"},
            "volumeBindingMode": mode,
            "reclaimPolicy": policy,
            "allowVolumeExpansion": true,
        }))
        .await;
    }

    /// Creates a claim of that class.
    pub async fn claim(&self, name: &str) {
        self.create::<Claim>(json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "fast",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }))
        .await;
    }

    /// Creates a claim that is filled from another one.
    pub async fn clone_of(&self, name: &str, source: &str) {
        self.create::<Claim>(json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "fast",
                "resources": {"requests": {"storage": "1Gi"}},
                "dataSource": {"kind": "PersistentVolumeClaim", "name": source},
            },
        }))
        .await;
    }

    /// Asks for another size of a claim.
    pub async fn resize(&self, name: &str, size: &str) {
        let body = json!({"spec": {"resources": {"requests": {"storage": size}}}});
        let key = Key::namespaced("default", name);
        let patched = self.cluster.patch::<Claim>(&key, &Patch::Merge(body)).await;
        patched.expect("the class allows it");
        self.witness.look();
    }

    /// As [`User::resize`], of a claim that may be gone, or not bound yet: such a one can't grow.
    pub async fn resize_if_bound(&self, name: &str, size: &str) {
        let key = Key::namespaced("default", name);
        let bound = self.witness.objects(|objects| {
            let claim = objects.claims.get(&key);
            claim.is_some_and(|claim| claim.phase() == orlop_model::ClaimPhase::Bound)
        });
        if bound {
            self.resize(name, size).await;
        }
    }

    /// Waits until a claim has a size, and nothing of growing is left.
    ///
    /// # Errors
    /// As [`User::until`].
    pub async fn until_size(&self, name: &str, size: &str) -> Result<(), Stuck> {
        let key = Key::namespaced("default", name);
        let size: Quantity = size.parse().expect("a size");
        self.until(&format!("claim {name} has {size}"), move |objects| {
            let claim = objects.claims.get(&key);
            claim.is_some_and(|claim| {
                claim.status.capacity.storage() == Some(&size) && claim.resize_status().is_none()
            })
        })
        .await
    }

    /// Creates a pod that uses a claim.
    pub async fn pod(&self, name: &str, claim: &str) {
        self.create::<Pod>(json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 5,
                "containers": [{
                    "name": "main", "image": "none", "command": ["serve"],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
            },
        }))
        .await;
    }

    /// Creates a pod that uses a claim, on a node that is chosen already.
    pub async fn pod_on(&self, name: &str, claim: &str, node: &str) {
        self.create::<Pod>(json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "nodeName": node,
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 5,
                "containers": [{
                    "name": "main", "image": "none", "command": ["serve"],
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }],
                "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
            },
        }))
        .await;
    }

    /// Creates a namespace.
    pub async fn namespace(&self, name: &str) {
        self.create::<Namespace>(json!({"metadata": {"name": name}}))
            .await;
    }

    /// Deletes a pod, gracefully.
    pub async fn delete_pod(&self, name: &str) {
        self.delete::<Pod>(&Key::namespaced("default", name)).await;
    }

    /// Deletes a claim.
    pub async fn delete_claim(&self, name: &str) {
        self.delete::<Claim>(&Key::namespaced("default", name))
            .await;
    }

    /// Deletes a claim, if it is there, and creates another of its name as soon as that is free.
    pub async fn replace_claim(&self, name: &str) {
        let key = Key::namespaced("default", name);
        if !self
            .witness
            .objects(|objects| objects.claims.contains_key(&key))
        {
            return;
        }
        self.delete_claim(name).await;
        let (user, name) = (self.clone(), name.to_owned());
        tokio::spawn(async move {
            let key = Key::namespaced("default", &name);
            let gone = user.until("the name is free", |objects| {
                !objects.claims.contains_key(&key)
            });
            if let Ok(Ok(())) = tokio::time::timeout(REPLACED, gone).await {
                user.claim(&name).await;
            }
        });
    }

    /// Deletes the volume of a claim, if it has one.
    pub async fn delete_volume_of(&self, claim: &str) {
        let key = Key::namespaced("default", claim);
        let name = self.witness.objects(|objects| {
            let claim = objects.claims.get(&key);
            claim.map(|claim| claim.spec.volume_name.clone())
        });
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            self.delete_volume(&name).await;
        }
    }

    /// Deletes all pods, claims, snapshots and groups.
    pub async fn clear(&self) {
        let (pods, claims) = self.witness.objects(|objects| {
            let pods: Vec<Key> = objects.pods.keys().cloned().collect();
            let claims: Vec<Key> = objects.claims.keys().cloned().collect();
            (pods, claims)
        });
        for key in pods {
            self.delete::<Pod>(&key).await;
        }
        self.clear_snapshots().await;
        for key in claims {
            self.delete::<Claim>(&key).await;
        }
    }

    /// Deletes a volume's object.
    pub async fn delete_volume(&self, name: &str) {
        self.delete::<Volume>(&Key::cluster(name)).await;
    }

    /// Creates a class of attributes.
    pub async fn attributes(&self, name: &str) {
        self.create::<VolumeAttributesClass>(json!({
            "metadata": {"name": name},
            "driverName": driver::NAME,
            "parameters": {"iops": name},
        }))
        .await;
    }

    /// Asks for other attributes of a claim.
    pub async fn choose(&self, name: &str, class: &str) {
        let body = json!({"spec": {"volumeAttributesClassName": class}});
        let key = Key::namespaced("default", name);
        let patched = self.cluster.patch::<Claim>(&key, &Patch::Merge(body)).await;
        // It may have gone.
        drop(patched);
        self.witness.look();
    }

    /// Waits until a claim has attributes, and no change of them is under way.
    ///
    /// # Errors
    /// As [`User::until`].
    pub async fn until_modified(&self, name: &str, class: &str) -> Result<(), Stuck> {
        let (key, class) = (Key::namespaced("default", name), class.to_owned());
        let what = format!("claim {name} has attributes {class}");
        self.until(&what, move |objects| {
            let status = objects.claims.get(&key).map(|claim| &claim.status);
            status.is_some_and(|status| {
                let current = status.current_volume_attributes_class_name.as_ref();
                current == Some(&class) && status.modify_volume_status.is_none()
            })
        })
        .await
    }

    async fn delete<K: Kind>(&self, key: &Key) {
        let deleted = self
            .cluster
            .delete::<K>(key, &Preconditions::default())
            .await;
        deleted.expect("the user may delete anything");
        self.witness.look();
    }

    /// Waits until the objects are as described.
    ///
    /// # Errors
    /// If that takes longer than the user's patience.
    pub async fn until(&self, what: &str, holds: impl Fn(&Objects) -> bool) -> Result<(), Stuck> {
        let mut changes = self.witness.changes();
        let wait = async {
            while !self.witness.objects(&holds) {
                changes
                    .changed()
                    .await
                    .expect("the witness lives as long as the user");
            }
        };
        let waited = tokio::time::timeout(PATIENCE, wait).await;
        waited.map_err(|_| Stuck {
            what: what.to_owned(),
        })
    }

    /// Waits until a pod runs.
    ///
    /// # Errors
    /// As [`User::until`].
    pub async fn until_running(&self, name: &str) -> Result<(), Stuck> {
        let key = Key::namespaced("default", name);
        self.until(&format!("pod {name} runs"), move |objects| {
            let pod = objects.pods.get(&key);
            pod.is_some_and(|pod| pod.status.phase == Some(orlop_model::PodPhase::Running))
        })
        .await
    }

    /// Waits until a pod is gone.
    ///
    /// # Errors
    /// As [`User::until`].
    pub async fn until_pod_gone(&self, name: &str) -> Result<(), Stuck> {
        let key = Key::namespaced("default", name);
        self.until(&format!("pod {name} is gone"), move |objects| {
            !objects.pods.contains_key(&key)
        })
        .await
    }

    /// Waits until a claim is bound.
    ///
    /// # Errors
    /// As [`User::until`].
    pub async fn until_bound(&self, name: &str) -> Result<(), Stuck> {
        let key = Key::namespaced("default", name);
        self.until(&format!("claim {name} is bound"), move |objects| {
            let claim = objects.claims.get(&key);
            claim.is_some_and(|claim| claim.phase() == orlop_model::ClaimPhase::Bound)
        })
        .await
    }

    /// Waits until no claim, volume, attachment and pod is left.
    ///
    /// # Errors
    /// As [`User::until`].
    pub async fn until_all_gone(&self) -> Result<(), Stuck> {
        self.until(
            "all claims, volumes, attachments and pods are gone",
            |objects| {
                objects.claims.is_empty() && objects.volumes.is_empty() && nothing_attached(objects)
            },
        )
        .await
    }

    /// Waits until no pod and no attachment is left.
    ///
    /// # Errors
    /// As [`User::until`].
    pub async fn until_nothing_attached(&self) -> Result<(), Stuck> {
        self.until("all pods and attachments are gone", nothing_attached)
            .await
    }

    /// Lets simulated time pass.
    pub async fn wait(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// How many volumes the backend has now.
    pub fn backend_volumes(&self) -> usize {
        self.driver.look(|backend| backend.volumes().len())
    }
}

fn nothing_attached(objects: &Objects) -> bool {
    objects.pods.is_empty()
        && objects.attachments.is_empty()
        && objects.nodes.values().all(|node| {
            node.status.volumes_attached.is_empty() && node.status.volumes_in_use.is_empty()
        })
}
