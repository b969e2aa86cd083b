//! Growth while a writer runs: what it wrote is all there afterwards.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use orlop_csi::proto;

use crate::Plan;
use crate::served::Served;

const GIB: i64 = 1 << 30;
const STEPS: i64 = 10;
const BLOCK: usize = 64 << 10;

pub(crate) async fn run(plan: &Plan) -> bool {
    let served = Served::start(&plan.dir, None);
    let mut sound = true;
    for fs_type in ["xfs", "btrfs"] {
        let id = served.create(&format!("grow-{fs_type}"), GIB, None).await;
        let target = served.publish(&id, fs_type).await;
        let stop = Arc::new(AtomicBool::new(false));
        let path = format!("{target}/log");
        let writer = {
            let (stop, path) = (Arc::clone(&stop), path.clone());
            tokio::task::spawn_blocking(move || write(&path, &stop))
        };
        for step in 1..=STEPS {
            let range = proto::CapacityRange {
                required_bytes: GIB + step * GIB / 4,
                limit_bytes: 0,
            };
            let request = proto::ControllerExpandVolumeRequest {
                volume_id: id.clone(),
                capacity_range: Some(range),
                ..Default::default()
            };
            let (mut controller, mut node) = (served.controller.clone(), served.node.clone());
            served
                .timed(
                    "ControllerExpandVolume",
                    controller.controller_expand_volume(request),
                )
                .await;
            let request = proto::NodeExpandVolumeRequest {
                volume_id: id.clone(),
                volume_path: target.clone(),
                capacity_range: Some(range),
                ..Default::default()
            };
            served
                .timed("NodeExpandVolume", node.node_expand_volume(request))
                .await;
        }
        stop.store(true, Ordering::Relaxed);
        let written = writer
            .await
            .expect("no panic")
            .expect("a writer without an error");
        // Once more from the disk.
        served.unpublish(&id).await;
        let target = served.publish(&id, fs_type).await;
        let intact = check(&format!("{target}/log"), written).expect("a log that can be read");
        println!("{fs_type}: {written} blocks written while growing, {intact} intact");
        sound &= intact == written;
        served.unpublish(&id).await;
        served.delete(&id).await;
    }
    served.print_times();
    sound && served.leftovers().is_empty()
}

fn block(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(BLOCK / 8)
}

fn write(path: &str, stop: &AtomicBool) -> std::io::Result<u64> {
    let file = File::create(path)?;
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) && number * (BLOCK as u64) < 900 << 20 {
        file.write_all_at(&block(number), number * BLOCK as u64)?;
        number += 1;
        if number.is_multiple_of(64) {
            file.sync_data()?;
        }
    }
    file.sync_all()?;
    Ok(number)
}

fn check(path: &str, written: u64) -> std::io::Result<u64> {
    let file = File::open(path)?;
    let mut found = vec![0; BLOCK];
    let mut intact = 0;
    for number in 0..written {
        file.read_exact_at(&mut found, number * BLOCK as u64)?;
        intact += u64::from(found == block(number));
    }
    Ok(intact)
}
