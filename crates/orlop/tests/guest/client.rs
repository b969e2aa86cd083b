//! A driver as a process of its own, and calls to it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use orlop_csi::proto;
use orlop_csi::proto::controller_client::ControllerClient;
use orlop_csi::proto::node_client::NodeClient;
use orlop_csi::proto::volume_capability::access_mode::Mode;
use orlop_csi::proto::volume_capability::{AccessMode, AccessType, MountVolume};
use orlop_csi::proto::*;
use tonic::transport::Channel;
use tonic::{Request, Status};

/// How long a call may take that is to succeed.
const LONG: Duration = Duration::from_secs(90);

/// Our own binary.
pub(crate) fn orlop() -> PathBuf {
    std::env::var_os("ORLOP").map_or_else(|| env!("CARGO_BIN_EXE_orlop").into(), PathBuf::from)
}

/// A running driver; ended when dropped.
pub(crate) struct Driver {
    child: Child,
    pub(crate) folder: tempfile::TempDir,
    calls: Calls,
}

/// Calls to a driver.
#[derive(Clone)]
pub(crate) struct Calls {
    channel: Channel,
    /// How long each may take, unless something else is said.
    patience: Duration,
}

impl Deref for Driver {
    type Target = Calls;

    fn deref(&self) -> &Calls {
        &self.calls
    }
}

impl Driver {
    /// Ours.
    pub(crate) async fn start() -> Self {
        Self::start_by(&[], &[]).await
    }

    /// Ours, with more flags, by another program, such as one that enters a namespace first.
    pub(crate) async fn start_by(prefix: &[&str], flags: &[&str]) -> Self {
        let ours = orlop().display().to_string();
        let mut words: Vec<&str> = prefix.to_vec();
        words.extend([
            ours.as_str(),
            "driver",
            "nfs",
            "--kubelet-dir",
            "/",
            "--nodeid",
            "node-1",
        ]);
        words.extend(flags);
        Self::start_program(&words).await
    }

    /// Any program that takes `--endpoint`.
    pub(crate) async fn start_program(words: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("csi.sock");
        let log = File::create(folder.path().join("log")).unwrap();
        let child = Command::new(words[0])
            .args(&words[1..])
            .arg(format!("--endpoint=unix://{}", socket.display()))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let begin = Instant::now();
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            let said = fs::read_to_string(folder.path().join("log")).unwrap();
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "no driver listens: {said}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let channel = orlop_csi::client::channel(&format!("unix://{}", socket.display())).unwrap();
        let calls = Calls {
            channel,
            patience: LONG,
        };
        Self {
            child,
            folder,
            calls,
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("csi.sock")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Calls {
    pub(crate) fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel.clone())
    }

    pub(crate) fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel.clone())
    }

    /// Calls by somebody who waits for so long.
    pub(crate) fn within(&self, patience: Duration) -> Self {
        let channel = self.channel.clone();
        Self { channel, patience }
    }

    pub(crate) async fn create(&self, name: &str, on: &On<'_>) -> Result<Volume, Status> {
        self.create_from(name, on, None, self.patience).await
    }

    pub(crate) async fn create_from(
        &self,
        name: &str,
        on: &On<'_>,
        source: Option<volume_content_source::Type>,
        patience: Duration,
    ) -> Result<Volume, Status> {
        let request = CreateVolumeRequest {
            name: name.into(),
            capacity_range: Some(CapacityRange {
                required_bytes: 1 << 20,
                limit_bytes: 0,
            }),
            volume_capabilities: vec![on.capability()],
            parameters: on.parameters(),
            volume_content_source: source.map(|source| VolumeContentSource {
                r#type: Some(source),
            }),
            ..Default::default()
        };
        let made = self
            .controller()
            .create_volume(timed(request, patience))
            .await?;
        Ok(made.into_inner().volume.unwrap())
    }

    pub(crate) async fn delete(&self, id: &str, on: &On<'_>) -> Result<(), Status> {
        let mut secrets = BTreeMap::new();
        if !on.options.is_empty() {
            secrets.insert("mountOptions".to_owned(), on.options.to_owned());
        }
        let request = DeleteVolumeRequest {
            volume_id: id.into(),
            secrets,
        };
        self.controller()
            .delete_volume(timed(request, self.patience))
            .await
            .map(drop)
    }

    pub(crate) async fn snapshot(&self, name: &str, of: &str) -> Result<Snapshot, Status> {
        let request = CreateSnapshotRequest {
            name: name.into(),
            source_volume_id: of.into(),
            ..Default::default()
        };
        let made = self
            .controller()
            .create_snapshot(timed(request, self.patience))
            .await?;
        Ok(made.into_inner().snapshot.unwrap())
    }

    pub(crate) async fn delete_snapshot(&self, id: &str) -> Result<(), Status> {
        let request = DeleteSnapshotRequest {
            snapshot_id: id.into(),
            ..Default::default()
        };
        let call = timed(request, self.patience);
        self.controller().delete_snapshot(call).await.map(drop)
    }

    /// How many bytes a share has left.
    pub(crate) async fn capacity(&self, on: &On<'_>) -> Result<i64, Status> {
        let request = GetCapacityRequest {
            volume_capabilities: vec![on.capability()],
            parameters: on.parameters(),
            ..Default::default()
        };
        let told = self
            .controller()
            .get_capacity(timed(request, self.patience))
            .await?;
        Ok(told.into_inner().available_capacity)
    }

    /// A volume as the controller sees it.
    pub(crate) async fn get(&self, id: &str) -> Result<ControllerGetVolumeResponse, Status> {
        let request = ControllerGetVolumeRequest {
            volume_id: id.into(),
        };
        let call = timed(request, self.patience);
        let told = self.controller().controller_get_volume(call).await?;
        Ok(told.into_inner())
    }

    pub(crate) async fn validate(&self, volume: &Volume, on: &On<'_>) -> Result<(), Status> {
        let request = ValidateVolumeCapabilitiesRequest {
            volume_id: volume.volume_id.clone(),
            volume_context: volume.volume_context.clone(),
            volume_capabilities: vec![on.capability()],
            ..Default::default()
        };
        let call = timed(request, self.patience);
        self.controller()
            .validate_volume_capabilities(call)
            .await
            .map(drop)
    }

    /// Lets a volume have so many bytes; how many it has then.
    pub(crate) async fn expand(&self, id: &str, on: &On<'_>, bytes: i64) -> Result<i64, Status> {
        let request = ControllerExpandVolumeRequest {
            volume_id: id.into(),
            capacity_range: Some(CapacityRange {
                required_bytes: bytes,
                limit_bytes: 0,
            }),
            volume_capability: Some(on.capability()),
            ..Default::default()
        };
        let grown = self
            .controller()
            .controller_expand_volume(timed(request, self.patience))
            .await?;
        Ok(grown.into_inner().capacity_bytes)
    }

    pub(crate) async fn publish(
        &self,
        volume: &Volume,
        on: &On<'_>,
        at: &Path,
    ) -> Result<(), Status> {
        self.publish_within(volume, on, at, self.patience).await
    }

    pub(crate) async fn publish_within(
        &self,
        volume: &Volume,
        on: &On<'_>,
        at: &Path,
        patience: Duration,
    ) -> Result<(), Status> {
        let request = NodePublishVolumeRequest {
            volume_id: volume.volume_id.clone(),
            target_path: at.to_str().unwrap().into(),
            volume_capability: Some(on.capability()),
            volume_context: volume.volume_context.clone(),
            ..Default::default()
        };
        self.node()
            .node_publish_volume(timed(request, patience))
            .await
            .map(drop)
    }

    pub(crate) async fn unpublish(&self, volume: &Volume, at: &Path) -> Result<(), Status> {
        let request = NodeUnpublishVolumeRequest {
            volume_id: volume.volume_id.clone(),
            target_path: at.to_str().unwrap().into(),
        };
        self.node()
            .node_unpublish_volume(timed(request, self.patience))
            .await
            .map(drop)
    }

    pub(crate) async fn stats(
        &self,
        volume: &Volume,
        at: &Path,
    ) -> Result<NodeGetVolumeStatsResponse, Status> {
        let request = NodeGetVolumeStatsRequest {
            volume_id: volume.volume_id.clone(),
            volume_path: at.to_str().unwrap().into(),
            ..Default::default()
        };
        let told = self
            .node()
            .node_get_volume_stats(timed(request, self.patience))
            .await?;
        Ok(told.into_inner())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the driver said:\n{}", self.log());
        }
        self.kill();
    }
}

pub(crate) fn timed<T>(request: T, patience: Duration) -> Request<T> {
    let mut request = Request::new(request);
    request.set_timeout(patience);
    request
}

/// A share and how to mount it.
#[derive(Clone, Copy)]
pub(crate) struct On<'a> {
    pub(crate) server: &'a str,
    pub(crate) share: &'a str,
    pub(crate) options: &'a str,
}

impl On<'_> {
    fn parameters(&self) -> BTreeMap<String, String> {
        [("server", self.server), ("share", self.share)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into()
    }

    pub(crate) fn capability(&self) -> proto::VolumeCapability {
        let mount_flags = match self.options {
            "" => Vec::new(),
            options => vec![options.to_owned()],
        };
        proto::VolumeCapability {
            access_type: Some(AccessType::Mount(MountVolume {
                mount_flags,
                ..Default::default()
            })),
            access_mode: Some(AccessMode {
                mode: Mode::MultiNodeMultiWriter.into(),
            }),
        }
    }
}

/// The NFS mounts that everybody in the guest sees.
pub(crate) fn nfs_mounts() -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let of_nfs = |line: &&str| line.contains(" - nfs ") || line.contains(" - nfs4 ");
    mounts.lines().filter(of_nfs).map(str::to_owned).collect()
}
