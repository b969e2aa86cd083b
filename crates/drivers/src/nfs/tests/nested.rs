use super::publishing::{Target, is_root, publication};
use super::*;

#[tokio::test]
async fn a_folder_that_holds_another_volumes_goes_after_it() {
    let ground = Ground::new();
    for policy in ["delete", "archive"] {
        let class = |folder| [("subDir", folder), ("onDelete", policy)];
        let outer = ground.create("pvc-1", &class("team")).await.unwrap();
        let inner = ground.create("pvc-2", &class("team/a/db")).await.unwrap();
        fs::write(ground.share().join("team/a/db/precious"), "x").unwrap();
        let refused = ground.delete(&outer.volume_id).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(refused.message().contains("\"pvc-2\""), "{refused}");
        assert!(ground.share().join("team/a/db/precious").exists());
        // It is the outer volume's as well, so it stays until that goes.
        ground.delete(&inner.volume_id).await.unwrap();
        assert!(ground.share().join("team/a/db/precious").exists());
        ground.delete(&outer.volume_id).await.unwrap();
        assert!(!ground.share().join("team").exists());
        assert!(
            !ground.share().join(HOUSE).join("nested").exists() || {
                names(&ground.share().join(HOUSE).join("nested")).is_empty()
            }
        );
    }
}

#[tokio::test]
async fn a_volume_that_is_only_on_record_keeps_no_folder() {
    let ground = Ground::new();
    let outer = ground.create("pvc-1", &[("subDir", "team")]).await.unwrap();
    ground
        .create("pvc-2", &[("subDir", "team/db")])
        .await
        .unwrap();
    fs::remove_dir(ground.share().join("team/db")).unwrap();
    ground.delete(&outer.volume_id).await.unwrap();
    assert!(!ground.share().join("team").exists());
}

#[tokio::test]
async fn a_folder_stays_while_this_node_shows_what_is_in_it_or_around_it() {
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    fs::create_dir_all(ground.share().join("team/a/db")).unwrap();
    let volume = proto::Volume {
        volume_id: "static".into(),
        volume_context: [
            ("server", "nfs.example"),
            ("share", "/share"),
            ("subDir", "team/a"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into(),
        ..Default::default()
    };
    let target = Target(ground.dir.path().join("target"));
    let request = Request::new(publication(&volume, &target.0));
    ground.node().node_publish_volume(request).await.unwrap();
    for id in [
        "nfs.example#share#team##",
        "nfs.example#share#team/a/db##archive",
    ] {
        let refused = ground.delete(id).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(refused.message().contains("/target"), "{refused}");
        assert!(ground.share().join("team/a/db").exists());
    }
}
