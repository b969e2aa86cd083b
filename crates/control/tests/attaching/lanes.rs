//! Neither kind of work keeps the other waiting.

use std::{sync::PoisonError, time::Duration};

use http::Method;
use orlop_control::attach_detach;
use tokio::time::Instant;

use crate::stage::Stage;

/// What one request takes: the wave lasts for minutes.
const REQUEST: Duration = Duration::from_secs(2);
const WAVE: usize = 360;
/// How long one who comes in the middle may wait: a lane's worth of requests before it.
const PROMPT: Duration = Duration::from_secs(10);

/// When a request was sent, after a moment.
fn sent(stage: &Stage, after: Instant, method: &Method, part: &str) -> Vec<Duration> {
    let sent = stage
        .slow
        .sent
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let ours = sent
        .iter()
        .filter(|(at, how, path)| *at >= after && how == method && path.contains(part));
    ours.map(|(at, _, _)| at.duration_since(after)).collect()
}

async fn stage_with_a_wave(pods: &str) -> Stage {
    let stage = Stage::bare(REQUEST).await;
    for node in 1..=6 {
        stage.node(&format!("n{node}")).await;
    }
    for number in 0..WAVE {
        let claim = format!("c{number}");
        stage.claim(&claim).await;
        if !pods.is_empty() {
            let node = format!("n{}", number % 6 + 1);
            stage.pod(&format!("{pods}{number}"), &claim, &node).await;
        }
    }
    stage.node("other").await;
    stage.claim("late").await;
    stage
}

#[tokio::test(start_paused = true)]
async fn a_wave_of_detaches_does_not_keep_an_attach_waiting() {
    let stage = stage_with_a_wave("p").await;
    stage.play_attacher();
    stage.start(attach_detach::Config::default());
    stage
        .until(
            || stage.attached().len() == WAVE,
            || stage.attached().len().to_string(),
        )
        .await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    for number in 0..WAVE {
        stage.delete_pod(&format!("p{number}")).await;
    }
    let begun = Instant::now();
    // Each node has given one back by then, and is giving back the rest.
    tokio::time::sleep(6 * REQUEST).await;
    let came = Instant::now();
    stage.pod("late", "late", "other").await;
    stage.until_attached(&["late@other"]).await;
    let attach = sent(&stage, came, &Method::POST, "volumeattachments");
    assert!(attach[0] < PROMPT, "it waited for {:?}", attach[0]);
    let wave = sent(&stage, begun, &Method::DELETE, "volumeattachments");
    let (count, last) = (wave.len(), wave.last().copied().unwrap_or_default());
    assert!(count >= WAVE, "{count} given back");
    assert!(
        last > 2 * PROMPT,
        "there was no wave: it was over after {last:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_wave_of_attaches_does_not_keep_a_detach_waiting() {
    let stage = stage_with_a_wave("").await;
    stage.play_attacher();
    stage.start(attach_detach::Config::default());
    stage.pod("late", "late", "other").await;
    stage.until_told("other", &["late"]).await;
    for number in 0..WAVE {
        let (claim, node) = (format!("c{number}"), format!("n{}", number % 6 + 1));
        stage.pod(&format!("p{number}"), &claim, &node).await;
    }
    let begun = Instant::now();
    tokio::time::sleep(3 * REQUEST).await;
    let left = Instant::now();
    stage.delete_pod("late").await;
    let given_back = || !sent(&stage, left, &Method::DELETE, "volumeattachments").is_empty();
    stage.until(given_back, String::new).await;
    let detach = sent(&stage, left, &Method::DELETE, "volumeattachments");
    // The node is told, then read, then it is given back.
    assert!(detach[0] < 2 * PROMPT, "it waited for {:?}", detach[0]);
    stage
        .until(
            || stage.attached().len() == WAVE,
            || stage.attached().len().to_string(),
        )
        .await;
    let wave = sent(&stage, begun, &Method::POST, "volumeattachments");
    let last = wave.last().copied().unwrap_or_default();
    assert!(
        last > 2 * PROMPT,
        "there was no wave: it was over after {last:?}"
    );
}
