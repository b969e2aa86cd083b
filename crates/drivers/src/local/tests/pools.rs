//! Several pools, and what may be promised of them.

use std::os::unix::fs::MetadataExt;

use super::*;

/// A bed whose node one has the pools `slow` and `fast`, with these rules.
fn two_pools(rules: Rules) -> Bed {
    let mut bed = Bed::new();
    bed.driver = None;
    let home = |pool: &str| Home {
        node: NodeName::from("one"),
        pool: PoolName::parse(pool).unwrap(),
    };
    let config = LocalConfig {
        pools: BTreeMap::from([
            (home("slow"), bed.path("slow")),
            (home("fast"), bed.path("fast")),
        ]),
        rules,
        max_volumes: 2,
        ..LocalConfig::new(BTreeMap::new())
    };
    bed.driver = Some(LocalDriver::open(config).unwrap());
    bed
}

fn with(name: &str, bytes: i64, parameters: &[(&str, &str)]) -> proto::CreateVolumeRequest {
    proto::CreateVolumeRequest {
        parameters: map(parameters),
        ..creation(name, bytes)
    }
}

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

async fn create(bed: &Bed, request: proto::CreateVolumeRequest) -> Result<String, Code> {
    match bed.controller().create_volume(Request::new(request)).await {
        Ok(reply) => Ok(reply.into_inner().volume.unwrap().volume_id),
        Err(status) => {
            eprintln!("{status}");
            Err(status.code())
        }
    }
}

async fn capacity(bed: &Bed, parameters: &[(&str, &str)]) -> proto::GetCapacityResponse {
    let request = proto::GetCapacityRequest {
        parameters: map(parameters),
        ..Default::default()
    };
    let reply = bed.controller().get_capacity(Request::new(request)).await;
    reply.unwrap().into_inner()
}

async fn modify(bed: &Bed, id: &str, parameters: &[(&str, &str)]) -> Result<(), Code> {
    let request = proto::ControllerModifyVolumeRequest {
        volume_id: id.to_owned(),
        mutable_parameters: map(parameters),
        ..Default::default()
    };
    code(
        bed.controller()
            .controller_modify_volume(Request::new(request))
            .await,
    )
}

fn image(bed: &Bed, pool: &str, id: &str) -> PathBuf {
    bed.path(pool)
        .join("volumes")
        .join(id)
        .join(format!("{id}.img"))
}

#[tokio::test]
async fn the_class_chooses_the_pool() {
    let bed = two_pools(Rules::default());
    for pool in ["slow", "fast"] {
        let id = create(&bed, with(pool, 64 * MIB, &[("pool", pool)])).await;
        assert!(image(&bed, pool, &id.unwrap()).exists());
    }
    let unknown = create(&bed, with("x", 64 * MIB, &[("pool", "lost")])).await;
    assert_eq!(unknown, Err(Code::InvalidArgument));
    let either = create(&bed, with("either", 64 * MIB, &[])).await.unwrap();
    assert!(
        ["slow", "fast"]
            .iter()
            .any(|pool| image(&bed, pool, &either).exists())
    );
    let all = capacity(&bed, &[]).await;
    let one = capacity(&bed, &[("pool", "slow")]).await;
    // Both are on one disk, which others write to meanwhile.
    assert!((all.available_capacity - 2 * one.available_capacity).abs() < 2 * GIB);
    assert!((all.maximum_volume_size.unwrap() - one.available_capacity).abs() < 2 * GIB);
    assert_eq!(
        capacity(&bed, &[("pool", "lost")]).await.available_capacity,
        0
    );
}

#[tokio::test]
async fn a_reserve_is_kept_and_thin_volumes_may_be_overcommitted() {
    let plain = |overcommit, reserve| Rules {
        overcommit: Overcommit::new(overcommit).unwrap(),
        reserve,
    };
    let free = {
        let bed = two_pools(plain(1.0, Reserve::Bytes(0)));
        capacity(&bed, &[("pool", "slow")]).await.available_capacity
    };
    let bed = two_pools(plain(1.0, Reserve::Bytes(u64::try_from(free / 2).unwrap())));
    let kept = capacity(&bed, &[("pool", "slow")]).await.available_capacity;
    assert!((kept - free / 2).abs() < 2 * GIB, "{kept} of {free}");
    drop(bed);
    let bed = two_pools(plain(4.0, Reserve::Bytes(0)));
    let thin = capacity(&bed, &[("pool", "slow")]).await.available_capacity;
    let thick = capacity(&bed, &[("pool", "slow"), ("allocation", "thick")]).await;
    assert!((thin - 4 * free).abs() < 8 * GIB, "{thin} of {free}");
    assert!((thick.available_capacity - free).abs() < 2 * GIB);
    let id = create(&bed, with("big", 2 * free, &[("pool", "slow")])).await;
    bed.delete(&id.unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_thick_volume_has_its_blocks_through_its_whole_life() {
    if !is_root() {
        return;
    }
    let bed = two_pools(Rules::default());
    let parameters = [("pool", "fast"), ("allocation", "thick")];
    let id = create(&bed, with("thick", 64 * MIB, &parameters))
        .await
        .unwrap();
    let blocks = || fs::metadata(image(&bed, "fast", &id)).unwrap().blocks() * 512;
    assert!(blocks() >= 64 << 20);
    bed.stage(&id, files("ext4")).await.unwrap();
    assert!(blocks() >= 64 << 20, "{}", blocks());
    fs::write(PathBuf::from(bed.staging(&id)).join("f"), vec![1; 1 << 20]).unwrap();
    bed.unstage(&id).await.unwrap();
    bed.stage(&id, files("ext4")).await.unwrap();
    assert_eq!(
        fs::metadata(PathBuf::from(bed.staging(&id)).join("f"))
            .unwrap()
            .len(),
        1 << 20
    );
    bed.unstage(&id).await.unwrap();
    assert!(blocks() >= 64 << 20);
    bed.delete(&id).await.unwrap();
    assert_eq!(bed.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn what_is_mutable_changes_while_the_volume_is_used() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::new();
    let id = bed.volume("data", 64 * MIB).await;
    bed.stage(&id, files("")).await.unwrap();
    assert_eq!(modify(&bed, &id, &[]).await, Err(Code::InvalidArgument));
    assert_eq!(
        modify(&bed, &id, &[("allocation", "thick"), ("iops", "5")]).await,
        Err(Code::InvalidArgument)
    );
    let blocks = |bed: &Bed| fs::metadata(image(bed, "pool-one", &id)).unwrap().blocks() * 512;
    assert!(blocks(&bed) < 32 << 20, "refused, and yet done");
    assert_eq!(
        modify(&bed, "v-none", &[("allocation", "thin")]).await,
        Err(Code::NotFound)
    );
    for _ in 0..2 {
        modify(
            &bed,
            &id,
            &[("allocation", "thick"), ("readAheadKiB", "64")],
        )
        .await
        .unwrap();
    }
    assert!(blocks(&bed) >= 64 << 20);
    let root = bed.path("");
    let read_ahead = || {
        let device = loopdev::list()
            .unwrap()
            .into_iter()
            .find(|it| it.backing_path.starts_with(&root))
            .unwrap();
        read(format!(
            "/sys/block/loop{}/queue/read_ahead_kb",
            device.number
        ))
    };
    assert_eq!(read_ahead().trim(), "64");
    bed.unstage(&id).await.unwrap();
    bed.restart();
    bed.stage(&id, files("")).await.unwrap();
    assert_eq!(read_ahead().trim(), "64");
    bed.unstage(&id).await.unwrap();
    bed.delete(&id).await.unwrap();
}

#[tokio::test]
async fn a_node_uses_no_more_volumes_than_it_may() {
    let bed = two_pools(Rules::default());
    let info = bed
        .node("one")
        .node_get_info(Request::new(proto::NodeGetInfoRequest {}))
        .await
        .unwrap();
    assert_eq!(info.into_inner().max_volumes_per_node, 2);
    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        ids.push(create(&bed, with(name, 64 * MIB, &[])).await.unwrap());
    }
    bed.attach(&ids[0], "one", false).await.unwrap();
    bed.attach(&ids[1], "one", false).await.unwrap();
    assert_eq!(
        bed.attach(&ids[2], "one", false).await,
        Err(Code::ResourceExhausted)
    );
    // One that is there already is none more.
    bed.attach(&ids[0], "one", false).await.unwrap();
    bed.detach(&ids[0], "one").await.unwrap();
    bed.attach(&ids[2], "one", false).await.unwrap();
}

#[tokio::test]
async fn options_for_mkfs_reach_it_and_only_those_on_the_list() {
    if !is_root() {
        return;
    }
    let bed = Bed::new();
    let on_one = |request| proto::CreateVolumeRequest {
        accessibility_requirements: Some(on(&["one"])),
        ..request
    };
    let options = [("mkfsOptions", "-b 1024 -i 4096")];
    let id = create(&bed, on_one(with("a", 64 * MIB, &options)))
        .await
        .unwrap();
    bed.stage(&id, files("ext4")).await.unwrap();
    let block = block_size(&bed.staging(&id));
    assert_eq!(block, 1024);
    bed.unstage(&id).await.unwrap();
    bed.delete(&id).await.unwrap();
    for refused in ["-d /etc", "-J device=/dev/sda", "; reboot"] {
        let asked = with("b", 64 * MIB, &[("mkfsOptions", refused)]);
        let as_device = proto::CreateVolumeRequest {
            volume_capabilities: vec![super::block()],
            ..asked.clone()
        };
        for asked in [asked, as_device] {
            let asked = create(&bed, asked).await;
            assert_eq!(asked, Err(Code::InvalidArgument), "{refused}");
        }
    }
    // On the list, and yet nothing that mkfs would do.
    let wrong = [
        ("ext4", "-I 100"),
        ("xfs", "-b size=300"),
        ("btrfs", "-n 5"),
        ("zfs", ""),
    ];
    for (kind, options) in wrong {
        let class = [("fstype", kind), ("mkfsOptions", options)];
        let asked = create(&bed, with("b", 512 * MIB, &class)).await;
        assert_eq!(asked, Err(Code::InvalidArgument), "{kind} {options}");
    }
    assert_eq!(bed.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn options_for_mkfs_are_those_of_the_file_system_that_the_capability_names() {
    let bed = Bed::new();
    // As the provisioner asks: the class' `csi.storage.k8s.io/fstype` is in the capability alone.
    let asked = |options: &str, capabilities: &[proto::VolumeCapability]| {
        let request = proto::CreateVolumeRequest {
            volume_capabilities: capabilities.to_vec(),
            ..with(options, 512 * MIB, &[("mkfsOptions", options)])
        };
        create(&bed, request)
    };
    let (xfs, ext4) = ("-m reflink=1", "-b 1024");
    assert!(asked(xfs, &[files("xfs")]).await.is_ok());
    assert!(asked(ext4, &[files("")]).await.is_ok());
    assert!(asked("-i size=512", &[super::block()]).await.is_ok());
    for (options, capabilities) in [
        (xfs, vec![files("")]),
        (xfs, vec![files("xfs"), files("ext4")]),
        (ext4, vec![files("xfs")]),
    ] {
        let told = asked(options, &capabilities).await;
        assert_eq!(told, Err(Code::InvalidArgument), "{options}");
    }
}

#[tokio::test]
async fn mount_options_that_staging_would_refuse_are_refused_at_once_and_by_name() {
    let bed = Bed::new();
    let mut request = creation("a", 64 * MIB);
    let flags = ["noatime".to_owned(), "context=hidden".to_owned()];
    let mount = MountVolume {
        mount_flags: flags.to_vec(),
        ..Default::default()
    };
    request.volume_capabilities = vec![with_mode(
        AccessType::Mount(mount),
        WireMode::SingleNodeWriter,
    )];
    let refused = bed.controller().create_volume(Request::new(request)).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("\"context\""), "{refused}");
    assert!(!refused.message().contains("hidden"), "{refused}");
}

#[tokio::test]
async fn without_room_the_roomiest_pool_is_named() {
    let (Some(small), Some(large)) = (
        ScratchFs::new("ext4", 64 << 20),
        ScratchFs::new("ext4", 256 << 20),
    ) else {
        return;
    };
    let mut bed = Bed::new();
    bed.driver = None;
    let at = |pool: &str, on: &ScratchFs| {
        let home = Home {
            node: NodeName::from("one"),
            pool: PoolName::parse(pool).unwrap(),
        };
        (home, on.path().join("pool"))
    };
    // Neither the first nor the last by name.
    let empty = |pool: &str| (at(pool, &small).0, small.path().join(pool));
    let config = LocalConfig {
        pools: BTreeMap::from([empty("a"), at("m", &large), empty("z")]),
        ..LocalConfig::new(BTreeMap::new())
    };
    bed.driver = Some(LocalDriver::open(config).unwrap());
    let sights: Vec<_> = bed.pools().look().iter().map(ToString::to_string).collect();
    assert_eq!(sights.len(), 3, "{sights:?}");
    assert!(
        sights[1].starts_with("pool m at /") && sights[1].contains(": ext4, "),
        "{sights:?}"
    );
    let request = Request::new(creation("a", GIB));
    let refused = bed.controller().create_volume(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    let told = refused.message();
    assert!(told.contains("none of 3 pools has room"), "{told}");
    assert!(told.contains("left in pool m of node one"), "{told}");
    assert!(
        told.contains("1 GiB are wanted and about 0.1 GiB are left"),
        "{told}"
    );
    bed.driver = None;
}

#[test]
fn two_pools_in_one_folder_are_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(folder.path(), &link).unwrap();
    let config = LocalConfig::new(BTreeMap::from([
        (NodeName::from("one"), folder.path().join("pool")),
        (NodeName::from("two"), link.join("pool")),
    ]));
    let error = LocalDriver::open(config).unwrap_err().to_string();
    assert!(
        error.contains("of node one and pool default of node two are one folder"),
        "{error}"
    );
    assert!(!folder.path().join("pool").exists());
}

/// The size of a file system's blocks.
fn block_size(path: &str) -> u64 {
    fs::metadata(path).unwrap().blksize()
}

#[tokio::test]
async fn paths_outside_of_the_kubelets_folder_are_refused() {
    if !is_root() {
        return;
    }
    let mut bed = Bed::new();
    bed.driver = None;
    let mut config = bed.config();
    let folder = bed.path("kubelet-one");
    config.reaches = BTreeMap::from([(NodeName::from("one"), Reach::below(&folder))]);
    bed.driver = Some(LocalDriver::open(config).unwrap());
    let id = bed.volume("data", 64 * MIB).await;
    let outside = bed.path("outside");
    fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, folder.join("way-out")).unwrap();
    let stage = |path: PathBuf| {
        let request = proto::NodeStageVolumeRequest {
            volume_id: id.clone(),
            staging_target_path: path.to_str().unwrap().to_owned(),
            volume_capability: Some(files("")),
            ..Default::default()
        };
        let node = bed.node("one");
        async move { code(node.node_stage_volume(Request::new(request)).await) }
    };
    assert_eq!(stage(outside.join("x")).await, Err(Code::InvalidArgument));
    assert_eq!(stage(folder.clone()).await, Err(Code::InvalidArgument));
    assert!(stage(folder.join("way-out/x")).await.is_err());
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    // Within it everything is as ever.
    bed.stage(&id, files("")).await.unwrap();
    bed.publish(&id, "a", files("").into()).await.unwrap();
    let unpublish = proto::NodeUnpublishVolumeRequest {
        volume_id: id.clone(),
        target_path: outside.to_str().unwrap().to_owned(),
    };
    let node = bed.node("one");
    let reply = node.node_unpublish_volume(Request::new(unpublish));
    assert_eq!(code(reply.await), Err(Code::InvalidArgument));
    assert!(outside.exists());
    bed.unpublish(&id, "a").await.unwrap();
    bed.unstage(&id).await.unwrap();
    bed.delete(&id).await.unwrap();
    fs::remove_file(folder.join("way-out")).unwrap();
    assert_eq!(bed.leftovers(), Vec::<String>::new());
}

#[tokio::test]
async fn a_file_system_grows_when_it_is_next_staged() {
    if !is_root() {
        return;
    }
    for fs_type in ["ext4", "xfs", "btrfs"] {
        let bed = Bed::new();
        let id = bed.volume("data", 512 * MIB).await;
        bed.stage(&id, files(fs_type)).await.unwrap();
        fs::write(PathBuf::from(bed.staging(&id)).join("f"), "kept").unwrap();
        bed.unstage(&id).await.unwrap();
        let request = proto::ControllerExpandVolumeRequest {
            volume_id: id.clone(),
            capacity_range: Some(proto::CapacityRange {
                required_bytes: GIB,
                limit_bytes: 0,
            }),
            ..Default::default()
        };
        bed.controller()
            .controller_expand_volume(Request::new(request))
            .await
            .unwrap();
        bed.stage(&id, files(fs_type)).await.unwrap();
        let usage = orlop_host::filesystem::usage(Path::new(&bed.staging(&id))).unwrap();
        assert!(usage.total_bytes > 900 << 20, "{fs_type}: {usage:?}");
        assert_eq!(read(PathBuf::from(bed.staging(&id)).join("f")), "kept");
        bed.unstage(&id).await.unwrap();
        bed.delete(&id).await.unwrap();
        assert_eq!(bed.leftovers(), Vec::<String>::new());
    }
}
