//! Which ranges hold data.

use orlop_csi::proto;

use super::{EXACT, Stream, Written, covers, of_allocated, resumes};
use crate::case::{Case, ensure};
use crate::spec;

pub(super) fn cases() -> Vec<Case> {
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
