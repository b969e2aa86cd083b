use std::os::unix::fs::MetadataExt;

use orlop_host::MountTable;

use super::*;

/// Unmounts what a failed test left.
pub(super) struct Target(pub(super) PathBuf);

impl Drop for Target {
    fn drop(&mut self) {
        if let Ok(place) = orlop_host::Place::at(&self.0) {
            let _ = orlop_host::mount::unmount(&place);
        }
    }
}

pub(super) fn is_root() -> bool {
    let root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !root {
        eprintln!("skipped: mounts need root");
    }
    root
}

pub(super) fn publication(
    volume: &proto::Volume,
    target: &Path,
) -> proto::NodePublishVolumeRequest {
    proto::NodePublishVolumeRequest {
        volume_id: volume.volume_id.clone(),
        target_path: target.to_str().unwrap().into(),
        volume_capability: Some(capability(Mode::MultiNodeMultiWriter)),
        volume_context: volume.volume_context.clone(),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_volume_appears_is_measured_and_goes() {
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    let target = Target(ground.dir.path().join("target"));
    let volume = ground.create("pvc-1", &[]).await.unwrap();
    let node = ground.node();
    for _ in 0..2 {
        let request = Request::new(publication(&volume, &target.0));
        node.node_publish_volume(request).await.unwrap();
    }
    fs::write(target.0.join("file"), "x").unwrap();
    assert!(ground.share().join("pvc-1/file").exists());
    let stats = proto::NodeGetVolumeStatsRequest {
        volume_id: volume.volume_id.clone(),
        volume_path: target.0.to_str().unwrap().into(),
        ..Default::default()
    };
    let told = node
        .node_get_volume_stats(Request::new(stats.clone()))
        .await
        .unwrap();
    assert!(told.get_ref().usage[0].total > 0);
    assert!(!told.get_ref().volume_condition.as_ref().unwrap().abnormal);
    let mut other = publication(&volume, &target.0);
    other.readonly = true;
    let refused = node
        .node_publish_volume(Request::new(other))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists);
    let gone = proto::NodeUnpublishVolumeRequest {
        volume_id: volume.volume_id.clone(),
        target_path: target.0.to_str().unwrap().into(),
    };
    for _ in 0..2 {
        node.node_unpublish_volume(Request::new(gone.clone()))
            .await
            .unwrap();
        assert!(!target.0.exists());
    }
    let unknown = node
        .node_get_volume_stats(Request::new(stats))
        .await
        .unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
}

#[tokio::test]
async fn a_read_only_publication_refuses_writes_and_one_writer_has_one_path() {
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    let (one, two) = (
        Target(ground.dir.path().join("one")),
        Target(ground.dir.path().join("two")),
    );
    let volume = ground.create("pvc-1", &[]).await.unwrap();
    let mut request = publication(&volume, &one.0);
    request.readonly = true;
    request.volume_capability = Some(capability(Mode::SingleNodeSingleWriter));
    ground
        .node()
        .node_publish_volume(Request::new(request.clone()))
        .await
        .unwrap();
    assert!(fs::write(one.0.join("file"), "x").is_err());
    request.target_path = two.0.to_str().unwrap().into();
    let refused = ground
        .node()
        .node_publish_volume(Request::new(request))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    let table = MountTable::read().unwrap();
    assert!(table.at(&two.0).is_none());
}

#[tokio::test]
async fn a_volume_is_read_only_where_that_is_asked_for_whatever_its_mode() {
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    let volume = ground.create("pvc-1", &[]).await.unwrap();
    for mode in [Mode::MultiNodeReaderOnly, Mode::MultiNodeMultiWriter] {
        for readonly in [true, false] {
            let target = Target(ground.dir.path().join(format!("{mode:?}-{readonly}")));
            let mut request = publication(&volume, &target.0);
            request.volume_capability = Some(capability(mode));
            request.readonly = readonly;
            let node = ground.node();
            node.node_publish_volume(Request::new(request))
                .await
                .unwrap();
            let written = fs::write(target.0.join("file"), "x");
            assert_eq!(written.is_err(), readonly, "{mode:?} {readonly}");
        }
    }
}

#[tokio::test]
async fn a_folder_that_is_missing_or_a_link_is_not_published() {
    let ground = Ground::new();
    std::os::unix::fs::symlink("../other", ground.share().join("link")).unwrap();
    let target = Target(ground.dir.path().join("target"));
    for (folder, code) in [
        ("gone", Code::NotFound),
        ("link", Code::FailedPrecondition),
        ("link/canary", Code::FailedPrecondition),
        ("../other", Code::InvalidArgument),
    ] {
        let volume = proto::Volume {
            volume_id: "inline".into(),
            volume_context: [
                ("server", "nfs.example"),
                ("share", "/share"),
                ("subDir", folder),
            ]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
            ..Default::default()
        };
        let request = Request::new(publication(&volume, &target.0));
        let refused = ground
            .node()
            .node_publish_volume(request)
            .await
            .unwrap_err();
        assert_eq!(refused.code(), code, "{folder}: {refused}");
        assert!(!target.0.exists(), "{folder}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_paths_at_once_for_one_writer_one_wins() {
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    let volume = ground.create("pvc-1", &[]).await.unwrap();
    let targets = ["one", "two"].map(|name| Target(ground.dir.path().join(name)));
    let node = ground.node();
    for _ in 0..10 {
        let publish = |target: &Target| {
            let mut request = publication(&volume, &target.0);
            request.volume_capability = Some(capability(Mode::SingleNodeSingleWriter));
            node.node_publish_volume(Request::new(request))
        };
        let (one, two) = tokio::join!(publish(&targets[0]), publish(&targets[1]));
        assert!(one.is_err() || two.is_err(), "both were published");
        for target in &targets {
            let request = proto::NodeUnpublishVolumeRequest {
                volume_id: volume.volume_id.clone(),
                target_path: target.0.to_str().unwrap().into(),
            };
            node.node_unpublish_volume(Request::new(request))
                .await
                .unwrap();
        }
    }
}
