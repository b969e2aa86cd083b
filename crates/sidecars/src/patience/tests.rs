use std::time::Duration;

use super::*;

const RETRY: Backoff = Backoff {
    first: Duration::from_secs(1),
    most: Duration::from_secs(300),
};

fn patience(registry: &mut Registry) -> Patience {
    let clock = Clock::simulated(jiff::Timestamp::from_second(1_000).expect("a time"));
    Patience::new("test", RETRY, clock, RetryMetrics::register(registry))
}

fn shown(registry: &Registry) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).expect("it is text");
    text
}

#[test]
fn each_kind_of_failure_waits_in_its_own_way() {
    let seconds = |setback: Setback, failures| setback.wait(RETRY, failures, "x").as_secs();
    let waits = |setback| [1, 2, 3, 6, 20].map(|failures| seconds(setback, failures));
    assert_eq!(waits(Setback::Failed), [1, 2, 4, 32, 300]);
    assert_eq!(waits(Setback::Uncertain), [1, 2, 4, 32, 300]);
    assert_eq!(waits(Setback::Waiting), [1, 2, 4, 30, 30]);
    assert_eq!(waits(Setback::Infeasible), [300; 5]);
    let said = Setback::Busy(Some(Duration::from_secs(7)));
    assert_eq!(waits(said), [7; 5]);
    assert_eq!(waits(Setback::Busy(None)), [1, 2, 4, 32, 300]);
}

#[test]
fn those_who_wait_for_one_volume_come_back_soon_and_one_by_one() {
    let wait = |who: usize| Setback::Taken.wait(RETRY, 20, &who.to_string());
    let waits: std::collections::BTreeSet<_> = (0..20).map(wait).collect();
    assert!(waits.len() > 15, "{waits:?}");
    assert!(waits.iter().all(|wait| (TAKEN / 2..TAKEN).contains(wait)));
    let aborted = CallError::new(orlop_csi::Method::CreateVolume, Code::Aborted, "busy");
    assert_eq!(Setback::of_call(&aborted), Setback::Taken);
}

#[tokio::test(start_paused = true)]
async fn who_waits_and_until_when_is_shown() {
    let mut registry = Registry::default();
    let patience = patience(&mut registry);
    assert_eq!(patience.after("b", Setback::Infeasible).as_secs(), 300);
    assert_eq!(patience.after("a", Setback::Failed).as_secs(), 1);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(patience.after("a", Setback::Failed).as_secs(), 2);
    let text = shown(&registry);
    let has = |text: &str, line: &str| text.lines().any(|l| l == line);
    let failed = r#"orlop_retries_waiting{controller="test",reason="failed"}"#;
    let next = r#"orlop_next_retry_timestamp_seconds{controller="test"}"#;
    assert!(has(&text, &format!("{failed} 1")), "{text}");
    assert!(has(&text, &format!("{next} 1003")), "{text}");
    patience.forget("a");
    let text = shown(&registry);
    assert!(has(&text, &format!("{failed} 0")), "{text}");
    assert!(has(&text, &format!("{next} 1300")), "{text}");
    assert_eq!(patience.after("a", Setback::Failed).as_secs(), 1, "anew");
    // Who leads no more waits for nothing.
    drop(patience);
    let text = shown(&registry);
    assert!(has(&text, &format!("{failed} 0")), "{text}");
    assert!(has(&text, &format!("{next} 0")), "{text}");
}

#[tokio::test(start_paused = true)]
async fn one_failure_doubles_a_wait_once_however_often_it_is_looked_at() {
    let patience = patience(&mut Registry::default());
    assert_eq!(patience.after("a", Setback::Failed).as_secs(), 1);
    let part = Duration::from_millis(50);
    for looks in 1..20 {
        tokio::time::advance(part).await;
        let left = patience.after("a", Setback::Failed);
        assert_eq!(left, Duration::from_secs(1) - part * looks);
    }
    for wait in [2, 4, 8] {
        tokio::time::advance(Duration::from_secs(wait)).await;
        assert_eq!(patience.after("a", Setback::Failed).as_secs(), wait);
    }
}

#[tokio::test(start_paused = true)]
async fn another_kind_of_failure_waits_in_its_own_way_however_soon_it_comes() {
    let patience = patience(&mut Registry::default());
    assert_eq!(patience.after("a", Setback::Waiting).as_secs(), 1);
    tokio::time::advance(Duration::from_millis(500)).await;
    assert_eq!(patience.after("a", Setback::Infeasible).as_secs(), 300);
}
