use std::os::unix::fs::MetadataExt;

use super::*;

#[tokio::test]
async fn a_volume_is_made_once_and_deleted_once() {
    let ground = Ground::new();
    let volume = ground.create("pvc-1", &[]).await.unwrap();
    assert_eq!(volume.volume_id, "nfs.example#share#pvc-1##");
    assert_eq!(volume.capacity_bytes, 1 << 30);
    assert_eq!(volume.volume_context["subdir"], "pvc-1");
    assert_eq!(ground.create("pvc-1", &[]).await.unwrap(), volume);
    fs::write(ground.share().join("pvc-1/file"), "x").unwrap();
    for _ in 0..2 {
        ground.delete(&volume.volume_id).await.unwrap();
        assert_eq!(names(&ground.share()), Vec::<String>::new());
    }
    ground.assert_canaries();
}

#[tokio::test]
async fn the_same_name_with_another_size_or_source_is_refused() {
    let ground = Ground::new();
    let volume = ground.create("pvc-1", &[]).await.unwrap();
    let mut larger = wish("pvc-1");
    larger.capacity_range = Some(proto::CapacityRange {
        required_bytes: 2 << 30,
        limit_bytes: 0,
    });
    let refused = ground
        .controller()
        .create_volume(Request::new(larger))
        .await;
    assert_eq!(refused.unwrap_err().code(), Code::AlreadyExists);
    let source = Source::Volume(VolumeSource {
        volume_id: volume.volume_id,
    });
    let refused = ground.create_from("pvc-1", &[], Some(source)).await;
    assert_eq!(refused.unwrap_err().code(), Code::AlreadyExists);
}

#[tokio::test]
async fn a_folder_of_the_originals_making_is_taken_as_it_is() {
    let ground = Ground::new();
    fs::create_dir(ground.share().join("pvc-1")).unwrap();
    fs::write(ground.share().join("pvc-1/file"), "x").unwrap();
    ground.create("pvc-1", &[]).await.unwrap();
    assert!(ground.share().join("pvc-1/file").exists());
    ground.delete("nfs.example/share/pvc-1").await.unwrap();
    assert_eq!(names(&ground.share()), Vec::<String>::new());
}

#[tokio::test]
async fn deleting_the_last_volume_of_a_namespace_leaves_what_others_have_there() {
    let ground = Ground::new();
    let class = [(
        "subDir",
        "foo/${pvc.metadata.namespace}/${pvc.metadata.name}",
    )];
    let of = |namespace: &'static str, claim: &'static str| {
        let mut more = class.to_vec();
        more.push(("csi.storage.k8s.io/pvc/namespace", namespace));
        more.push(("csi.storage.k8s.io/pvc/name", claim));
        more
    };
    let one = ground.create("pvc-1", &of("ns-1", "a")).await.unwrap();
    let two = ground.create("pvc-2", &of("ns-2", "b")).await.unwrap();
    assert_eq!(one.volume_id, "nfs.example#share#foo/ns-1/a#pvc-1#");
    fs::write(ground.share().join("foo/ns-2/b/file"), "x").unwrap();
    ground.delete(&one.volume_id).await.unwrap();
    assert_eq!(names(&ground.share().join("foo")), ["ns-2"]);
    fs::write(ground.share().join("foo/ns-2/not-ours"), "x").unwrap();
    ground.delete(&two.volume_id).await.unwrap();
    assert_eq!(names(&ground.share().join("foo/ns-2")), ["not-ours"]);
}

#[tokio::test]
async fn a_folder_that_two_volumes_share_goes_with_the_last() {
    let ground = Ground::new();
    let one = ground.create("pvc-1", &[("subDir", "both")]).await.unwrap();
    let two = ground.create("pvc-2", &[("subDir", "both")]).await.unwrap();
    fs::write(ground.share().join("both/file"), "x").unwrap();
    ground.delete(&one.volume_id).await.unwrap();
    assert!(ground.share().join("both/file").exists());
    ground.delete(&two.volume_id).await.unwrap();
    assert_eq!(names(&ground.share()), Vec::<String>::new());
}

#[tokio::test]
async fn what_is_retained_stays_and_what_is_archived_replaces_nothing() {
    let ground = Ground::new();
    let kept = ground
        .create("pvc-1", &[("onDelete", "retain")])
        .await
        .unwrap();
    assert_eq!(kept.volume_id, "nfs.example#share#pvc-1##retain");
    ground.delete(&kept.volume_id).await.unwrap();
    assert_eq!(names(&ground.share()), ["pvc-1"]);
    for round in ["first", "second"] {
        let more = [("onDelete", "archive"), ("subDir", "deep/er")];
        let volume = ground.create(&format!("pvc-{round}"), &more).await.unwrap();
        fs::write(ground.share().join("deep/er/file"), round).unwrap();
        for _ in 0..2 {
            ground.delete(&volume.volume_id).await.unwrap();
        }
    }
    let archived = ground.share().join("archived-deep");
    assert_eq!(names(&archived), ["er", "er-1"]);
    assert_eq!(
        fs::read_to_string(archived.join("er/file")).unwrap(),
        "first"
    );
    assert_eq!(
        fs::read_to_string(archived.join("er-1/file")).unwrap(),
        "second"
    );
}

#[tokio::test]
async fn what_was_retained_stays_though_another_volume_had_its_folder() {
    let ground = Ground::new();
    for (name, policy) in [("pvc-1", "retain"), ("pvc-2", "delete")] {
        let more = [("subDir", "data"), ("onDelete", policy)];
        let volume = ground.create(name, &more).await.unwrap();
        fs::write(ground.share().join("data").join(name), "x").unwrap();
        ground.delete(&volume.volume_id).await.unwrap();
    }
    assert_eq!(names(&ground.share().join("data")), ["pvc-1", "pvc-2"]);
}

#[tokio::test]
async fn an_older_archive_makes_way_if_it_is_told_to() {
    let ground = Ground::with(|config| {
        config.remove_archived = true;
        config.on_delete = OnDelete::Archive;
    });
    for round in ["first", "second"] {
        let volume = ground.create("pvc-1", &[]).await.unwrap();
        assert_eq!(volume.volume_id, "nfs.example#share#pvc-1##archive");
        fs::write(ground.share().join("pvc-1/file"), round).unwrap();
        ground.delete(&volume.volume_id).await.unwrap();
    }
    assert_eq!(names(&ground.share()), ["archived-pvc-1"]);
    let file = ground.share().join("archived-pvc-1/file");
    assert_eq!(fs::read_to_string(file).unwrap(), "second");
}

#[tokio::test]
async fn no_archive_makes_way_that_is_a_volume_or_holds_another_ones_archive() {
    let ground = Ground::with(|config| {
        config.remove_archived = true;
        config.on_delete = OnDelete::Archive;
    });
    let archived = async |name: &str, folder: &str| {
        let volume = ground.create(name, &[("subDir", folder)]).await.unwrap();
        fs::write(ground.share().join(folder).join(name), "x").unwrap();
        ground.delete(&volume.volume_id).await.unwrap();
    };
    archived("pvc-1", "team/db").await;
    archived("pvc-2", "team").await;
    ground
        .create("pvc-3", &[("subDir", "archived-live")])
        .await
        .unwrap();
    archived("pvc-4", "live").await;
    ground
        .create("pvc-5", &[("subDir", "archived-outer/inner")])
        .await
        .unwrap();
    archived("pvc-6", "outer").await;
    for (folder, held) in [
        ("archived-team", vec!["db"]),
        ("archived-team/db", vec!["pvc-1"]),
        ("archived-team-1", vec!["pvc-2"]),
        ("archived-live", vec![]),
        ("archived-live-1", vec!["pvc-4"]),
        ("archived-outer", vec!["inner"]),
        ("archived-outer-1", vec!["pvc-6"]),
    ] {
        assert_eq!(names(&ground.share().join(folder)), held, "{folder}");
    }
}

#[tokio::test]
async fn a_volume_with_the_longest_name_is_archived_as_often_as_it_is_made() {
    let ground = Ground::new();
    let name = "n".repeat(255);
    for round in 1..4 {
        fs::create_dir(ground.share().join(&name)).unwrap();
        let id = format!("nfs.example#share#{name}##archive");
        for _ in 0..2 {
            ground.delete(&id).await.unwrap();
        }
        let names = names(&ground.share());
        assert_eq!(names.len(), round);
        assert!(names.iter().all(|name| name.starts_with("archived-nnn")));
    }
}

#[tokio::test]
async fn a_clone_and_a_restored_snapshot_have_what_the_volume_had() {
    let ground = Ground::new();
    let volume = ground
        .create("pvc-1", &[("mountPermissions", "0775")])
        .await
        .unwrap();
    let folder = ground.share().join("pvc-1");
    assert_eq!(folder.metadata().unwrap().mode() & 0o7777, 0o775);
    fs::create_dir(folder.join("sub")).unwrap();
    fs::write(folder.join("sub/file"), "hello").unwrap();
    fs::hard_link(folder.join("sub/file"), folder.join("twin")).unwrap();
    std::os::unix::fs::symlink("/etc", folder.join("link")).unwrap();
    let snapshot = ground
        .snapshot("snapshot-1", &volume.volume_id)
        .await
        .unwrap();
    assert_eq!(
        snapshot.snapshot_id,
        "nfs.example#share#snapshot-1#snapshot-1#pvc-1"
    );
    assert!(snapshot.ready_to_use && snapshot.size_bytes > 0);
    assert!(ground.share().join("snapshot-1/pvc-1.tar.gz").is_file());
    assert_eq!(
        ground
            .snapshot("snapshot-1", &volume.volume_id)
            .await
            .unwrap(),
        snapshot
    );
    fs::write(folder.join("sub/file"), "changed").unwrap();
    let clone = Source::Volume(VolumeSource {
        volume_id: volume.volume_id.clone(),
    });
    let restored = Source::Snapshot(SnapshotSource {
        snapshot_id: snapshot.snapshot_id.clone(),
    });
    for (name, source, text) in [("pvc-2", clone, "changed"), ("pvc-3", restored, "hello")] {
        for _ in 0..2 {
            ground
                .create_from(name, &[], Some(source.clone()))
                .await
                .unwrap();
        }
        let copy = ground.share().join(name);
        assert_eq!(fs::read_to_string(copy.join("sub/file")).unwrap(), text);
        assert_eq!(fs::read_to_string(copy.join("twin")).unwrap(), text);
        assert_eq!(fs::read_link(copy.join("link")).unwrap(), Path::new("/etc"));
        assert_eq!(copy.metadata().unwrap().mode() & 0o7777, 0o775);
    }
    let other = ground.create("pvc-4", &[]).await.unwrap();
    let refused = ground
        .snapshot("snapshot-1", &other.volume_id)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists);
    for _ in 0..2 {
        let request = proto::DeleteSnapshotRequest {
            snapshot_id: snapshot.snapshot_id.clone(),
            ..Default::default()
        };
        ground
            .controller()
            .delete_snapshot(Request::new(request))
            .await
            .unwrap();
        assert!(!ground.share().join("snapshot-1").exists());
    }
}

#[tokio::test]
async fn a_missing_source_is_not_found_and_leaves_nothing() {
    let ground = Ground::new();
    let gone = "nfs.example#share#gone#gone#pvc-9";
    for source in [
        Source::Volume(VolumeSource {
            volume_id: "nfs.example#share#pvc-9##".into(),
        }),
        Source::Snapshot(SnapshotSource {
            snapshot_id: gone.into(),
        }),
    ] {
        let refused = ground
            .create_from("pvc-1", &[], Some(source))
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::NotFound, "{refused}");
    }
    assert_eq!(names(&ground.share()), Vec::<String>::new());
}

#[tokio::test]
async fn deletion_that_was_cut_short_is_finished_by_the_next() {
    let ground = Ground::new();
    let left = ground.share().join(HOUSE).join("trash/1-2-0");
    fs::create_dir_all(left.join("deep")).unwrap();
    fs::write(left.join("deep/file"), "x").unwrap();
    let volume = ground.create("pvc-1", &[]).await.unwrap();
    ground.delete(&volume.volume_id).await.unwrap();
    let begin = std::time::Instant::now();
    while left.exists() {
        assert!(
            begin.elapsed() < Duration::from_secs(30),
            "it is still there"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_tree_is_deleted_however_deep_and_wide_it_is() {
    let ground = Ground::new();
    let volume = ground.create("pvc-1", &[]).await.unwrap();
    // Deeper than a removal goes in one piece, several times over.
    let mut at = orlop_host::Folder::open(&ground.share().join("pvc-1")).unwrap();
    for _ in 0..400 {
        at = at.make("d", 0o755).unwrap();
    }
    for wide in 0..20 {
        let folder = ground.share().join(format!("pvc-1/wide-{wide}/below"));
        fs::create_dir_all(&folder).unwrap();
        for file in 0..20 {
            fs::write(folder.join(file.to_string()), "x").unwrap();
        }
    }
    // More in one folder than is read of it at once, folders among it.
    let large = ground.share().join("pvc-1/large");
    fs::create_dir(&large).unwrap();
    for entry in 0..5000 {
        let path = large.join(entry.to_string());
        match entry % 100 {
            0 => fs::create_dir(path).unwrap(),
            _ => fs::write(path, "").unwrap(),
        }
    }
    ground.delete(&volume.volume_id).await.unwrap();
    assert!(!ground.share().join("pvc-1").exists());
    let trash = ground.share().join(HOUSE).join("trash");
    let begin = std::time::Instant::now();
    while !names(&trash).is_empty() {
        let left = names(&trash);
        assert!(begin.elapsed() < Duration::from_secs(60), "left: {left:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_expanded_volume_says_so_when_it_is_made_again() {
    let ground = Ground::new();
    let volume = ground.create("pvc-1", &[]).await.unwrap();
    let request = proto::ControllerExpandVolumeRequest {
        volume_id: volume.volume_id.clone(),
        capacity_range: Some(proto::CapacityRange {
            required_bytes: 3 << 30,
            limit_bytes: 0,
        }),
        ..Default::default()
    };
    let grown = ground
        .controller()
        .controller_expand_volume(Request::new(request))
        .await;
    assert_eq!(grown.unwrap().into_inner().capacity_bytes, 3 << 30);
    assert_eq!(
        ground.create("pvc-1", &[]).await.unwrap().capacity_bytes,
        3 << 30
    );
}

#[tokio::test]
async fn who_only_looks_leaves_nothing_behind() {
    let ground = Ground::new();
    fs::create_dir(ground.share().join("pvc-1")).unwrap();
    let id = "nfs.example#share#pvc-1##".to_owned();
    let look = proto::ControllerGetVolumeRequest {
        volume_id: id.clone(),
    };
    ground
        .controller()
        .controller_get_volume(Request::new(look))
        .await
        .unwrap();
    let validate = proto::ValidateVolumeCapabilitiesRequest {
        volume_id: id,
        volume_capabilities: vec![capability(Mode::MultiNodeMultiWriter)],
        ..Default::default()
    };
    ground
        .controller()
        .validate_volume_capabilities(Request::new(validate))
        .await
        .unwrap();
    ground.delete("nfs.example#share#pvc-2##").await.unwrap();
    assert!(!ground.share().join(HOUSE).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clone_is_whole_or_none_though_its_source_is_deleted_meanwhile() {
    const FILES: usize = 2000;
    let ground = Ground::new();
    for (round, wait) in [1, 4, 8, 15, 25, 40].into_iter().enumerate() {
        let (name, copy) = (format!("pvc-{round}"), format!("copy-{round}"));
        let volume = ground.create(&name, &[]).await.unwrap();
        for file in 0..FILES {
            fs::write(ground.share().join(&name).join(file.to_string()), "x").unwrap();
        }
        let source = Source::Volume(VolumeSource {
            volume_id: volume.volume_id.clone(),
        });
        let deleted = async {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            ground.delete(&volume.volume_id).await.unwrap();
        };
        let (made, ()) = tokio::join!(ground.create_from(&copy, &[], Some(source)), deleted);
        match made {
            Ok(_) => assert_eq!(names(&ground.share().join(&copy)).len(), FILES),
            Err(refused) => {
                assert!(!ground.share().join(&copy).exists(), "{refused}");
            }
        }
    }
}

#[tokio::test]
async fn a_volume_is_told_as_it_was_made() {
    let ground = Ground::new();
    let volume = ground
        .create("pvc-1", &[("subDir", "a/b"), ("mountPermissions", "0770")])
        .await
        .unwrap();
    let get = |volume_id: String| {
        let request = proto::ControllerGetVolumeRequest { volume_id };
        let controller = ground.controller();
        async move {
            let told = controller.controller_get_volume(Request::new(request));
            told.await.unwrap().into_inner().volume.unwrap()
        }
    };
    let told = get(volume.volume_id.clone()).await;
    assert_eq!(told.volume_context, volume.volume_context);
    assert_eq!(told.capacity_bytes, volume.capacity_bytes);
    // One of the original's making, of which nothing is written down.
    fs::create_dir(ground.share().join("pvc-2")).unwrap();
    let told = get("nfs.example#share#pvc-2##".to_owned()).await;
    assert_eq!(told.volume_context["server"], "nfs.example");
    assert_eq!(told.volume_context["share"], "/share");
    assert_eq!(told.volume_context["subdir"], "pvc-2");
}

#[tokio::test]
async fn a_size_that_no_share_has_is_refused() {
    let ground = Ground::new();
    let mut request = wish("pvc-1");
    request.capacity_range = Some(proto::CapacityRange {
        required_bytes: 1 << 62,
        limit_bytes: 0,
    });
    let controller = ground.controller();
    let refused = controller.create_volume(Request::new(request)).await;
    assert_eq!(refused.unwrap_err().code(), Code::OutOfRange);
    assert_eq!(names(&ground.share()), Vec::<String>::new());
}

#[tokio::test]
async fn what_does_not_fit_is_not_copied() {
    let ground = Ground::new();
    let volume = ground.create("pvc-1", &[]).await.unwrap();
    fs::write(ground.share().join("pvc-1/file"), "x").unwrap();
    let snapshot = ground.snapshot("s", &volume.volume_id).await.unwrap();
    let (volume_id, snapshot_id) = (volume.volume_id, snapshot.snapshot_id);
    for (source, size) in [
        (Source::Volume(VolumeSource { volume_id }), 1 << 30),
        (
            Source::Snapshot(SnapshotSource { snapshot_id }),
            snapshot.size_bytes,
        ),
    ] {
        let mut request = wish("pvc-2");
        request.capacity_range = Some(proto::CapacityRange {
            required_bytes: 1,
            limit_bytes: size - 1,
        });
        request.volume_content_source = Some(proto::VolumeContentSource {
            r#type: Some(source),
        });
        let controller = ground.controller();
        let refused = controller.create_volume(Request::new(request)).await;
        assert_eq!(refused.unwrap_err().code(), Code::OutOfRange);
        assert!(!ground.share().join("pvc-2").exists());
    }
}
