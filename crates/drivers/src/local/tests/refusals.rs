//! Calls that must not succeed, and paths that must not be touched.

use super::*;

#[tokio::test]
async fn what_is_missing_is_told_before_what_is_unknown() {
    let bed = Bed::new();
    let node = bed.node("one");
    let publish = |volume_id: &str, target: &str, capability| {
        let request = proto::NodePublishVolumeRequest {
            volume_id: volume_id.to_owned(),
            target_path: target.to_owned(),
            volume_capability: capability,
            ..Default::default()
        };
        let node = node.clone();
        async move { code(node.node_publish_volume(Request::new(request)).await) }
    };
    assert_eq!(
        publish("", "/x", Some(files(""))).await,
        Err(Code::InvalidArgument)
    );
    assert_eq!(
        publish("v", "", Some(files(""))).await,
        Err(Code::InvalidArgument)
    );
    assert_eq!(publish("v", "/x", None).await, Err(Code::InvalidArgument));
    assert_eq!(
        publish("v", "some/path", Some(files(""))).await,
        Err(Code::NotFound)
    );
    assert_eq!(
        bed.stage("v", proto::VolumeCapability::default()).await,
        Err(Code::InvalidArgument)
    );
    assert_eq!(bed.stage("../../etc", files("")).await, Err(Code::NotFound));
    assert_eq!(bed.unstage("v").await, Err(Code::NotFound));
    assert_eq!(bed.unpublish("v", "x").await, Err(Code::NotFound));
    let stats = proto::NodeGetVolumeStatsRequest {
        volume_id: "v".to_owned(),
        volume_path: "some/path".to_owned(),
        ..Default::default()
    };
    assert_eq!(
        code(node.node_get_volume_stats(Request::new(stats)).await),
        Err(Code::NotFound)
    );
}

#[tokio::test]
async fn a_second_target_depends_on_the_access_mode() {
    if !is_root() {
        return;
    }
    use WireMode::*;
    for (mode, second) in [
        (SingleNodeWriter, Err(Code::FailedPrecondition)),
        (SingleNodeReaderOnly, Err(Code::FailedPrecondition)),
        (SingleNodeSingleWriter, Err(Code::FailedPrecondition)),
        (SingleNodeMultiWriter, Ok(())),
    ] {
        let bed = Bed::new();
        let id = bed.volume("data", 64 * MIB).await;
        let how = with_mode(AccessType::Mount(MountVolume::default()), mode);
        bed.stage(&id, how.clone()).await.unwrap();
        bed.publish(&id, "a", how.clone().into()).await.unwrap();
        bed.publish(&id, "a", how.clone().into()).await.unwrap();
        let other = with_mode(
            AccessType::Mount(MountVolume::default()),
            if mode == SingleNodeWriter {
                SingleNodeSingleWriter
            } else {
                SingleNodeWriter
            },
        );
        assert_eq!(
            bed.publish(&id, "a", other.into()).await,
            Err(Code::AlreadyExists),
            "{mode:?}"
        );
        assert_eq!(
            bed.publish(&id, "b", how.clone().into()).await,
            second,
            "{mode:?}"
        );
    }
}

#[tokio::test]
async fn the_wrong_order_is_refused() {
    if !is_root() {
        return;
    }
    let bed = Bed::new();
    let id = bed.volume("data", 64 * MIB).await;
    assert_eq!(
        bed.publish(&id, "a", files("").into()).await,
        Err(Code::FailedPrecondition)
    );
    bed.stage(&id, files("")).await.unwrap();
    assert_eq!(
        bed.publish(&id, "a", block().into()).await,
        Err(Code::FailedPrecondition)
    );
    assert_eq!(
        bed.stage(&id, shared_files()).await,
        Err(Code::AlreadyExists)
    );
    bed.publish(&id, "a", files("").into()).await.unwrap();
    assert_eq!(bed.unstage(&id).await, Err(Code::FailedPrecondition));
    assert_eq!(bed.delete(&id).await, Err(Code::FailedPrecondition));
    bed.unpublish(&id, "a").await.unwrap();
    assert_eq!(bed.delete(&id).await, Err(Code::FailedPrecondition));
    bed.unstage(&id).await.unwrap();
    bed.attach(&id, "one", false).await.unwrap();
    assert_eq!(bed.delete(&id).await, Err(Code::FailedPrecondition));
    assert_eq!(
        bed.attach(&id, "two", false).await,
        Err(Code::FailedPrecondition)
    );
    assert_eq!(bed.attach(&id, "three", false).await, Err(Code::NotFound));
    bed.detach(&id, "").await.unwrap();
    bed.delete(&id).await.unwrap();
}

#[tokio::test]
async fn a_volume_is_unknown_on_other_nodes() {
    let bed = Bed::new();
    let id = bed.volume("data", 64 * MIB).await;
    let request = proto::NodeStageVolumeRequest {
        volume_id: id.clone(),
        staging_target_path: bed.staging(&id),
        volume_capability: Some(files("")),
        ..Default::default()
    };
    let reply = bed
        .node("two")
        .node_stage_volume(Request::new(request))
        .await;
    assert_eq!(code(reply), Err(Code::NotFound));
}

#[tokio::test]
async fn what_is_not_ours_is_left_alone() {
    if !is_root() {
        return;
    }
    let bed = Bed::new();
    let id = bed.volume("data", 64 * MIB).await;
    bed.stage(&id, files("")).await.unwrap();
    let precious = bed.path("precious");
    fs::create_dir(&precious).unwrap();
    fs::write(precious.join("file"), "kept").unwrap();

    // A link where the target should be.
    std::os::unix::fs::symlink(&precious, bed.target("link")).unwrap();
    assert_eq!(
        bed.publish(&id, "link", files("").into()).await,
        Err(Code::FailedPrecondition)
    );
    assert_eq!(
        bed.unpublish(&id, "link").await,
        Err(Code::FailedPrecondition)
    );
    // Somebody else's mount.
    fs::create_dir(bed.target("mount")).unwrap();
    let place = Place::at(Path::new(&bed.target("mount"))).unwrap();
    let source = Place::at(&precious).unwrap().open().unwrap();
    let as_it_is = orlop_host::Restrictions::default();
    mount::bind(source, place.open().unwrap(), mount::Depth::One, as_it_is).unwrap();
    assert_eq!(
        bed.publish(&id, "mount", files("").into()).await,
        Err(Code::FailedPrecondition)
    );
    assert_eq!(
        bed.unpublish(&id, "mount").await,
        Err(Code::FailedPrecondition)
    );
    mount::unmount(&place).unwrap();
    // A filled directory, a filled file.
    fs::create_dir_all(PathBuf::from(bed.target("dir")).join("inner")).unwrap();
    assert_eq!(bed.unpublish(&id, "dir").await, Err(Code::Internal));
    fs::write(bed.target("file"), "kept").unwrap();
    assert_eq!(bed.unpublish(&id, "file").await, Err(Code::Internal));
    assert_eq!(read(bed.target("file")), "kept");
    assert!(PathBuf::from(bed.target("dir")).join("inner").exists());
    assert_eq!(read(precious.join("file")), "kept");
    // An empty one, and none at all, are fine.
    fs::create_dir(bed.target("empty")).unwrap();
    bed.unpublish(&id, "empty").await.unwrap();
    assert!(!Path::new(&bed.target("empty")).exists());
    bed.unpublish(&id, "empty/none").await.unwrap();
    bed.unstage(&id).await.unwrap();
}

#[tokio::test]
async fn mount_options_off_the_list_are_refused_and_not_repeated() {
    let bed = Bed::new();
    let id = bed.volume("data", 64 * MIB).await;
    let mount = MountVolume {
        mount_flags: vec!["password=hunter2".to_owned()],
        ..Default::default()
    };
    let request = proto::NodeStageVolumeRequest {
        volume_id: id.clone(),
        staging_target_path: bed.staging(&id),
        volume_capability: Some(with_mode(
            AccessType::Mount(mount),
            WireMode::SingleNodeWriter,
        )),
        ..Default::default()
    };
    let status = bed
        .node("one")
        .node_stage_volume(Request::new(request))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(
        !status.message().contains("hunter2"),
        "{}",
        status.message()
    );
}

#[tokio::test]
async fn where_a_volume_is_staged_is_no_place_to_unpublish_it_from() {
    if !is_root() {
        return;
    }
    let bed = Bed::new();
    for (name, how) in [("files", files("")), ("device", block())] {
        let id = bed.volume(name, 64 * MIB).await;
        bed.stage(&id, how.clone()).await.unwrap();
        fs::create_dir_all(bed.staging(&id)).unwrap();
        let request = proto::NodeUnpublishVolumeRequest {
            volume_id: id.clone(),
            target_path: bed.staging(&id),
        };
        let node = bed.node("one");
        let reply = node.node_unpublish_volume(Request::new(request)).await;
        assert_eq!(code(reply), Err(Code::InvalidArgument), "{name}");
        assert!(Path::new(&bed.staging(&id)).exists());
        // It is staged as before.
        bed.publish(&id, name, how.into()).await.unwrap();
        bed.unpublish(&id, name).await.unwrap();
        bed.unstage(&id).await.unwrap();
        bed.delete(&id).await.unwrap();
    }
}
