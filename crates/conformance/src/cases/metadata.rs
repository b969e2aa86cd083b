//! Snapshot metadata: every block that matters, in order, from anywhere on.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use orlop_csi::client::{ControllerCapability as Can, Origin, PluginService, Refusal};
use orlop_csi::proto;
use orlop_csi::proto::volume_capability::access_mode::Mode;
use tonic::Code;

use super::CREATE;
use crate::case::{Case, Need, Outcome, Trouble, ensure};
use crate::make::{Placed, block_capability};
use crate::trial::Trial;
use crate::words;

mod allocated;
mod delta;
mod refusals;

const METADATA: Need = Need::Plugin(PluginService::SnapshotMetadataService);
const SNAPSHOTS: Need = Need::Controller(Can::CreateDeleteSnapshot);
const NOBODY: &str = "orlop-conformance-nobody";

/// What is written at once: no smaller than any driver's blocks need to be.
const PIECE: u64 = 64 << 10;

pub(super) fn cases() -> Vec<Case> {
    [refusals::cases(), allocated::cases(), delta::cases()].concat()
}

/// One message of either stream.
#[derive(Debug, Clone)]
struct Message {
    kind: i32,
    capacity: i64,
    ranges: Vec<proto::BlockMetadata>,
}

/// A whole stream and how it ended.
struct Stream {
    asked: &'static str,
    messages: Vec<Message>,
    end: Result<(), Refusal>,
}

impl Stream {
    async fn allocated(t: &Trial, request: proto::GetMetadataAllocatedRequest) -> Self {
        let (replies, end) = t.stream(request).await;
        let messages = replies.into_iter().map(|reply| Message {
            kind: reply.block_metadata_type,
            capacity: reply.volume_capacity_bytes,
            ranges: reply.block_metadata,
        });
        Self {
            asked: "GetMetadataAllocated",
            messages: messages.collect(),
            end,
        }
    }

    async fn delta(t: &Trial, request: proto::GetMetadataDeltaRequest) -> Self {
        let (replies, end) = t.stream(request).await;
        let messages = replies.into_iter().map(|reply| Message {
            kind: reply.block_metadata_type,
            capacity: reply.volume_capacity_bytes,
            ranges: reply.block_metadata,
        });
        Self {
            asked: "GetMetadataDelta",
            messages: messages.collect(),
            end,
        }
    }

    fn refused(&self, codes: &[Code], because: &str) -> Outcome {
        let asked = self.asked;
        match &self.end {
            Err(refusal) if codes.contains(&refusal.code) && refusal.origin == Origin::Driver => {
                Ok(())
            }
            Err(refusal) => Err(Trouble::Against(format!(
                "{asked} was answered with {}; it must be refused with one of {codes:?}: {because}",
                words::refusal(refusal)
            ))),
            Ok(()) => Err(Trouble::Against(format!(
                "{asked} was answered with {} messages and a clean end; it must be refused with one of {codes:?}: {because}",
                self.messages.len()
            ))),
        }
    }

    /// The ranges of a stream that ended well and keeps the rules of all streams.
    fn ranges(&self) -> Result<Vec<(u64, u64)>, Trouble> {
        let asked = self.asked;
        if let Err(refusal) = &self.end {
            return Err(Trouble::Against(format!(
                "{asked} ended with {}; nothing is wrong with the request",
                words::refusal(refusal)
            )));
        }
        let mut found = Vec::new();
        let mut end = 0;
        for message in &self.messages {
            let first = &self.messages[0];
            let known = [
                i32::from(proto::BlockMetadataType::FixedLength),
                i32::from(proto::BlockMetadataType::VariableLength),
            ];
            ensure!(
                known.contains(&message.kind),
                "{asked}: block_metadata_type is {}, neither FIXED_LENGTH nor VARIABLE_LENGTH",
                message.kind
            );
            ensure!(
                message.kind == first.kind && message.capacity == first.capacity,
                "{asked}: block_metadata_type and volume_capacity_bytes change within a stream"
            );
            ensure!(
                message.capacity > 0,
                "{asked}: volume_capacity_bytes is {}",
                message.capacity
            );
            for range in &message.ranges {
                let (at, size) = (range.byte_offset, range.size_bytes);
                ensure!(at >= 0 && size > 0, "{asked}: a range is {range:?}");
                ensure!(
                    at >= end,
                    "{asked}: the range at {at} comes after one that ends at {end}; ranges must be in order and must not overlap"
                );
                end = at.saturating_add(size);
                ensure!(
                    end <= message.capacity,
                    "{asked}: a range ends at {end}, beyond volume_capacity_bytes {}",
                    message.capacity
                );
                found.push((at.unsigned_abs(), size.unsigned_abs()));
            }
        }
        let fixed = self
            .messages
            .first()
            .is_some_and(|first| first.kind == i32::from(proto::BlockMetadataType::FixedLength));
        if fixed && let Some((_, size)) = found.first() {
            ensure!(
                found.iter().all(|(_, other)| other == size),
                "{asked}: FIXED_LENGTH ranges have different sizes"
            );
        }
        Ok(found)
    }
}

/// All of these pieces must lie in the ranges.
fn covers(asked: &str, ranges: &[(u64, u64)], pieces: &[u64], what: &str) -> Outcome {
    for piece in pieces {
        let mut at = *piece;
        for (start, size) in ranges {
            if *start <= at && at < start + size {
                at = start + size;
            }
        }
        ensure!(
            at >= piece + PIECE,
            "{asked} does not name the {PIECE} bytes at {piece}, which were {what}; it names {ranges:?}"
        );
    }
    Ok(())
}

/// A published block volume.
struct Written {
    placed: Placed,
    target: String,
    size: u64,
}

impl Written {
    async fn make(t: &Trial) -> Result<Self, Trouble> {
        let placed = t
            .staged_with("v", block_capability(Mode::SingleNodeWriter))
            .await?;
        let target = t.target("v")?;
        t.call(placed.publish_request(&target)).await.ok()?;
        let size = placed.volume.capacity_bytes.max(t.size()).unsigned_abs();
        Ok(Self {
            placed,
            target,
            size,
        })
    }

    /// Places that are apart from each other: the start, two within, and the end.
    fn pieces(&self) -> [u64; 4] {
        let part = self.size / 8 / PIECE * PIECE;
        [0, part * 2, part * 4, (self.size / PIECE - 1) * PIECE]
    }

    async fn write(&self, pieces: &[u64], byte: u8) -> Outcome {
        let (path, pieces) = (self.target.clone(), pieces.to_vec());
        let write = move || -> io::Result<()> {
            let device = File::options().write(true).open(path)?;
            for piece in pieces {
                device.write_all_at(&vec![byte; 64 << 10], piece)?;
            }
            device.sync_all()
        };
        let written = tokio::task::spawn_blocking(write).await;
        written
            .map_err(io::Error::other)
            .flatten()
            .map_err(crate::make::io(
                "could not write to the block volume at its target",
            ))
    }

    async fn snapshot(&mut self, t: &Trial, tag: &str) -> Result<String, Trouble> {
        let cut = t.snapshot_of_published(&mut self.placed, &self.target, tag);
        let snapshot = cut.await?;
        Ok(snapshot.snapshot_id)
    }
}

fn of_allocated(snapshot_id: &str) -> proto::GetMetadataAllocatedRequest {
    proto::GetMetadataAllocatedRequest {
        snapshot_id: snapshot_id.to_owned(),
        ..Default::default()
    }
}

fn of_delta(base: &str, target: &str) -> proto::GetMetadataDeltaRequest {
    proto::GetMetadataDeltaRequest {
        base_snapshot_id: base.to_owned(),
        target_snapshot_id: target.to_owned(),
        ..Default::default()
    }
}

const EXACT: [Need; 4] = [METADATA, CREATE, SNAPSHOTS, Need::BlockVolumes];

fn resumes(asked: &str, ranges: &[(u64, u64)], from: u64) -> Outcome {
    if let Some((at, size)) = ranges.first() {
        ensure!(
            at + size > from,
            "{asked} from offset {from} on names the range at {at} of {size} bytes, which ends before"
        );
    }
    Ok(())
}
