use std::os::unix::fs::symlink;

use super::*;

#[tokio::test]
async fn ids_that_lead_out_are_deleted_without_touching_anything() {
    let ground = Ground::new();
    fs::create_dir(ground.share().join("a")).unwrap();
    for id in [
        "nfs.example#share#..##",
        "nfs.example#share#../other##",
        "nfs.example#share#../other/canary##",
        "nfs.example#share###",
        "nfs.example#share#",
        "nfs.example#share##archive#",
        "nfs.example#share#/#pvc#",
        "nfs.example#share#a/..##",
        "nfs.example#share#a/../..##archive",
        "nfs.example#share#.##",
        "nfs.example#share#..\\other##",
        "nfs.example#share/../other#canary##",
        "nfs.example#share#.orlop-csi##",
        "nfs.example#share#a/.orlop-csi##",
        "nfs.example#share/.orlop-csi#volumes##",
        "nfs.example/share/..",
        "nothing",
    ] {
        ground.delete(id).await.unwrap();
        let request = proto::DeleteSnapshotRequest {
            snapshot_id: format!("{id}#x"),
            ..Default::default()
        };
        ground
            .controller()
            .delete_snapshot(Request::new(request))
            .await
            .unwrap();
        assert_eq!(names(&ground.share()), ["a"], "{id}");
        ground.assert_canaries();
    }
}

#[tokio::test]
async fn a_link_in_the_place_of_a_folder_is_not_followed() {
    let ground = Ground::new();
    symlink("../other", ground.share().join("link")).unwrap();
    symlink("../other/canary", ground.share().join("pvc-1")).unwrap();
    for id in [
        "nfs.example#share#link/canary##",
        "nfs.example#share#pvc-1##",
        "nfs.example#share#pvc-1##archive",
        "nfs.example#share#link/canary#pvc-2#archive",
    ] {
        let refused = ground.delete(id).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{id}: {refused}");
        ground.assert_canaries();
    }
    for (name, folder) in [
        ("pvc-3", "link/new"),
        ("pvc-4", "pvc-1/new"),
        ("pvc-5", "link"),
    ] {
        let refused = ground
            .create(name, &[("subDir", folder)])
            .await
            .unwrap_err();
        assert_eq!(
            refused.code(),
            Code::FailedPrecondition,
            "{folder}: {refused}"
        );
    }
    assert!(!ground.dir.path().join("nfs.example/other/new").exists());
    let refused = ground
        .snapshot("s", "nfs.example#share#link/canary##")
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    ground.assert_canaries();
}

#[tokio::test]
async fn links_in_a_volume_are_deleted_and_what_they_point_to_is_not() {
    let ground = Ground::new();
    let volume = ground.create("pvc-1", &[]).await.unwrap();
    symlink("../../other/canary", ground.share().join("pvc-1/out")).unwrap();
    symlink(
        ground.dir.path().join("nfs.example/other"),
        ground.share().join("pvc-1/abs"),
    )
    .unwrap();
    ground.delete(&volume.volume_id).await.unwrap();
    assert_eq!(names(&ground.share()), Vec::<String>::new());
    ground.assert_canaries();
}

#[tokio::test]
async fn names_with_slashes_and_dots_are_harmless() {
    let ground = Ground::new();
    for name in [
        "../../other/x",
        "a/b",
        "..",
        ".",
        "a#b#c",
        "-rf",
        "tab\tand\nline",
        "ü",
    ] {
        let volume = ground.create(name, &[]).await.unwrap();
        assert!(volume.volume_id.len() <= 128, "{}", volume.volume_id);
        assert_eq!(ground.create(name, &[]).await.unwrap(), volume);
        assert_eq!(names(&ground.share()).len(), 1, "{name:?}");
        ground.delete(&volume.volume_id).await.unwrap();
        assert_eq!(names(&ground.share()).len(), 0, "{name:?}");
        ground.assert_canaries();
    }
}

#[tokio::test]
async fn classes_that_lead_out_are_refused() {
    let ground = Ground::new();
    for (key, value) in [
        ("subDir", ".."),
        ("subDir", "a/../../other"),
        ("subDir", "a//b"),
        ("subDir", ".orlop-csi/trash"),
        ("subDir", "deep/.orlop-csi"),
        ("subDir", "${pvc.metadata.nmae}"),
        ("share", "/share/.orlop-csi"),
        ("share", "/share/.."),
        ("share", ""),
        ("server", "nfs.example/../x"),
        ("onDelete", "burn"),
        ("unknown", "x"),
    ] {
        let refused = ground.create("pvc-1", &[(key, value)]).await.unwrap_err();
        assert_eq!(
            refused.code(),
            Code::InvalidArgument,
            "{key}={value}: {refused}"
        );
    }
    ground.assert_canaries();
}

#[tokio::test]
async fn a_volume_is_only_made_with_an_id_that_deletes_it() {
    let ground = Ground::new();
    let deep = ["d".repeat(200).as_str(); 5].join("/");
    for folder in ["a#b", "#", "a##", deep.as_str()] {
        let refused = ground.create("pvc-1", &[("subDir", folder)]).await;
        let refused = refused.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(refused.message().contains("no id"), "{refused}");
        assert_eq!(names(&ground.share()), Vec::<String>::new());
    }
    let deep = ["d".repeat(200).as_str(); 4].join("/");
    let volume = ground.create("pvc-1", &[("subDir", &deep)]).await.unwrap();
    ground.delete(&volume.volume_id).await.unwrap();
    assert_eq!(names(&ground.share()), Vec::<String>::new());
}
