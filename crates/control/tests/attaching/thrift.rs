//! What attaching and moving volumes costs the API server.

use std::{sync::PoisonError, time::Duration};

use http::Method;
use orlop_control::attach_detach;
use orlop_model::Event;
use tokio::time::Instant;

use crate::stage::Stage;

/// What the role asked for since then, lists and watches left out.
fn asked(stage: &Stage, since: Instant) -> Vec<String> {
    let sent = stage
        .slow
        .sent
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let single = |how: &Method, path: &str| how != Method::GET || path.contains("/nodes/");
    let ours = sent
        .iter()
        .filter(|(at, how, path)| *at >= since && single(how, path));
    let mut asked: Vec<String> = ours
        .map(|(_, how, path)| {
            let words = ["volumeattachments", "events", "nodes"];
            let what = words.into_iter().find(|word| path.contains(word));
            format!("{how} {}", what.unwrap_or(path))
        })
        .collect();
    asked.sort();
    asked
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_attached_with_three_requests_and_moved_with_five() {
    let stage = Stage::bare(Duration::from_millis(50)).await;
    stage.play_attacher();
    stage.start(attach_detach::Config::default());
    stage.node("n1").await;
    stage.node("n2").await;
    stage.claim("a").await;
    let begun = Instant::now();
    stage.pod("p", "a", "n1").await;
    stage.until_told("n1", &["a"]).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let attach = ["PATCH nodes", "POST events", "POST volumeattachments"];
    assert_eq!(asked(&stage, begun), attach);

    let begun = Instant::now();
    stage.delete_pod("p").await;
    stage.pod("q", "a", "n2").await;
    stage.until_told("n2", &["a"]).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let moved = [
        "DELETE volumeattachments",
        "PATCH nodes",
        "PATCH nodes",
        "POST events",
        "POST volumeattachments",
    ];
    assert_eq!(asked(&stage, begun), moved);
    // It came off in no time: nobody was warned.
    let events = stage.cache::<Event>().all();
    let warned = events.iter().find(|e| e.reason == "FailedAttachVolume");
    assert!(warned.is_none(), "{warned:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_is_told_of_many_volumes_at_once_and_of_one_at_once() {
    let (request, takes) = (Duration::from_millis(10), Duration::from_secs(1));
    let stage = Stage::bare(request).await;
    stage.node("n1").await;
    let claims: Vec<String> = (0..20).map(|n| format!("c{n:02}")).collect();
    for claim in &claims {
        stage.claim(claim).await;
    }
    stage.play_attacher_that_takes(takes);
    stage.start(attach_detach::Config::default());
    tokio::time::sleep(Duration::from_secs(5)).await;

    let begun = Instant::now();
    stage.pod("p", &claims[0], "n1").await;
    stage.until_told("n1", &[&claims[0]]).await;
    let took = begun.elapsed();
    assert!(
        took < takes + 6 * request,
        "alone it waits for nobody: {took:?}"
    );

    let begun = Instant::now();
    for claim in &claims[1..] {
        stage.pod(&format!("p-{claim}"), claim, "n1").await;
        tokio::time::sleep(2 * request).await;
    }
    let all: Vec<&str> = claims.iter().map(String::as_str).collect();
    stage.until_told("n1", &all).await;
    let told = asked(&stage, begun);
    let told = told.iter().filter(|how| *how == "PATCH nodes").count();
    assert!(told <= 3, "{told} times");
    // No later than half a second after they were there.
    let took = begun.elapsed();
    assert!(took < takes + 19 * 2 * request + takes / 2, "{took:?}");
}
