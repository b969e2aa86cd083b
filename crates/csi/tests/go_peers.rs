//! Go's grpc and Go's CSI bindings on the other side of the wire, in both
//! directions.
//!
//! Needs `go` and the peer's modules; skips with a word where they cannot be
//! had. The peer is built into a folder of the target directory, so that a
//! second run finds it built.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orlop_csi::client::{ControllerCapability, PluginService, VolumeExpansion};
use orlop_csi::proto::controller_server::Controller;
use orlop_csi::proto::identity_server::Identity;
use orlop_csi::proto::*;
use orlop_csi::server::{CsiError, Services, Socket, answer};
use orlop_csi::{Deadlines, Driver, Retry};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tonic::{Code, Request, Response, Status};

/// For one run of the peer.
const PATIENCE: Duration = Duration::from_secs(30);
/// For the first build, which may have to download modules.
const BUILD_PATIENCE: Duration = Duration::from_secs(400);

/// The built peer, or `None` where Go is missing.
async fn peer() -> Option<&'static Path> {
    static PEER: OnceCell<Option<PathBuf>> = OnceCell::const_new();
    PEER.get_or_init(build).await.as_deref()
}

async fn build() -> Option<PathBuf> {
    // What the machine lacks is a reason to skip; what we wrote must build.
    if let Err(reason) = go(&["mod", "download"]).await {
        println!("skipped: Go or its modules cannot be had here: {reason}");
        return None;
    }
    let peer = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-peer");
    go(&["build", "-o", peer.to_str().unwrap(), "."])
        .await
        .unwrap();
    Some(peer)
}

async fn go(args: &[&str]) -> Result<(), String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go-peer");
    let mut go = Command::new("go");
    go.args(args)
        .current_dir(source)
        .env("GOTOOLCHAIN", "local")
        .kill_on_drop(true);
    match timeout(BUILD_PATIENCE, go.output()).await {
        Ok(Ok(output)) if output.status.success() => Ok(()),
        Ok(Ok(output)) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("go {} did not end", args[0])),
    }
}

async fn run(peer: &Path, args: &[&str]) -> String {
    let mut command = Command::new(peer);
    command.args(args).kill_on_drop(true);
    let output = timeout(PATIENCE, command.output())
        .await
        .expect("the peer ends")
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// A Go driver at a socket of its own; killed on drop.
struct GoDriver {
    process: Child,
    endpoint: String,
    _folder: TempDir,
}

impl GoDriver {
    async fn start(peer: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("csi.sock");
        let mut process = Command::new(peer)
            .arg("serve")
            .arg(&path)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = timeout(PATIENCE, lines.next_line())
            .await
            .expect("it starts")
            .unwrap();
        assert_eq!(line.as_deref(), Some("listening"));
        Self {
            process,
            endpoint: format!("unix://{}", path.display()),
            _folder: folder,
        }
    }
}

#[tokio::test]
async fn go_knows_the_protocol_as_we_do() {
    let Some(peer) = peer().await else { return };
    assert_eq!(
        run(peer, &["describe"]).await.trim_end(),
        support::facts("csi.v1")
    );
}

#[tokio::test]
async fn our_client_calls_a_go_driver() {
    let Some(peer) = peer().await else { return };
    let go = GoDriver::start(peer).await;
    let driver = Driver::connect(&go.endpoint).unwrap();
    driver.probe_until_ready().await.unwrap();

    let info = driver.info().await.unwrap();
    assert_eq!(info.name, "go.orlop.io");
    assert!(info.serves(PluginService::ControllerService));
    assert_eq!(info.expansion, [VolumeExpansion::Online].into());
    assert!(info.can(ControllerCapability::CreateDeleteVolume));
    assert!(info.node.is_empty());

    let topology = Topology {
        segments: [("node".to_owned(), "n1".to_owned())].into(),
    };
    let request = CreateVolumeRequest {
        name: "pvc-1".into(),
        capacity_range: Some(CapacityRange {
            required_bytes: 1 << 30,
            limit_bytes: 0,
        }),
        volume_capabilities: vec![VolumeCapability {
            access_type: Some(volume_capability::AccessType::Mount(
                volume_capability::MountVolume {
                    fs_type: "xfs".into(),
                    ..Default::default()
                },
            )),
            access_mode: Some(volume_capability::AccessMode { mode: 6 }),
        }],
        volume_content_source: Some(VolumeContentSource {
            r#type: Some(volume_content_source::Type::Snapshot(
                volume_content_source::SnapshotSource {
                    snapshot_id: "s1".into(),
                },
            )),
        }),
        accessibility_requirements: Some(TopologyRequirement {
            preferred: vec![topology.clone()],
            ..Default::default()
        }),
        mutable_parameters: [("iops".to_owned(), "100".to_owned())].into(),
        ..Default::default()
    };
    let volume = driver
        .create_volume(request.clone())
        .await
        .unwrap()
        .volume
        .unwrap();
    let context: BTreeMap<_, _> = [
        ("fs", "xfs"),
        ("mode", "SINGLE_NODE_SINGLE_WRITER"),
        ("mutable", "100"),
        // The Go side sees our deadline.
        ("timed", "true"),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    assert_eq!(
        volume,
        Volume {
            capacity_bytes: 1 << 30,
            volume_id: "pvc-1".into(),
            volume_context: context,
            content_source: request.volume_content_source,
            accessible_topology: vec![topology],
        }
    );

    // 6.5 MB: more than tonic takes by itself.
    let all = driver
        .list_volumes(ListVolumesRequest::default())
        .await
        .unwrap();
    assert_eq!(all.entries.len(), 50_000);
}

#[tokio::test]
async fn a_go_drivers_failures_keep_their_meaning() {
    let Some(peer) = peer().await else { return };
    let mut go = GoDriver::start(peer).await;
    let driver = Driver::connect(&go.endpoint).unwrap();
    let create = async |name: &str| {
        let request = CreateVolumeRequest {
            name: name.into(),
            secrets: [("password".to_owned(), "hunter2".to_owned())].into(),
            ..Default::default()
        };
        driver.create_volume(request).await.unwrap_err()
    };

    let full = create("full").await;
    assert_eq!(
        (full.code, full.retry),
        (Code::ResourceExhausted, Retry::Final)
    );
    assert_eq!(full.message, "the pool is full: ***stripped***");

    let bare = create("bare").await;
    assert_eq!((bare.code, bare.retry), (Code::Unknown, Retry::Final));

    // 30 kB of text, percent-encoded far beyond the usual 16 KiB of headers.
    let long = create("long").await;
    assert_eq!(long.code, Code::Internal, "{long}");
    assert_eq!(
        long.message.len(),
        4095,
        "cut before a character of two bytes"
    );

    let absent = driver
        .delete_volume(DeleteVolumeRequest::default())
        .await
        .unwrap_err();
    assert_eq!(
        (absent.code, absent.retry),
        (Code::Unimplemented, Retry::Final)
    );

    let hasty = driver
        .clone()
        .with_deadlines(Deadlines::all(Duration::from_millis(50)));
    let slow = CreateVolumeRequest {
        name: "slow".into(),
        ..Default::default()
    };
    let slow = hasty.create_volume(slow).await.unwrap_err();
    assert_eq!(
        (slow.code, slow.retry),
        (Code::DeadlineExceeded, Retry::Uncertain)
    );

    // The driver dies within the call: nobody knows whether it has happened.
    let dead = create("dies").await;
    assert_eq!(
        (dead.code, dead.retry),
        (Code::Unavailable, Retry::Uncertain),
        "{dead}"
    );
    timeout(PATIENCE, go.process.wait()).await.unwrap().unwrap();
    let gone = create("v").await;
    assert_eq!(
        (gone.code, gone.retry),
        (Code::Unavailable, Retry::Uncertain),
        "{gone}"
    );
}

#[tokio::test]
async fn our_client_reads_a_go_drivers_stream() {
    let Some(peer) = peer().await else { return };
    let go = GoDriver::start(peer).await;
    let driver = Driver::connect(&go.endpoint).unwrap();
    for (snapshot, ending) in [("whole", None), ("half", Some(Code::Unavailable))] {
        let request = GetMetadataAllocatedRequest {
            snapshot_id: snapshot.into(),
            ..Default::default()
        };
        let mut replies = driver.get_metadata_allocated(request).await.unwrap();
        let mut offsets = Vec::new();
        let ended = loop {
            match replies.next().await {
                Ok(Some(reply)) => offsets.push(reply.block_metadata[0].byte_offset),
                Ok(None) => break None,
                Err(error) => break Some(error.code),
            }
        };
        assert_eq!(offsets, [0, 1 << 20, 2 << 20], "{snapshot}");
        assert_eq!(ended, ending, "{snapshot}");
        assert!(
            matches!(replies.next().await, Ok(None)),
            "nothing after the end"
        );
    }
}

/// A driver of ours for the Go client.
#[derive(Clone, Default)]
struct Ours {
    created: Arc<Mutex<Vec<CreateVolumeRequest>>>,
}

#[derive(Debug, thiserror::Error)]
enum DeleteError {
    #[error("volume {volume} is in use")]
    InUse {
        volume: String,
        #[source]
        source: std::io::Error,
    },
    #[error("{}", "ü\n".repeat(100_000))]
    Long,
}

impl CsiError for DeleteError {
    fn code(&self) -> Code {
        match self {
            Self::InUse { .. } => Code::FailedPrecondition,
            Self::Long => Code::Internal,
        }
    }
}

#[tonic::async_trait]
impl Identity for Ours {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse {
            name: "rust.orlop.io".into(),
            vendor_version: "0.1".into(),
            ..Default::default()
        }))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        Ok(Response::new(ProbeResponse { ready: Some(true) }))
    }
}

#[tonic::async_trait]
impl Controller for Ours {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        let request = request.into_inner();
        self.created.lock().unwrap().push(request.clone());
        Ok(Response::new(CreateVolumeResponse {
            volume: Some(Volume {
                volume_id: format!("id of {}", request.name),
                capacity_bytes: request.capacity_range.unwrap_or_default().required_bytes,
                volume_context: [("seen".to_owned(), request.parameters["tier"].clone())].into(),
                accessible_topology: request
                    .accessibility_requirements
                    .unwrap_or_default()
                    .preferred,
                ..Default::default()
            }),
        }))
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        let volume = request.into_inner().volume_id;
        answer(match volume.as_str() {
            "long" => Err(DeleteError::Long),
            "hangs" => std::future::pending().await,
            _ => Err(DeleteError::InUse {
                volume,
                source: std::io::Error::other("device or resource busy"),
            }),
        })
    }
}

/// Our driver at a socket of its own; stopped on drop.
struct OurDriver {
    path: PathBuf,
    server: tokio::task::JoinHandle<()>,
    _folder: TempDir,
}

impl OurDriver {
    fn start(ours: &Ours) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("csi.sock");
        let socket = Socket::bind(path.to_str().unwrap()).unwrap();
        let services = Services::new()
            .identity(ours.clone())
            .controller(ours.clone());
        let server = tokio::spawn(async move {
            socket
                .serve(services, std::future::pending())
                .await
                .unwrap();
        });
        Self {
            path,
            server,
            _folder: folder,
        }
    }
}

impl Drop for OurDriver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_go_client_calls_our_driver() {
    let Some(peer) = peer().await else { return };
    let ours = Ours::default();
    let driver = OurDriver::start(&ours);
    let said = run(peer, &["call", driver.path.to_str().unwrap()]).await;
    assert_eq!(
        said.lines().collect::<Vec<_>>(),
        [
            "info rust.orlop.io 0.1",
            "ready true",
            "volume id of pvc-1 1073741824 gold n1",
            "delete: FailedPrecondition: volume in-use is in use: device or resource busy",
            "long Internal 4095",
            "absent Unimplemented",
            "no service Unimplemented",
            "deadline DeadlineExceeded",
        ]
    );
    let created = ours.created.lock().unwrap();
    let [request] = created.as_slice() else {
        panic!("{} calls", created.len())
    };
    assert_eq!(request.secrets["password"], "hunter2");
    assert_eq!(request.mutable_parameters["iops"], "100");
    assert_eq!(request.capacity_range.unwrap().limit_bytes, 2 << 30);
    assert_eq!(request.volume_capabilities[0].access_mode.unwrap().mode, 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_may_have_any_authority() {
    let Some(peer) = peer().await else { return };
    let driver = OurDriver::start(&Ours::default());
    let socket = driver.path.to_str().unwrap();
    let names = ["localhost", "csi", "csi.sock", "127.0.0.1", "a:1"];
    let paths = [
        "/csi/csi.sock",
        "%2Fcsi%2Fcsi.sock",
        "unix:///csi/csi.sock",
        "/var/lib/kubelet/plugins_registry/a_b.c~d+e=f-reg.sock",
    ];
    for accepted in names.into_iter().chain(paths) {
        assert_eq!(
            run(peer, &["authority", socket, accepted]).await.trim(),
            "OK OK OK",
            "{accepted:?}"
        );
    }
    // As the kubelet's plugin watcher dials: the path itself, and a dialler for it.
    assert_eq!(run(peer, &["dial", socket]).await.trim(), "OK OK OK");
}
