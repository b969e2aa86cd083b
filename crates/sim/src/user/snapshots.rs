//! What the user does with snapshots.

use orlop_model::{
    Claim, Key, Kind, Meta, Scope, VolumeGroupSnapshot, VolumeGroupSnapshotClass,
    VolumeGroupSnapshotContent, VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent,
};
use orlop_runtime::Patch;
use serde_json::{Value, json};

use super::{Stuck, User};
use crate::driver;

/// The manifests that a cluster's administrator applies.
const MANIFESTS: [&str; 2] = [
    include_str!("../../../../deploy/crds/snapshots.yaml"),
    include_str!("../../../../deploy/crds/group-snapshots.yaml"),
];

/// A CustomResourceDefinition, to be created.
#[derive(Debug, Clone, Default)]
struct Definition(Meta);

impl Kind for Definition {
    const GROUP: &'static str = "apiextensions.k8s.io";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "CustomResourceDefinition";
    const PLURAL: &'static str = "customresourcedefinitions";
    const SCOPE: Scope = Scope::Cluster;

    fn decode(_: &[u8]) -> Result<Self, serde_json::Error> {
        Ok(Self::default())
    }

    fn encode(&self) -> Result<Value, serde_json::Error> {
        Ok(json!({}))
    }

    fn meta(&self) -> &Meta {
        &self.0
    }

    fn meta_mut(&mut self) -> &mut Meta {
        &mut self.0
    }
}

impl User {
    /// Defines the kinds of snapshots, and classes of them with a policy.
    pub async fn snapshot_classes(&self, policy: &str) {
        for manifest in MANIFESTS {
            let definitions: Vec<Value> = serde_saphyr::from_multiple(manifest).expect("YAML");
            for definition in definitions {
                self.create::<Definition>(definition).await;
            }
        }
        let class = json!({
            "metadata": {"name": "cuts"},
            "driver": driver::NAME,
            "deletionPolicy": policy,
            "parameters": {"tier": "cold"},
        });
        self.create::<VolumeSnapshotClass>(class.clone()).await;
        self.create::<VolumeGroupSnapshotClass>(class).await;
    }

    /// Creates a claim with the label by which groups find it.
    pub async fn grouped_claim(&self, name: &str) {
        self.create::<Claim>(json!({
            "metadata": {"name": name, "namespace": "default", "labels": {"app": "db"}},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "fast",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }))
        .await;
    }

    /// Creates a claim that is filled from a snapshot.
    pub async fn restore_of(&self, name: &str, snapshot: &str) {
        self.create::<Claim>(json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "fast",
                "resources": {"requests": {"storage": "1Gi"}},
                "dataSource": {
                    "apiGroup": "snapshot.storage.k8s.io",
                    "kind": "VolumeSnapshot",
                    "name": snapshot,
                },
            },
        }))
        .await;
    }

    /// Asks for a snapshot of a claim.
    pub async fn snapshot(&self, name: &str, claim: &str) {
        self.create::<VolumeSnapshot>(json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "volumeSnapshotClassName": "cuts",
                "source": {"persistentVolumeClaimName": claim},
            },
        }))
        .await;
    }

    /// Asks for a snapshot of all claims with the label.
    pub async fn group_snapshot(&self, name: &str) {
        self.create::<VolumeGroupSnapshot>(json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "volumeGroupSnapshotClassName": "cuts",
                "source": {"selector": {"matchLabels": {"app": "db"}}},
            },
        }))
        .await;
    }

    /// Deletes a snapshot.
    pub async fn delete_snapshot(&self, name: &str) {
        self.delete::<VolumeSnapshot>(&Key::namespaced("default", name))
            .await;
    }

    /// Deletes the contents of snapshots, leaving the snapshots.
    pub async fn delete_contents(&self) {
        let names: Vec<String> = self
            .witness
            .objects(|objects| objects.contents.keys().cloned().collect());
        for name in names {
            self.delete::<VolumeSnapshotContent>(&Key::cluster(name))
                .await;
        }
    }

    /// Deletes a snapshot, and takes its content away by force while nobody knows what was cut for it: as
    /// people do who lose patience.
    pub async fn force_snapshot(&self, name: &str) {
        self.delete_snapshot(name).await;
        let being_cut: Vec<String> = self.witness.objects(|objects| {
            let contents = objects.contents.values();
            contents
                .filter(|content| content.handle().is_none())
                .map(|content| content.metadata.name.clone())
                .collect()
        });
        for name in being_cut {
            self.force::<VolumeSnapshotContent>(&Key::cluster(name))
                .await;
        }
    }

    /// The same with a group.
    pub async fn force_group(&self, name: &str) {
        self.delete_group(name).await;
        let being_cut: Vec<String> = self.witness.objects(|objects| {
            let contents = objects.group_contents.values();
            contents
                .filter(|content| content.handle().is_none())
                .map(|content| content.metadata.name.clone())
                .collect()
        });
        for name in being_cut {
            self.force::<VolumeGroupSnapshotContent>(&Key::cluster(name))
                .await;
        }
    }

    /// Deletes an object and what holds it.
    async fn force<K: Kind>(&self, key: &Key) {
        self.delete::<K>(key).await;
        let bare = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        if let Err(error) = self.cluster.patch::<K>(key, &bare).await {
            assert!(error.is_not_found(), "{}", error.chain());
        }
        self.witness.look();
    }

    /// Deletes the contents of groups, leaving the groups.
    pub async fn delete_group_contents(&self) {
        let names: Vec<String> = self
            .witness
            .objects(|objects| objects.group_contents.keys().cloned().collect());
        for name in names {
            self.delete::<VolumeGroupSnapshotContent>(&Key::cluster(name))
                .await;
        }
    }

    /// Deletes all snapshots and groups; members go with their groups.
    pub(super) async fn clear_snapshots(&self) {
        let (groups, snapshots) = self.witness.objects(|objects| {
            let groups: Vec<Key> = objects.groups.keys().cloned().collect();
            let alone = objects.snapshots.iter();
            let alone = alone.filter(|(_, snapshot)| snapshot.group_owner().is_none());
            let snapshots: Vec<Key> = alone.map(|(key, _)| key.clone()).collect();
            (groups, snapshots)
        });
        for key in groups {
            self.delete::<VolumeGroupSnapshot>(&key).await;
        }
        for key in snapshots {
            self.delete::<VolumeSnapshot>(&key).await;
        }
    }

    /// Deletes a group snapshot.
    pub async fn delete_group(&self, name: &str) {
        self.delete::<VolumeGroupSnapshot>(&Key::namespaced("default", name))
            .await;
    }

    /// Waits until a snapshot can be used.
    ///
    /// # Errors
    /// As [`User::until`].
    pub async fn until_cut(&self, name: &str) -> Result<(), Stuck> {
        let key = Key::namespaced("default", name);
        self.until(&format!("snapshot {name} is ready"), move |objects| {
            let snapshot = objects.snapshots.get(&key);
            snapshot.is_some_and(VolumeSnapshot::is_ready)
        })
        .await
    }

    /// Waits until a group and all its members can be used.
    ///
    /// # Errors
    /// As [`User::until`].
    pub async fn until_group_cut(&self, name: &str) -> Result<(), Stuck> {
        let key = Key::namespaced("default", name);
        self.until(&format!("group {name} is ready"), move |objects| {
            let group = objects.groups.get(&key);
            let mut members = objects.snapshots.values();
            group.is_some_and(VolumeGroupSnapshot::is_ready)
                && members.all(VolumeSnapshot::is_ready)
        })
        .await
    }

    /// Waits until no snapshot, group or content is left.
    ///
    /// # Errors
    /// As [`User::until`].
    pub async fn until_no_snapshots(&self) -> Result<(), Stuck> {
        self.until("all snapshots and contents are gone", |objects| {
            objects.snapshots.is_empty()
                && objects.contents.is_empty()
                && objects.groups.is_empty()
                && objects.group_contents.is_empty()
        })
        .await
    }
}
