//! A driver that remembers what it was asked and does as the test says: its volumes are memory.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use orlop_csi::proto;
use orlop_csi::server::{Services, Socket};
use orlop_host::mount::{NewMount, mount, unmount};
use orlop_host::{Occupant, Place, Restrictions};
use orlop_model::{Claim, CsiDriver, CsiNode, Key, Volume};
use orlop_node::Layout;
use orlop_runtime::Patch;
use proto::node_service_capability::rpc::Type as Can;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};
use tonic::{Code, Request, Response, Status};

use super::world::{NODE, Registrar, World};

pub(crate) const NAME: &str = "mock.csi.example.org";

/// What the driver remembers, and what it shall do.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) published: Vec<proto::NodePublishVolumeRequest>,
    pub(crate) refuses: Option<Code>,
    pub(crate) can: Vec<Can>,
    pub(crate) condition: Option<proto::VolumeCondition>,
    pub(crate) limit: i64,
    /// The calls that bring a volume and take it away, in order.
    pub(crate) calls: Vec<&'static str>,
    /// How staging and unstaging end, after they were done.
    pub(crate) stage_ends: Option<Code>,
    pub(crate) unstage_ends: Option<Code>,
    /// Ends the servers of its own sockets.
    pub(crate) stop: Vec<oneshot::Sender<()>>,
}

/// The driver. Clones are the same one.
#[derive(Clone, Default)]
pub(crate) struct Mock {
    memory: Arc<Mutex<Memory>>,
}

impl Mock {
    pub(crate) fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().expect("memory")
    }

    /// Starts it and waits until it is registered.
    pub(crate) async fn start(world: &World, spec: Value, can: &[Can]) -> Self {
        let mock = Self::default();
        mock.memory().can = can.to_vec();
        let traits = json!({"metadata": {"name": NAME}, "spec": spec});
        let made = world.cluster.create_json::<CsiDriver>(&traits).await;
        made.expect("a CSIDriver");
        mock.serve(world, "mock");
        let key = Key::cluster(NODE);
        let registered = |csi: Option<&CsiNode>| csi.is_some_and(|csi| csi.driver(NAME).is_some());
        world.until::<CsiNode>(&key, registered).await;
        mock
    }

    /// Serves it at sockets of this name.
    pub(crate) fn serve(&self, world: &World, name: &str) {
        let endpoint = self.serve_driver(world, name);
        let registry = Layout::new(world.node_root()).plugins_registry();
        let registrar = Registrar {
            name: NAME.into(),
            endpoint,
            heard: watch::channel(None).0,
        };
        let socket = format!("unix://{}/{name}-reg.sock", registry.display());
        let socket = Socket::bind(&socket).expect("a socket");
        let services = Services::new().registration(registrar);
        tokio::spawn(socket.serve(services, std::future::pending()));
    }

    /// Serves its own socket until [`Memory::stop`] is told, and says where that is.
    pub(crate) fn serve_driver(&self, world: &World, name: &str) -> String {
        let layout = Layout::new(world.node_root());
        std::fs::create_dir_all(layout.plugins().join(name)).expect("a folder");
        let endpoint = format!("unix://{}/{name}/csi.sock", layout.plugins().display());
        let services = Services::new().identity(self.clone()).node(self.clone());
        let socket = Socket::bind(&endpoint).expect("a socket");
        let (stop, stopped) = oneshot::channel::<()>();
        self.memory().stop.push(stop);
        tokio::spawn(socket.serve(services, async move {
            let _ = stopped.await;
        }));
        endpoint
    }

    /// A volume of this driver, bound to a claim of the same name.
    pub(crate) async fn claim(&self, world: &World, name: &str) {
        self.claim_with(world, name, json!({})).await;
    }

    /// The same, with more about its source.
    pub(crate) async fn claim_with(&self, world: &World, name: &str, more: Value) {
        let mut source = json!({"driver": NAME, "volumeHandle": name, "fsType": "ext4",
            "volumeAttributes": {"own": "attribute"}});
        for (key, value) in more.as_object().into_iter().flatten() {
            source[key] = value.clone();
        }
        let mode = match source.as_object_mut().and_then(|s| s.remove("volumeMode")) {
            Some(mode) => mode,
            None => json!("Filesystem"),
        };
        let claim = json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": format!("pv-{name}"),
                     "volumeMode": mode,
                     "storageClassName": "", "resources": {"requests": {"storage": "1Mi"}}},
        });
        let claim = world.cluster.create_json::<Claim>(&claim).await;
        let claim = claim.expect("a claim");
        let volume = json!({
            "metadata": {"name": format!("pv-{name}")},
            "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Mi"},
                     "csi": source, "volumeMode": mode,
                     "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default",
                                  "name": name, "uid": claim.metadata.uid}},
        });
        let made = world.cluster.create_json::<Volume>(&volume).await;
        made.expect("a volume");
        let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
        let key = Key::namespaced("default", name);
        let bound = world.cluster.patch_status::<Claim>(&key, &bound).await;
        bound.expect("bound");
    }

    /// Waits until something was asked of it.
    pub(crate) async fn until(&self, holds: impl Fn(&Memory) -> bool) {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
        while !holds(&self.memory()) {
            assert!(
                std::time::Instant::now() < until,
                "the driver was not asked"
            );
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    }
}

#[tonic::async_trait]
impl proto::identity_server::Identity for Mock {
    async fn get_plugin_info(
        &self,
        _: Request<proto::GetPluginInfoRequest>,
    ) -> Result<Response<proto::GetPluginInfoResponse>, Status> {
        Ok(Response::new(proto::GetPluginInfoResponse {
            name: NAME.to_owned(),
            vendor_version: "1".to_owned(),
            ..Default::default()
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<proto::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<proto::GetPluginCapabilitiesResponse>, Status> {
        Ok(Response::new(Default::default()))
    }

    async fn probe(
        &self,
        _: Request<proto::ProbeRequest>,
    ) -> Result<Response<proto::ProbeResponse>, Status> {
        Ok(Response::new(Default::default()))
    }
}

#[tonic::async_trait]
impl proto::node_server::Node for Mock {
    async fn node_get_info(
        &self,
        _: Request<proto::NodeGetInfoRequest>,
    ) -> Result<Response<proto::NodeGetInfoResponse>, Status> {
        Ok(Response::new(proto::NodeGetInfoResponse {
            node_id: NODE.to_owned(),
            max_volumes_per_node: self.memory().limit,
            ..Default::default()
        }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<proto::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<proto::NodeGetCapabilitiesResponse>, Status> {
        use proto::node_service_capability::{Rpc, Type};
        let capabilities = self.memory().can.clone().into_iter();
        let capabilities = capabilities.map(|can| proto::NodeServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: can.into() })),
        });
        Ok(Response::new(proto::NodeGetCapabilitiesResponse {
            capabilities: capabilities.collect(),
        }))
    }

    async fn node_stage_volume(
        &self,
        request: Request<proto::NodeStageVolumeRequest>,
    ) -> Result<Response<proto::NodeStageVolumeResponse>, Status> {
        let request = request.into_inner();
        let ends = {
            let mut memory = self.memory();
            memory.calls.push("stage");
            memory.stage_ends
        };
        let block = request.volume_capability.is_some_and(|capability| {
            use proto::volume_capability::AccessType;
            matches!(capability.access_type, Some(AccessType::Block(_)))
        });
        if !block {
            mount_memory(&Place::at(Path::new(&request.staging_target_path))?)?;
        }
        match ends {
            Some(code) => Err(Status::new(code, "as the test wants")),
            None => Ok(Response::new(Default::default())),
        }
    }

    async fn node_unstage_volume(
        &self,
        request: Request<proto::NodeUnstageVolumeRequest>,
    ) -> Result<Response<proto::NodeUnstageVolumeResponse>, Status> {
        let ends = {
            let mut memory = self.memory();
            memory.calls.push("unstage");
            memory.unstage_ends
        };
        let path = request.into_inner().staging_target_path;
        if Path::new(&path).exists() {
            unmount(&Place::at(Path::new(&path))?)?;
        }
        match ends {
            Some(code) => Err(Status::new(code, "as the test wants")),
            None => Ok(Response::new(Default::default())),
        }
    }

    async fn node_publish_volume(
        &self,
        request: Request<proto::NodePublishVolumeRequest>,
    ) -> Result<Response<proto::NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let target = request.target_path.clone();
        let refuses = {
            let mut memory = self.memory();
            memory.published.push(request);
            memory.calls.push("publish");
            memory.refuses
        };
        if let Some(code) = refuses {
            return Err(Status::new(code, "as the test wants"));
        }
        let place = Place::at(Path::new(&target))?;
        place.make_directory(0o755)?;
        mount_memory(&place)?;
        Ok(Response::new(Default::default()))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<proto::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<proto::NodeUnpublishVolumeResponse>, Status> {
        self.memory().calls.push("unpublish");
        let place = Place::at(Path::new(&request.into_inner().target_path))?;
        unmount(&place)?;
        place.remove()?;
        Ok(Response::new(Default::default()))
    }

    async fn node_get_volume_stats(
        &self,
        _: Request<proto::NodeGetVolumeStatsRequest>,
    ) -> Result<Response<proto::NodeGetVolumeStatsResponse>, Status> {
        use proto::volume_usage::Unit;
        let usage = |unit: Unit, total| proto::VolumeUsage {
            available: total - 7,
            total,
            used: 7,
            unit: unit.into(),
        };
        Ok(Response::new(proto::NodeGetVolumeStatsResponse {
            usage: vec![usage(Unit::Bytes, 1000), usage(Unit::Inodes, 100)],
            volume_condition: self.memory().condition.clone(),
        }))
    }
}

fn mount_memory(place: &Place) -> Result<(), Status> {
    if let Occupant::Plain(_) = place.look()? {
        let new = NewMount {
            fs_type: "tmpfs",
            source: Path::new("mock"),
            options: &[],
            restrictions: Restrictions::default(),
        };
        let failed = |error| Status::internal(format!("{error}"));
        mount(&new, place.open()?).map_err(failed)?;
    }
    Ok(())
}
