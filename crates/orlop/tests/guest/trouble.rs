//! What is wrong is told, and what to do about it.

use std::time::{Duration, Instant};

use tonic::Code;

use crate::client::{Driver, On, nfs_mounts};
use crate::{in_guest, server};

#[tokio::test]
async fn every_trouble_has_its_own_words() {
    in_guest!();
    let _ganesha = server::Ganesha::start();
    let driver = Driver::start().await;
    let cases = [
        // A server that is not there: refused, without a route, without a name.
        (
            "127.0.0.1",
            "/data",
            "port=9",
            Code::Unavailable,
            "refuses connections to port 9",
        ),
        (
            "192.0.2.1",
            "/data",
            "",
            Code::Unavailable,
            "no route to NFS server 192.0.2.1",
        ),
        (
            "no-such-host.invalid",
            "/data",
            "",
            Code::Unavailable,
            "no-such-host.invalid is not known",
        ),
        // One that does not have it, or not for us.
        (
            "127.0.0.1",
            "/nothing",
            "",
            Code::NotFound,
            "has no share /nothing for this node",
        ),
        (
            "127.0.0.1",
            "/private",
            "",
            Code::NotFound,
            "has no share /private for this node",
        ),
        (
            "127.0.0.1",
            "/nothing",
            "nfsvers=3,nolock",
            Code::PermissionDenied,
            "or has no such share",
        ),
        (
            "127.0.0.1",
            "/private",
            "nfsvers=3,nolock",
            Code::PermissionDenied,
            "add the node to the export",
        ),
        // One that does not speak our language.
        (
            "127.0.0.1",
            "/data",
            "port=2050,nfsvers=4.2",
            Code::FailedPrecondition,
            "does not speak version 4.2",
        ),
        // One that does not let us write.
        (
            "127.0.0.1",
            "/squashed",
            "",
            Code::PermissionDenied,
            "root_squash",
        ),
        (
            "127.0.0.1",
            "/readonly",
            "",
            Code::FailedPrecondition,
            "read-only",
        ),
    ];
    for (server, share, options, code, told) in cases {
        let on = On {
            server,
            share,
            options,
        };
        let begin = Instant::now();
        let refused = driver.create("pvc-trouble", &on).await.unwrap_err();
        assert!(begin.elapsed() < Duration::from_secs(60), "{refused}");
        assert_eq!(
            refused.code(),
            code,
            "{server}:{share} {options}: {refused}"
        );
        assert!(
            refused.message().contains(told),
            "{server}:{share} {options}: {refused}"
        );
        assert!(
            refused.message().contains(&format!("{server}:{share}")),
            "{refused}"
        );
    }
    assert_eq!(nfs_mounts(), Vec::<String>::new());
}

#[tokio::test]
async fn a_stale_handle_is_seen_and_healed_by_publishing_again() {
    in_guest!();
    server::kernel();
    let driver = Driver::start_by(&[], &["--vol-stats-cache-expire-in-minutes=0"]).await;
    let on = On {
        server: "127.0.0.1",
        share: "/data",
        options: "actimeo=1",
    };
    let target = driver.folder.path().join("target");
    let volume = driver.create("pvc-stale", &on).await.unwrap();
    driver.publish(&volume, &on, &target).await.unwrap();
    // As a server does that is restored from a backup.
    let folder = server::path("data", "pvc-stale");
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("back"), "x").unwrap();
    let begin = Instant::now();
    loop {
        let told = driver.stats(&volume, &target).await.unwrap();
        let condition = told.volume_condition.unwrap();
        if condition.abnormal {
            assert!(condition.message.contains("stale"), "{}", condition.message);
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "nobody noticed");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    driver.publish(&volume, &on, &target).await.unwrap();
    assert!(target.join("back").exists());
    driver.unpublish(&volume, &target).await.unwrap();
    driver.delete(&volume.volume_id, &on).await.unwrap();
}
