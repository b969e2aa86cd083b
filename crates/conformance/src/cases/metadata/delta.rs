//! Which ranges changed between two snapshots.

use orlop_csi::proto;

use super::{EXACT, Stream, Written, covers, of_delta, resumes};
use crate::case::{Case, ensure};
use crate::spec;

pub(super) fn cases() -> Vec<Case> {
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
