//! The driver through its services, on a folder that stands for a server.
//!
//! What needs a kernel with an NFS client is tested in a guest, against real servers.

use std::fs;
use std::path::{Path, PathBuf};

use orlop_csi::proto;
use orlop_csi::proto::controller_server::Controller;
use orlop_csi::proto::node_server::Node;
use orlop_csi::proto::volume_capability::access_mode::Mode;
use orlop_csi::proto::volume_capability::{AccessMode, AccessType, MountVolume};
use orlop_csi::proto::volume_content_source::{SnapshotSource, Type as Source, VolumeSource};
use tempfile::TempDir;
use tonic::{Code, Request, Status};

use super::controller::ControllerService;
use super::node::NodeService;
use super::*;

mod copies;
mod discard;
mod full;
mod house;
mod in_use;
mod life;
mod nested;
mod paths;
mod publishing;
mod remembered;

/// A driver over a folder: `outside/` has canaries beside the only share.
struct Ground {
    dir: TempDir,
    shared: Arc<Shared>,
}

impl Ground {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut NfsConfig)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("nfs.example/share")).unwrap();
        fs::create_dir_all(dir.path().join("nfs.example/other/canary")).unwrap();
        fs::write(dir.path().join("nfs.example/other/canary/file"), "alive").unwrap();
        let mut config = NfsConfig::new("node-1", Hands::StandIn(dir.path().to_owned()));
        change(&mut config);
        let driver = NfsDriver::new(config).unwrap();
        Self {
            dir,
            shared: driver.shared,
        }
    }

    fn controller(&self) -> ControllerService {
        ControllerService::new(Arc::clone(&self.shared))
    }

    fn node(&self) -> NodeService {
        NodeService::new(Arc::clone(&self.shared))
    }

    fn share(&self) -> PathBuf {
        self.dir.path().join("nfs.example/share")
    }

    /// Nothing outside of the share has changed.
    fn assert_canaries(&self) {
        let canary = self.dir.path().join("nfs.example/other/canary/file");
        assert_eq!(fs::read_to_string(canary).unwrap(), "alive");
        assert!(self.share().is_dir(), "the share's root is gone");
    }

    async fn create(&self, name: &str, more: &[(&str, &str)]) -> Result<proto::Volume, Status> {
        self.create_from(name, more, None).await
    }

    async fn create_from(
        &self,
        name: &str,
        more: &[(&str, &str)],
        source: Option<Source>,
    ) -> Result<proto::Volume, Status> {
        let mut request = wish(name);
        for (key, value) in more {
            request.parameters.insert((*key).into(), (*value).into());
        }
        request.volume_content_source = source.map(|source| proto::VolumeContentSource {
            r#type: Some(source),
        });
        let made = self
            .controller()
            .create_volume(Request::new(request))
            .await?;
        Ok(made.into_inner().volume.unwrap())
    }

    async fn delete(&self, id: &str) -> Result<(), Status> {
        let request = proto::DeleteVolumeRequest {
            volume_id: id.into(),
            ..Default::default()
        };
        self.controller()
            .delete_volume(Request::new(request))
            .await
            .map(drop)
    }

    async fn discard(&self, id: &str) -> Result<(), Status> {
        let request = proto::DeleteSnapshotRequest {
            snapshot_id: id.into(),
            ..Default::default()
        };
        self.controller()
            .delete_snapshot(Request::new(request))
            .await
            .map(drop)
    }

    async fn snapshot(&self, name: &str, of: &str) -> Result<proto::Snapshot, Status> {
        let request = proto::CreateSnapshotRequest {
            name: name.into(),
            source_volume_id: of.into(),
            ..Default::default()
        };
        let made = self
            .controller()
            .create_snapshot(Request::new(request))
            .await?;
        Ok(made.into_inner().snapshot.unwrap())
    }
}

fn capability(mode: Mode) -> proto::VolumeCapability {
    proto::VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume::default())),
        access_mode: Some(AccessMode { mode: mode.into() }),
    }
}

fn wish(name: &str) -> proto::CreateVolumeRequest {
    proto::CreateVolumeRequest {
        name: name.into(),
        capacity_range: Some(proto::CapacityRange {
            required_bytes: 1 << 30,
            limit_bytes: 0,
        }),
        volume_capabilities: vec![capability(Mode::MultiNodeMultiWriter)],
        parameters: [("server", "nfs.example"), ("share", "/share")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
        ..Default::default()
    }
}

/// The names in a folder that are not the driver's own.
fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != HOUSE)
        .collect();
    names.sort();
    names
}
