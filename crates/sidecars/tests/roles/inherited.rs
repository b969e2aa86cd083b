//! Volumes that no provisioner of ours made: written by hand, or of a plugin whose place the driver
//! took.

use std::time::Duration;

use orlop_model::{
    Claim, Key, Quantity, Volume, VolumeAttachment,
    well_known::{MIGRATED_TO, PROVISIONED_BY, STORAGE_RESIZER},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    driver::{Made, NAME},
    fuse::Fuse,
    world::{World, change, data},
};

const HEIR: &str = "pd.csi.storage.gke.io";
const PLUGIN: &str = "kubernetes.io/gce-pd";
const DISK: &str = "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/disk-1";

/// A cluster whose driver has a volume of this id, recorded so, and a claim that is bound to it.
async fn with(driver: &str, id: &str, volume: Value) -> World {
    let mut world = World::new().await;
    world.fake.state().name = driver.to_owned();
    let made = Made {
        id: id.to_owned(),
        request: Default::default(),
    };
    world.fake.state().volumes.insert("old".to_owned(), made);
    world
        .add_class(
            "old",
            json!({"provisioner": driver, "allowVolumeExpansion": true}),
        )
        .await;
    let mut body = json!({
        "metadata": {"name": "old"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "old",
            "claimRef": {"namespace": "default", "name": "data"},
        },
    });
    for part in ["metadata", "spec"] {
        let more = volume[part].as_object().cloned().unwrap_or_default();
        body[part].as_object_mut().expect("an object").extend(more);
    }
    world.create::<Volume>(body).await;
    world.start(Fuse::never());
    world
        .add_claim_with(json!({"spec": {"storageClassName": "old", "volumeName": "old"}}))
        .await;
    world.until_settled().await;
    world
}

async fn written_by_hand() -> World {
    let csi = json!({"spec": {"csi": {"driver": NAME, "volumeHandle": "by-hand"}}});
    with(NAME, "by-hand", csi).await
}

async fn of_the_plugin() -> World {
    let disk = json!({
        "metadata": {"annotations": {PROVISIONED_BY: PLUGIN, MIGRATED_TO: HEIR}},
        "spec": {"gcePersistentDisk": {"pdName": "disk-1", "fsType": "ext4"}},
    });
    with(HEIR, DISK, disk).await
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_was_written_by_hand_is_deleted_if_it_says_so() {
    let mut world = written_by_hand().await;
    world.delete::<Claim>(&data()).await;
    world.until_nothing_is_left().await;
    assert_eq!(world.fake.calls("DeleteVolume by-hand"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_plugins_volume_is_deleted_by_the_driver_that_took_its_place() {
    let mut world = of_the_plugin().await;
    world.delete::<Claim>(&data()).await;
    world.until_nothing_is_left().await;
    assert_eq!(world.fake.calls(&format!("DeleteVolume {DISK}")), 1);
}

#[tokio::test(start_paused = true)]
async fn a_plugins_volume_that_the_binder_gave_to_nobody_is_left_alone() {
    let disk = json!({"spec": {"gcePersistentDisk": {"pdName": "disk-1"}}});
    let world = with(HEIR, DISK, disk).await;
    world.delete::<Claim>(&data()).await;
    sleep(Duration::from_secs(600)).await;
    assert_eq!(world.fake.calls("DeleteVolume"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_plugins_volume_grows_once_the_driver_is_named_for_it() {
    let mut world = of_the_plugin().await;
    world.fake.state().node_part = false;
    let more = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    change(&world, more).await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.fake.calls("ControllerExpandVolume"), 0);
    let named = json!({"metadata": {"annotations": {STORAGE_RESIZER: HEIR}}});
    change(&world, named).await;
    world
        .until("the claim has its size", |cluster, _| async move {
            let claim = cluster.get::<Claim>(&data()).await?;
            Ok(claim.is_some_and(|claim| claim.capacity_bytes() == 2 << 30))
        })
        .await;
    assert_eq!(
        world.fake.calls(&format!("ControllerExpandVolume {DISK}")),
        1
    );
    let volume = world.volume().await.expect("it is there");
    assert_eq!(
        volume.spec.capacity.storage(),
        Some(&Quantity::bytes(2 << 30))
    );
    assert!(
        volume.spec.csi.is_none(),
        "what is read is not written back"
    );
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_stays_attached_though_it_is_to_be_deleted_is_told_of_with_its_node() {
    let mut world = written_by_hand().await;
    world.attach("n1").await;
    world.until_attached("n1").await;
    world.delete::<Claim>(&data()).await;
    sleep(Duration::from_secs(3)).await;
    assert_eq!(world.events("old").await, [], "it may just be on its way");
    sleep(Duration::from_secs(3600)).await;
    let told = world.events("old").await;
    let [(reason, text)] = &told[..] else {
        panic!("{told:#?}");
    };
    assert_eq!(reason, "VolumeFailedDelete");
    assert!(
        text.starts_with("persistentvolume old is still attached to node n1"),
        "{text}"
    );
    assert_eq!(world.fake.calls("DeleteVolume"), 0);
    world
        .delete::<VolumeAttachment>(&Key::cluster("at-n1"))
        .await;
    world.until_nothing_is_left().await;
}
