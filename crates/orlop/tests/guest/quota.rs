//! A server that limits a folder: the driver says so, and never more than is true.

use std::fs;
use std::io::Write;

use tonic::Code;

use crate::client::{Driver, On};
use crate::{in_guest, server};

const MIB: i64 = 1 << 20;

#[tokio::test]
async fn a_volume_grows_as_far_as_its_server_lets_it() {
    in_guest!();
    let limited = server::Limited::start();
    let driver = Driver::start_by(&[], &["--vol-stats-cache-expire-in-minutes=0"]).await;
    let on = On {
        server: "127.0.0.1",
        share: "/limited",
        options: "actimeo=1",
    };
    let volume = driver.create("pvc-limited", &on).await.unwrap();
    // Without a limit a size is a label, whatever it says.
    let id = &volume.volume_id;
    assert_eq!(driver.expand(id, &on, 16 * MIB).await.unwrap(), 16 * MIB);
    limited.limit("pvc-limited", 64);
    let refused = driver.expand(id, &on, 128 * MIB).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains("quota"), "{refused}");
    assert!(
        refused.message().contains(&(64 * MIB).to_string()),
        "{refused}"
    );
    // A pod is told, and held to, what the server allows.
    let target = driver.folder.path().join("target");
    driver.publish(&volume, &on, &target).await.unwrap();
    let told = driver.stats(&volume, &target).await.unwrap();
    assert_eq!(told.usage[0].total, 64 * MIB);
    let mut file = fs::File::create(target.join("file")).unwrap();
    let mut written = 0;
    let full = loop {
        let outcome = file.write_all(&[7; 1 << 20]).and_then(|()| file.sync_all());
        match outcome {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 128, "nobody held it to its limit");
    };
    assert!(
        matches!(
            full.kind(),
            std::io::ErrorKind::QuotaExceeded | std::io::ErrorKind::StorageFull
        ),
        "{full}"
    );
    drop(file);
    // Raised there, it grows here.
    limited.limit("pvc-limited", 256);
    assert_eq!(driver.expand(id, &on, 128 * MIB).await.unwrap(), 128 * MIB);
    driver.unpublish(&volume, &target).await.unwrap();
    driver.delete(id, &on).await.unwrap();
}
