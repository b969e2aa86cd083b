//! The controller service: folders come, go, grow, and are packed and copied.
//!
//! Each call is one file: understand the request, take the turn of what it names, have it done.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlop_csi::proto;
use orlop_csi::proto::controller_server::Controller;
use orlop_csi::proto::controller_service_capability::rpc::Type as Rpc;
use orlop_csi::server::{Caller, answer};
use tonic::{Request, Response, Status};

use super::export::Export;
use super::failure::Failure;
use super::ids::VolumeId;
use super::options::MountPlan;
use super::order::{Answer, Mounting, Order, Work};
use super::{PATIENCE, Shared, parameters};
use crate::local::in_flight::{Subject, Turn};

mod capability;
mod capacity;
mod create;
mod delete;
mod expand;
mod get;
mod snapshots;
mod validate;

pub(super) use capability::Capability;

/// The controller service.
#[derive(Clone, Debug)]
pub(crate) struct ControllerService {
    shared: Arc<Shared>,
}

impl ControllerService {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

/// What the service can do.
const CAPABILITIES: &[Rpc] = &[
    Rpc::CreateDeleteVolume,
    Rpc::CloneVolume,
    Rpc::CreateDeleteSnapshot,
    Rpc::ExpandVolume,
    Rpc::SingleNodeMultiWriter,
    Rpc::GetCapacity,
    Rpc::GetVolume,
    Rpc::VolumeCondition,
];

/// A call: who waits for it, and what the driver has.
pub(super) struct Call<'a> {
    pub(super) shared: &'a Shared,
    pub(super) caller: Caller,
}

impl<'a> Call<'a> {
    pub(super) fn new<T>(shared: &'a Shared, request: &Request<T>) -> Self {
        Self {
            shared,
            caller: Caller::of(request),
        }
    }

    /// Has work done for which these things must be nobody else's.
    pub(super) async fn run(&self, work: Work, turns: Vec<Subject>) -> Result<Answer, Failure> {
        self.run_within(work, turns, self.patience()).await
    }

    /// How long its caller waits.
    pub(super) fn patience(&self) -> std::time::Duration {
        self.caller.patience().unwrap_or(PATIENCE).min(PATIENCE * 5)
    }

    /// The same, with less patience than the caller has.
    pub(super) async fn run_within(
        &self,
        work: Work,
        turns: Vec<Subject>,
        patience: std::time::Duration,
    ) -> Result<Answer, Failure> {
        let turn = self.begin(turns)?;
        self.run_holding(work, patience, turn).await
    }

    /// Takes the turns of these things.
    pub(super) fn begin(&self, turns: Vec<Subject>) -> Result<Turn, Failure> {
        self.shared
            .in_flight
            .begin(turns)
            .map_err(|busy| Failure::new(tonic::Code::Aborted, busy.to_string()))
    }

    /// Has work done for which turns were taken; `held` is kept until there is an answer.
    pub(super) async fn run_holding<T: Send + Sync + 'static>(
        &self,
        work: Work,
        patience: std::time::Duration,
        held: T,
    ) -> Result<Answer, Failure> {
        let config = &self.shared.config;
        let on = work.on().cloned();
        let order = Order {
            working_dir: config.working_dir.clone(),
            stand_in: config.hands.stand_in(),
            sweep: config.hands.sweeps(&work),
            work,
        };
        let answer = config.hands.run(order, patience, held).await?;
        // Not before: by options that do not work no other volume of the share could be deleted.
        if let Some(on) = on {
            self.shared.options.keep(&on.export, &on.plan);
        }
        Ok(answer)
    }

    /// How a share is mounted for work of our own: by what the call brings, else by what its secret
    /// says, else as it was mounted before.
    pub(super) fn mounting(
        &self,
        export: &Export,
        brought: Option<MountPlan>,
        secrets: &BTreeMap<String, String>,
    ) -> Result<Mounting, Failure> {
        let plan = match (brought, parameters::options_in_secret(secrets)) {
            (Some(plan), _) => plan,
            (None, Some(text)) => {
                MountPlan::parse([text]).map_err(|error| Failure::invalid(&error))?
            }
            (None, None) => self.shared.options.of(export),
        };
        Ok(Mounting {
            export: export.clone(),
            plan: plan.for_work(),
        })
    }
}

/// A volume that nobody else works on meanwhile.
pub(super) fn volume_turn(id: &VolumeId) -> Subject {
    Subject::new("volume", format!("{}#{}", id.export, id.key()))
}

/// A volume, and its folder, which another one may have as well if the class chose it.
pub(super) fn volume_and_folder(id: &VolumeId) -> Vec<Subject> {
    let folder = Subject::new("folder", format!("{}#{}", id.export, id.folder));
    vec![volume_turn(id), folder]
}

/// A volume's id of a call that needs one; what is no id of ours names nothing.
pub(super) fn known(text: &str) -> Result<VolumeId, Failure> {
    if text.is_empty() {
        return Err(Failure::missing("volume_id"));
    }
    VolumeId::parse(text)
        .map_err(|error| Failure::not_found(format!("there is no volume {text:?}: {error}")))
}

#[tonic::async_trait]
impl Controller for ControllerService {
    async fn create_volume(
        &self,
        request: Request<proto::CreateVolumeRequest>,
    ) -> Result<Response<proto::CreateVolumeResponse>, Status> {
        let call = Call::new(&self.shared, &request);
        answer(create::create(&call, request.get_ref()).await)
    }

    async fn delete_volume(
        &self,
        request: Request<proto::DeleteVolumeRequest>,
    ) -> Result<Response<proto::DeleteVolumeResponse>, Status> {
        let call = Call::new(&self.shared, &request);
        answer(delete::delete(&call, request.get_ref()).await)
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<proto::ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<proto::ValidateVolumeCapabilitiesResponse>, Status> {
        let call = Call::new(&self.shared, &request);
        answer(validate::validate(&call, request.get_ref()).await)
    }

    async fn get_capacity(
        &self,
        request: Request<proto::GetCapacityRequest>,
    ) -> Result<Response<proto::GetCapacityResponse>, Status> {
        let call = Call::new(&self.shared, &request);
        answer(capacity::capacity(&call, request.get_ref()).await)
    }

    async fn controller_get_capabilities(
        &self,
        _request: Request<proto::ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<proto::ControllerGetCapabilitiesResponse>, Status> {
        use proto::controller_service_capability::{Rpc as Wire, Type};
        let capability = |rpc: &Rpc| proto::ControllerServiceCapability {
            r#type: Some(Type::Rpc(Wire {
                r#type: (*rpc).into(),
            })),
        };
        Ok(Response::new(proto::ControllerGetCapabilitiesResponse {
            capabilities: CAPABILITIES.iter().map(capability).collect(),
        }))
    }

    async fn create_snapshot(
        &self,
        request: Request<proto::CreateSnapshotRequest>,
    ) -> Result<Response<proto::CreateSnapshotResponse>, Status> {
        let call = Call::new(&self.shared, &request);
        answer(snapshots::create(&call, request.get_ref()).await)
    }

    async fn delete_snapshot(
        &self,
        request: Request<proto::DeleteSnapshotRequest>,
    ) -> Result<Response<proto::DeleteSnapshotResponse>, Status> {
        let call = Call::new(&self.shared, &request);
        answer(snapshots::delete(&call, request.get_ref()).await)
    }

    async fn controller_expand_volume(
        &self,
        request: Request<proto::ControllerExpandVolumeRequest>,
    ) -> Result<Response<proto::ControllerExpandVolumeResponse>, Status> {
        let call = Call::new(&self.shared, &request);
        answer(expand::expand(&call, request.get_ref()).await)
    }

    async fn controller_get_volume(
        &self,
        request: Request<proto::ControllerGetVolumeRequest>,
    ) -> Result<Response<proto::ControllerGetVolumeResponse>, Status> {
        let call = Call::new(&self.shared, &request);
        answer(get::get(&call, request.get_ref()).await)
    }

    async fn controller_publish_volume(
        &self,
        _request: Request<proto::ControllerPublishVolumeRequest>,
    ) -> Result<Response<proto::ControllerPublishVolumeResponse>, Status> {
        Err(Status::unimplemented("NFS volumes are not attached"))
    }

    async fn controller_unpublish_volume(
        &self,
        _request: Request<proto::ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<proto::ControllerUnpublishVolumeResponse>, Status> {
        Err(Status::unimplemented("NFS volumes are not attached"))
    }

    async fn list_volumes(
        &self,
        _request: Request<proto::ListVolumesRequest>,
    ) -> Result<Response<proto::ListVolumesResponse>, Status> {
        Err(Status::unimplemented("volumes are only known by their ids"))
    }

    async fn list_snapshots(
        &self,
        _request: Request<proto::ListSnapshotsRequest>,
    ) -> Result<Response<proto::ListSnapshotsResponse>, Status> {
        Err(Status::unimplemented(
            "snapshots are only known by their ids",
        ))
    }

    async fn get_snapshot(
        &self,
        _request: Request<proto::GetSnapshotRequest>,
    ) -> Result<Response<proto::GetSnapshotResponse>, Status> {
        Err(Status::unimplemented(
            "snapshots are only known by their ids",
        ))
    }

    async fn controller_modify_volume(
        &self,
        _request: Request<proto::ControllerModifyVolumeRequest>,
    ) -> Result<Response<proto::ControllerModifyVolumeResponse>, Status> {
        Err(Status::unimplemented("there is nothing to modify"))
    }
}
