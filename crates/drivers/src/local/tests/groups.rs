//! Groups of snapshots: one moment, all or nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use orlop_csi::proto::group_controller_server::GroupController;

use super::snapshots::{POOLS, shown};
use super::*;
use crate::local::group::GroupControllerService;

impl Bed {
    fn groups(&self) -> GroupControllerService {
        GroupControllerService::new(Arc::clone(self.pools()))
    }

    pub(super) async fn group(
        &self,
        name: &str,
        volumes: &[&str],
    ) -> Result<proto::VolumeGroupSnapshot, Code> {
        let request = proto::CreateVolumeGroupSnapshotRequest {
            name: name.to_owned(),
            source_volume_ids: volumes.iter().map(|id| (*id).to_owned()).collect(),
            ..Default::default()
        };
        let reply = self
            .groups()
            .create_volume_group_snapshot(Request::new(request))
            .await;
        shown(reply).map(|reply| reply.group_snapshot.unwrap())
    }

    async fn get_group(
        &self,
        id: &str,
        snapshots: &[String],
    ) -> Result<proto::VolumeGroupSnapshot, Code> {
        let request = proto::GetVolumeGroupSnapshotRequest {
            group_snapshot_id: id.to_owned(),
            snapshot_ids: snapshots.to_vec(),
            ..Default::default()
        };
        let reply = self
            .groups()
            .get_volume_group_snapshot(Request::new(request))
            .await;
        shown(reply).map(|reply| reply.group_snapshot.unwrap())
    }

    pub(super) async fn delete_group(&self, id: &str, snapshots: &[String]) -> Result<(), Code> {
        let request = proto::DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: id.to_owned(),
            snapshot_ids: snapshots.to_vec(),
            ..Default::default()
        };
        code(
            self.groups()
                .delete_volume_group_snapshot(Request::new(request))
                .await,
        )
    }
}

pub(super) fn members(group: &proto::VolumeGroupSnapshot) -> Vec<String> {
    let snapshots = group.snapshots.iter();
    snapshots.map(|it| it.snapshot_id.clone()).collect()
}

#[tokio::test]
async fn a_group_lives_and_goes_as_one() {
    let mut bed = Bed::new();
    let (one, two) = (
        bed.volume("one", 64 * MIB).await,
        bed.volume("two", 64 * MIB).await,
    );
    let group = bed.group("g", &[&one, &two]).await.unwrap();
    let id = group.group_snapshot_id.clone();
    let snapshots = members(&group);
    assert!(group.ready_to_use && group.creation_time.is_some());
    assert_eq!(snapshots.len(), 2);
    for snapshot in &group.snapshots {
        assert_eq!(snapshot.group_snapshot_id, id);
        assert!(snapshot.ready_to_use);
        let alone = bed.delete_snapshot(&snapshot.snapshot_id).await;
        assert_eq!(alone, Err(Code::InvalidArgument));
    }
    // In whatever order, and after a restart, it is the same group.
    bed.restart();
    assert_eq!(bed.group("g", &[&two, &one]).await.unwrap(), group);
    let reversed: Vec<_> = snapshots.iter().rev().cloned().collect();
    assert_eq!(bed.get_group(&id, &reversed).await.unwrap(), group);
    assert_eq!(bed.list(|_| {}).await.unwrap().0.len(), 2);
    assert_eq!(
        bed.group("g", &[&one]).await.unwrap_err(),
        Code::AlreadyExists
    );
    bed.delete(&one).await.unwrap();
    assert_eq!(bed.group("g", &[&one, &two]).await.unwrap(), group);

    for wrong in [&snapshots[..1], &[], &["s-1".to_owned(), "s-2".to_owned()]] {
        let refused = Err(Code::InvalidArgument);
        assert_eq!(bed.delete_group(&id, wrong).await, refused);
        assert_eq!(bed.get_group(&id, wrong).await.map(|_| ()), refused);
    }
    bed.delete_group(&id, &snapshots).await.unwrap();
    bed.delete_group(&id, &snapshots).await.unwrap();
    assert_eq!(
        bed.get_group(&id, &snapshots).await.unwrap_err(),
        Code::NotFound
    );
    bed.delete(&two).await.unwrap();
    assert_eq!(bed.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn what_is_missing_or_unknown_is_refused_and_nothing_is_left() {
    let bed = Bed::new();
    let one = bed.volume("one", 64 * MIB).await;
    for (name, volumes, expected) in [
        ("", vec![one.as_str()], Code::InvalidArgument),
        ("g", vec![], Code::InvalidArgument),
        ("g", vec![""], Code::InvalidArgument),
        ("g", vec![&one, &one], Code::InvalidArgument),
        ("g", vec![&one, "nothing"], Code::NotFound),
    ] {
        assert_eq!(bed.group(name, &volumes).await.unwrap_err(), expected);
    }
    assert_eq!(
        bed.get_group("", &[]).await.unwrap_err(),
        Code::InvalidArgument
    );
    assert_eq!(
        bed.get_group("nothing", &[]).await.unwrap_err(),
        Code::NotFound
    );
    assert_eq!(bed.delete_group("", &[]).await, Err(Code::InvalidArgument));
    bed.delete_group("nothing", &[]).await.unwrap();
    assert_eq!(bed.leftovers().len(), 1, "{:?}", bed.leftovers());
}

#[tokio::test]
async fn nothing_is_in_one_volume_that_came_after_something_missing_from_another() {
    for kind in POOLS {
        let Some(bed) = Bed::on(kind) else { return };
        let (log, data) = (
            bed.volume("log", 64 * MIB).await,
            bed.volume("data", 64 * MIB).await,
        );
        for id in [&log, &data] {
            bed.stage(id, files("ext4")).await.unwrap();
            fs::write(bed.staged(id).join("n"), "0").unwrap();
        }
        let (stop, places) = (
            Arc::new(AtomicBool::new(false)),
            [&log, &data].map(|id| bed.staged(id).join("n")),
        );
        let stopped = Arc::clone(&stop);
        let writer = std::thread::spawn(move || {
            let mut number = 0;
            while !stopped.load(Ordering::Relaxed) {
                number += 1;
                // First to the log, then to the data: never the other way round.
                for place in &places {
                    let file = fs::File::options().write(true).open(place).unwrap();
                    let text = format!("{number}");
                    std::os::unix::fs::FileExt::write_all_at(&file, text.as_bytes(), 0).unwrap();
                    file.sync_data().unwrap();
                }
            }
        });
        let mut groups = Vec::new();
        for round in 0..3 {
            let name = format!("g{round}");
            groups.push(bed.group(&name, &[&log, &data]).await.unwrap());
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        for (round, group) in groups.iter().enumerate() {
            let mut numbers = BTreeMap::new();
            for snapshot in &group.snapshots {
                let name = format!("copy-{round}-{}", snapshot.source_volume_id);
                let copy = bed.restore(&name, &snapshot.snapshot_id).await;
                bed.stage(&copy, files("ext4")).await.unwrap();
                let number: u64 = read(bed.staged(&copy).join("n")).parse().unwrap();
                numbers.insert(snapshot.source_volume_id.clone(), number);
                bed.unstage(&copy).await.unwrap();
            }
            let (log, data) = (numbers[&log], numbers[&data]);
            assert!(log == data || log == data + 1, "{kind}: {log} {data}");
        }
    }
}

#[tokio::test]
async fn a_group_that_cannot_be_whole_is_not_begun() {
    let Some(bed) = Bed::on("xfs") else { return };
    let (one, raw) = (
        bed.volume("one", 64 * MIB).await,
        bed.volume("raw", 64 * MIB).await,
    );
    bed.stage(&one, files("ext4")).await.unwrap();
    bed.stage(&raw, block()).await.unwrap();
    let refused = bed.group("g", &[&one, &raw]).await.unwrap_err();
    assert_eq!(refused, Code::FailedPrecondition);
    assert!(bed.list(|_| {}).await.unwrap().0.is_empty());
    // And is not frozen.
    fs::write(bed.staged(&one).join("f"), "x").unwrap();
    bed.unstage(&raw).await.unwrap();
    bed.group("g", &[&one, &raw]).await.unwrap();
}

#[tokio::test]
async fn a_group_may_be_of_several_pools() {
    let mut bed = Bed::new();
    let one = bed.volume("one", 64 * MIB).await;
    let request = proto::CreateVolumeRequest {
        accessibility_requirements: Some(on(&["two"])),
        ..creation("two", 64 * MIB)
    };
    let reply = bed.controller().create_volume(Request::new(request)).await;
    let two = shown(reply).unwrap().volume.unwrap().volume_id;
    let group = bed.group("g", &[&one, &two]).await.unwrap();
    bed.restart();
    assert_eq!(bed.group("g", &[&one, &two]).await.unwrap(), group);
    // Killed while it was made or removed: the record is not there, and so neither is the rest.
    let id = &group.group_snapshot_id;
    for pool in ["pool-one", "pool-two"] {
        let record = bed.path(pool).join("groups").join(format!("{id}.json"));
        let _ = fs::remove_file(record);
    }
    bed.restart();
    assert!(bed.list(|_| {}).await.unwrap().0.is_empty());
    assert_eq!(bed.leftovers().len(), 2, "{:?}", bed.leftovers());
    let again = bed.group("g", &[&one, &two]).await.unwrap();
    assert_eq!(members(&again), members(&group));
    assert_ne!(again.creation_time, group.creation_time);
}
