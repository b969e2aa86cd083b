//! Disks that two names lead to.

use std::{fs, os::unix::fs::symlink};

use orlop_host::{
    Place, Restrictions,
    mount::{self, Depth},
};
use orlop_model::{Claim, Key, StorageClass, Volume, VolumePhase};
use orlop_runtime::{Clock, Preconditions, Process};
use orlop_trials::{Reach, Strikes};
use serde_json::json;

use super::{CLASSES, SILENCE, World};

/// A second mount of the world's file system; unmounted when dropped.
struct Bound(Place);

impl Drop for Bound {
    fn drop(&mut self) {
        let _ = mount::unmount(&self.0);
    }
}

#[tokio::test]
async fn a_disk_that_two_names_lead_to_is_one_volume_and_the_other_name_is_told() {
    if !super::super::is_root() {
        return;
    }
    let world = World::open(Strikes::none(Reach::Calls), super::ByCommand::No).await;
    let (files, raw) = (world.disks.folder("files"), world.disks.folder("raw"));
    let device = fs::read_link(raw.join("disk")).unwrap();
    symlink(&device, raw.join("again")).unwrap();
    // By another class, too, which comes before the one that has it.
    let more = world.disks.folder("more");
    fs::create_dir_all(&more).unwrap();
    let class = json!({"hostDir": more, "mountDir": more, "volumeMode": "Block"});
    let settings = world.settings_with(|classes| classes["a"] = class);
    let api = &world.others.cluster;
    let class = json!({"metadata": {"name": "a"}, "provisioner": "kubernetes.io/no-provisioner"});
    api.create_json::<StorageClass>(&class).await.unwrap();
    let client = world.strikes.client(world.server.service());
    let process = Process::new(client, Clock::system());
    let ready = crate::provisioner::start_with(&process, settings, SILENCE);
    let free = |volumes: &[Volume]| {
        volumes.len() == CLASSES.len()
            && volumes.iter().all(|v| v.phase() == VolumePhase::Available)
    };
    let says = |what: &str| ready.check().is_err_and(|why| why.contains(what));
    // Of two new names the first is taken.
    world.until("one of each", &mut [], free).await;
    world
        .until("the link is told", &mut [], |_| {
            says("raw/disk is not offered: it is the disk that is at")
        })
        .await;

    fs::create_dir(files.join("abis")).unwrap();
    let bound = Bound(Place::at(&files.join("abis")).unwrap());
    let source = Place::at(&files.join("disk")).unwrap().open().unwrap();
    let target = bound.0.open().unwrap();
    mount::bind(source, target, Depth::One, Restrictions::default()).unwrap();
    symlink(&device, more.join("link")).unwrap();
    world
        .until("the others are told", &mut [], |_| {
            // A volume that is there counts, though its name comes later.
            says("files/abis is not offered")
                && says("more/link is not offered")
                && says("of which there is volume")
        })
        .await;
    let volumes = api.list::<Volume>(None).await.unwrap();
    assert!(free(&volumes), "{volumes:#?}");
    world.until_told("LocalDiskNotOffered", "more/link").await;
    fs::remove_file(more.join("link")).unwrap();

    // What was offered twice before is not cleaned as long as the other may have data on it.
    world.claim("raw", "Block").await;
    let raw_is = |volumes: &[Volume], phase| {
        volumes
            .iter()
            .any(|v| v.class() == "raw" && v.phase() == phase)
    };
    world
        .until("bound", &mut [], |v| raw_is(v, VolumePhase::Bound))
        .await;
    let mut twin = volumes.iter().find(|v| v.class() == "raw").unwrap().clone();
    let annotations = std::mem::take(&mut twin.metadata.annotations);
    twin.metadata = Default::default();
    twin.metadata.name = "twin".into();
    twin.metadata.annotations = annotations;
    let local = twin.spec.local.as_mut().unwrap();
    local.path = raw.join("disk").display().to_string();
    api.create(&twin).await.unwrap();
    world.disks.fill();
    let any = Preconditions::default();
    api.delete::<Claim>(&Key::namespaced("default", "raw"), &any)
        .await
        .unwrap();
    world.until_told("VolumeFailedDelete", "volume twin").await;
    assert!(world.disks.left("raw").1, "it was touched");
    api.delete::<Volume>(&Key::cluster("twin"), &any)
        .await
        .unwrap();
    world
        .until("cleaned once that is gone", &mut [], |v| {
            raw_is(v, VolumePhase::Available)
        })
        .await;
    assert!(!world.disks.left("raw").0, "it is clean");
    process.kill();
    world.others.kill();
}
