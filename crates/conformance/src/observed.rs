//! What was seen on the way, in all calls of a run; judged by the `audit` cases.

use std::any::Any;
use std::sync::{Mutex, PoisonError};

use orlop_csi::client::{Origin, Refusal};
use orlop_csi::{Method, code_name, limits, proto};

/// A clause that every answer must keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clause {
    MessageNotEmpty,
    DetailsEmpty,
    NoSecret,
    NoPanic,
    CodeOfTheDriver,
    ReadableReply,
    StaysConnected,
    VolumeValid,
    SnapshotValid,
    GroupValid,
    ContextValid,
    TopologyValid,
    UsageValid,
}

/// A breach, once per clause and wording.
#[derive(Debug, Clone)]
pub(crate) struct Remark {
    pub(crate) clause: Clause,
    pub(crate) words: String,
}

/// More remarks on one clause say nothing new.
const MOST_PER_CLAUSE: usize = 5;

#[derive(Debug, Default)]
pub(crate) struct Observed {
    remarks: Mutex<Vec<Remark>>,
}

impl Observed {
    pub(crate) fn remarks(&self, clause: Clause) -> Vec<String> {
        let remarks = self.remarks.lock().unwrap_or_else(PoisonError::into_inner);
        remarks
            .iter()
            .filter(|remark| remark.clause == clause)
            .map(|remark| remark.words.clone())
            .collect()
    }

    pub(crate) fn remark(&self, clause: Clause, words: String) {
        let mut remarks = self.remarks.lock().unwrap_or_else(PoisonError::into_inner);
        let same = remarks.iter().filter(|remark| remark.clause == clause);
        if same.clone().count() < MOST_PER_CLAUSE && !same.clone().any(|r| r.words == words) {
            remarks.push(Remark { clause, words });
        }
    }

    /// Looks at an answer; `secrets` are values that no message may hold.
    pub(crate) fn look(
        &self,
        method: Method,
        asked: &str,
        result: Result<&dyn Any, &Refusal>,
        secrets: &[String],
    ) {
        match result {
            Ok(reply) => self.look_at_reply(method, asked, reply),
            Err(refusal) => self.look_at_refusal(method, asked, refusal, secrets),
        }
    }

    fn look_at_refusal(&self, method: Method, asked: &str, refusal: &Refusal, secrets: &[String]) {
        match refusal.origin {
            Origin::Driver => {}
            Origin::Timer => return,
            Origin::Connection => {
                let words = format!("{asked}: {}", refusal.message);
                return self.remark(Clause::StaysConnected, words);
            }
            Origin::Reply => {
                let words = format!("{asked}: {}", refusal.message);
                return self.remark(Clause::ReadableReply, words);
            }
        }
        let code = code_name(refusal.code);
        // A service that isn't there is refused by the gRPC library, without a word.
        let from_library = refusal.code == tonic::Code::Unimplemented;
        if refusal.message.trim().is_empty() && !from_library {
            let words = format!("{asked} was refused with {code} and no message");
            self.remark(Clause::MessageNotEmpty, words);
        }
        if !refusal.details.is_empty() {
            let words = format!(
                "{asked} was refused with {code} and {} bytes of details",
                refusal.details.len()
            );
            self.remark(Clause::DetailsEmpty, words);
        }
        if secrets
            .iter()
            .any(|secret| refusal.message.contains(secret))
        {
            let words = format!("the message of {method}'s {code} shows a secret of the request");
            self.remark(Clause::NoSecret, words);
        }
        let lower = refusal.message.to_lowercase();
        if [
            "panic",
            "goroutine ",
            "stack backtrace",
            "nil pointer",
            "segfault",
        ]
        .iter()
        .any(|sign| lower.contains(sign))
        {
            let words = format!(
                "the message of {method}'s {code} looks like a crash: {}",
                refusal.message
            );
            self.remark(Clause::NoPanic, words);
        }
        if refusal.code == tonic::Code::Unknown {
            let words = format!("{asked} was refused with Unknown ({})", refusal.message);
            self.remark(Clause::CodeOfTheDriver, words);
        }
    }

    fn look_at_reply(&self, method: Method, asked: &str, reply: &dyn Any) {
        if let Some(reply) = reply.downcast_ref::<proto::CreateVolumeResponse>() {
            match &reply.volume {
                None => self.remark(
                    Clause::VolumeValid,
                    format!("{asked}: the reply has no volume"),
                ),
                Some(volume) => self.look_at_volume(method, volume),
            }
        } else if let Some(reply) = reply.downcast_ref::<proto::ListVolumesResponse>() {
            for entry in &reply.entries {
                match &entry.volume {
                    None => self.remark(
                        Clause::VolumeValid,
                        format!("{method}: an entry has no volume"),
                    ),
                    Some(volume) => self.look_at_volume(method, volume),
                }
            }
        } else if let Some(reply) = reply.downcast_ref::<proto::ControllerGetVolumeResponse>() {
            match &reply.volume {
                None => self.remark(
                    Clause::VolumeValid,
                    format!("{asked}: the reply has no volume"),
                ),
                Some(volume) => self.look_at_volume(method, volume),
            }
        } else if let Some(reply) = reply.downcast_ref::<proto::ControllerPublishVolumeResponse>() {
            if let Err(error) = limits::map("publish_context", &reply.publish_context) {
                self.remark(Clause::ContextValid, format!("{method}: {error}"));
            }
        } else if let Some(reply) = reply.downcast_ref::<proto::CreateSnapshotResponse>() {
            self.look_at_snapshot(method, reply.snapshot.as_ref());
        } else if let Some(reply) = reply.downcast_ref::<proto::GetSnapshotResponse>() {
            self.look_at_snapshot(method, reply.snapshot.as_ref());
        } else if let Some(reply) = reply.downcast_ref::<proto::ListSnapshotsResponse>() {
            for entry in &reply.entries {
                self.look_at_snapshot(method, entry.snapshot.as_ref());
            }
        } else if let Some(reply) = reply.downcast_ref::<proto::CreateVolumeGroupSnapshotResponse>()
        {
            self.look_at_group(method, reply.group_snapshot.as_ref());
        } else if let Some(reply) = reply.downcast_ref::<proto::GetVolumeGroupSnapshotResponse>() {
            self.look_at_group(method, reply.group_snapshot.as_ref());
        } else if let Some(reply) = reply.downcast_ref::<proto::NodeGetVolumeStatsResponse>() {
            self.look_at_usage(reply);
        } else if let Some(reply) = reply.downcast_ref::<proto::ControllerExpandVolumeResponse>() {
            if reply.capacity_bytes <= 0 {
                let words = format!("{asked}: capacity_bytes is {}", reply.capacity_bytes);
                self.remark(Clause::VolumeValid, words);
            }
        } else if let Some(reply) = reply.downcast_ref::<proto::NodeExpandVolumeResponse>()
            && reply.capacity_bytes < 0
        {
            let words = format!("{asked}: capacity_bytes is {}", reply.capacity_bytes);
            self.remark(Clause::VolumeValid, words);
        }
    }

    fn look_at_volume(&self, method: Method, volume: &proto::Volume) {
        let checks = [
            limits::required("volume_id", &volume.volume_id),
            limits::count("capacity_bytes", volume.capacity_bytes),
        ];
        for error in checks.into_iter().filter_map(Result::err) {
            self.remark(Clause::VolumeValid, format!("{method}: {error}"));
        }
        if let Err(error) = limits::map("volume_context", &volume.volume_context) {
            self.remark(Clause::ContextValid, format!("{method}: {error}"));
        }
        for topology in &volume.accessible_topology {
            if let Err(error) = limits::topology(&topology.segments) {
                self.remark(Clause::TopologyValid, format!("{method}: {error}"));
            }
        }
    }

    fn look_at_snapshot(&self, method: Method, snapshot: Option<&proto::Snapshot>) {
        let Some(snapshot) = snapshot else {
            return self.remark(
                Clause::SnapshotValid,
                format!("{method}: a snapshot is missing in the reply"),
            );
        };
        let checks = [
            limits::required("snapshot_id", &snapshot.snapshot_id),
            limits::required("source_volume_id", &snapshot.source_volume_id),
            limits::count("size_bytes", snapshot.size_bytes),
        ];
        for error in checks.into_iter().filter_map(Result::err) {
            self.remark(Clause::SnapshotValid, format!("{method}: {error}"));
        }
        match &snapshot.creation_time {
            None => self.remark(
                Clause::SnapshotValid,
                format!("{method}: creation_time is missing"),
            ),
            Some(time) => {
                let now = jiff::Timestamp::now().as_second();
                // Within ten years before now and a day after: a unit mistake is far off.
                if time.seconds < now - 315_360_000 || time.seconds > now + 86_400 {
                    let words = format!("{method}: creation_time is {} s after 1970", time.seconds);
                    self.remark(Clause::SnapshotValid, words);
                }
            }
        }
    }

    fn look_at_group(&self, method: Method, group: Option<&proto::VolumeGroupSnapshot>) {
        let Some(group) = group else {
            return self.remark(
                Clause::GroupValid,
                format!("{method}: group_snapshot is missing"),
            );
        };
        if let Err(error) = limits::required("group_snapshot_id", &group.group_snapshot_id) {
            self.remark(Clause::GroupValid, format!("{method}: {error}"));
        }
        if group.snapshots.is_empty() {
            self.remark(
                Clause::GroupValid,
                format!("{method}: the group has no snapshots"),
            );
        }
        if group.creation_time.is_none() {
            self.remark(
                Clause::GroupValid,
                format!("{method}: creation_time is missing"),
            );
        }
        for snapshot in &group.snapshots {
            self.look_at_snapshot(method, Some(snapshot));
            if snapshot.group_snapshot_id != group.group_snapshot_id {
                let words = format!(
                    "{method}: member {} of group {} names group {:?}",
                    snapshot.snapshot_id, group.group_snapshot_id, snapshot.group_snapshot_id
                );
                self.remark(Clause::GroupValid, words);
            }
        }
    }

    fn look_at_usage(&self, reply: &proto::NodeGetVolumeStatsResponse) {
        for usage in &reply.usage {
            if usage.available < 0 || usage.total < 0 || usage.used < 0 {
                self.remark(
                    Clause::UsageValid,
                    format!("a figure is negative: {usage:?}"),
                );
            }
            if usage.unit() == proto::volume_usage::Unit::Unknown {
                self.remark(
                    Clause::UsageValid,
                    format!("the unit is missing: {usage:?}"),
                );
            }
        }
    }
}
