//! Group snapshots: all members or none, one group per name, one end for all.

use std::collections::BTreeSet;

use orlop_csi::client::GroupCapability;
use orlop_csi::proto;

use crate::case::{Case, Need, Outcome, Trouble, ensure};
use crate::trial::Trial;

mod creating;
mod deleting;
mod getting;
mod names;

const GROUPS: Need = Need::Group(GroupCapability::CreateDeleteGetVolumeGroupSnapshot);
const NOBODY: &str = "orlop-conformance-nobody";

pub(super) fn cases() -> Vec<Case> {
    [
        creating::cases(),
        names::cases(),
        getting::cases(),
        deleting::cases(),
    ]
    .concat()
}

fn request(t: &Trial, sources: &[&str], tag: &str) -> proto::CreateVolumeGroupSnapshotRequest {
    proto::CreateVolumeGroupSnapshotRequest {
        name: t.name(tag),
        source_volume_ids: sources.iter().map(|id| (*id).to_owned()).collect(),
        ..Default::default()
    }
}

/// Two volumes, and the group of their snapshots once it is ready.
struct Pair {
    request: proto::CreateVolumeGroupSnapshotRequest,
    group: proto::VolumeGroupSnapshot,
}

impl Pair {
    async fn make(t: &Trial) -> Result<Self, Trouble> {
        let (first, second) = (t.volume("a").await?, t.volume("b").await?);
        let request = request(t, &[&first.volume_id, &second.volume_id], "group");
        let ends = tokio::time::Instant::now() + t.bench().settings.timeout;
        loop {
            let group = create(t, &request).await?;
            if group.ready_to_use {
                return Ok(Self { request, group });
            }
            ensure!(
                tokio::time::Instant::now() < ends,
                "group {} did not become ready_to_use in time (its members: {:?})",
                group.group_snapshot_id,
                group
                    .snapshots
                    .iter()
                    .map(|member| member.ready_to_use)
                    .collect::<Vec<_>>()
            );
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    }

    fn members(&self) -> BTreeSet<&str> {
        members(&self.group)
    }

    fn ids(&self) -> Vec<String> {
        self.members().into_iter().map(str::to_owned).collect()
    }

    fn get(&self, snapshot_ids: Vec<String>) -> proto::GetVolumeGroupSnapshotRequest {
        proto::GetVolumeGroupSnapshotRequest {
            group_snapshot_id: self.group.group_snapshot_id.clone(),
            snapshot_ids,
            ..Default::default()
        }
    }

    fn delete(&self, snapshot_ids: Vec<String>) -> proto::DeleteVolumeGroupSnapshotRequest {
        proto::DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: self.group.group_snapshot_id.clone(),
            snapshot_ids,
            ..Default::default()
        }
    }

    async fn is_there(&self, t: &Trial) -> Outcome {
        let answer = t.call(self.get(self.ids())).await;
        answer.ok_because("the group must be as it was").map(drop)
    }
}

fn members(group: &proto::VolumeGroupSnapshot) -> BTreeSet<&str> {
    let ids = group.snapshots.iter();
    ids.map(|member| member.snapshot_id.as_str()).collect()
}

async fn create(
    t: &Trial,
    request: &proto::CreateVolumeGroupSnapshotRequest,
) -> Result<proto::VolumeGroupSnapshot, Trouble> {
    let reply = t.call(request.clone()).await.ok()?;
    reply.group_snapshot.ok_or_else(|| {
        Trouble::Against("CreateVolumeGroupSnapshot's reply has no group_snapshot".to_owned())
    })
}
