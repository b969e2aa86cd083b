//! Snapshots and clones of a large volume on a disk that can share blocks.

use std::io::Write;

use orlop_csi::proto;
use orlop_csi::proto::volume_content_source::{SnapshotSource, Type, VolumeSource};

use crate::Plan;
use crate::disk::Disk;
use crate::served::Served;

const GIB: i64 = 1 << 30;
const ROUNDS: usize = 10;

pub(crate) async fn run(plan: &Plan) -> bool {
    let disk = Disk::new(&plan.dir, 200 << 30);
    let pool = disk.path().join("pool");
    let served = Served::start(&plan.dir, Some(&pool));
    let source = served.create("source", 10 * GIB, None).await;
    let target = served.publish(&source, "xfs").await;
    let fill = |name: String| {
        let target = target.clone();
        move || {
            let mut file = std::fs::File::create(format!("{target}/{name}"))?;
            for _ in 0..32 {
                file.write_all(&[7; 1 << 20])?;
            }
            file.sync_all()
        }
    };
    for round in 0..ROUNDS {
        // Something new for each to cut, while the volume is in use.
        let filled = tokio::task::spawn_blocking(fill(format!("f{round}"))).await;
        filled.expect("no panic").expect("a file");
        let request = proto::CreateSnapshotRequest {
            source_volume_id: source.clone(),
            name: format!("cut-{round}"),
            ..Default::default()
        };
        let mut controller = served.controller.clone();
        let cut = served.timed("CreateSnapshot", controller.create_snapshot(request));
        let cut = cut.await.snapshot.expect("a snapshot");
        let from_snapshot = Type::Snapshot(SnapshotSource {
            snapshot_id: cut.snapshot_id.clone(),
        });
        let from_volume = Type::Volume(VolumeSource {
            volume_id: source.clone(),
        });
        for (kind, from) in [("restored", from_snapshot), ("cloned", from_volume)] {
            let from = proto::VolumeContentSource { r#type: Some(from) };
            let copy = served
                .create(&format!("{kind}-{round}"), 10 * GIB, Some(from))
                .await;
            served.delete(&copy).await;
        }
        let request = proto::DeleteSnapshotRequest {
            snapshot_id: cut.snapshot_id,
            ..Default::default()
        };
        served
            .timed("DeleteSnapshot", controller.delete_snapshot(request))
            .await;
    }
    served.unpublish(&source).await;
    served.delete(&source).await;
    served.print_times();
    let left = served.leftovers();
    println!("left over: {left:?}");
    left.is_empty()
}
