use std::sync::atomic::Ordering;

use prometheus_client::registry::Registry;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tonic::Code;

use super::*;
use crate::metrics::Side;
use crate::testing::{Fake, volume};
use crate::{Driver, memory};

fn begun(fake: &Fake) -> usize {
    fake.0.begun.load(Ordering::SeqCst)
}

fn ended(fake: &Fake) -> usize {
    fake.0.ended.load(Ordering::SeqCst)
}

/// Yields until `reached`, at most for some virtual seconds.
async fn until(reached: impl Fn() -> bool) {
    for _ in 0..1000 {
        if reached() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("never reached");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_has_begun_ends_even_if_its_caller_hangs_up() {
    let fake = Fake::default();
    let (driver, running) = fake.start();
    let caller = tokio::spawn(async move { driver.create_volume(volume("waits")).await });
    until(|| begun(&fake) == 1).await;
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    fake.0.go.notify_one();
    until(|| ended(&fake) == 1).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_outlives_its_deadline() {
    let fake = Fake::default();
    let (driver, running) = fake.start();
    let error = driver.create_volume(volume("waits")).await.unwrap_err();
    assert_eq!(error.code, Code::DeadlineExceeded);
    fake.0.go.notify_one();
    until(|| ended(&fake) == 1).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_running_calls_end() {
    let fake = Fake::default();
    let (driver, running) = fake.start();
    let call = tokio::spawn(async move { driver.create_volume(volume("waits")).await });
    until(|| begun(&fake) == 1).await;
    let started = Instant::now();
    let go = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        fake.0.go.notify_one();
    };
    tokio::join!(running.stop(), go);
    assert_eq!(
        call.await.unwrap().unwrap().volume.unwrap().volume_id,
        "waits"
    );
    assert!(
        started.elapsed() < Duration::from_secs(4),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_ever() {
    let fake = Fake::default();
    let socket = memory::Socket::new();
    let (stop, stopped) = oneshot::channel::<()>();
    let services = fake.services().grace(Duration::from_secs(2));
    let server = tokio::spawn(
        socket
            .bind()
            .unwrap()
            .serve(services, async { drop(stopped.await) }),
    );
    let driver = Driver::in_memory(&socket);
    let call = tokio::spawn(async move { driver.create_volume(volume("hangs")).await });
    until(|| begun(&fake) == 1).await;
    let started = Instant::now();
    drop(stop);
    server.await.unwrap().unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.code, Code::Unavailable, "{error}");
    assert_eq!(error.retry, crate::Retry::Uncertain);
}

#[tokio::test(start_paused = true)]
async fn a_killed_server_kills_its_calls() {
    let fake = Fake::default();
    let socket = memory::Socket::new();
    let server = tokio::spawn(
        socket
            .bind()
            .unwrap()
            .serve(fake.services(), std::future::pending()),
    );
    let driver = Driver::in_memory(&socket);
    let caller = driver.clone();
    let call = tokio::spawn(async move { caller.create_volume(volume("waits")).await });
    until(|| begun(&fake) == 1).await;
    server.abort();
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.code, Code::Unavailable, "{error}");
    fake.0.go.notify_one();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(ended(&fake), 0, "a dead driver does nothing more");
    // Nobody is there, until somebody is.
    assert_eq!(
        driver.create_volume(volume("v")).await.unwrap_err().code,
        Code::Unavailable
    );
    let again = Fake::default();
    let running = again.start_at(&socket);
    driver.create_volume(volume("v")).await.unwrap();
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_fails_its_call_alone() {
    let (driver, running) = Fake::default().start();
    let error = driver.create_volume(volume("panics")).await.unwrap_err();
    assert_eq!(error.code, Code::Internal);
    assert!(error.message.contains("unforeseen"), "{error}");
    driver.create_volume(volume("v")).await.unwrap();
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_counts_its_calls() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(Side::Plugin, &mut registry);
    let socket = memory::Socket::new();
    let services = Fake::default()
        .services()
        .observed("fake.orlop.io", metrics);
    let server = tokio::spawn(
        socket
            .bind()
            .unwrap()
            .serve(services, std::future::pending()),
    );
    let driver = Driver::in_memory(&socket);
    driver.create_volume(volume("v")).await.unwrap();
    driver.create_volume(volume("silent")).await.unwrap_err();
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for code in ["OK", "Internal"] {
        let line = format!(
            "csi_plugin_operations_seconds_count{{driver_name=\"fake.orlop.io\",\
             method_name=\"/csi.v1.Controller/CreateVolume\",grpc_status_code=\"{code}\"}} 1"
        );
        assert!(text.contains(&line), "{line} is not in\n{text}");
    }
    server.abort();
}
