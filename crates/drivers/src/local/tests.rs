//! The driver through its services, on real images, loop devices and mounts.

use std::fs;
use std::path::{Path, PathBuf};

use orlop_csi::proto;
use orlop_csi::proto::controller_server::Controller;
use orlop_csi::proto::node_server::Node;
use orlop_csi::proto::volume_capability::access_mode::Mode as WireMode;
use orlop_csi::proto::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use orlop_host::testing::ScratchFs;
use orlop_host::{LoopDevice, MountTable, Place, loopdev, mount};
use tempfile::TempDir;
use tonic::Code;

use super::*;
use controller::ControllerService;
use node::NodeService;

mod absent_pools;
mod clones;
mod controller_calls;
mod crash;
mod damage;
mod failures;
mod groups;
mod inline;
mod killed_lives;
mod kills;
mod late;
mod life;
mod metadata;
mod pools;
mod refusals;
mod sick_pools;
mod snapshots;

const GIB: i64 = 1 << 30;
const MIB: i64 = 1 << 20;

/// The only pool of a node.
pub(super) fn home(node: &str) -> Home {
    Home {
        node: NodeName::from(node),
        pool: PoolName::default(),
    }
}

/// Whether mounts and loop devices can be had; says so if not.
fn is_root() -> bool {
    let root = fs::OpenOptions::new()
        .write(true)
        .open("/dev/loop-control")
        .is_ok();
    if !root {
        eprintln!("skipped: loop devices and mounts need root");
    }
    root
}

/// A driver on a throw-away directory with two nodes. Whatever it leaves goes with it.
struct Bed {
    directory: TempDir,
    driver: Option<LocalDriver>,
    /// What the directory is on, if not the usual file system.
    _scratch: Option<ScratchFs>,
}

impl Bed {
    fn new() -> Self {
        Self::at(tempfile::tempdir().unwrap(), None)
    }

    /// On a file system of this kind. None without root.
    fn on(kind: &str) -> Option<Self> {
        let scratch = ScratchFs::new(kind, 4 << 30)?;
        let directory = tempfile::tempdir_in(scratch.path()).unwrap();
        Some(Self::at(directory, Some(scratch)))
    }

    fn at(directory: TempDir, scratch: Option<ScratchFs>) -> Self {
        let mut bed = Self {
            directory,
            driver: None,
            _scratch: scratch,
        };
        for node in ["one", "two"] {
            fs::create_dir_all(bed.path(&format!("kubelet-{node}"))).unwrap();
        }
        bed.restart();
        bed
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().unwrap().join(name)
    }

    fn config(&self) -> LocalConfig {
        let pool = |node: &str| (NodeName::from(node), self.path(&format!("pool-{node}")));
        LocalConfig::new(BTreeMap::from([pool("one"), pool("two")]))
    }

    /// As after a kill: nothing but the disk and the kernel remembers.
    fn restart(&mut self) {
        self.driver = None;
        self.driver = Some(LocalDriver::open(self.config()).unwrap());
    }

    fn pools(&self) -> &Arc<Pools> {
        self.driver.as_ref().unwrap().pools()
    }

    fn controller(&self) -> ControllerService {
        ControllerService::new(Arc::clone(self.pools()))
    }

    fn node(&self, node: &str) -> NodeService {
        NodeService::new(Arc::clone(self.pools()), NodeName::from(node))
    }

    fn staging(&self, name: &str) -> String {
        self.path("kubelet-one")
            .join(format!("staging-{name}"))
            .to_str()
            .unwrap()
            .to_owned()
    }

    fn target(&self, name: &str) -> String {
        self.path("kubelet-one")
            .join(format!("target-{name}"))
            .to_str()
            .unwrap()
            .to_owned()
    }

    /// A volume on node one.
    async fn volume(&self, name: &str, bytes: i64) -> String {
        let request = proto::CreateVolumeRequest {
            accessibility_requirements: Some(on(&["one"])),
            ..creation(name, bytes)
        };
        let reply = self
            .controller()
            .create_volume(Request::new(request))
            .await
            .unwrap();
        reply.into_inner().volume.unwrap().volume_id
    }

    /// A volume on node two.
    async fn volume_on_two(&self) -> String {
        let request = proto::CreateVolumeRequest {
            accessibility_requirements: Some(on(&["two"])),
            ..creation("on two", 64 * MIB)
        };
        let reply = self.controller().create_volume(Request::new(request)).await;
        reply.unwrap().into_inner().volume.unwrap().volume_id
    }

    async fn stage(&self, id: &str, capability: proto::VolumeCapability) -> Result<(), Code> {
        let request = proto::NodeStageVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: self.staging(id),
            volume_capability: Some(capability),
            ..Default::default()
        };
        code(
            self.node("one")
                .node_stage_volume(Request::new(request))
                .await,
        )
    }

    async fn unstage(&self, id: &str) -> Result<(), Code> {
        let request = proto::NodeUnstageVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: self.staging(id),
        };
        code(
            self.node("one")
                .node_unstage_volume(Request::new(request))
                .await,
        )
    }

    async fn publish(&self, id: &str, target: &str, how: How) -> Result<(), Code> {
        let request = proto::NodePublishVolumeRequest {
            volume_id: id.to_owned(),
            staging_target_path: self.staging(id),
            target_path: self.target(target),
            volume_capability: Some(how.0),
            readonly: how.1,
            ..Default::default()
        };
        code(
            self.node("one")
                .node_publish_volume(Request::new(request))
                .await,
        )
    }

    async fn unpublish(&self, id: &str, target: &str) -> Result<(), Code> {
        let request = proto::NodeUnpublishVolumeRequest {
            volume_id: id.to_owned(),
            target_path: self.target(target),
        };
        code(
            self.node("one")
                .node_unpublish_volume(Request::new(request))
                .await,
        )
    }

    async fn delete(&self, id: &str) -> Result<(), Code> {
        let request = proto::DeleteVolumeRequest {
            volume_id: id.to_owned(),
            ..Default::default()
        };
        code(self.controller().delete_volume(Request::new(request)).await)
    }

    async fn attach(&self, id: &str, node: &str, readonly: bool) -> Result<(), Code> {
        let request = proto::ControllerPublishVolumeRequest {
            volume_id: id.to_owned(),
            node_id: node.to_owned(),
            volume_capability: Some(files("")),
            readonly,
            ..Default::default()
        };
        code(
            self.controller()
                .controller_publish_volume(Request::new(request))
                .await,
        )
    }

    async fn detach(&self, id: &str, node: &str) -> Result<(), Code> {
        let request = proto::ControllerUnpublishVolumeRequest {
            volume_id: id.to_owned(),
            node_id: node.to_owned(),
            ..Default::default()
        };
        code(
            self.controller()
                .controller_unpublish_volume(Request::new(request))
                .await,
        )
    }

    /// What is left of everything. A device that goes with its last closer may be looked at by
    /// somebody just then, or be mounted in a namespace that somebody made: it has a while to go.
    fn leftovers(&self) -> Vec<String> {
        settled(|| {
            let mut left = leftovers(self.pools()).unwrap();
            let table = MountTable::read().unwrap();
            let root = self.path("");
            left.extend(
                table
                    .beneath(&root)
                    .map(|mount| mount.point.display().to_string()),
            );
            left
        })
    }
}

/// What is left once no device is, or after a while.
fn settled(look: impl Fn() -> Vec<String>) -> Vec<String> {
    for _ in 0..6000 {
        let left = look();
        if !left.iter().any(|it| it.starts_with("loop")) {
            return left;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    look()
}

impl Drop for Bed {
    fn drop(&mut self) {
        // Its locks keep file systems busy.
        drop(self.driver.take());
        let root = self.path("");
        if let Ok(table) = MountTable::read() {
            for mount in table.beneath(&root).collect::<Vec<_>>().into_iter().rev() {
                if let Ok(directory) = fs::File::open(&mount.point) {
                    let _ = orlop_host::freeze::thaw_leftover(&directory);
                }
                let _ = Place::at(&mount.point).and_then(|place| mount::unmount(&place));
            }
        }
        for listed in loopdev::list().unwrap_or_default() {
            if listed.backing_path.starts_with(&root)
                && let Ok(Some(device)) = LoopDevice::open(listed.number)
            {
                let _ = device.detach();
            }
        }
    }
}

/// A capability, and whether it shall be read-only.
struct How(proto::VolumeCapability, bool);

impl From<proto::VolumeCapability> for How {
    fn from(capability: proto::VolumeCapability) -> Self {
        Self(capability, false)
    }
}

fn code<T>(reply: Result<Response<T>, Status>) -> Result<(), Code> {
    reply.map(|_| ()).map_err(|status| {
        assert!(!status.message().is_empty());
        eprintln!("{:?}: {}", status.code(), status.message());
        status.code()
    })
}

fn with_mode(access: AccessType, mode: WireMode) -> proto::VolumeCapability {
    proto::VolumeCapability {
        access_type: Some(access),
        access_mode: Some(AccessMode { mode: mode.into() }),
    }
}

fn files(fs_type: &str) -> proto::VolumeCapability {
    let mount = MountVolume {
        fs_type: fs_type.to_owned(),
        ..Default::default()
    };
    with_mode(AccessType::Mount(mount), WireMode::SingleNodeWriter)
}

fn shared_files() -> proto::VolumeCapability {
    with_mode(
        AccessType::Mount(MountVolume::default()),
        WireMode::SingleNodeMultiWriter,
    )
}

fn block() -> proto::VolumeCapability {
    with_mode(
        AccessType::Block(BlockVolume {}),
        WireMode::SingleNodeMultiWriter,
    )
}

fn creation(name: &str, bytes: i64) -> proto::CreateVolumeRequest {
    proto::CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(proto::CapacityRange {
            required_bytes: bytes,
            limit_bytes: 0,
        }),
        volume_capabilities: vec![files("")],
        ..Default::default()
    }
}

fn on(nodes: &[&str]) -> proto::TopologyRequirement {
    let places = nodes
        .iter()
        .map(|node| topology::of_node(DRIVER_NAME, &NodeName::from(*node)));
    proto::TopologyRequirement {
        requisite: places.clone().collect(),
        preferred: places.collect(),
    }
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}
