//! The driver as a process, and calls to it that are timed.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use orlop_csi::proto;
use orlop_csi::proto::controller_client::ControllerClient;
use orlop_csi::proto::node_client::NodeClient;
use orlop_csi::proto::volume_capability::access_mode::Mode;
use orlop_csi::proto::volume_capability::{AccessMode, AccessType, MountVolume};
use orlop_host::{LoopDevice, MountTable, Place, loopdev, mount};
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};

/// A driver that runs until this is dropped; its mounts and devices go with it.
pub(crate) struct Served {
    child: Child,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) pool: PathBuf,
    pub(crate) controller: ControllerClient<Channel>,
    pub(crate) node: NodeClient<Channel>,
    times: Mutex<BTreeMap<&'static str, Vec<Duration>>>,
}

/// Where the binary is, built if need be.
fn binary() -> PathBuf {
    if let Some(named) = std::env::var_os("ORLOP") {
        return named.into();
    }
    let built = Command::new(env!("CARGO"))
        .args(["build", "--release", "-q", "-p", "orlop"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .status();
    assert!(built.is_ok_and(|status| status.success()), "no binary");
    // This program is in `release/deps`.
    let here = std::env::current_exe().expect("a path");
    here.ancestors().nth(2).expect("a folder").join("orlop")
}

impl Served {
    /// Starts a driver whose pool is `pool`, or a folder of its own below `dir`.
    pub(crate) fn start(dir: &Path, pool: Option<&Path>) -> Self {
        let folder = tempfile::tempdir_in(dir).expect("a folder");
        let root = folder.path().canonicalize().expect("a path");
        let pool = pool.map_or_else(|| root.join("pool"), Path::to_owned);
        let socket = root.join("csi.sock");
        let mut child = Command::new(binary())
            .args(["driver", "local", "--nodeid", "bench", "--reserve", "0"])
            .arg("--endpoint")
            .arg(format!("unix://{}", socket.display()))
            .arg("--pool")
            .arg(&pool)
            .arg("--kubelet-dir")
            .arg(&root)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a driver");
        // It tells of its pools first.
        let mut told = BufReader::new(child.stdout.take().expect("its output")).lines();
        assert!(
            told.any(|line| line.is_ok_and(|line| line.contains("listening"))),
            "the driver did not start; what it wrote above says why"
        );
        let endpoint = format!("unix://{}", socket.display());
        let channel = Endpoint::from_shared(endpoint)
            .expect("an endpoint")
            .connect_lazy();
        Self {
            child,
            folder,
            pool,
            controller: ControllerClient::new(channel.clone()),
            node: NodeClient::new(channel),
            times: Mutex::default(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> String {
        let root = self.folder.path().canonicalize().expect("a path");
        root.join(name).to_str().expect("text").to_owned()
    }

    /// Makes a call, and notes how long it took if it was answered well.
    pub(crate) async fn timed<T>(
        &self,
        name: &'static str,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> T {
        let begun = Instant::now();
        let answer = call.await;
        let took = begun.elapsed();
        let answer = answer.unwrap_or_else(|status| panic!("{name}: {status}"));
        let mut times = self.times.lock().expect("no panic before");
        times.entry(name).or_default().push(took);
        answer.into_inner()
    }

    /// Prints the times of every call.
    pub(crate) fn print_times(&self) {
        println!(
            "{:28} {:>7} {:>10} {:>10} {:>10}",
            "call", "count", "p50", "p99", "max"
        );
        for (name, times) in &mut *self.times.lock().expect("no panic before") {
            times.sort_unstable();
            let at = |share: usize| times[(times.len() * share / 100).min(times.len() - 1)];
            let (p50, p99, max) = (at(50), at(99), at(100));
            println!(
                "{name:28} {:>7} {p50:>10.2?} {p99:>10.2?} {max:>10.2?}",
                times.len()
            );
        }
    }

    /// A value of the driver's `/proc/PID/status`, in KiB.
    pub(crate) fn memory(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.unwrap_or_default();
        let line = status.lines().find(|line| line.starts_with(field));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
            .unwrap_or(0)
    }

    /// How many descriptors the driver has open.
    pub(crate) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.child.id())).map_or(0, Iterator::count)
    }

    /// Everything of ours that is still there.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let mut left = Vec::new();
        for device in loopdev::list().expect("loop devices") {
            if device.backing_path.starts_with(self.pool.join("volumes")) {
                left.push(format!("loop{}", device.number));
            }
        }
        let root = self.path("");
        let table = MountTable::read().expect("mounts");
        let ours = table.beneath(Path::new(&root));
        let ours =
            ours.filter(|mount| mount.point != self.pool && !self.pool.starts_with(&mount.point));
        left.extend(ours.map(|mount| mount.point.display().to_string()));
        for part in ["volumes", "unfinished", "doomed"] {
            let entries = fs::read_dir(self.pool.join(part)).into_iter().flatten();
            left.extend(
                entries
                    .flatten()
                    .map(|entry| entry.path().display().to_string()),
            );
        }
        left
    }

    /// Makes a volume.
    pub(crate) async fn create(
        &self,
        name: &str,
        bytes: i64,
        source: Option<proto::VolumeContentSource>,
    ) -> String {
        let called = match &source {
            None => "CreateVolume",
            Some(_) => "CreateVolume (copy)",
        };
        let request = proto::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(proto::CapacityRange {
                required_bytes: bytes,
                limit_bytes: 0,
            }),
            volume_capabilities: vec![files("")],
            volume_content_source: source,
            ..Default::default()
        };
        let mut controller = self.controller.clone();
        let made = self.timed(called, controller.create_volume(request)).await;
        made.volume.expect("a volume").volume_id
    }

    /// Stages a volume and publishes it at `name`; tells where.
    pub(crate) async fn publish(&self, id: &str, fs_type: &str) -> String {
        let (staging, target) = (self.path(&format!("s-{id}")), self.path(&format!("t-{id}")));
        let mut node = self.node.clone();
        let request = proto::NodeStageVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: staging.clone(),
            volume_capability: Some(files(fs_type)),
            ..Default::default()
        };
        self.timed("NodeStageVolume", node.node_stage_volume(request))
            .await;
        let request = proto::NodePublishVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: staging,
            target_path: target.clone(),
            volume_capability: Some(files(fs_type)),
            ..Default::default()
        };
        self.timed("NodePublishVolume", node.node_publish_volume(request))
            .await;
        target
    }

    /// Takes a volume away from where it is published.
    pub(crate) async fn unpublish(&self, id: &str) {
        let mut node = self.node.clone();
        let request = proto::NodeUnpublishVolumeRequest {
            volume_id: id.to_owned(),
            target_path: self.path(&format!("t-{id}")),
        };
        self.timed("NodeUnpublishVolume", node.node_unpublish_volume(request))
            .await;
        let staging = self.path(&format!("s-{id}"));
        let request = proto::NodeUnstageVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: staging.clone(),
        };
        self.timed("NodeUnstageVolume", node.node_unstage_volume(request))
            .await;
        // The caller's, as it is the kubelet's.
        let _ = fs::remove_dir(staging);
    }

    /// Deletes a volume.
    pub(crate) async fn delete(&self, id: &str) {
        let request = proto::DeleteVolumeRequest {
            volume_id: id.to_owned(),
            ..Default::default()
        };
        let mut controller = self.controller.clone();
        self.timed("DeleteVolume", controller.delete_volume(request))
            .await;
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let root = self.path("");
        if let Ok(table) = MountTable::read() {
            for mount in table
                .beneath(Path::new(&root))
                .collect::<Vec<_>>()
                .into_iter()
                .rev()
            {
                let _ = Place::at(&mount.point).and_then(|place| mount::unmount(&place));
            }
        }
        for listed in loopdev::list().unwrap_or_default() {
            if listed.backing_path.starts_with(&self.pool)
                && let Ok(Some(device)) = LoopDevice::open(listed.number)
            {
                let _ = device.detach();
            }
        }
    }
}

/// One node, mounted with this file system.
pub(crate) fn files(fs_type: &str) -> proto::VolumeCapability {
    proto::VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume {
            fs_type: fs_type.to_owned(),
            ..Default::default()
        })),
        access_mode: Some(AccessMode {
            mode: Mode::SingleNodeWriter.into(),
        }),
    }
}
