//! Snapshot metadata: every block that matters, in order, from anywhere on.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use orlop_csi::client::{ControllerCapability as Can, Origin, PluginService, Refusal};
use orlop_csi::proto;
use proto::volume_capability::access_mode::Mode;
use tonic::Code;

use super::CREATE;
use crate::case::{Case, Need, Outcome, Trouble, ensure};
use crate::make::{Placed, block_capability};
use crate::spec;
use crate::trial::Trial;
use crate::words;

const METADATA: Need = Need::Plugin(PluginService::SnapshotMetadataService);
const SNAPSHOTS: Need = Need::Controller(Can::CreateDeleteSnapshot);
const NOBODY: &str = "orlop-conformance-nobody";

/// What is written at once: no smaller than any driver's blocks need to be.
const PIECE: u64 = 64 << 10;

pub(super) fn cases() -> Vec<Case> {
    [refusals(), allocated(), delta()].concat()
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

fn refusals() -> Vec<Case> {
    vec![
        Case::must(
            "metadata.allocated_needs_a_snapshot",
            spec::REQUIRED,
            "GetMetadataAllocated without snapshot_id is refused with INVALID_ARGUMENT",
            &[METADATA],
            |t| async move {
                let stream = Stream::allocated(&t, of_allocated("")).await;
                stream.refused(&[Code::InvalidArgument], "snapshot_id is REQUIRED")
            },
        ),
        Case::must(
            "metadata.delta_needs_a_base",
            spec::REQUIRED,
            "GetMetadataDelta without base_snapshot_id is refused with INVALID_ARGUMENT",
            &[METADATA],
            |t| async move {
                let stream = Stream::delta(&t, of_delta("", NOBODY)).await;
                stream.refused(&[Code::InvalidArgument], "base_snapshot_id is REQUIRED")
            },
        ),
        Case::must(
            "metadata.delta_needs_a_target",
            spec::REQUIRED,
            "GetMetadataDelta without target_snapshot_id is refused with INVALID_ARGUMENT",
            &[METADATA],
            |t| async move {
                let stream = Stream::delta(&t, of_delta(NOBODY, "")).await;
                stream.refused(&[Code::InvalidArgument], "target_snapshot_id is REQUIRED")
            },
        ),
        Case::must(
            "metadata.allocated_of_nothing",
            spec::METADATA_ALLOCATED,
            "GetMetadataAllocated of an unknown snapshot is NOT_FOUND",
            &[METADATA],
            |t| async move {
                let stream = Stream::allocated(&t, of_allocated(NOBODY)).await;
                stream.refused(&[Code::NotFound], "there is no such snapshot")
            },
        ),
        Case::must(
            "metadata.delta_of_nothing",
            spec::METADATA_DELTA,
            "GetMetadataDelta with an unknown base or target is NOT_FOUND",
            &[METADATA, CREATE, SNAPSHOTS],
            |t| async move {
                let volume = t.volume("v").await?;
                let snapshot = t.snapshot(&volume.volume_id, "s").await?.snapshot_id;
                for request in [of_delta(NOBODY, &snapshot), of_delta(&snapshot, NOBODY)] {
                    let stream = Stream::delta(&t, request).await;
                    stream.refused(&[Code::NotFound], "one of the snapshots does not exist")?;
                }
                Ok(())
            },
        ),
        Case::must(
            "metadata.offset_is_not_negative",
            spec::METADATA_ALLOCATED,
            "a negative starting_offset is refused",
            &[METADATA, CREATE, SNAPSHOTS],
            |t| async move {
                let volume = t.volume("v").await?;
                let snapshot = t.snapshot(&volume.volume_id, "s").await?.snapshot_id;
                let request = proto::GetMetadataAllocatedRequest {
                    starting_offset: -1,
                    ..of_allocated(&snapshot)
                };
                let stream = Stream::allocated(&t, request).await;
                stream.refused(
                    &[Code::OutOfRange, Code::InvalidArgument],
                    "starting_offset is negative",
                )
            },
        ),
        Case::must(
            "metadata.offset_is_within_the_volume",
            spec::METADATA_ALLOCATED,
            "a starting_offset beyond the volume's end is OUT_OF_RANGE",
            &[METADATA, CREATE, SNAPSHOTS],
            |t| async move {
                let volume = t.volume("v").await?;
                let snapshot = t.snapshot(&volume.volume_id, "s").await?.snapshot_id;
                let request = proto::GetMetadataAllocatedRequest {
                    starting_offset: i64::MAX,
                    ..of_allocated(&snapshot)
                };
                let stream = Stream::allocated(&t, request).await;
                stream.refused(&[Code::OutOfRange], "starting_offset is beyond the end")
            },
        ),
        Case::must(
            "metadata.maximum_is_not_negative",
            spec::METADATA_ALLOCATED,
            "a negative max_results is refused with INVALID_ARGUMENT",
            &[METADATA, CREATE, SNAPSHOTS],
            |t| async move {
                let volume = t.volume("v").await?;
                let snapshot = t.snapshot(&volume.volume_id, "s").await?.snapshot_id;
                let request = proto::GetMetadataAllocatedRequest {
                    max_results: -1,
                    ..of_allocated(&snapshot)
                };
                let stream = Stream::allocated(&t, request).await;
                stream.refused(&[Code::InvalidArgument], "max_results is negative")
            },
        ),
    ]
}

const EXACT: [Need; 4] = [METADATA, CREATE, SNAPSHOTS, Need::BlockVolumes];

fn allocated() -> Vec<Case> {
    vec![
        Case::must(
            "metadata.allocated_names_what_was_written",
            spec::METADATA_ALLOCATED,
            "every block that was written is named, in order",
            &EXACT,
            |t| async move {
                let mut written = Written::make(&t).await?;
                written.write(&written.pieces(), 0xA5).await?;
                let snapshot = written.snapshot(&t, "s").await?;
                let stream = Stream::allocated(&t, of_allocated(&snapshot)).await;
                covers(
                    stream.asked,
                    &stream.ranges()?,
                    &written.pieces(),
                    "written",
                )
            },
        ),
        Case::must(
            "metadata.allocated_is_of_the_snapshot",
            spec::METADATA_ALLOCATED,
            "the capacity is the volume's at the time of the snapshot",
            &EXACT,
            |t| async move {
                let mut written = Written::make(&t).await?;
                written.write(&written.pieces()[..1], 0xA5).await?;
                let snapshot = written.snapshot(&t, "s").await?;
                let stream = Stream::allocated(&t, of_allocated(&snapshot)).await;
                stream.ranges()?;
                let told = stream.messages.first().map(|message| message.capacity);
                ensure!(
                    told == Some(written.placed.volume.capacity_bytes)
                        || written.placed.volume.capacity_bytes == 0,
                    "volume_capacity_bytes is {told:?}; the volume has {}",
                    written.placed.volume.capacity_bytes
                );
                Ok(())
            },
        ),
        Case::must(
            "metadata.allocated_keeps_to_the_maximum",
            spec::METADATA_ALLOCATED,
            "no message has more than max_results ranges, and none is lost for it",
            &EXACT,
            |t| async move {
                let mut written = Written::make(&t).await?;
                written.write(&written.pieces(), 0xA5).await?;
                let snapshot = written.snapshot(&t, "s").await?;
                let request = proto::GetMetadataAllocatedRequest {
                    max_results: 1,
                    ..of_allocated(&snapshot)
                };
                let stream = Stream::allocated(&t, request).await;
                ensure!(
                    stream
                        .messages
                        .iter()
                        .all(|message| message.ranges.len() <= 1),
                    "max_results is 1, but a message has more ranges"
                );
                covers(
                    stream.asked,
                    &stream.ranges()?,
                    &written.pieces(),
                    "written",
                )
            },
        ),
        Case::must(
            "metadata.allocated_resumes",
            spec::METADATA_ALLOCATED,
            "from a starting_offset on, ranges are those that end after it",
            &EXACT,
            |t| async move {
                let mut written = Written::make(&t).await?;
                let pieces = written.pieces();
                written.write(&pieces, 0xA5).await?;
                let snapshot = written.snapshot(&t, "s").await?;
                let from = pieces[2];
                let request = proto::GetMetadataAllocatedRequest {
                    starting_offset: i64::try_from(from).unwrap_or(0),
                    ..of_allocated(&snapshot)
                };
                let stream = Stream::allocated(&t, request).await;
                let ranges = stream.ranges()?;
                resumes(stream.asked, &ranges, from)?;
                covers(stream.asked, &ranges, &pieces[2..], "written")
            },
        ),
        Case::must(
            "metadata.allocated_is_repeatable",
            spec::METADATA_ALLOCATED,
            "a snapshot does not change, and neither does its metadata",
            &EXACT,
            |t| async move {
                let mut written = Written::make(&t).await?;
                let pieces = written.pieces();
                written.write(&pieces[..2], 0xA5).await?;
                let snapshot = written.snapshot(&t, "s").await?;
                let before = Stream::allocated(&t, of_allocated(&snapshot))
                    .await
                    .ranges()?;
                written.write(&pieces[2..], 0x5A).await?;
                let after = Stream::allocated(&t, of_allocated(&snapshot))
                    .await
                    .ranges()?;
                ensure!(
                    before == after,
                    "the snapshot's ranges were {before:?}, and {after:?} after later writes to its volume"
                );
                Ok(())
            },
        ),
    ]
}

fn resumes(asked: &str, ranges: &[(u64, u64)], from: u64) -> Outcome {
    if let Some((at, size)) = ranges.first() {
        ensure!(
            at + size > from,
            "{asked} from offset {from} on names the range at {at} of {size} bytes, which ends before"
        );
    }
    Ok(())
}

fn delta() -> Vec<Case> {
    vec![
        Case::must(
            "metadata.delta_names_what_changed",
            spec::METADATA_DELTA,
            "every block that changed between two snapshots is named, in order",
            &EXACT,
            |t| async move {
                let mut written = Written::make(&t).await?;
                let pieces = written.pieces();
                written.write(&pieces[..3], 0xA5).await?;
                let base = written.snapshot(&t, "base").await?;
                let changed = [pieces[1], pieces[3]];
                written.write(&changed, 0x5A).await?;
                let target = written.snapshot(&t, "target").await?;
                let stream = Stream::delta(&t, of_delta(&base, &target)).await;
                covers(stream.asked, &stream.ranges()?, &changed, "changed")
            },
        ),
        Case::must(
            "metadata.delta_names_what_became_zero",
            spec::METADATA_DELTA,
            "a block that became zero has changed",
            &EXACT,
            |t| async move {
                let mut written = Written::make(&t).await?;
                let pieces = written.pieces();
                written.write(&pieces, 0xA5).await?;
                let base = written.snapshot(&t, "base").await?;
                written.write(&pieces[1..2], 0).await?;
                let target = written.snapshot(&t, "target").await?;
                let stream = Stream::delta(&t, of_delta(&base, &target)).await;
                covers(
                    stream.asked,
                    &stream.ranges()?,
                    &pieces[1..2],
                    "overwritten with zeros",
                )
            },
        ),
        Case::must(
            "metadata.delta_keeps_to_the_maximum",
            spec::METADATA_DELTA,
            "no message has more than max_results ranges, and none is lost for it",
            &EXACT,
            |t| async move {
                let mut written = Written::make(&t).await?;
                let pieces = written.pieces();
                let base = written.snapshot(&t, "base").await?;
                written.write(&pieces, 0x5A).await?;
                let target = written.snapshot(&t, "target").await?;
                let request = proto::GetMetadataDeltaRequest {
                    max_results: 1,
                    ..of_delta(&base, &target)
                };
                let stream = Stream::delta(&t, request).await;
                ensure!(
                    stream
                        .messages
                        .iter()
                        .all(|message| message.ranges.len() <= 1),
                    "max_results is 1, but a message has more ranges"
                );
                covers(stream.asked, &stream.ranges()?, &pieces, "changed")
            },
        ),
        Case::must(
            "metadata.delta_resumes",
            spec::METADATA_DELTA,
            "from a starting_offset on, ranges are those that end after it",
            &EXACT,
            |t| async move {
                let mut written = Written::make(&t).await?;
                let pieces = written.pieces();
                let base = written.snapshot(&t, "base").await?;
                written.write(&pieces, 0x5A).await?;
                let target = written.snapshot(&t, "target").await?;
                let from = pieces[2];
                let request = proto::GetMetadataDeltaRequest {
                    starting_offset: i64::try_from(from).unwrap_or(0),
                    ..of_delta(&base, &target)
                };
                let stream = Stream::delta(&t, request).await;
                let ranges = stream.ranges()?;
                resumes(stream.asked, &ranges, from)?;
                covers(stream.asked, &ranges, &pieces[2..], "changed")
            },
        ),
    ]
}
