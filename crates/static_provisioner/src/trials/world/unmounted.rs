//! A disk that somebody unmounts while its volume is there.

use orlop_model::{Event, Volume, VolumePhase, well_known};
use orlop_runtime::{Clock, Process};
use orlop_trials::{Reach, Strikes};

use super::{SILENCE, World};

impl World {
    /// Whom a missing disk was told of.
    async fn told_missing(&self) -> Vec<(String, String)> {
        let events = self.others.cluster.list::<Event>(None).await.unwrap();
        let missing = events
            .into_iter()
            .filter(|e| e.reason == "LocalDiskMissing");
        missing
            .map(|e| (e.involved_object.kind, e.message))
            .collect()
    }
}

fn files(volumes: &[Volume]) -> Option<&Volume> {
    volumes.iter().find(|volume| volume.class() == "files")
}

#[tokio::test]
async fn a_free_volume_goes_and_comes_with_its_mount_and_a_bound_one_is_told() {
    if !super::super::is_root() {
        return;
    }
    let world = World::open(Strikes::none(Reach::Calls), super::ByCommand::No).await;
    let process = Process::new(
        world.strikes.client(world.server.service()),
        Clock::system(),
    );
    let ready = crate::provisioner::start_with(&process, world.settings.clone(), SILENCE);
    let is = |volumes: &[Volume], wanted| files(volumes).is_some_and(|v| v.phase() == wanted);
    let free = |volumes: &[Volume]| is(volumes, VolumePhase::Available);
    world.until("it is offered", &mut [], free).await;

    world.disks.unmount();
    world
        .until("it is withdrawn", &mut [], |v| files(v).is_none())
        .await;
    assert!(world.told_missing().await.is_empty());
    world.disks.mount();
    world.until("it is offered again", &mut [], free).await;

    world.claim("files", "Filesystem").await;
    let bound = |volumes: &[Volume]| is(volumes, VolumePhase::Bound);
    world.until("it is bound", &mut [], bound).await;
    assert_eq!(ready.check(), Ok(()));
    world.disks.unmount();
    world
        .until("it is not ready", &mut [], |_| ready.check().is_err())
        .await;
    let why = ready.check().unwrap_err();
    assert!(why.contains("nothing is mounted at"), "{why}");
    while world.told_missing().await.len() < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let mut told = world.told_missing().await;
    told.sort();
    let kinds: Vec<&str> = told.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["Node", "PersistentVolume"]);
    assert!(
        told.iter()
            .all(|(_, message)| message.contains("claim default/files"))
    );
    let volumes = world.others.cluster.list::<Volume>(None).await.unwrap();
    assert!(bound(&volumes), "it stays");
    let marked = files(&volumes)
        .unwrap()
        .metadata
        .annotation(well_known::LOCAL_MOUNT_POINT);
    assert_eq!(marked, Some("true"));
    world.disks.mount();
    world
        .until("all is well", &mut [], |_| ready.check().is_ok())
        .await;
    process.kill();
    world.others.kill();
}
