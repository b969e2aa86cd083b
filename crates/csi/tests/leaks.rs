//! With every log of the process turned on, down to HTTP/2's frames, no secret
//! of a request is in any of it.
//!
//! Alone in its file: the log of a process can be captured only once.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orlop_csi::proto::node_server::Node;
use orlop_csi::proto::volume_capability::{AccessType, MountVolume};
use orlop_csi::proto::*;
use orlop_csi::server::{CsiError, Services, Socket, answer};
use orlop_csi::{Deadlines, Driver, SERVICE_ACCOUNT_TOKENS};
use tonic::{Code, Request, Response, Status};
use tracing_subscriber::fmt::MakeWriter;

const CANARY: &str = "canary-b51d-never-to-be-seen";

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// A driver that logs its requests, as drivers do.
struct Talkative;

#[derive(Debug, thiserror::Error)]
#[error("volume {0} is not staged")]
struct NotStaged(String);

impl CsiError for NotStaged {
    fn code(&self) -> Code {
        Code::FailedPrecondition
    }
}

#[tonic::async_trait]
impl Node for Talkative {
    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        tracing::info!(?request, "asked to publish");
        let request = request.into_inner();
        match request.volume_id.as_str() {
            "hangs" => std::future::pending().await,
            "works" => Ok(Response::new(NodePublishVolumeResponse {})),
            _ => answer(Err(NotStaged(request.volume_id))),
        }
    }
}

fn publish(volume: &str) -> NodePublishVolumeRequest {
    NodePublishVolumeRequest {
        volume_id: volume.into(),
        secrets: [("password".to_owned(), CANARY.to_owned())].into(),
        volume_context: [(SERVICE_ACCOUNT_TOKENS.to_owned(), CANARY.to_owned())].into(),
        volume_capability: Some(VolumeCapability {
            access_type: Some(AccessType::Mount(MountVolume {
                mount_flags: vec![format!("password={CANARY}")],
                ..Default::default()
            })),
            access_mode: None,
        }),
        ..Default::default()
    }
}

#[tokio::test]
async fn no_log_at_any_level_holds_a_secret() {
    let log = Log::default();
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(log.clone())
        .init();

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("csi.sock");
    let socket = Socket::bind(path.to_str().unwrap()).unwrap();
    let services = Services::new().node(Talkative).grace(Duration::ZERO);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn(socket.serve(services, async { drop(stopped.await) }));

    let driver = Driver::connect(path.to_str().unwrap()).unwrap();
    driver.node_publish_volume(publish("works")).await.unwrap();
    let refused = driver
        .node_publish_volume(publish("refused"))
        .await
        .unwrap_err();
    assert_eq!(refused.code, Code::FailedPrecondition);
    let hasty = driver
        .clone()
        .with_deadlines(Deadlines::all(Duration::from_millis(50)));
    let late = hasty
        .node_publish_volume(publish("hangs"))
        .await
        .unwrap_err();
    assert_eq!(late.code, Code::DeadlineExceeded);
    drop(stop);
    server.await.unwrap().unwrap();
    driver
        .node_publish_volume(publish("gone"))
        .await
        .unwrap_err();

    let bytes = log.0.lock().unwrap().clone();
    let text = String::from_utf8_lossy(&bytes);
    // The log is really on, for us, for the driver and for what is below.
    for word in [
        "volume_id=\"works\"",
        "FailedPrecondition",
        "asked to publish",
        "h2::",
    ] {
        assert!(
            text.contains(word),
            "{word:?} is not in the log of {} bytes",
            text.len()
        );
    }
    let leak = text.lines().find(|line| line.contains(CANARY));
    assert_eq!(leak, None);
}
