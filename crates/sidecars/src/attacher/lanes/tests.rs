use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use tokio::{sync::Notify, time::timeout};

use super::*;

fn attachment(deleting: bool) -> VolumeAttachment {
    let mut attachment = VolumeAttachment::default();
    attachment.metadata.name = "a".into();
    attachment.metadata.deletion_timestamp = deleting.then_some(jiff::Timestamp::UNIX_EPOCH);
    attachment
}

#[tokio::test(start_paused = true)]
async fn one_attachment_is_in_one_lane_at_a_time_and_lost_in_none() {
    let lanes = Lanes::new(Backoff::default());
    let (go, in_lane, most, detached) = (
        Notify::new(),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        Notify::new(),
    );
    let enter = || {
        let now = in_lane.fetch_add(1, Ordering::SeqCst) + 1;
        most.fetch_max(now, Ordering::SeqCst);
    };
    let leave = || in_lane.fetch_sub(1, Ordering::SeqCst);
    lanes.add(&attachment(false));
    let attach = lanes.work(Lane::Attach, 2, |_| async {
        enter();
        lanes.add(&attachment(true));
        go.notified().await;
        leave();
        Outcome::Done
    });
    let detach = lanes.work(Lane::Detach, 2, |_| async {
        enter();
        leave();
        detached.notify_one();
        Outcome::Done
    });
    let story = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        go.notify_one();
        detached.notified().await;
    };
    tokio::select! {
        () = attach => {}
        () = detach => {}
        done = timeout(Duration::from_secs(60), story) => done.expect("it gets its turn"),
    }
    assert_eq!(most.load(Ordering::SeqCst), 1);
}
