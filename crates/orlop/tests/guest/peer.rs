//! csi-driver-nfs and our driver take over from each other.

use std::fs;
use std::time::Duration;

use orlop_csi::proto::volume_content_source::{SnapshotSource, Type, VolumeSource};

use crate::client::{Driver, On, nfs_mounts};
use crate::judges::peer;
use crate::{in_guest, server};

#[tokio::test]
async fn volumes_and_snapshots_of_either_driver_are_the_others_too() {
    in_guest!();
    let Some(original) = peer("brought", "nfsplugin") else {
        eprintln!("skipped: csi-driver-nfs is not built");
        return;
    };
    server::kernel();
    let original = original.display().to_string();
    let theirs = Driver::start_program(&[&original, "--nodeid=node-1"]).await;
    let ours = Driver::start().await;
    let on = On {
        server: "127.0.0.1",
        share: "/data",
        options: "nfsvers=4.1",
    };
    for (maker, taker, name) in [(&theirs, &ours, "pvc-theirs"), (&ours, &theirs, "pvc-ours")] {
        let volume = maker.create(name, &on).await.unwrap();
        let target = taker.folder.path().join("target");
        // Published by one, found by the other, and taken away by it.
        maker.publish(&volume, &on, &target).await.unwrap();
        fs::write(target.join("file"), name).unwrap();
        taker.publish(&volume, &on, &target).await.unwrap();
        taker.unpublish(&volume, &target).await.unwrap();
        taker.publish(&volume, &on, &target).await.unwrap();
        assert_eq!(fs::read_to_string(target.join("file")).unwrap(), name);
        maker.unpublish(&volume, &target).await.unwrap();
        // Whatever a size is on a share without limits: the other one lets it grow.
        let grown = taker.expand(&volume.volume_id, &on, 2 << 20).await.unwrap();
        assert_eq!(grown, 2 << 20);
        // Packed by one, unpacked by the other.
        let snapshot = maker
            .snapshot(&format!("s-{name}"), &volume.volume_id)
            .await
            .unwrap();
        let sources = [
            Type::Snapshot(SnapshotSource {
                snapshot_id: snapshot.snapshot_id.clone(),
            }),
            // Made by one, cloned by the other.
            Type::Volume(VolumeSource {
                volume_id: volume.volume_id.clone(),
            }),
        ];
        for (source, copied) in sources.into_iter().zip(["restored", "cloned"]) {
            let copied = format!("{name}-{copied}");
            let patience = Duration::from_secs(90);
            let copy = taker
                .create_from(&copied, &on, Some(source), patience)
                .await
                .unwrap();
            let folder = server::path("data", &copied);
            assert_eq!(fs::read_to_string(folder.join("file")).unwrap(), name);
            // A copy by one, taken away by the other.
            maker.delete(&copy.volume_id, &on).await.unwrap();
            assert!(!folder.exists());
        }
        taker.delete(&volume.volume_id, &on).await.unwrap();
        assert!(!server::path("data", name).exists());
        let request = orlop_csi::proto::DeleteSnapshotRequest {
            snapshot_id: snapshot.snapshot_id,
            ..Default::default()
        };
        taker.controller().delete_snapshot(request).await.unwrap();
        assert!(!server::path("data", &format!("s-{name}")).exists());
    }
    assert_eq!(nfs_mounts(), Vec::<String>::new());
}
