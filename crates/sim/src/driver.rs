//! The fake CSI driver: the services of a real one over the [`Backend`], served in memory.
//!
//! It is as strict as a careful driver (one call per volume at a time, folders of the node
//! really made and removed) and misbehaves only where [`Trouble`] says so.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use orlop_csi::{Method, memory, proto, server::Services};
use tonic::{Code, Request, Response, Status};

use crate::backend::{Attachment, Backend, Breach, Order, Refusal, Sharing, Spot};
use crate::witness::Witness;

mod snapshots;

/// The driver's name.
pub const NAME: &str = "sim.csi.orlop.dev";
/// The topology key that names a node.
pub const TOPOLOGY: &str = "topology.sim.csi.orlop.dev/node";

/// How one call goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// It is carried out, but answered with this code.
    DoneButAnswered(Code),
    /// It is carried out this much later, long after the caller gave up.
    DoneLate(Duration),
    /// It is answered with success, and nothing is done.
    Pretended,
    /// It is refused.
    Refused(Code),
}

/// The trouble of a driver: which call of which method, counted from 1.
pub type Troubles = BTreeMap<(Method, u64), Trouble>;

/// How fast and how well the driver works.
#[derive(Debug, Clone)]
pub struct Temper {
    /// The longest that a call takes; each takes a random share of it.
    pub latency: Duration,
    /// What goes wrong.
    pub troubles: Troubles,
    /// Where the random shares come from.
    pub seed: u64,
}

/// The driver, all its endpoints together.
#[derive(Clone)]
pub struct FakeDriver {
    shared: Arc<Mutex<Shared>>,
    witness: Witness,
    temper: Arc<Temper>,
}

struct Shared {
    backend: Backend,
    busy: BTreeSet<String>,
    calls: BTreeMap<Method, u64>,
    random: fastrand::Rng,
}

impl FakeDriver {
    /// A driver over an empty backend.
    pub fn new(temper: Temper, witness: Witness) -> Self {
        let shared = Shared {
            backend: Backend::default(),
            busy: BTreeSet::new(),
            calls: BTreeMap::new(),
            random: fastrand::Rng::with_seed(temper.seed),
        };
        Self {
            shared: Arc::new(Mutex::new(shared)),
            witness,
            temper: Arc::new(temper),
        }
    }

    /// Serves the controller's endpoint.
    pub fn serve_controller(&self) -> memory::Socket {
        serve(
            Services::new()
                .identity(self.clone())
                .controller(self.clone())
                .group_controller(self.clone()),
        )
    }

    /// Serves a node's endpoint.
    pub fn serve_node(&self, node: &str) -> memory::Socket {
        let on_node = NodeSide {
            driver: self.clone(),
            node: node.to_owned(),
        };
        serve(Services::new().identity(self.clone()).node(on_node))
    }

    /// Looks at the backend.
    pub fn look<T>(&self, look: impl FnOnce(&Backend) -> T) -> T {
        look(&self.lock().backend)
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries a call out: one per volume at a time, after a while, and with its trouble.
    async fn carry_out<T: Default>(
        &self,
        method: Method,
        volume: &str,
        act: impl FnOnce(&mut Backend) -> Result<T, Refusal>,
    ) -> Result<Response<T>, Status> {
        let (wait, trouble) = {
            let mut shared = self.lock();
            let count = shared.calls.entry(method).or_default();
            *count += 1;
            let trouble = self.temper.troubles.get(&(method, *count)).copied();
            let most = u64::try_from(self.temper.latency.as_millis()).unwrap_or(u64::MAX);
            (Duration::from_millis(shared.random.u64(0..=most)), trouble)
        };
        let _turn = Turn::take(self, volume)?;
        tokio::time::sleep(wait).await;
        match trouble {
            Some(Trouble::Refused(code)) => {
                return Err(Status::new(code, "the simulation refuses this call"));
            }
            Some(Trouble::Pretended) => return Ok(Response::new(T::default())),
            Some(Trouble::DoneLate(later)) => tokio::time::sleep(later).await,
            Some(Trouble::DoneButAnswered(_)) | None => {}
        }
        let outcome = {
            let mut shared = self.lock();
            let outcome = act(&mut shared.backend);
            let breaches = shared.backend.take_breaches();
            self.witness.backend_is(&shared.backend, breaches);
            outcome
        };
        match (trouble, outcome) {
            (Some(Trouble::DoneButAnswered(code)), Ok(_)) => {
                Err(Status::new(code, "done, but the answer is lost"))
            }
            (_, Ok(reply)) => Ok(Response::new(reply)),
            (_, Err(refusal)) => Err(Status::new(refusal.code, refusal.message)),
        }
    }

    fn blame(&self, what: String) {
        self.witness.blame(vec![Breach { rule: "I10", what }]);
    }
}

fn serve(services: Services) -> memory::Socket {
    let socket = memory::Socket::new();
    let listener = socket.bind().expect("the socket is new");
    tokio::spawn(async move { listener.serve(services, std::future::pending()).await });
    socket
}

/// One volume's turn; a second call for the volume meanwhile is told to wait.
struct Turn<'a> {
    driver: &'a FakeDriver,
    volume: String,
}

impl<'a> Turn<'a> {
    fn take(driver: &'a FakeDriver, volume: &str) -> Result<Self, Status> {
        if driver.lock().busy.insert(volume.to_owned()) {
            Ok(Self {
                driver,
                volume: volume.to_owned(),
            })
        } else {
            Err(Status::aborted(format!(
                "another call for {volume} is under way"
            )))
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.driver.lock().busy.remove(&self.volume);
    }
}

#[tonic::async_trait]
impl proto::identity_server::Identity for FakeDriver {
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
        use proto::plugin_capability::{Service, Type, VolumeExpansion, service, volume_expansion};
        let capabilities = [
            service::Type::ControllerService,
            service::Type::GroupControllerService,
            service::Type::VolumeAccessibilityConstraints,
        ]
        .map(|service| {
            Type::Service(Service {
                r#type: service.into(),
            })
        });
        let online = Type::VolumeExpansion(VolumeExpansion {
            r#type: volume_expansion::Type::Online.into(),
        });
        let capabilities = capabilities
            .into_iter()
            .chain([online])
            .map(|kind| proto::PluginCapability { r#type: Some(kind) })
            .collect();
        Ok(Response::new(proto::GetPluginCapabilitiesResponse {
            capabilities,
        }))
    }

    async fn probe(
        &self,
        _: Request<proto::ProbeRequest>,
    ) -> Result<Response<proto::ProbeResponse>, Status> {
        Ok(Response::new(proto::ProbeResponse { ready: Some(true) }))
    }
}

#[tonic::async_trait]
impl proto::controller_server::Controller for FakeDriver {
    async fn controller_get_capabilities(
        &self,
        _: Request<proto::ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<proto::ControllerGetCapabilitiesResponse>, Status> {
        use proto::controller_service_capability::{Rpc, Type, rpc};
        let capabilities = [
            rpc::Type::CreateDeleteVolume,
            rpc::Type::PublishUnpublishVolume,
            rpc::Type::ExpandVolume,
            rpc::Type::CloneVolume,
            rpc::Type::CreateDeleteSnapshot,
            rpc::Type::GetSnapshot,
        ]
        .map(|kind| proto::ControllerServiceCapability {
            r#type: Some(Type::Rpc(Rpc {
                r#type: kind.into(),
            })),
        })
        .to_vec();
        Ok(Response::new(proto::ControllerGetCapabilitiesResponse {
            capabilities,
        }))
    }

    async fn create_volume(
        &self,
        request: Request<proto::CreateVolumeRequest>,
    ) -> Result<Response<proto::CreateVolumeResponse>, Status> {
        let request = request.into_inner();
        let order = order(&request);
        let name = order.name.clone();
        let content_source = request.volume_content_source;
        let make = move |backend: &mut Backend| {
            self.witness.before_create(&order.name);
            let made = format!("vol-{}", order.name);
            if let Some(source) = &order.source
                && !backend.volumes().contains_key(&made)
            {
                if backend.snapshots().contains_key(source) {
                    self.witness.before_restore(source);
                } else {
                    self.witness.before_clone(source);
                }
            }
            let (capacity_bytes, name) = (order.bytes, order.name.clone());
            let volume_id = backend.create(order)?;
            let place = backend
                .volumes()
                .get(&volume_id)
                .and_then(|made| made.place.clone());
            let topology = place.map(|node| proto::Topology {
                segments: BTreeMap::from([(TOPOLOGY.to_owned(), node)]),
            });
            let volume = proto::Volume {
                capacity_bytes,
                volume_id,
                accessible_topology: topology.into_iter().collect(),
                volume_context: BTreeMap::from([("made-for".to_owned(), name)]),
                content_source,
            };
            Ok(proto::CreateVolumeResponse {
                volume: Some(volume),
            })
        };
        self.carry_out(Method::CreateVolume, &format!("vol-{name}"), make)
            .await
    }

    async fn delete_volume(
        &self,
        request: Request<proto::DeleteVolumeRequest>,
    ) -> Result<Response<proto::DeleteVolumeResponse>, Status> {
        let id = request.into_inner().volume_id;
        let delete = |backend: &mut Backend| {
            self.witness.before_delete(&id);
            backend.delete(&id)?;
            Ok(proto::DeleteVolumeResponse {})
        };
        self.carry_out(Method::DeleteVolume, &id, delete).await
    }

    async fn create_snapshot(
        &self,
        request: Request<proto::CreateSnapshotRequest>,
    ) -> Result<Response<proto::CreateSnapshotResponse>, Status> {
        self.cut(request.into_inner()).await
    }

    async fn delete_snapshot(
        &self,
        request: Request<proto::DeleteSnapshotRequest>,
    ) -> Result<Response<proto::DeleteSnapshotResponse>, Status> {
        self.uncut(&request.into_inner().snapshot_id).await
    }

    async fn get_snapshot(
        &self,
        request: Request<proto::GetSnapshotRequest>,
    ) -> Result<Response<proto::GetSnapshotResponse>, Status> {
        self.tell_of(&request.into_inner().snapshot_id).await
    }

    async fn controller_expand_volume(
        &self,
        request: Request<proto::ControllerExpandVolumeRequest>,
    ) -> Result<Response<proto::ControllerExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        let id = &request.volume_id;
        let bytes = request
            .capacity_range
            .map_or(0, |range| range.required_bytes);
        let expand = |backend: &mut Backend| {
            self.witness.before_expand(id, bytes);
            Ok(proto::ControllerExpandVolumeResponse {
                capacity_bytes: backend.expand(id, bytes)?,
                node_expansion_required: true,
            })
        };
        self.carry_out(Method::ControllerExpandVolume, id, expand)
            .await
    }

    async fn controller_publish_volume(
        &self,
        request: Request<proto::ControllerPublishVolumeRequest>,
    ) -> Result<Response<proto::ControllerPublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let (id, node) = (&request.volume_id, &request.node_id);
        let attach = |backend: &mut Backend| {
            self.witness.before_attach(id, node);
            backend.attach(
                id,
                node,
                Attachment {
                    readonly: request.readonly,
                },
            )?;
            let publish_context = BTreeMap::from([("device".to_owned(), format!("/dev/{id}"))]);
            Ok(proto::ControllerPublishVolumeResponse { publish_context })
        };
        self.carry_out(Method::ControllerPublishVolume, id, attach)
            .await
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<proto::ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<proto::ControllerUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let detach = |backend: &mut Backend| {
            backend.detach(&request.volume_id, &request.node_id)?;
            Ok(proto::ControllerUnpublishVolumeResponse {})
        };
        self.carry_out(
            Method::ControllerUnpublishVolume,
            &request.volume_id,
            detach,
        )
        .await
    }
}

fn order(request: &proto::CreateVolumeRequest) -> Order {
    use proto::{volume_capability::access_mode::Mode, volume_content_source::Type};
    let many = request.volume_capabilities.iter().any(|capability| {
        let mode = capability
            .access_mode
            .as_ref()
            .map(proto::volume_capability::AccessMode::mode);
        matches!(
            mode,
            Some(
                Mode::MultiNodeMultiWriter
                    | Mode::MultiNodeReaderOnly
                    | Mode::MultiNodeSingleWriter
            )
        )
    });
    let wanted = request.accessibility_requirements.iter();
    let wanted = wanted.flat_map(|wanted| wanted.preferred.iter().chain(&wanted.requisite));
    let places = wanted
        .filter_map(|place| place.segments.get(TOPOLOGY).cloned())
        .collect();
    Order {
        name: request.name.clone(),
        bytes: request
            .capacity_range
            .as_ref()
            .map_or(1 << 30, |range| range.required_bytes),
        parameters: request.parameters.clone(),
        places,
        sharing: if many {
            Sharing::ManyNodes
        } else {
            Sharing::OneNode
        },
        source: request
            .volume_content_source
            .as_ref()
            .and_then(|content| content.r#type.as_ref())
            .map(|content| match content {
                Type::Volume(volume) => volume.volume_id.clone(),
                Type::Snapshot(snapshot) => snapshot.snapshot_id.clone(),
            }),
    }
}

/// The driver as one node has it.
#[derive(Clone)]
struct NodeSide {
    driver: FakeDriver,
    node: String,
}

impl NodeSide {
    fn spot<'a>(&'a self, volume: &'a str, path: &'a str) -> Spot<'a> {
        Spot {
            volume,
            node: &self.node,
            path,
        }
    }
}

#[tonic::async_trait]
impl proto::node_server::Node for NodeSide {
    async fn node_get_info(
        &self,
        _: Request<proto::NodeGetInfoRequest>,
    ) -> Result<Response<proto::NodeGetInfoResponse>, Status> {
        let segments = BTreeMap::from([(TOPOLOGY.to_owned(), self.node.clone())]);
        Ok(Response::new(proto::NodeGetInfoResponse {
            node_id: self.node.clone(),
            max_volumes_per_node: 0,
            accessible_topology: Some(proto::Topology { segments }),
        }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<proto::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<proto::NodeGetCapabilitiesResponse>, Status> {
        use proto::node_service_capability::{Rpc, Type, rpc};
        let capabilities = [rpc::Type::StageUnstageVolume, rpc::Type::ExpandVolume];
        let capabilities = capabilities.map(|kind| proto::NodeServiceCapability {
            r#type: Some(Type::Rpc(Rpc {
                r#type: kind.into(),
            })),
        });
        Ok(Response::new(proto::NodeGetCapabilitiesResponse {
            capabilities: capabilities.to_vec(),
        }))
    }

    async fn node_stage_volume(
        &self,
        request: Request<proto::NodeStageVolumeRequest>,
    ) -> Result<Response<proto::NodeStageVolumeResponse>, Status> {
        let request = request.into_inner();
        let (id, path) = (&request.volume_id, &request.staging_target_path);
        let stage = |backend: &mut Backend| {
            if !Path::new(path).is_dir() {
                self.driver
                    .blame(format!("the staging folder {path} of {id} was not made"));
            }
            backend.stage(self.spot(id, path))?;
            Ok(proto::NodeStageVolumeResponse {})
        };
        self.driver
            .carry_out(Method::NodeStageVolume, id, stage)
            .await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<proto::NodeUnstageVolumeRequest>,
    ) -> Result<Response<proto::NodeUnstageVolumeResponse>, Status> {
        let request = request.into_inner();
        let (id, path) = (&request.volume_id, &request.staging_target_path);
        let unstage = |backend: &mut Backend| {
            backend.unstage(self.spot(id, path))?;
            Ok(proto::NodeUnstageVolumeResponse {})
        };
        self.driver
            .carry_out(Method::NodeUnstageVolume, id, unstage)
            .await
    }

    async fn node_expand_volume(
        &self,
        request: Request<proto::NodeExpandVolumeRequest>,
    ) -> Result<Response<proto::NodeExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        let (id, path) = (&request.volume_id, &request.volume_path);
        let bytes = request
            .capacity_range
            .map_or(0, |range| range.required_bytes);
        let expand = |backend: &mut Backend| {
            self.driver.witness.before_expand_on_node(id);
            let capacity_bytes = backend.expand_on_node(self.spot(id, path), bytes)?;
            Ok(proto::NodeExpandVolumeResponse { capacity_bytes })
        };
        self.driver
            .carry_out(Method::NodeExpandVolume, id, expand)
            .await
    }

    async fn node_publish_volume(
        &self,
        request: Request<proto::NodePublishVolumeRequest>,
    ) -> Result<Response<proto::NodePublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let (id, path) = (&request.volume_id, &request.target_path);
        let publish = |backend: &mut Backend| {
            let wanted = Attachment {
                readonly: request.readonly,
            };
            backend.publish(self.spot(id, path), &request.staging_target_path, wanted)?;
            // The target is the driver's to make, its parent is not.
            match std::fs::create_dir(path) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    self.driver
                        .blame(format!("the target {path} of {id} can't be made: {error}"));
                }
                _ => {}
            }
            Ok(proto::NodePublishVolumeResponse {})
        };
        self.driver
            .carry_out(Method::NodePublishVolume, id, publish)
            .await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<proto::NodeUnpublishVolumeRequest>,
    ) -> Result<Response<proto::NodeUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let (id, path) = (&request.volume_id, &request.target_path);
        let unpublish = |backend: &mut Backend| {
            self.driver.witness.before_unpublish(path);
            backend.unpublish(self.spot(id, path))?;
            // One that is gone already is fine.
            drop(std::fs::remove_dir(path));
            Ok(proto::NodeUnpublishVolumeResponse {})
        };
        self.driver
            .carry_out(Method::NodeUnpublishVolume, id, unpublish)
            .await
    }
}
