use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::queue::{Outcome, Queue, work};

fn process() -> Process {
    let nobody = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("nobody is there"))
    });
    Process::new(kube::Client::new(nobody, "default"), Clock::system())
}

#[tokio::test(start_paused = true)]
async fn a_role_that_panics_runs_again_after_a_rest_and_is_counted() {
    let process = process();
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let began = Instant::now();
    let (done, over) = tokio::sync::mpsc::channel(1);
    process.keep("provisioner", move || {
        let (run, done) = (counted.fetch_add(1, Ordering::SeqCst), done.clone());
        async move {
            assert!(run >= 2, "a bug");
            let _ = done.send(()).await;
        }
    });
    let mut over = over;
    over.recv().await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 3);
    // One second after the first, two after the second.
    assert!(began.elapsed() >= Duration::from_secs(3));
    let text = process.metrics.render();
    let line = "orlop_controller_panics_total{controller=\"provisioner\"} 2";
    assert!(text.contains(line), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_turn_that_panics_is_counted_for_its_role_and_done_again() {
    let process = process();
    let queue = Queue::new(REST);
    queue.add(1);
    let (done, mut over) = tokio::sync::mpsc::channel(1);
    let tries = AtomicUsize::new(0);
    process.spawn("attacher", async move {
        work(queue, 1, |_: i32| async {
            assert!(tries.fetch_add(1, Ordering::SeqCst) > 0, "a bug");
            let _ = done.send(()).await;
            Outcome::Done
        })
        .await;
    });
    over.recv().await.unwrap();
    let text = process.metrics.render();
    let line = "orlop_controller_panics_total{controller=\"attacher\"} 1";
    assert!(text.contains(line), "{text}");
}
