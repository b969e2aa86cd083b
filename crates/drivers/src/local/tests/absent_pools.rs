//! Pools that were not there when the driver started: not taken for new ones, and not stood in for.

use orlop_host::mount::{Depth, Restrictions};

use super::failures::{Disk, condition};
use super::*;

/// Two pools of node one, each on a disk of its own, with what is remembered of them.
fn remembering(bed: &Bed) -> LocalConfig {
    let home = |pool: &str| Home {
        node: NodeName::from("one"),
        pool: PoolName::parse(pool).unwrap(),
    };
    LocalConfig {
        pools: BTreeMap::from([
            (home("a"), bed.path("a")),
            (home("b"), bed.path("b").join("pool")),
        ]),
        memory: Some(bed.path("pools.json")),
        ..LocalConfig::new(BTreeMap::new())
    }
}

fn in_pool(name: &str, pool: &str) -> proto::CreateVolumeRequest {
    proto::CreateVolumeRequest {
        parameters: BTreeMap::from([("pool".to_owned(), pool.to_owned())]),
        ..creation(name, 8 * MIB)
    }
}

async fn made(bed: &Bed, request: proto::CreateVolumeRequest) -> Result<String, Status> {
    let reply = bed.controller().create_volume(Request::new(request)).await;
    reply.map(|reply| reply.into_inner().volume.unwrap().volume_id)
}

/// What can be made in a pool, or in any.
async fn room(bed: &Bed, pool: Option<&str>) -> i64 {
    let named = pool.map(|pool| ("pool".to_owned(), pool.to_owned()));
    let request = proto::GetCapacityRequest {
        parameters: named.into_iter().collect(),
        ..Default::default()
    };
    let reply = bed.controller().get_capacity(Request::new(request)).await;
    reply.unwrap().into_inner().available_capacity
}

#[tokio::test]
async fn an_unmounted_disk_is_no_new_pool_and_its_volumes_are_not_made_elsewhere() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::new();
    bed.driver = None;
    // At the mount point itself, and in a folder below it.
    let disks = ["a", "b"].map(|name| Disk::new(bed.path(name), 64 << 20));
    bed.driver = Some(LocalDriver::open(remembering(&bed)).unwrap());
    let in_a = made(&bed, in_pool("in-a", "a")).await.unwrap();
    let in_b = made(&bed, in_pool("in-b", "b")).await.unwrap();
    // The disks are set aside and not mounted when the driver starts.
    bed.driver = None;
    let aside = ["a", "b"].map(|name| bed.path(&format!("{name}-aside")));
    for (disk, aside) in disks.iter().zip(&aside) {
        fs::create_dir(aside).unwrap();
        let (from, to) = (Place::at(&disk.path).unwrap(), Place::at(aside).unwrap());
        let whole = Restrictions::default();
        mount::bind(from.open().unwrap(), to.open().unwrap(), Depth::One, whole).unwrap();
        mount::unmount(&from).unwrap();
    }
    for _ in 0..2 {
        bed.driver = None;
        bed.driver = Some(LocalDriver::open(remembering(&bed)).unwrap());
        for (name, id, pool) in [("in-a", &in_a, "a"), ("in-b", &in_b, "b")] {
            // Nor anywhere else, if any pool would do.
            for request in [in_pool(name, pool), creation(name, 8 * MIB)] {
                let status = made(&bed, request).await.unwrap_err();
                assert_eq!(status.code(), Code::Unavailable);
                assert!(status.message().contains("mount its disk"), "{status}");
            }
            assert_eq!(bed.delete(id).await, Err(Code::Unavailable));
            assert_eq!(fs::read_dir(bed.path(pool)).unwrap().count(), 0);
        }
    }
    // Mounted again: taken, without a restart, and the same calls find the same volumes.
    for (at, (disk, aside)) in disks.iter().zip(&aside).enumerate() {
        if at == 1 {
            // A class that names the pool which is there is served, and one that names none is not.
            assert_eq!(made(&bed, in_pool("in-a", "a")).await.unwrap(), in_a);
            assert!(room(&bed, Some("a")).await > 0);
            assert_eq!(room(&bed, None).await, 0);
            let status = made(&bed, creation("new", 8 * MIB)).await.unwrap_err();
            assert_eq!(status.code(), Code::Unavailable);
        }
        let (from, to) = (Place::at(aside).unwrap(), Place::at(&disk.path).unwrap());
        let whole = Restrictions::default();
        mount::bind(from.open().unwrap(), to.open().unwrap(), Depth::One, whole).unwrap();
        mount::unmount(&from).unwrap();
    }
    assert_eq!(made(&bed, in_pool("in-a", "a")).await.unwrap(), in_a);
    assert_eq!(made(&bed, in_pool("in-b", "b")).await.unwrap(), in_b);
    assert!(room(&bed, None).await > 0);
    // A pool that somebody emptied is a new one: its disk is there.
    bed.driver = None;
    fs::remove_dir_all(bed.path("b").join("pool")).unwrap();
    bed.driver = Some(LocalDriver::open(remembering(&bed)).unwrap());
    let again = made(&bed, in_pool("in-b", "b")).await.unwrap();
    assert_ne!(again, in_b);
    for id in [&in_a, &again] {
        bed.delete(id).await.unwrap();
    }
    bed.driver = None;
    for disk in &disks {
        mount::unmount(&Place::at(&disk.path).unwrap()).unwrap();
    }
}

#[tokio::test]
async fn two_volumes_of_one_name_in_two_pools_are_both_there() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::new();
    let open = |bed: &Bed, pools: &[&str]| {
        let mut config = remembering(bed);
        config.memory = None;
        config
            .pools
            .retain(|home, _| pools.contains(&home.pool.as_str()));
        LocalDriver::open(config).unwrap()
    };
    let mut ids = Vec::new();
    for pool in ["a", "b"] {
        bed.driver = None;
        bed.driver = Some(open(&bed, &[pool]));
        ids.push(made(&bed, in_pool("twin", pool)).await.unwrap());
    }
    bed.driver = None;
    bed.driver = Some(open(&bed, &["a", "b"]));
    let request = proto::ListVolumesRequest::default();
    let reply = bed.controller().list_volumes(Request::new(request)).await;
    let entries = reply.unwrap().into_inner().entries.into_iter();
    let mut listed: Vec<_> = entries.map(|it| it.volume.unwrap().volume_id).collect();
    listed.sort();
    ids.sort();
    assert_eq!(listed, ids);
    for id in &ids {
        assert!(!condition(&bed, id).await.abnormal);
        bed.delete(id).await.unwrap();
        bed.delete(id).await.unwrap();
    }
    assert!(leftovers(bed.pools()).unwrap().is_empty());
}
