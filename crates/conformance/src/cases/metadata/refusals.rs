//! Questions that make no sense.

use orlop_csi::proto;
use tonic::Code;

use super::{METADATA, NOBODY, SNAPSHOTS, Stream, of_allocated, of_delta};
use crate::case::Case;
use crate::cases::CREATE;
use crate::spec;

pub(super) fn cases() -> Vec<Case> {
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
