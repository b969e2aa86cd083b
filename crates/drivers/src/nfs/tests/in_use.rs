use std::os::unix::fs::symlink;

use super::publishing::{Target, is_root, publication};
use super::*;

/// Makes a second name for the only server.
fn name_once_more(ground: &Ground) {
    symlink("nfs.example", ground.dir.path().join("alias.example")).unwrap();
}

async fn show(ground: &Ground, volume: &proto::Volume, name: &str) -> Target {
    let target = Target(ground.dir.path().join(name));
    let request = Request::new(publication(volume, &target.0));
    ground.node().node_publish_volume(request).await.unwrap();
    target
}

/// A driver that knows nothing of what was before.
fn anew(ground: Ground) -> Ground {
    let hands = Hands::StandIn(ground.dir.path().to_owned());
    let driver = NfsDriver::new(NfsConfig::new("node-1", hands)).unwrap();
    Ground {
        dir: ground.dir,
        shared: driver.shared,
    }
}

#[tokio::test]
async fn what_this_node_shows_stays_by_whatever_name_of_its_server_it_is_deleted() {
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    name_once_more(&ground);
    let volume = ground.create("pvc-1", &[]).await.unwrap();
    let target = show(&ground, &volume, "target").await;
    let ground = anew(ground);
    for id in [&volume.volume_id, "alias.example#share#pvc-1##"] {
        let refused = ground.delete(id).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(refused.message().contains("/target"), "{refused}");
        assert!(ground.share().join("pvc-1").exists());
    }
    drop(target);
    ground.delete("alias.example#share#pvc-1##").await.unwrap();
    assert!(!ground.share().join("pvc-1").exists());
}

#[tokio::test]
async fn a_path_shows_a_volume_by_whatever_name_of_its_server_after_a_restart() {
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    name_once_more(&ground);
    let mut volume = ground.create("pvc-1", &[]).await.unwrap();
    let other = ground.create("pvc-2", &[]).await.unwrap();
    let target = show(&ground, &volume, "target").await;
    let ground = anew(ground);
    let request = Request::new(publication(&other, &target.0));
    let refused = ground.node().node_publish_volume(request).await;
    assert_eq!(refused.unwrap_err().code(), Code::AlreadyExists);
    let context = &mut volume.volume_context;
    context.insert("server".to_owned(), "alias.example".to_owned());
    let request = Request::new(publication(&volume, &target.0));
    ground.node().node_publish_volume(request).await.unwrap();
}

#[tokio::test]
async fn no_copy_takes_the_place_of_an_empty_folder_that_is_shown() {
    if !is_root() {
        return;
    }
    let ground = Ground::new();
    let source = ground.create("pvc-1", &[]).await.unwrap().volume_id;
    // One of the original's making, of which nothing is written down.
    fs::create_dir(ground.share().join("both")).unwrap();
    let mut shown = ground.create("pvc-2", &[]).await.unwrap();
    let context = &mut shown.volume_context;
    context.insert("subdir".to_owned(), "both".to_owned());
    let target = show(&ground, &shown, "target").await;
    let copied = || {
        let content = Source::Volume(VolumeSource {
            volume_id: source.clone(),
        });
        ground.create_from("pvc-3", &[("subDir", "both")], Some(content))
    };
    let refused = copied().await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains("/target"), "{refused}");
    drop(target);
    copied().await.unwrap();
}
