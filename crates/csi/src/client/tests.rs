use std::sync::Mutex;
use std::sync::atomic::Ordering;

use prometheus_client::registry::Registry;

use super::*;
use crate::Secrets;
use crate::metrics::Side;
use crate::server::Services;
use crate::testing::{Fake, volume};

#[test]
fn an_endpoint_is_a_unix_socket() {
    for endpoint in [
        "unix:///run/csi.sock",
        "unix:/run/csi.sock",
        "/run/csi.sock",
    ] {
        assert_eq!(
            socket_path(endpoint).unwrap().to_str(),
            Some("/run/csi.sock"),
            "{endpoint}"
        );
    }
    for endpoint in ["", "csi.sock", "tcp://127.0.0.1:1", "unix://run/csi.sock"] {
        assert!(
            matches!(socket_path(endpoint), Err(EndpointError::NotUnix { .. })),
            "{endpoint}"
        );
    }
    assert!(socket_path(&format!("/{}", "x".repeat(106))).is_ok());
    let error = socket_path(&format!("/{}", "x".repeat(107))).unwrap_err();
    assert!(
        matches!(error, EndpointError::TooLong { length: 108, .. }),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_driver_is_asked_once_and_unknown_capabilities_are_left_out() {
    let fake = Fake::default();
    let (driver, running) = fake.start();

    let info = driver.info().await.unwrap();
    assert_eq!(
        (info.name.as_str(), info.version.as_str()),
        ("fake.orlop.io", "7")
    );
    assert_eq!(info.services, [PluginService::ControllerService].into());
    assert_eq!(
        info.controller,
        [ControllerCapability::CreateDeleteVolume].into()
    );
    // The fake's Node service answers UNIMPLEMENTED.
    assert!(info.node.is_empty() && info.group.is_empty() && info.expansion.is_empty());

    let clone = driver.clone();
    let (one, two) = tokio::join!(driver.info(), clone.info());
    assert_eq!((one.unwrap(), two.unwrap()), (info.clone(), info));
    assert_eq!(fake.0.asked.load(Ordering::SeqCst), 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_came_back_is_asked_anew() {
    let fake = Fake::default();
    let socket = memory::Socket::new();
    let running = fake.start_at(&socket);
    let driver = Driver::in_memory(&socket);
    driver.probe_until_ready().await.unwrap();
    driver.info().await.unwrap();
    running.stop().await;

    let error = driver.create_volume(volume("v")).await.unwrap_err();
    assert_eq!(
        (error.code, error.retry),
        (Code::Unavailable, Retry::Uncertain),
        "{error}"
    );

    let running = fake.start_at(&socket);
    driver.create_volume(volume("v")).await.unwrap();
    driver.info().await.unwrap();
    driver.info().await.unwrap();
    // Once when it was known again, before the call.
    assert_eq!(fake.0.asked.load(Ordering::SeqCst), 3);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn another_driver_at_the_same_socket_is_not_worked_with() {
    let fake = Fake::default();
    let socket = memory::Socket::new();
    let running = fake.start_at(&socket);
    let driver = Driver::in_memory(&socket);
    driver.info().await.unwrap();
    running.stop().await;

    let stranger = Fake::default();
    *stranger.0.name.lock().unwrap() = "other.orlop.io".into();
    let running = stranger.start_at(&socket);
    let error = driver.create_volume(volume("v")).await.unwrap_err();
    assert_eq!(
        (error.code, error.retry),
        (Code::Unavailable, Retry::Uncertain),
        "{error}"
    );
    for word in ["other.orlop.io", "fake.orlop.io", "restart"] {
        assert!(error.message.contains(word), "{error}");
    }
    assert!(driver.probe(proto::ProbeRequest {}).await.is_err());
    assert_eq!(stranger.0.begun.load(Ordering::SeqCst), 0, "it was called");
    running.stop().await;

    let running = fake.start_at(&socket);
    driver.create_volume(volume("v")).await.unwrap();
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_end_of_an_absence_is_told_once() {
    let fake = Fake::default();
    let socket = memory::Socket::new();
    let driver = Driver::in_memory(&socket);
    let mut absences = driver.absences();
    let limit = Duration::from_secs(60);
    let early = tokio::time::timeout(limit, absences.over()).await;
    assert!(early.is_err(), "nobody has asked for the driver");
    driver.create_volume(volume("v")).await.unwrap_err();
    let early = tokio::time::timeout(limit, absences.over()).await;
    assert!(early.is_err(), "it is away");
    driver.create_volume(volume("v")).await.unwrap_err();
    let running = fake.start_at(&socket);
    tokio::time::timeout(limit, absences.over()).await.unwrap();
    driver.create_volume(volume("v")).await.unwrap();
    let again = tokio::time::timeout(limit, absences.over()).await;
    assert!(again.is_err(), "it is there all the time");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_role_waits_for_a_driver_that_is_late_and_slow() {
    let fake = Fake::default();
    fake.0.unready.store(3, Ordering::SeqCst);
    let socket = memory::Socket::new();
    let driver = Driver::in_memory(&socket);
    let started = Instant::now();
    let late = async {
        tokio::time::sleep(Duration::from_secs(10)).await;
        fake.start_at(&socket)
    };
    let (ready, running) = tokio::join!(driver.probe_until_ready(), late);
    ready.unwrap();
    let waited = started.elapsed();
    assert!(
        waited > Duration::from_secs(12) && waited < Duration::from_secs(15),
        "{waited:?}"
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_at_its_deadline_and_its_effect_is_uncertain() {
    let (driver, running) = Fake::default().start();
    let started = Instant::now();
    let error = driver.create_volume(volume("hangs")).await.unwrap_err();
    assert_eq!(error.code, Code::DeadlineExceeded, "{error}");
    assert_eq!(error.retry, Retry::Uncertain);
    let took = started.elapsed().as_millis();
    assert!((10_000..10_100).contains(&took), "{took} ms");

    let quick = driver.with_deadlines(Deadlines::all(Duration::from_millis(7)));
    let started = Instant::now();
    assert!(quick.create_volume(volume("hangs")).await.is_err());
    assert!(started.elapsed() < Duration::from_millis(20));
    // The handlers never end; the stop cuts them off after its grace.
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_drivers_text_is_bounded_readable_and_without_secrets() {
    let (driver, running) = Fake::default().start();
    let secrets: Secrets = [("password".to_owned(), "hunter2".to_owned())]
        .into_iter()
        .collect();
    let request = proto::CreateVolumeRequest {
        name: "echoes".into(),
        secrets: secrets.into_request(),
        ..Default::default()
    };
    let error = driver.create_volume(request).await.unwrap_err();
    assert_eq!(error.code, Code::Unauthenticated);
    assert_eq!(error.message, "bad password ***stripped***!");
    assert_eq!(error.retry, Retry::Final);

    let error = driver.create_volume(volume("silent")).await.unwrap_err();
    assert_eq!(error.message, "the driver gave no reason");

    let error = driver.create_volume(volume("cut")).await.unwrap_err();
    assert_eq!(error.code, Code::Internal);
    assert_eq!(error.message.len(), 4096, "{error}");
    assert!(error.message.starts_with("é\n%é"));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_text_beyond_all_bounds_fails_the_call_instead_of_hanging_it() {
    let (driver, running) = Fake::default().start();
    // 300 KiB, percent-encoded 900: more than any peer takes in its headers.
    let started = Instant::now();
    let error = driver.create_volume(volume("long")).await.unwrap_err();
    assert!(
        started.elapsed() <= Duration::from_secs(11),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(error.retry, Retry::Uncertain, "{error}");
    // The connection survives or is made anew.
    driver.create_volume(volume("v")).await.unwrap();
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_cannot_be_read_leaves_the_effect_uncertain() {
    let fake = Fake::default();
    let (driver, running) = fake.start();
    let error = driver.create_volume(volume("huge")).await.unwrap_err();
    assert_eq!(
        (error.code, error.retry),
        (Code::Internal, Retry::Uncertain),
        "{error}"
    );
    assert_eq!(
        fake.0.ended.load(Ordering::SeqCst),
        1,
        "the volume is there"
    );
    running.stop().await;
}

#[test]
fn garbage_is_told_from_a_drivers_own_internal_error() {
    let mut garbled = Status::internal("failed to decode Protobuf message");
    garbled.set_source(Arc::new(reply::Garbled));
    let no_secrets = Sensitive::default();
    let error = CallError::from_status(Method::CreateVolume, &garbled, &no_secrets);
    assert_eq!(
        (error.code, error.retry),
        (Code::Internal, Retry::Uncertain)
    );
    let own = CallError::from_status(Method::CreateVolume, &Status::internal("x"), &no_secrets);
    assert_eq!((own.code, own.retry), (Code::Internal, Retry::Final));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_served_is_unimplemented() {
    let socket = memory::Socket::new();
    let listener = socket.bind().unwrap();
    let server = tokio::spawn(listener.serve(Services::new(), std::future::pending()));
    let driver = Driver::in_memory(&socket);
    let error = driver
        .node_get_info(proto::NodeGetInfoRequest {})
        .await
        .unwrap_err();
    assert_eq!(
        (error.code, error.retry),
        (Code::Unimplemented, Retry::Final),
        "{error}"
    );
    let error = driver
        .get_metadata_allocated(proto::GetMetadataAllocatedRequest::default())
        .await
        .err()
        .unwrap();
    assert_eq!(error.code, Code::Unimplemented, "{error}");
    server.abort();
}

#[tokio::test(start_paused = true)]
async fn calls_are_counted_under_the_names_of_the_go_sidecars() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(Side::Sidecar, &mut registry);
    let (driver, running) = Fake::default().start();
    let driver = driver.with_metrics(metrics);
    driver.probe_until_ready().await.unwrap();
    driver.info().await.unwrap();
    driver.create_volume(volume("v")).await.unwrap();
    driver.create_volume(volume("hangs")).await.unwrap_err();

    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let has = |line: &str| assert!(text.contains(line), "{line} is not in\n{text}");
    has("# TYPE csi_sidecar_operations_seconds histogram");
    has(
        "csi_sidecar_operations_seconds_count{driver_name=\"unknown-driver\",\
         method_name=\"/csi.v1.Identity/Probe\",grpc_status_code=\"OK\"} 1",
    );
    // It is known by its name as soon as it has told it.
    has(
        "csi_sidecar_operations_seconds_count{driver_name=\"fake.orlop.io\",\
         method_name=\"/csi.v1.Identity/GetPluginCapabilities\",grpc_status_code=\"OK\"} 1",
    );
    has(
        "csi_sidecar_operations_seconds_bucket{le=\"0.1\",driver_name=\"fake.orlop.io\",\
         method_name=\"/csi.v1.Controller/CreateVolume\",grpc_status_code=\"OK\"} 1",
    );
    has(
        "csi_sidecar_operations_seconds_bucket{le=\"15.0\",driver_name=\"fake.orlop.io\",\
         method_name=\"/csi.v1.Controller/CreateVolume\",grpc_status_code=\"DeadlineExceeded\"} 1",
    );
    running.stop().await;
}

/// Answers at a gate.
#[derive(Clone, Copy, PartialEq)]
enum Orders {
    Pass,
    Refuse,
    Lose,
}

struct Guard {
    before: Orders,
    after: Orders,
    seen: Mutex<Vec<String>>,
}

impl Guard {
    fn obey(&self, orders: Orders, note: String) -> Passage<'_> {
        self.seen.lock().unwrap().push(note);
        Box::pin(async move {
            match orders {
                Orders::Pass => Ok(()),
                Orders::Refuse => Err(Status::unavailable("refused")),
                Orders::Lose => std::future::pending().await,
            }
        })
    }
}

impl Gate for Guard {
    fn before<'a>(&'a self, call: &'a CallSite) -> Passage<'a> {
        self.obey(self.before, format!("{} {}", call.method, call.subject))
    }

    fn after<'a>(&'a self, _: &'a CallSite, code: Code) -> Passage<'a> {
        self.obey(self.after, format!("{code:?}"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_gate_can_refuse_or_lose_a_call_and_its_reply() {
    use Orders::{Lose, Pass, Refuse};
    // Orders before and after; the code that the role sees; what it may think;
    // whether the driver has done it.
    let cases = [
        (Pass, Pass, None, 1),
        (Refuse, Pass, Some(Code::Unavailable), 0),
        (Lose, Pass, Some(Code::DeadlineExceeded), 0),
        (Pass, Refuse, Some(Code::Unavailable), 1),
        (Pass, Lose, Some(Code::DeadlineExceeded), 1),
    ];
    for (at, (before, after, expected, done)) in cases.into_iter().enumerate() {
        let fake = Fake::default();
        let (driver, running) = fake.start();
        let guard = Arc::new(Guard {
            before,
            after,
            seen: Mutex::default(),
        });
        let driver = driver.with_gate(guard.clone());
        let outcome = driver.create_volume(volume("v")).await;
        let error = outcome
            .err()
            .inspect(|error| assert_eq!(error.retry, Retry::Uncertain));
        assert_eq!(error.map(|error| error.code), expected, "case {at}");
        assert_eq!(fake.0.ended.load(Ordering::SeqCst), done, "case {at}");
        let seen = guard.seen.lock().unwrap().clone();
        let reached: &[&str] = if done == 1 {
            &["CreateVolume v", "Ok"]
        } else {
            &["CreateVolume v"]
        };
        assert_eq!(seen, reached, "case {at}");
        running.stop().await;
    }
}
