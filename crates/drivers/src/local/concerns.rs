//! What calls about snapshots and groups work on.

use orlop_csi::proto;

use super::in_flight::{Concerns, Subject};
use super::snapshot::{GroupId, SnapshotId};
use super::volume::VolumeId;

fn snapshot(id: &SnapshotId) -> Subject {
    Subject::new("snapshot", id.anywhere())
}

fn group(id: &GroupId) -> Subject {
    Subject::new("group snapshot", id.anywhere())
}

impl Concerns for proto::CreateSnapshotRequest {
    fn subjects(&self) -> Vec<Subject> {
        // The volume too: it is held still, and must not be staged or grown meanwhile.
        let source = VolumeId::parse(&self.source_volume_id);
        let mut subjects: Vec<_> = source.iter().map(Subject::volume).collect();
        subjects.push(snapshot(&SnapshotId::of_name(&self.name)));
        subjects
    }
}

impl Concerns for proto::DeleteSnapshotRequest {
    fn subjects(&self) -> Vec<Subject> {
        SnapshotId::parse(&self.snapshot_id)
            .iter()
            .map(snapshot)
            .collect()
    }
}

impl Concerns for proto::CreateVolumeGroupSnapshotRequest {
    fn subjects(&self) -> Vec<Subject> {
        let ids = self.source_volume_ids.iter();
        let mut subjects: Vec<_> = ids
            .filter_map(|id| VolumeId::parse(id))
            .map(|id| Subject::volume(&id))
            .collect();
        subjects.push(group(&GroupId::of_name(&self.name)));
        subjects
    }
}

impl Concerns for proto::DeleteVolumeGroupSnapshotRequest {
    fn subjects(&self) -> Vec<Subject> {
        GroupId::parse(&self.group_snapshot_id)
            .iter()
            .map(group)
            .collect()
    }
}

impl Concerns for proto::ListSnapshotsRequest {
    fn subjects(&self) -> Vec<Subject> {
        Vec::new()
    }
}

impl Concerns for proto::GetSnapshotRequest {
    fn subjects(&self) -> Vec<Subject> {
        Vec::new()
    }
}

impl Concerns for proto::GetVolumeGroupSnapshotRequest {
    fn subjects(&self) -> Vec<Subject> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_busy_while_it_is_cut() {
        let volume = VolumeId::of_name("data");
        let cut = proto::CreateSnapshotRequest {
            source_volume_id: volume.as_str().to_owned(),
            name: "s".to_owned(),
            ..Default::default()
        };
        let remove = proto::DeleteSnapshotRequest {
            snapshot_id: SnapshotId::of_name("s").as_str().to_owned(),
            ..Default::default()
        };
        let subjects = cut.subjects();
        assert!(subjects.contains(&Subject::volume(&volume)));
        assert!(subjects.contains(&remove.subjects()[0]));
    }
}
