//! Sizes: what is asked for, what is given, what is left.

use orlop_csi::proto;
use orlop_csi::proto::CapacityRange;
use tonic::Code;

use super::CREATE;
use crate::case::{Case, Trouble, ensure};
use crate::make::{at_least, exactly};
use crate::spec;

mod room;

fn range(required_bytes: i64, limit_bytes: i64) -> CapacityRange {
    CapacityRange {
        required_bytes,
        limit_bytes,
    }
}

/// A range that the driver must meet or refuse with `OUT_OF_RANGE`.
fn met(
    id: &'static str,
    title: &'static str,
    make: impl Fn(i64) -> CapacityRange + Send + Sync + 'static,
) -> Case {
    Case::must(
        format!("capacity.{id}"),
        spec::CREATE_VOLUME,
        title,
        &[CREATE],
        move |t| {
            let range = make(t.size());
            async move {
                let request = proto::CreateVolumeRequest {
                    capacity_range: Some(range),
                    ..t.create_request("v")
                };
                let reply = t
                    .call(request)
                    .await
                    .ok_or_any(&[Code::OutOfRange], "the size is a usual one")?;
                let Some(volume) = reply.and_then(|reply| reply.volume) else {
                    return Ok(()); // the driver doesn't make this size, and says so
                };
                let given = volume.capacity_bytes;
                ensure!(
                    given == 0 || given >= range.required_bytes,
                    "required_bytes is {}, but the volume has {given}",
                    range.required_bytes
                );
                ensure!(
                    given == 0 || range.limit_bytes == 0 || given <= range.limit_bytes,
                    "limit_bytes is {}, but the volume has {given}",
                    range.limit_bytes
                );
                Ok(())
            }
        },
    )
}

/// A range that makes no sense.
fn refused(
    id: &'static str,
    title: &'static str,
    make: impl Fn(i64) -> CapacityRange + Send + Sync + 'static,
) -> Case {
    Case::must(
        format!("capacity.{id}"),
        spec::CREATE_VOLUME,
        title,
        &[CREATE],
        move |t| {
            let range = make(t.size());
            async move {
                let request = proto::CreateVolumeRequest {
                    capacity_range: Some(range),
                    ..t.create_request("v")
                };
                t.call(request).await.refused_with_any(
                    &[Code::InvalidArgument, Code::OutOfRange],
                    "no volume fits this range",
                )
            }
        },
    )
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        met(
            "required_alone",
            "a volume has at least required_bytes",
            at_least,
        ),
        met(
            "exact",
            "required_bytes and limit_bytes alike give exactly that size",
            exactly,
        ),
        met("limit_alone", "a volume has at most limit_bytes", |size| {
            range(0, size * 2)
        }),
        met("range", "a volume's size lies in the range", |size| {
            range(size, size * 2)
        }),
        met(
            "odd_size",
            "a size that is no multiple of a block is rounded up",
            |size| range(size + 1, 0),
        ),
        met(
            "odd_size_with_limit",
            "rounding up keeps to the limit",
            |size| range(size + 1, size * 2),
        ),
        met(
            "odd_exact",
            "an odd exact size is met or refused, never missed",
            |size| exactly(size + 1),
        ),
        refused(
            "limit_below_required",
            "limit_bytes below required_bytes is refused",
            |size| range(size * 2, size),
        ),
        refused(
            "negative_required",
            "a negative required_bytes is refused",
            |_| range(-1, 0),
        ),
        refused(
            "negative_limit",
            "a negative limit_bytes is refused",
            |_| range(0, -1),
        ),
        refused(
            "least_required",
            "the least of all numbers is refused",
            |_| range(i64::MIN, 0),
        ),
    ];
    cases.extend(rest());
    cases.extend(room::cases());
    cases
}

fn rest() -> Vec<Case> {
    vec![
        Case::must(
            "capacity.is_told",
            spec::CREATE_VOLUME,
            "a volume of a size that was asked for tells its capacity_bytes",
            &[CREATE],
            |t| async move {
                let volume = t.volume("v").await?;
                if volume.capacity_bytes == 0 {
                    t.warn("capacity_bytes is 0, which means unknown: users then see no size");
                }
                Ok(())
            },
        ),
        Case::must(
            "capacity.more_than_there_is",
            spec::CREATE_VOLUME,
            "a volume of 2^62 bytes is refused with OUT_OF_RANGE or RESOURCE_EXHAUSTED",
            &[CREATE],
            |t| async move {
                let request = proto::CreateVolumeRequest {
                    capacity_range: Some(at_least(1 << 62)),
                    ..t.create_request("v")
                };
                t.call(request).await.refused_with_any(
                    &[Code::OutOfRange, Code::ResourceExhausted],
                    "no storage is that large",
                )
            },
        ),
        Case::must(
            "capacity.largest_number",
            spec::CREATE_VOLUME,
            "a volume of 2^63-1 bytes is refused, not overflown",
            &[CREATE],
            |t| async move {
                let request = proto::CreateVolumeRequest {
                    capacity_range: Some(at_least(i64::MAX)),
                    ..t.create_request("v")
                };
                t.call(request).await.refused_with_any(
                    &[Code::OutOfRange, Code::ResourceExhausted],
                    "no storage is that large",
                )
            },
        ),
        Case::must(
            "capacity.refusal_leaves_nothing",
            spec::CREATE_VOLUME,
            "a name whose volume was refused for its size is free",
            &[CREATE],
            |t| async move {
                let request = t.create_request("v");
                let huge = proto::CreateVolumeRequest {
                    capacity_range: Some(at_least(1 << 62)),
                    ..request.clone()
                };
                let answer = t.call(huge).await;
                if answer.is_ok() {
                    return Err(Trouble::Skip(
                        "the driver makes volumes of 2^62 bytes".into(),
                    ));
                }
                t.create(request).await.map(drop)
            },
        ),
        Case::should(
            "capacity.empty_range",
            spec::CREATE_VOLUME,
            "a range without any bound is refused with INVALID_ARGUMENT, or taken for none",
            &[CREATE],
            |t| async move {
                let request = proto::CreateVolumeRequest {
                    capacity_range: Some(range(0, 0)),
                    ..t.create_request("v")
                };
                t.call(request)
                    .await
                    .ok_or_any(&[Code::InvalidArgument], "at least one bound must be set")
                    .map(drop)
            },
        ),
        Case::must(
            "capacity.is_seen_at_the_path",
            spec::CREATE_VOLUME,
            "the volume's file system or device has about the size that was promised",
            &[CREATE],
            |t| async move {
                let (placed, target) = t.published("v").await?;
                let seen = crate::data::size_at(&target).await?;
                let promised = placed.volume.capacity_bytes.max(t.size());
                // A file system keeps some for itself.
                let least = promised / 10 * 7;
                ensure!(
                    seen >= least,
                    "{promised} bytes were promised, but only {seen} are seen at the target path"
                );
                if !t.bench().settings.block && seen > promised.saturating_mul(2) {
                    t.warn(format!("{seen} bytes are seen at the target path of a volume of {promised}: the size is not enforced"));
                }
                Ok(())
            },
        ),
    ]
}
