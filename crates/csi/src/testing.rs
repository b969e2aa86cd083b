//! A small driver for this crate's tests, and the proto as data.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use prost::Message as _;
use prost_types::{FileDescriptorProto, FileDescriptorSet};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tonic::{Code, Request, Response, Status};

use crate::proto::controller_server::Controller;
use crate::proto::identity_server::Identity;
use crate::proto::node_server::Node;
use crate::proto::*;
use crate::server::Services;
use crate::{Driver, memory};

/// The compiled `csi.proto`.
pub(crate) fn descriptors() -> FileDescriptorProto {
    let bytes = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin")).as_slice();
    let set = FileDescriptorSet::decode(bytes).expect("the build wrote it");
    set.file
        .into_iter()
        .find(|file| file.package() == "csi.v1")
        .expect("csi.proto is in it")
}

/// A driver whose volumes' names say how it shall behave.
#[derive(Clone, Default)]
pub(crate) struct Fake(pub(crate) Arc<State>);

#[derive(Default)]
pub(crate) struct State {
    /// Its name, if it isn't `fake.orlop.io`.
    pub(crate) name: Mutex<String>,
    /// Times that the name was asked for.
    pub(crate) asked: AtomicUsize,
    /// Probes that are answered with "not ready" before one says "ready".
    pub(crate) unready: AtomicUsize,
    /// CreateVolume calls that began, and that ran to their end.
    pub(crate) begun: AtomicUsize,
    pub(crate) ended: AtomicUsize,
    /// Lets a volume named "waits" be made.
    pub(crate) go: Notify,
}

#[tonic::async_trait]
impl Identity for Fake {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        self.0.asked.fetch_add(1, Ordering::SeqCst);
        let name = match self.0.name.lock().expect("no test panics with it").as_str() {
            "" => "fake.orlop.io".to_owned(),
            name => name.to_owned(),
        };
        Ok(Response::new(GetPluginInfoResponse {
            name,
            vendor_version: "7".into(),
            ..Default::default()
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        use plugin_capability::{Service, Type};
        // 1 is the controller; 99 is of a future version.
        let service = |number| PluginCapability {
            r#type: Some(Type::Service(Service { r#type: number })),
        };
        let capabilities = vec![service(1), service(99), PluginCapability { r#type: None }];
        Ok(Response::new(GetPluginCapabilitiesResponse {
            capabilities,
        }))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        let left = &self.0.unready;
        let ready = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        Ok(Response::new(ProbeResponse {
            ready: ready.is_ok().then_some(false),
        }))
    }
}

#[tonic::async_trait]
impl Controller for Fake {
    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        use controller_service_capability::{Rpc, Type};
        let capability = |kind| ControllerServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: kind })),
        };
        let capabilities = vec![capability(1), capability(77)];
        Ok(Response::new(ControllerGetCapabilitiesResponse {
            capabilities,
        }))
    }

    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        self.0.begun.fetch_add(1, Ordering::SeqCst);
        let CreateVolumeRequest { name, secrets, .. } = request.into_inner();
        let mut volume_context = BTreeMap::new();
        match name.as_str() {
            "hangs" => std::future::pending().await,
            "waits" => self.0.go.notified().await,
            "panics" => panic!("as the test asked"),
            "echoes" => {
                let secret = secrets.into_values().next().unwrap_or_default();
                return Err(Status::unauthenticated(format!("bad password {secret}!")));
            }
            "silent" => return Err(Status::new(Code::Internal, "")),
            "long" => return Err(Status::internal("é\n".repeat(100 << 10))),
            "cut" => return Err(Status::internal("é\n%".repeat(1024))),
            "huge" => {
                volume_context.insert("k".into(), "v".repeat(65 << 20));
            }
            _ => {}
        }
        self.0.ended.fetch_add(1, Ordering::SeqCst);
        let volume = Volume {
            volume_id: name,
            volume_context,
            ..Default::default()
        };
        Ok(Response::new(CreateVolumeResponse {
            volume: Some(volume),
        }))
    }
}

#[tonic::async_trait]
impl Node for Fake {}

impl Fake {
    pub(crate) fn services(&self) -> Services {
        Services::new()
            .identity(self.clone())
            .controller(self.clone())
            .node(self.clone())
    }

    /// Serves the fake in memory and calls it.
    pub(crate) fn start(&self) -> (Driver, Running) {
        let socket = memory::Socket::new();
        let running = self.start_at(&socket);
        (Driver::in_memory(&socket), running)
    }

    pub(crate) fn start_at(&self, socket: &memory::Socket) -> Running {
        let listener = socket.bind().expect("nobody else listens there");
        let (stop, stopped) = oneshot::channel::<()>();
        let services = self.services();
        let task = tokio::spawn(async move {
            listener
                .serve(services, async { drop(stopped.await) })
                .await
                .expect("serves");
        });
        Running { stop, task }
    }
}

/// A fake being served.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Running {
    pub(crate) async fn stop(self) {
        drop(self.stop);
        self.task.await.expect("the server ends well");
    }
}

/// A request for a volume of that name.
pub(crate) fn volume(name: &str) -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: name.into(),
        ..Default::default()
    }
}
