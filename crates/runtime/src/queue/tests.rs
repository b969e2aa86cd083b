use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::{sleep, timeout};

use super::*;

fn queue() -> Queue<&'static str> {
    Queue::new(Backoff {
        first: Duration::from_secs(1),
        most: Duration::from_secs(60),
    })
}

#[tokio::test(start_paused = true)]
async fn a_key_added_twice_gets_one_turn() {
    let queue = queue();
    queue.add("a");
    queue.add("a");
    assert_eq!(queue.next().await, "a");
    queue.done("a", Outcome::Done);
    assert!(timeout(Duration::from_secs(9), queue.next()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_key_added_during_its_turn_gets_another_one_afterwards() {
    let queue = queue();
    queue.add("a");
    assert_eq!(queue.next().await, "a");
    queue.add("a");
    assert!(timeout(Duration::from_secs(9), queue.next()).await.is_err());
    queue.done("a", Outcome::Done);
    assert_eq!(queue.next().await, "a");
}

#[tokio::test(start_paused = true)]
async fn failures_wait_longer_each_time_and_success_forgets_them() {
    let queue = queue();
    let start = Instant::now();
    queue.add("a");
    for waited in [0, 1, 3, 7] {
        assert_eq!(queue.next().await, "a");
        assert_eq!(start.elapsed().as_secs(), waited);
        queue.done("a", Outcome::Retry);
    }
    assert_eq!(queue.next().await, "a");
    queue.done("a", Outcome::Done);
    assert!(queue.is_idle());
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_events_makes_no_wait_longer() {
    let queue = queue();
    let start = Instant::now();
    queue.add("a");
    assert_eq!(queue.next().await, "a");
    queue.done("a", Outcome::Retry);
    for _ in 0..10 {
        queue.add("a");
        assert_eq!(queue.next().await, "a");
        queue.done("a", Outcome::Retry);
    }
    for waited in [1, 3, 7] {
        assert_eq!(queue.next().await, "a");
        assert_eq!(start.elapsed().as_secs(), waited);
        queue.done("a", Outcome::Retry);
    }
}

#[tokio::test(start_paused = true)]
async fn in_a_hurry_all_waits_end_and_each_key_gets_one_turn() {
    let queue = queue();
    let start = Instant::now();
    queue.add("a");
    assert_eq!(queue.next().await, "a");
    queue.done("a", Outcome::Retry);
    queue.add_after("b", Duration::from_secs(500));
    queue.hurry();
    assert_eq!(queue.next().await, "a");
    assert_eq!(queue.next().await, "b");
    assert_eq!(start.elapsed().as_secs(), 0);
    queue.done("a", Outcome::Done);
    queue.done("b", Outcome::Done);
    assert!(queue.is_idle());
}

#[tokio::test(start_paused = true)]
async fn the_earliest_timer_holds() {
    let queue = queue();
    let start = Instant::now();
    queue.add_after("a", Duration::from_secs(9));
    queue.add_after("a", Duration::from_secs(2));
    queue.add_after("a", Duration::from_secs(5));
    assert_eq!(queue.next().await, "a");
    assert_eq!(start.elapsed().as_secs(), 2);
    queue.done("a", Outcome::Done);
    assert!(queue.is_idle());
}

#[tokio::test(start_paused = true)]
async fn work_is_done_side_by_side_up_to_the_limit_and_survives_a_panic() {
    let queue = Queue::new(Backoff::default());
    for key in 0..6 {
        queue.add(key);
    }
    let (now, most, panics) = (
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    );
    let turn = |key: i32| {
        let (now, most, panics) = (&now, &most, &panics);
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sleep(Duration::from_secs(1)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            assert!(
                key != 3 || panics.fetch_add(1, Ordering::SeqCst) > 0,
                "once"
            );
            Outcome::Done
        }
    };
    let _ = timeout(Duration::from_secs(60), work(queue.clone(), 2, turn)).await;
    assert_eq!(most.load(Ordering::SeqCst), 2);
    assert_eq!(panics.load(Ordering::SeqCst), 2);
    assert!(queue.is_idle());
}
