//! A request without a required field is refused with `INVALID_ARGUMENT`, whatever else is
//! wrong with it.

use std::fmt::Debug;

use orlop_csi::client::{ControllerCapability as Can, GroupCapability};
use orlop_csi::{Unary, proto};
use tonic::Code;

use crate::case::{Case, Need, Outcome};
use crate::spec;
use crate::trial::Trial;

mod controller;
mod node;

/// One case: the request that `make` gives lacks `field`.
fn lacks<R>(
    id: &'static str,
    field: &'static str,
    needs: &[Need],
    make: impl Fn(&Trial) -> R + Send + Sync + 'static,
) -> Case
where
    R: Unary + Debug + Send + Sync,
    R::Reply: Debug,
{
    let title = format!(
        "{} without {field} is refused with INVALID_ARGUMENT",
        R::METHOD
    );
    Case::must(
        format!("required.{id}"),
        spec::REQUIRED,
        title,
        needs,
        move |t| {
            let request = make(&t);
            async move { refused(&t, request, field).await }
        },
    )
}

async fn refused<R>(t: &Trial, request: R, field: &str) -> Outcome
where
    R: Unary + Debug,
    R::Reply: Debug,
{
    let because = format!("the required field {field} is missing");
    t.call(request)
        .await
        .refused(Code::InvalidArgument, &because)
}

/// An id that no driver has given.
const NOBODY: &str = "orlop-conformance-no-such-thing";

pub(super) fn cases() -> Vec<Case> {
    [controller::cases(), snapshots(), groups(), node::cases()].concat()
}

fn snapshots() -> Vec<Case> {
    let snapshot = [Need::Controller(Can::CreateDeleteSnapshot)];
    let with_volume = [super::CREATE, Need::Controller(Can::CreateDeleteSnapshot)];
    vec![
        Case::must(
            "required.create_snapshot_name",
            spec::REQUIRED,
            "CreateSnapshot without name is refused with INVALID_ARGUMENT",
            &with_volume,
            |t| async move {
                let volume = t.volume("v").await?;
                let request = proto::CreateSnapshotRequest {
                    source_volume_id: volume.volume_id,
                    ..Default::default()
                };
                refused(&t, request, "name").await
            },
        ),
        lacks(
            "create_snapshot_source",
            "source_volume_id",
            &snapshot,
            |t| t.snapshot_request("", "s"),
        ),
        lacks("delete_snapshot_id", "snapshot_id", &snapshot, |_| {
            proto::DeleteSnapshotRequest::default()
        }),
        lacks(
            "get_snapshot_id",
            "snapshot_id",
            &[Need::Controller(Can::GetSnapshot)],
            |_| proto::GetSnapshotRequest::default(),
        ),
    ]
}

fn groups() -> Vec<Case> {
    let group = [Need::Group(
        GroupCapability::CreateDeleteGetVolumeGroupSnapshot,
    )];
    vec![
        lacks("create_group_name", "name", &group, |_| {
            proto::CreateVolumeGroupSnapshotRequest {
                source_volume_ids: vec![NOBODY.into()],
                ..Default::default()
            }
        }),
        lacks("create_group_sources", "source_volume_ids", &group, |t| {
            proto::CreateVolumeGroupSnapshotRequest {
                name: t.name("g"),
                ..Default::default()
            }
        }),
        lacks("delete_group_id", "group_snapshot_id", &group, |_| {
            proto::DeleteVolumeGroupSnapshotRequest {
                snapshot_ids: vec![NOBODY.into()],
                ..Default::default()
            }
        }),
        lacks("get_group_id", "group_snapshot_id", &group, |_| {
            proto::GetVolumeGroupSnapshotRequest {
                snapshot_ids: vec![NOBODY.into()],
                ..Default::default()
            }
        }),
    ]
}
