use super::publishing::{Target, is_root, publication};
use super::*;

#[tokio::test]
async fn a_snapshots_id_deletes_no_volume() {
    let ground = Ground::new();
    let volume = ground.create("pvc-1", &[]).await.unwrap();
    fs::create_dir(ground.share().join("theirs")).unwrap();
    for file in ["pvc-1/file", "pvc-1/pvc-1.tar", "theirs/file"] {
        fs::write(ground.share().join(file), "precious").unwrap();
    }
    // One that has no archive is none, and so gone already.
    ground
        .discard("nfs.example#share#pvc-1#pvc-1#other")
        .await
        .unwrap();
    ground
        .discard("nfs.example#share#theirs#theirs#theirs")
        .await
        .unwrap();
    fs::write(ground.share().join("theirs/x.tar.gz"), "precious").unwrap();
    for id in ["pvc-1#pvc-1#pvc-1", "theirs#theirs#x"] {
        let id = format!("nfs.example#share#{id}");
        let refused = ground.discard(&id).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    }
    assert_eq!(names(&ground.share().join("theirs")), ["file", "x.tar.gz"]);
    assert_eq!(names(&ground.share().join("pvc-1")), ["file", "pvc-1.tar"]);
    ground.delete(&volume.volume_id).await.unwrap();
}

#[tokio::test]
async fn the_originals_snapshots_are_deleted_however_they_are_packed() {
    let ground = Ground::new();
    for (archives, source) in [
        (&["pvc-1.tar.gz"][..], "pvc-1"),
        (&["pvc-1.tar", "pvc-1.tar.gz"], "pvc-1"),
        (&["ns/claim.tar.gz"], "ns/claim"),
    ] {
        for archive in archives {
            let file = ground.share().join("snapshot-1").join(archive);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "packed").unwrap();
        }
        let id = format!("nfs.example#share#snapshot-1#snapshot-1#{source}");
        for _ in 0..2 {
            ground.discard(&id).await.unwrap();
            assert_eq!(names(&ground.share()), Vec::<String>::new());
        }
    }
}

#[tokio::test]
async fn a_snapshot_that_this_node_shows_as_a_volume_stays() {
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    fs::create_dir(ground.share().join("s")).unwrap();
    fs::write(ground.share().join("s/pvc-1.tar"), "x").unwrap();
    let volume = proto::Volume {
        volume_id: "nfs.example#share#s##".into(),
        ..Default::default()
    };
    let target = Target(ground.dir.path().join("target"));
    let request = Request::new(publication(&volume, &target.0));
    ground.node().node_publish_volume(request).await.unwrap();
    let refused = ground.discard("nfs.example#share#s#s#pvc-1").await;
    assert_eq!(refused.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(names(&ground.share().join("s")), ["pvc-1.tar"]);
}
