//! A volume's life on each server, by each version.

use std::fs;
use std::time::{Duration, Instant};

use orlop_csi::proto::volume_content_source::{SnapshotSource, Type, VolumeSource};
use tonic::Code;

use crate::client::{Driver, On, nfs_mounts};
use crate::{in_guest, server};

async fn live(driver: &Driver, name: &str, on: On<'_>, shown: &str) {
    let target = driver.folder.path().join("target");
    let volume = driver.create(name, &on).await.unwrap();
    assert_eq!(driver.create(name, &on).await.unwrap(), volume);
    assert_eq!(
        nfs_mounts(),
        Vec::<String>::new(),
        "the controller left a mount"
    );
    for _ in 0..2 {
        driver.publish(&volume, &on, &target).await.unwrap();
    }
    let mounts = nfs_mounts();
    assert_eq!(mounts.len(), 1, "{mounts:?}");
    assert!(mounts[0].contains(shown), "{mounts:?} is not {shown}");
    fs::write(target.join("file"), name).unwrap();
    assert_eq!(
        fs::read_to_string(server::path("data", name).join("file")).unwrap(),
        name
    );
    let told = driver.stats(&volume, &target).await.unwrap();
    assert!(told.usage[0].total > 0 && !told.volume_condition.unwrap().abnormal);
    // What this node shows is in use, by the kernel's word.
    let refused = driver.delete(&volume.volume_id, &on).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(
        refused.message().contains(target.to_str().unwrap()),
        "{refused}"
    );
    assert_eq!(fs::read_to_string(target.join("file")).unwrap(), name);
    for _ in 0..2 {
        driver.unpublish(&volume, &target).await.unwrap();
    }
    assert!(!target.exists());
    // Nobody says how to mount for it: it is as it was when the volume was made.
    let untold = On { options: "", ..on };
    for _ in 0..2 {
        driver.delete(&volume.volume_id, &untold).await.unwrap();
    }
    assert!(!server::path("data", name).exists());
    assert_eq!(nfs_mounts(), Vec::<String>::new());
}

#[tokio::test]
async fn a_volume_lives_on_the_kernels_server_by_every_version() {
    in_guest!();
    server::kernel();
    let driver = Driver::start().await;
    for (options, shown) in [
        ("", "vers=4.2"),
        ("nfsvers=4.2", "vers=4.2"),
        ("nfsvers=4.1,hard", "vers=4.1"),
        ("vers=4.0", "vers=4.0"),
        ("nfsvers=3,nolock", "vers=3"),
    ] {
        let on = On {
            server: "127.0.0.1",
            share: "/data",
            options,
        };
        live(
            &driver,
            &format!("pvc-{}", shown.replace('=', "-")),
            on,
            shown,
        )
        .await;
    }
}

#[tokio::test]
async fn a_volume_lives_on_ganesha_and_its_best_version_is_found() {
    in_guest!();
    let _server = server::Ganesha::start();
    let driver = Driver::start().await;
    let on = On {
        server: "127.0.0.1",
        share: "/data",
        options: "port=2050",
    };
    live(&driver, "pvc-ganesha", on, "vers=4.1").await;
}

#[tokio::test]
async fn a_driver_that_was_started_anew_deletes_on_an_old_server_without_being_told_how() {
    in_guest!();
    let _server = server::OnlyVersion3::start();
    let on = |options| On {
        server: "127.0.0.1",
        share: "/data",
        options,
    };
    let driver = Driver::start().await;
    let volume = driver
        .create("pvc-old", &on("nfsvers=3,nolock"))
        .await
        .unwrap();
    drop(driver);
    let driver = Driver::start().await;
    driver.delete(&volume.volume_id, &on("")).await.unwrap();
    assert!(!server::path("data", "pvc-old").exists());
    // Nobody here takes questions about locks.
    live(&driver, "pvc-found", on("nolock"), "vers=3").await;
}

#[tokio::test]
async fn a_server_that_maps_root_to_nobody_serves_if_the_share_is_nobodys() {
    in_guest!();
    server::kernel();
    let driver = Driver::start().await;
    let on = On {
        server: "127.0.0.1",
        share: "/squashed",
        options: "",
    };
    let root = server::path("squashed", "");
    std::os::unix::fs::chown(&root, Some(65534), Some(65534)).unwrap();
    let target = driver.folder.path().join("target");
    let volume = driver.create("pvc-nobody", &on).await.unwrap();
    driver.publish(&volume, &on, &target).await.unwrap();
    // As build tools leave it: nobody may write into what they keep.
    let kept = target.join("kept");
    fs::create_dir(&kept).unwrap();
    fs::write(kept.join("file"), "x").unwrap();
    fs::set_permissions(&kept, std::os::unix::fs::PermissionsExt::from_mode(0o555)).unwrap();
    driver.unpublish(&volume, &target).await.unwrap();
    driver.delete(&volume.volume_id, &on).await.unwrap();
    assert!(!server::path("squashed", "pvc-nobody").exists());
    let trash = server::path("squashed", ".orlop-csi/trash");
    let begin = Instant::now();
    while fs::read_dir(&trash).unwrap().next().is_some() {
        assert!(begin.elapsed() < Duration::from_secs(60), "it is kept");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    std::os::unix::fs::chown(&root, Some(0), Some(0)).unwrap();
    fs::remove_dir_all(server::path("squashed", ".orlop-csi")).unwrap();
}

#[tokio::test]
async fn copies_have_what_the_volume_had() {
    in_guest!();
    server::kernel();
    let driver = Driver::start().await;
    let on = On {
        server: "127.0.0.1",
        share: "/data",
        options: "",
    };
    let volume = driver.create("pvc-source", &on).await.unwrap();
    let folder = server::path("data", "pvc-source");
    fs::create_dir(folder.join("sub")).unwrap();
    fs::write(folder.join("sub/big"), vec![5; 5 << 20]).unwrap();
    let snapshot = driver
        .snapshot("snapshot-1", &volume.volume_id)
        .await
        .unwrap();
    assert!(snapshot.ready_to_use);
    let sources = [
        (
            "pvc-clone",
            Type::Volume(VolumeSource {
                volume_id: volume.volume_id.clone(),
            }),
        ),
        (
            "pvc-restored",
            Type::Snapshot(SnapshotSource {
                snapshot_id: snapshot.snapshot_id,
            }),
        ),
    ];
    let copied = server::copied();
    for (name, source) in sources {
        // Onto another share as well: the bytes go through here.
        for share in ["/data", "/other"] {
            let on = On { share, ..on };
            let patience = Duration::from_secs(90);
            let copy = driver
                .create_from(name, &on, Some(source.clone()), patience)
                .await
                .unwrap();
            let place = server::path(share.trim_matches('/'), name);
            assert!(fs::read(place.join("sub/big")).unwrap() == vec![5; 5 << 20]);
            driver.delete(&copy.volume_id, &on).await.unwrap();
        }
    }
    assert!(
        server::copied() > copied,
        "the server was not asked to copy by itself"
    );
    driver.delete(&volume.volume_id, &on).await.unwrap();
    assert_eq!(nfs_mounts(), Vec::<String>::new());
}

#[tokio::test]
async fn no_id_leads_out_of_its_share() {
    in_guest!();
    server::kernel();
    let driver = Driver::start().await;
    let on = On {
        server: "127.0.0.1",
        share: "/data",
        options: "",
    };
    let canary = server::path("other", "canary");
    fs::create_dir_all(&canary).unwrap();
    fs::write(canary.join("file"), "alive").unwrap();
    fs::create_dir_all(server::path("data", "mine/deep")).unwrap();
    std::os::unix::fs::symlink("../other", server::path("data", "link")).unwrap();
    for id in [
        "127.0.0.1#data###",
        "127.0.0.1#data##archive#",
        "127.0.0.1#data#..##",
        "127.0.0.1#data#../other/canary##",
        "127.0.0.1#data#mine/../../other##archive",
        "127.0.0.1#data#..\\other##",
        "127.0.0.1#data/../other#canary##",
        "127.0.0.1#data#mine#../../other#",
        "127.0.0.1#data#link/canary##",
        "127.0.0.1#data#link#pvc-1#archive",
        "127.0.0.1/data/..",
    ] {
        // Nothing to delete, or a refusal; never an effect.
        let _ = driver.delete(id, &on).await;
        let request = orlop_csi::proto::DeleteSnapshotRequest {
            snapshot_id: format!("{id}#x"),
            ..Default::default()
        };
        let _ = driver.controller().delete_snapshot(request).await;
        let alive = fs::read_to_string(canary.join("file"));
        assert_eq!(alive.unwrap(), "alive", "{id}");
        assert!(server::path("data", "mine/deep").is_dir(), "{id}");
        assert!(server::path("data", "link").is_symlink(), "{id}");
    }
    for path in ["data/mine", "other/canary"] {
        fs::remove_dir_all(server::path(path, "")).unwrap();
    }
    fs::remove_file(server::path("data", "link")).unwrap();
}

#[tokio::test]
async fn a_large_tree_leaves_its_name_at_once_and_a_killed_driver_resumes() {
    in_guest!();
    server::kernel();
    let mut driver = Driver::start().await;
    let on = On {
        server: "127.0.0.1",
        share: "/data",
        options: "",
    };
    let volume = driver.create("pvc-large", &on).await.unwrap();
    for folder in 0..5 {
        let folder = server::path("data", "pvc-large").join(folder.to_string());
        fs::create_dir(&folder).unwrap();
        for file in 0..80 {
            fs::write(folder.join(file.to_string()), "").unwrap();
        }
    }
    driver.delete(&volume.volume_id, &on).await.unwrap();
    assert!(!server::path("data", "pvc-large").exists());
    driver.kill();
    let trash = server::path("data", ".orlop-csi/trash");
    let left = fs::read_dir(&trash).unwrap().count();
    eprintln!("{left} trees were left when the driver was killed");
    let driver = Driver::start().await;
    let other = driver.create("pvc-other", &on).await.unwrap();
    driver.delete(&other.volume_id, &on).await.unwrap();
    let begin = Instant::now();
    while fs::read_dir(&trash).unwrap().next().is_some() {
        assert!(
            begin.elapsed() < Duration::from_secs(120),
            "the trash is not swept"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn a_large_tree_is_deleted_by_few_requests() {
    const FOLDERS: u32 = 6;
    const FILES: u32 = 1000;
    in_guest!();
    let _ganesha = server::Ganesha::start();
    let driver = Driver::start().await;
    let canary = server::path("data", "canary");
    fs::create_dir(&canary).unwrap();
    fs::write(canary.join("file"), "alive").unwrap();
    for options in ["", "port=2050"] {
        let on = On {
            server: "127.0.0.1",
            share: "/data",
            options,
        };
        let volume = driver.create("pvc-many", &on).await.unwrap();
        for folder in 0..FOLDERS {
            let folder = server::path("data", &format!("pvc-many/{folder}/deep"));
            fs::create_dir_all(&folder).unwrap();
            std::os::unix::fs::symlink("../../../canary", folder.join("link")).unwrap();
            for file in 0..FILES {
                fs::write(folder.join(file.to_string()), "").unwrap();
            }
        }
        let before = server::requests();
        driver.delete(&volume.volume_id, &on).await.unwrap();
        let trash = server::path("data", ".orlop-csi/trash");
        let begin = Instant::now();
        while fs::read_dir(&trash).unwrap().next().is_some() {
            assert!(begin.elapsed() < Duration::from_secs(120), "it is kept");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let log = driver.log();
        assert!(!log.contains("removed one by one"), "{log}");
        // Those of the first second are asked for one by one. Nobody counts what ganesha is asked for.
        let asked = server::requests() - before;
        eprintln!("{asked} requests, {:?}", begin.elapsed());
        assert!(
            asked < u64::from(FOLDERS * FILES) * 2 / 3,
            "{asked} requests"
        );
    }
    assert_eq!(fs::read_to_string(canary.join("file")).unwrap(), "alive");
    fs::remove_dir_all(canary).unwrap();
}
