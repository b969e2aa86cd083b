//! How long names and ids may be.

use orlop_csi::proto;
use tonic::Code;

use super::{named, padded};
use crate::case::{Case, ensure};
use crate::cases::CREATE;
use crate::spec;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::must(
            "names.volume_128_bytes",
            spec::NAME_RULES,
            "a volume's name of 128 bytes is taken",
            &[CREATE],
            |t| named(t, |unique| padded(unique, 128)),
        ),
        Case::must(
            "names.volume_128_bytes_multibyte",
            spec::NAME_RULES,
            "128 bytes of multi-byte letters are taken",
            &[CREATE],
            |t| {
                named(t, |unique| {
                    let mut name = padded(unique, unique.len() + (128 - unique.len()) % 3);
                    while name.len() < 128 {
                        name.push('卷');
                    }
                    name
                })
            },
        ),
        Case::must(
            "names.volume_long_names_differ_at_the_end",
            spec::CREATE_VOLUME,
            "two names of 128 bytes that differ in the last letter are two volumes",
            &[CREATE],
            |t| async move {
                let name = padded(&t.name("n"), 127);
                let with = |end: &str| proto::CreateVolumeRequest {
                    name: format!("{name}{end}"),
                    ..t.create_request("n")
                };
                let first = t.create(with("a")).await?;
                let second = t.create(with("b")).await?;
                ensure!(
                    first.volume_id != second.volume_id,
                    "both names gave volume {:?}: the driver cuts names off",
                    first.volume_id
                );
                Ok(())
            },
        ),
        Case::should(
            "names.volume_129_bytes",
            spec::NAME_RULES,
            "a volume's name of 129 bytes is refused with INVALID_ARGUMENT",
            &[CREATE],
            |t| async move {
                let request = proto::CreateVolumeRequest {
                    name: padded(&t.name("n"), 129),
                    ..t.create_request("n")
                };
                t.call(request)
                    .await
                    .refused(Code::InvalidArgument, "strings have at most 128 bytes")
            },
        ),
        Case::must(
            "names.volume_64_kib",
            spec::NAME_RULES,
            "a name of 64 KiB does no harm",
            &[CREATE],
            |t| async move {
                let request = proto::CreateVolumeRequest {
                    name: padded(&t.name("n"), 65536),
                    ..t.create_request("n")
                };
                t.call(request).await.refused_with_any(
                    &[Code::InvalidArgument, Code::ResourceExhausted],
                    "strings have at most 128 bytes",
                )
            },
        ),
        Case::should(
            "names.parameters_over_4_kib",
            spec::NAME_RULES,
            "parameters of more than 4 KiB are refused with INVALID_ARGUMENT",
            &[CREATE],
            |t| async move {
                let mut request = t.create_request("n");
                request
                    .parameters
                    .insert("orlop-conformance".into(), "x".repeat(4097));
                t.call(request)
                    .await
                    .refused(Code::InvalidArgument, "a map has at most 4 KiB")
            },
        ),
        Case::must(
            "names.delete_of_a_long_id",
            spec::DELETE_VOLUME,
            "DeleteVolume with an unknown id of 128 bytes succeeds",
            &[CREATE],
            |t| async move {
                t.call(t.delete_request(&padded("orlop-conformance", 128)))
                    .await
                    .ok_because("no such volume exists, so it is deleted")
                    .map(drop)
            },
        ),
        Case::must(
            "names.delete_of_an_endless_id",
            spec::DELETE_VOLUME,
            "DeleteVolume with an id of 64 KiB does no harm",
            &[CREATE],
            |t| async move {
                let answer = t.call(t.delete_request(&padded("x", 65536))).await;
                answer
                    .ok_or_any(
                        &[Code::InvalidArgument, Code::ResourceExhausted],
                        "no driver gives ids that long",
                    )
                    .map(drop)
            },
        ),
        Case::must(
            "names.long_paths",
            spec::PUBLISH,
            "paths of more than 128 bytes are taken",
            &[CREATE],
            |t| async move {
                let placed = t.staged_volume("v").await?;
                let target = t.target(&"p".repeat(180))?;
                t.call(placed.publish_request(&target)).await.ok()?;
                t.call(placed.unpublish_request(&target))
                    .await
                    .ok()
                    .map(drop)
            },
        ),
        Case::should(
            "names.very_long_paths",
            spec::PUBLISH,
            "paths of 1,000 bytes are taken",
            &[CREATE],
            |t| async move {
                let placed = t.staged_volume("v").await?;
                let mut tag = "p".to_owned();
                while tag.len() < 800 {
                    tag.push_str(&format!("/{}", "d".repeat(199)));
                }
                let target = t.target(&tag)?;
                t.call(placed.publish_request(&target)).await.ok()?;
                t.call(placed.unpublish_request(&target))
                    .await
                    .ok()
                    .map(drop)
            },
        ),
        Case::must(
            "names.paths_with_odd_letters",
            spec::PUBLISH,
            "a target path may hold spaces, commas, quotes and letters of any script",
            &[CREATE],
            |t| async move {
                let placed = t.staged_volume("v").await?;
                for odd in [
                    "with space",
                    "comma,colon:",
                    "quote'\"",
                    "größe 卷",
                    "back\\slash",
                    "-dash",
                    "tab\tnewline\n",
                ] {
                    let target = t.target(odd)?;
                    t.call(placed.publish_request(&target)).await.ok()?;
                    let there = std::path::Path::new(&target).exists();
                    ensure!(
                        there,
                        "NodePublishVolume succeeded, but nothing is at {target:?}"
                    );
                    t.call(placed.unpublish_request(&target)).await.ok()?;
                    ensure!(
                        !std::path::Path::new(&target).exists(),
                        "NodeUnpublishVolume left {target:?}"
                    );
                }
                Ok(())
            },
        ),
    ]
}
