//! The driver's snapshots, single ones and groups.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use orlop_csi::proto::{group_controller_server::GroupController, *};
use tonic::{Request, Response, Status, async_trait};

use crate::driver::{Fake, Mishap, with_mishap};

#[derive(Debug, Clone)]
pub(crate) struct Cut {
    pub(crate) id: String,
    pub(crate) volume: String,
}

#[derive(Debug, Default)]
pub(crate) struct Cuts {
    /// By the name that they were asked for with.
    pub(crate) single: BTreeMap<String, Cut>,
    /// Groups by their id, which is their name.
    pub(crate) groups: BTreeMap<String, Vec<Cut>>,
    pub(crate) cut: VecDeque<Mishap>,
    pub(crate) uncut: VecDeque<Mishap>,
    /// How long a cut takes.
    pub(crate) slow: Duration,
    /// How many more answers say that it isn't ready.
    pub(crate) unready: usize,
    /// Whether all are listed, whichever was asked for.
    pub(crate) heedless: bool,
    /// Whether all members of a group are said to be of its first volume.
    pub(crate) muddled: bool,
    /// The time that snapshots are said to be cut at.
    pub(crate) seconds: Option<i64>,
    pub(crate) cut_requests: Vec<CreateSnapshotRequest>,
    pub(crate) list_requests: Vec<ListSnapshotsRequest>,
    pub(crate) delete_requests: Vec<DeleteSnapshotRequest>,
}

impl Cuts {
    fn told(&mut self, cut: &Cut) -> Snapshot {
        let ready = self.unready == 0;
        self.unready = self.unready.saturating_sub(1);
        let mut told = Snapshot {
            size_bytes: 1 << 30,
            snapshot_id: cut.id.clone(),
            source_volume_id: cut.volume.clone(),
            ready_to_use: ready,
            ..Default::default()
        };
        if let Some(seconds) = self.seconds {
            told.creation_time.get_or_insert_default().seconds = seconds;
        }
        told
    }
}

impl Fake {
    pub(crate) async fn cut(
        &self,
        request: CreateSnapshotRequest,
    ) -> Result<Response<CreateSnapshotResponse>, Status> {
        let slow = self.state().cuts.slow;
        tokio::time::sleep(slow).await;
        let mut state = self.state();
        state.calls.push(format!("CreateSnapshot {}", request.name));
        state.cuts.cut_requests.push(request.clone());
        let known = state.cuts.single.contains_key(&request.name);
        let mut volumes = state.volumes.values();
        if !known && !volumes.any(|made| made.id == request.source_volume_id) {
            return Err(Status::not_found("there is no such volume"));
        }
        let mishap = state.cuts.cut.pop_front();
        with_mishap(mishap, || {
            let cut = Cut {
                id: format!("cut-{}", request.name),
                volume: request.source_volume_id.clone(),
            };
            let snapshot = state.cuts.told(&cut);
            state.cuts.single.insert(request.name.clone(), cut);
            CreateSnapshotResponse {
                snapshot: Some(snapshot),
            }
        })
    }

    pub(crate) fn uncut(
        &self,
        request: &DeleteSnapshotRequest,
    ) -> Result<Response<DeleteSnapshotResponse>, Status> {
        let mut state = self.state();
        let id = &request.snapshot_id;
        state.calls.push(format!("DeleteSnapshot {id}"));
        state.cuts.delete_requests.push(request.clone());
        let mishap = state.cuts.uncut.pop_front();
        with_mishap(mishap, || {
            state.cuts.single.retain(|_, cut| cut.id != *id);
            DeleteSnapshotResponse {}
        })
    }

    pub(crate) fn listed(&self, request: &ListSnapshotsRequest) -> Response<ListSnapshotsResponse> {
        let mut state = self.state();
        state.cuts.list_requests.push(request.clone());
        let single = state.cuts.single.values();
        let known: Vec<Cut> = single
            .filter(|cut| {
                let asked = &request.snapshot_id;
                state.cuts.heedless || asked.is_empty() || cut.id == *asked
            })
            .cloned()
            .collect();
        let entries = known.iter().map(|cut| list_snapshots_response::Entry {
            snapshot: Some(state.cuts.told(cut)),
        });
        let entries = entries.collect();
        Response::new(ListSnapshotsResponse {
            entries,
            ..Default::default()
        })
    }
}

#[async_trait]
impl GroupController for Fake {
    async fn group_controller_get_capabilities(
        &self,
        _: Request<GroupControllerGetCapabilitiesRequest>,
    ) -> Result<Response<GroupControllerGetCapabilitiesResponse>, Status> {
        use group_controller_service_capability::{Rpc, Type, rpc};
        let capability = GroupControllerServiceCapability {
            r#type: Some(Type::Rpc(Rpc {
                r#type: rpc::Type::CreateDeleteGetVolumeGroupSnapshot.into(),
            })),
        };
        Ok(Response::new(GroupControllerGetCapabilitiesResponse {
            capabilities: vec![capability],
        }))
    }

    async fn create_volume_group_snapshot(
        &self,
        request: Request<CreateVolumeGroupSnapshotRequest>,
    ) -> Result<Response<CreateVolumeGroupSnapshotResponse>, Status> {
        let request = request.into_inner();
        let slow = self.state().cuts.slow;
        tokio::time::sleep(slow).await;
        let mut state = self.state();
        let name = request.name.clone();
        state
            .calls
            .push(format!("CreateVolumeGroupSnapshot {name}"));
        let mishap = state.cuts.cut.pop_front();
        with_mishap(mishap, || {
            let cut = |volume: &String| Cut {
                id: format!("{volume}-in-{name}"),
                volume: volume.clone(),
            };
            let members: Vec<Cut> = request.source_volume_ids.iter().map(cut).collect();
            let snapshots = members.iter().map(|cut| Snapshot {
                group_snapshot_id: name.clone(),
                ..state.cuts.told(cut)
            });
            let mut snapshots: Vec<Snapshot> = snapshots.collect();
            if state.cuts.muddled {
                for member in &mut snapshots {
                    member.source_volume_id = request.source_volume_ids[0].clone();
                }
            }
            state.cuts.groups.insert(name.clone(), members);
            CreateVolumeGroupSnapshotResponse {
                group_snapshot: Some(VolumeGroupSnapshot {
                    group_snapshot_id: name.clone(),
                    snapshots,
                    ready_to_use: true,
                    ..Default::default()
                }),
            }
        })
    }

    async fn delete_volume_group_snapshot(
        &self,
        request: Request<DeleteVolumeGroupSnapshotRequest>,
    ) -> Result<Response<DeleteVolumeGroupSnapshotResponse>, Status> {
        let id = request.into_inner().group_snapshot_id;
        let mut state = self.state();
        state.calls.push(format!("DeleteVolumeGroupSnapshot {id}"));
        let mishap = state.cuts.uncut.pop_front();
        with_mishap(mishap, || {
            state.cuts.groups.remove(&id);
            DeleteVolumeGroupSnapshotResponse {}
        })
    }
}
