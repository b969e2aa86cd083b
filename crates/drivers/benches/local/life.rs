//! Many volumes from creation to deletion, many at a time.

use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::Plan;
use crate::served::Served;

const MIB: i64 = 1 << 20;

pub(crate) async fn run(plan: &Plan) -> bool {
    let served = Arc::new(Served::start(&plan.dir, None));
    one(&served, usize::MAX).await;
    let (before, descriptors) = (served.memory("VmRSS"), served.descriptors());
    let at_once = Arc::new(Semaphore::new(plan.at_once));
    let begun = Instant::now();
    let mut lives = JoinSet::new();
    for index in 0..plan.volumes {
        let (served, at_once) = (Arc::clone(&served), Arc::clone(&at_once));
        lives.spawn(async move {
            let _turn = at_once.acquire_owned().await.expect("open");
            one(&served, index).await;
        });
    }
    while let Some(life) = lives.join_next().await {
        life.expect("a life without an error");
    }
    let took = begun.elapsed();
    // What the allocator and idle threads give back, they give back by then.
    tokio::time::sleep(Duration::from_secs(12)).await;

    println!(
        "{} volumes, {} at a time: {:.1} lives/s",
        plan.volumes,
        plan.at_once,
        plan.volumes as f64 / took.as_secs_f64()
    );
    served.print_times();
    let (peak, after) = (served.memory("VmHWM"), served.memory("VmRSS"));
    println!("memory: {before} KiB at the start, {peak} KiB at the peak, {after} KiB at the end");
    let still = served.descriptors();
    println!("descriptors: {descriptors} at the start, {still} at the end");
    let left = served.leftovers();
    println!(
        "left over: {}",
        if left.is_empty() {
            "nothing".to_owned()
        } else {
            left.join(", ")
        }
    );
    left.is_empty() && still <= descriptors && peak < 20 << 10
}

async fn one(served: &Served, index: usize) {
    let id = served
        .create(&format!("life-{index}"), 64 * MIB, None)
        .await;
    let target = served.publish(&id, "ext4").await;
    let write = move || {
        let mut file = std::fs::File::create(format!("{target}/data"))?;
        file.write_all(&[7; 64 << 10])?;
        file.sync_all()
    };
    let written = tokio::task::spawn_blocking(write).await.expect("no panic");
    written.expect("a volume that can be written to");
    served.unpublish(&id).await;
    served.delete(&id).await;
}
