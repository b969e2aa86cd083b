//! A driver in memory that remembers what it was asked and fails when told to.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use orlop_csi::{
    Driver, memory,
    proto::{
        controller_server::Controller, controller_service_capability as controller_capability,
        identity_server::Identity, node_server::Node, plugin_capability as plugin, *,
    },
    server::Services,
};
use tokio::{sync::oneshot, task::JoinHandle};
use tonic::{Code, Request, Response, Status, async_trait};

use crate::cuts::Cuts;

pub(crate) const NAME: &str = "fake.csi.orlop.dev";

/// How one call goes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mishap {
    /// Nothing happens and the code is the answer.
    Refuse(Code),
    /// It happens, and the code is the answer all the same.
    Do(Code),
    /// Nothing happens, and the answer has no end.
    Rant(Code),
}

#[derive(Debug, Clone)]
pub(crate) struct Made {
    pub(crate) id: String,
    pub(crate) request: CreateVolumeRequest,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// By the name that they were asked for with.
    pub(crate) volumes: BTreeMap<String, Made>,
    /// Volume id and node id.
    pub(crate) published: BTreeSet<(String, String)>,
    /// Method and subject of every call, in order.
    pub(crate) calls: Vec<String>,
    pub(crate) create: VecDeque<Mishap>,
    pub(crate) delete: VecDeque<Mishap>,
    pub(crate) publish: VecDeque<Mishap>,
    pub(crate) unpublish: VecDeque<Mishap>,
    pub(crate) expand: VecDeque<Mishap>,
    pub(crate) modify: VecDeque<Mishap>,
    pub(crate) capabilities: Vec<controller_capability::rpc::Type>,
    pub(crate) name: String,
    pub(crate) topology: bool,
    /// Whether the driver forgets to say what it made.
    pub(crate) nameless: bool,
    /// What volumes are short of.
    pub(crate) shortfall: i64,
    /// What the driver says of a volume that it made, for the truth.
    pub(crate) lie: Option<fn(&mut Volume)>,
    /// What it says of a volume that it attached.
    pub(crate) context: BTreeMap<String, String>,
    /// Whether its list of volumes has no last page.
    pub(crate) endless: bool,
    pub(crate) publish_requests: Vec<ControllerPublishVolumeRequest>,
    pub(crate) expand_requests: Vec<ControllerExpandVolumeRequest>,
    /// Whether growth has a node's part.
    pub(crate) node_part: bool,
    /// Whether the node service can grow volumes.
    pub(crate) node_expands: bool,
    /// Whether volumes grow only while nobody uses them.
    pub(crate) offline: bool,
    /// The largest size that a volume can grow to.
    pub(crate) most: i64,
    /// The credentials that came with each deletion.
    pub(crate) delete_secrets: Vec<BTreeMap<String, String>>,
    /// How much room is said to be left, by zone.
    pub(crate) room: BTreeMap<String, i64>,
    /// Whether volumes are said to be filled as asked.
    pub(crate) fills: bool,
    /// How long volumes take to be made, to grow and to change.
    pub(crate) slow: Duration,
    /// The attributes that each volume was given last.
    pub(crate) modified: BTreeMap<String, BTreeMap<String, String>>,
    pub(crate) cuts: Cuts,
}

#[derive(Clone)]
pub(crate) struct Fake {
    state: Arc<Mutex<State>>,
    socket: memory::Socket,
    server: Arc<Mutex<Option<Server>>>,
}

/// The driver's process, so to say.
struct Server {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Fake {
    /// A driver that can do everything that the sidecars use, and serves.
    pub(crate) fn serving() -> Self {
        crate::log::listen();
        use controller_capability::rpc::Type;
        let state = State {
            capabilities: vec![
                Type::CreateDeleteVolume,
                Type::PublishUnpublishVolume,
                Type::PublishReadonly,
                Type::ExpandVolume,
                Type::ModifyVolume,
                Type::CloneVolume,
                Type::CreateDeleteSnapshot,
                Type::ListSnapshots,
                Type::GetCapacity,
                Type::ListVolumes,
                Type::ListVolumesPublishedNodes,
            ],
            name: NAME.to_owned(),
            context: BTreeMap::from([("device".into(), "/dev/x".into())]),
            fills: true,
            node_part: true,
            most: i64::MAX,
            ..State::default()
        };
        let fake = Self {
            state: Arc::new(Mutex::new(state)),
            socket: memory::Socket::new(),
            server: Arc::default(),
        };
        fake.come_back();
        fake
    }

    /// Serves, after [`Fake::go_away`].
    pub(crate) fn come_back(&self) {
        let listener = self.socket.bind().expect("nobody else listens");
        let services = Services::new()
            .identity(self.clone())
            .controller(self.clone())
            .node(self.clone())
            .group_controller(self.clone());
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let served = listener.serve(services, async { drop(stopped.await) });
            served.await.expect("serving in memory can't fail");
        });
        *self.server.lock().expect("no test panics with it") = Some(Server { stop, task });
    }

    /// Serves no more, and breaks its connections.
    pub(crate) async fn go_away(&self) {
        let server = self.server.lock().expect("no test panics with it").take();
        let Server { stop, task } = server.expect("it serves");
        drop(stop);
        task.await.expect("it ends well");
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics while holding it")
    }

    pub(crate) fn client(&self) -> Driver {
        Driver::in_memory(&self.socket)
    }

    pub(crate) fn calls(&self, method: &str) -> usize {
        let state = self.state();
        state.calls.iter().filter(|c| c.starts_with(method)).count()
    }
}

/// Runs `act` unless the mishap forbids it, and answers as it says.
pub(crate) fn with_mishap<T>(
    mishap: Option<Mishap>,
    act: impl FnOnce() -> T,
) -> Result<Response<T>, Status> {
    match mishap {
        None => Ok(Response::new(act())),
        Some(Mishap::Refuse(code)) => Err(Status::new(code, "told to refuse")),
        Some(Mishap::Rant(code)) => Err(Status::new(code, "né ".repeat(2000))),
        Some(Mishap::Do(code)) => {
            act();
            Err(Status::new(code, "told to lose the answer"))
        }
    }
}

#[async_trait]
impl Identity for Fake {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse {
            name: self.state().name.clone(),
            vendor_version: "1".into(),
            ..Default::default()
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        let mut services = vec![
            plugin::service::Type::ControllerService,
            plugin::service::Type::GroupControllerService,
        ];
        if self.state().topology {
            services.push(plugin::service::Type::VolumeAccessibilityConstraints);
        }
        let services = services.into_iter().map(|service| {
            plugin::Type::Service(plugin::Service {
                r#type: service.into(),
            })
        });
        let offline = self.state().offline.then(|| {
            plugin::Type::VolumeExpansion(plugin::VolumeExpansion {
                r#type: plugin::volume_expansion::Type::Offline.into(),
            })
        });
        let capabilities = services
            .chain(offline)
            .map(|kind| PluginCapability { r#type: Some(kind) })
            .collect();
        Ok(Response::new(GetPluginCapabilitiesResponse {
            capabilities,
        }))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        Ok(Response::new(ProbeResponse { ready: Some(true) }))
    }
}

#[async_trait]
impl Controller for Fake {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        let request = request.into_inner();
        let slow = self.state().slow;
        tokio::time::sleep(slow).await;
        let mut state = self.state();
        state.calls.push(format!("CreateVolume {}", request.name));
        if let Some(made) = state.volumes.get(&request.name)
            && made.request != request
        {
            return Err(Status::already_exists("with other arguments"));
        }
        let mishap = state.create.pop_front();
        with_mishap(mishap, || {
            let id = format!("vol-{}", request.name);
            let asked = request
                .capacity_range
                .as_ref()
                .map_or(0, |r| r.required_bytes);
            let place = request.accessibility_requirements.as_ref();
            let accessible_topology = place
                .and_then(|r| r.preferred.first().cloned())
                .into_iter()
                .collect();
            let made = Made {
                id: id.clone(),
                request: request.clone(),
            };
            state.volumes.insert(request.name.clone(), made);
            let mut told = Volume {
                capacity_bytes: asked - state.shortfall,
                volume_id: if state.nameless { String::new() } else { id },
                volume_context: BTreeMap::from([("shelf".into(), "3".into())]),
                accessible_topology,
                content_source: request.volume_content_source.filter(|_| state.fills),
            };
            if let Some(lie) = state.lie {
                lie(&mut told);
            }
            CreateVolumeResponse { volume: Some(told) }
        })
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        let DeleteVolumeRequest {
            volume_id: id,
            secrets,
        } = request.into_inner();
        let mut state = self.state();
        state.delete_secrets.push(secrets);
        state.calls.push(format!("DeleteVolume {id}"));
        let published = state.published.iter().any(|(volume, _)| *volume == id);
        assert!(!published, "{id} is deleted while it is attached");
        let mishap = state.delete.pop_front();
        with_mishap(mishap, || {
            state.volumes.retain(|_, made| made.id != id);
            DeleteVolumeResponse {}
        })
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        let place = request.into_inner().accessible_topology.unwrap_or_default();
        let zone = place.segments.get("zone").cloned().unwrap_or_default();
        let mut state = self.state();
        state.calls.push(format!("GetCapacity {zone}"));
        Ok(Response::new(GetCapacityResponse {
            available_capacity: state.room.get(&zone).copied().unwrap_or(1 << 40),
            ..Default::default()
        }))
    }

    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Result<Response<ListVolumesResponse>, Status> {
        // One volume per page, so that pages are turned.
        let from = request.into_inner().starting_token.parse().unwrap_or(0);
        let mut state = self.state();
        state.calls.push(format!("ListVolumes {from}"));
        let entry = |made: &Made| list_volumes_response::Entry {
            volume: Some(Volume {
                volume_id: made.id.clone(),
                ..Default::default()
            }),
            status: Some(list_volumes_response::VolumeStatus {
                published_node_ids: state
                    .published
                    .iter()
                    .filter(|(volume, _)| *volume == made.id)
                    .map(|(_, node)| node.clone())
                    .collect(),
                ..Default::default()
            }),
        };
        let entries: Vec<_> = state
            .volumes
            .values()
            .map(entry)
            .skip(from)
            .take(1)
            .collect();
        let more = from + 1 < state.volumes.len();
        Ok(Response::new(ListVolumesResponse {
            entries,
            next_token: match (more, state.endless) {
                (_, true) => ((from + 1) % 3).to_string(),
                (true, false) => (from + 1).to_string(),
                (false, false) => String::new(),
            },
        }))
    }

    async fn controller_publish_volume(
        &self,
        request: Request<ControllerPublishVolumeRequest>,
    ) -> Result<Response<ControllerPublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let mut state = self.state();
        let way = (request.volume_id.clone(), request.node_id.clone());
        state
            .calls
            .push(format!("ControllerPublishVolume {}", way.0));
        state.publish_requests.push(request);
        let mishap = state.publish.pop_front();
        with_mishap(mishap, || {
            state.published.insert(way);
            ControllerPublishVolumeResponse {
                publish_context: state.context.clone(),
            }
        })
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<ControllerUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let mut state = self.state();
        state
            .calls
            .push(format!("ControllerUnpublishVolume {}", request.volume_id));
        let mishap = state.unpublish.pop_front();
        with_mishap(mishap, || {
            state
                .published
                .remove(&(request.volume_id, request.node_id));
            ControllerUnpublishVolumeResponse {}
        })
    }

    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Result<Response<ControllerExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        let slow = self.state().slow;
        tokio::time::sleep(slow).await;
        let mut state = self.state();
        state
            .calls
            .push(format!("ControllerExpandVolume {}", request.volume_id));
        let asked = request.capacity_range.map_or(0, |r| r.required_bytes);
        state.expand_requests.push(request);
        if asked > state.most {
            return Err(Status::out_of_range("no volume is that large"));
        }
        let mishap = state.expand.pop_front();
        with_mishap(mishap, || ControllerExpandVolumeResponse {
            capacity_bytes: asked - state.shortfall,
            node_expansion_required: state.node_part,
        })
    }

    async fn controller_modify_volume(
        &self,
        request: Request<ControllerModifyVolumeRequest>,
    ) -> Result<Response<ControllerModifyVolumeResponse>, Status> {
        let request = request.into_inner();
        let slow = self.state().slow;
        tokio::time::sleep(slow).await;
        let mut state = self.state();
        state
            .calls
            .push(format!("ControllerModifyVolume {}", request.volume_id));
        let mishap = state.modify.pop_front();
        with_mishap(mishap, || {
            state
                .modified
                .insert(request.volume_id, request.mutable_parameters);
            ControllerModifyVolumeResponse {}
        })
    }

    async fn create_snapshot(
        &self,
        request: Request<CreateSnapshotRequest>,
    ) -> Result<Response<CreateSnapshotResponse>, Status> {
        self.cut(request.into_inner()).await
    }

    async fn delete_snapshot(
        &self,
        request: Request<DeleteSnapshotRequest>,
    ) -> Result<Response<DeleteSnapshotResponse>, Status> {
        self.uncut(&request.into_inner())
    }

    async fn list_snapshots(
        &self,
        request: Request<ListSnapshotsRequest>,
    ) -> Result<Response<ListSnapshotsResponse>, Status> {
        Ok(self.listed(&request.into_inner()))
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        let capabilities = self
            .state()
            .capabilities
            .iter()
            .map(|kind| ControllerServiceCapability {
                r#type: Some(controller_capability::Type::Rpc(
                    controller_capability::Rpc {
                        r#type: (*kind).into(),
                    },
                )),
            })
            .collect();
        Ok(Response::new(ControllerGetCapabilitiesResponse {
            capabilities,
        }))
    }
}

#[async_trait]
impl Node for Fake {
    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        use node_service_capability::{Rpc, Type, rpc};
        let expands = self.state().node_expands;
        let capability = expands.then(|| NodeServiceCapability {
            r#type: Some(Type::Rpc(Rpc {
                r#type: rpc::Type::ExpandVolume.into(),
            })),
        });
        Ok(Response::new(NodeGetCapabilitiesResponse {
            capabilities: capability.into_iter().collect(),
        }))
    }

    async fn node_get_info(
        &self,
        _: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        Ok(Response::new(NodeGetInfoResponse {
            node_id: "id-n1".into(),
            accessible_topology: Some(Topology {
                segments: BTreeMap::from([("zone".into(), "a".into())]),
            }),
            ..Default::default()
        }))
    }
}
