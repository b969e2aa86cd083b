//! The backend grows.

use orlop_csi::client::ControllerCapability as Can;
use orlop_csi::proto;
use tonic::Code;

use super::{EXPAND, expand};
use crate::case::{Case, Need, ensure};
use crate::cases::CREATE;
use crate::make::{at_least, exactly};
use crate::spec;

pub(super) fn cases() -> Vec<Case> {
    let needs = [CREATE, EXPAND];
    vec![
        Case::must(
            "expand.works",
            spec::CONTROLLER_EXPAND,
            "a volume grows to at least what is required",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let wanted = volume.capacity_bytes.max(t.size()) * 2;
                let reply = t
                    .call(expand(&t, &volume.volume_id, at_least(wanted)))
                    .await
                    .ok()?;
                ensure!(
                    reply.capacity_bytes >= wanted,
                    "{wanted} bytes are required, capacity_bytes is {}",
                    reply.capacity_bytes
                );
                Ok(())
            },
        ),
        Case::must(
            "expand.keeps_to_the_limit",
            spec::CONTROLLER_EXPAND,
            "a volume grows to at most limit_bytes",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let wanted = volume.capacity_bytes.max(t.size()) * 2;
                let reply = t
                    .call(expand(&t, &volume.volume_id, exactly(wanted)))
                    .await
                    .ok()?;
                ensure!(
                    reply.capacity_bytes == wanted,
                    "exactly {wanted} bytes were asked for, capacity_bytes is {}",
                    reply.capacity_bytes
                );
                Ok(())
            },
        ),
        Case::must(
            "expand.repeat_is_idempotent",
            spec::CONTROLLER_EXPAND,
            "the same request again succeeds with the same size",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let wanted = volume.capacity_bytes.max(t.size()) * 2;
                let first = t
                    .call(expand(&t, &volume.volume_id, at_least(wanted)))
                    .await
                    .ok()?;
                for _ in 0..5 {
                    let again = t
                        .call(expand(&t, &volume.volume_id, at_least(wanted)))
                        .await
                        .ok_because("ControllerExpandVolume is idempotent")?;
                    ensure!(
                        again.capacity_bytes == first.capacity_bytes,
                        "capacity_bytes was {}, and {} when repeated",
                        first.capacity_bytes,
                        again.capacity_bytes
                    );
                }
                Ok(())
            },
        ),
        Case::must(
            "expand.smaller_is_fine",
            spec::CONTROLLER_EXPAND,
            "a volume that is large enough already stays, and doesn't shrink",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let has = volume.capacity_bytes.max(t.size());
                let reply = t
                    .call(expand(&t, &volume.volume_id, at_least(has / 2)))
                    .await
                    .ok_because("the volume is large enough already")?;
                ensure!(
                    reply.capacity_bytes >= has,
                    "the volume had {has} bytes and has {} after being asked for {}: volumes never shrink",
                    reply.capacity_bytes,
                    has / 2
                );
                Ok(())
            },
        ),
        Case::must(
            "expand.limit_below_size_is_refused",
            spec::CONTROLLER_EXPAND,
            "a limit below the volume's size is OUT_OF_RANGE, never a smaller volume",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let has = volume.capacity_bytes.max(t.size());
                let request = expand(&t, &volume.volume_id, exactly(has / 2));
                t.call(request).await.refused_with_any(
                    &[Code::OutOfRange, Code::InvalidArgument],
                    "the volume is larger than limit_bytes",
                )
            },
        ),
        Case::must(
            "expand.unknown_volume",
            spec::CONTROLLER_EXPAND,
            "an unknown volume is NOT_FOUND",
            &needs,
            |t| async move {
                t.call(expand(&t, "orlop-conformance-none", at_least(t.size() * 2)))
                    .await
                    .refused(Code::NotFound, "there is no such volume")
            },
        ),
        Case::must(
            "expand.deleted_volume",
            spec::CONTROLLER_EXPAND,
            "a deleted volume is NOT_FOUND",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                t.call(t.delete_request(&volume.volume_id)).await.ok()?;
                t.call(expand(&t, &volume.volume_id, at_least(t.size() * 2)))
                    .await
                    .refused(Code::NotFound, "the volume was deleted")
            },
        ),
        Case::must(
            "expand.limit_below_required",
            spec::CONTROLLER_EXPAND,
            "limit_bytes below required_bytes is refused",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let range = proto::CapacityRange {
                    required_bytes: t.size() * 4,
                    limit_bytes: t.size() * 2,
                };
                t.call(expand(&t, &volume.volume_id, range))
                    .await
                    .refused_with_any(
                        &[Code::InvalidArgument, Code::OutOfRange],
                        "no size fits this range",
                    )
            },
        ),
        Case::must(
            "expand.negative",
            spec::CONTROLLER_EXPAND,
            "a negative size is refused",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                t.call(expand(&t, &volume.volume_id, at_least(-1)))
                    .await
                    .refused_with_any(
                        &[Code::InvalidArgument, Code::OutOfRange],
                        "sizes are not negative",
                    )
            },
        ),
        Case::must(
            "expand.more_than_there_is",
            spec::CONTROLLER_EXPAND,
            "2^62 bytes are refused with OUT_OF_RANGE or RESOURCE_EXHAUSTED, and the volume stays",
            &needs,
            |t| async move {
                let request = t.create_request("v");
                let before = t.create(request.clone()).await?;
                t.call(expand(&t, &before.volume_id, at_least(1 << 62)))
                    .await
                    .refused_with_any(
                        &[Code::OutOfRange, Code::ResourceExhausted],
                        "no storage is that large",
                    )?;
                let after = t.create(request).await?;
                ensure!(
                    after == before,
                    "the volume was {before:?}, and {after:?} after a refused expansion"
                );
                Ok(())
            },
        ),
        Case::must(
            "expand.is_listed",
            spec::LIST_VOLUMES,
            "the list tells the new size",
            &[CREATE, EXPAND, Need::Controller(Can::ListVolumes)],
            |t| async move {
                let volume = t.volume("v").await?;
                let wanted = volume.capacity_bytes.max(t.size()) * 2;
                let reply = t
                    .call(expand(&t, &volume.volume_id, at_least(wanted)))
                    .await
                    .ok()?;
                let listed = crate::cases::volumes_listed(&t).await?;
                let told = listed
                    .iter()
                    .find(|entry| entry.volume_id == volume.volume_id)
                    .map_or(0, |entry| entry.capacity_bytes);
                ensure!(
                    told == reply.capacity_bytes || told == 0,
                    "the volume has {} bytes, ListVolumes tells {told}",
                    reply.capacity_bytes
                );
                Ok(())
            },
        ),
        Case::must(
            "expand.offline_only_in_use",
            spec::CONTROLLER_EXPAND,
            "a driver that grows OFFLINE only refuses a published volume with FAILED_PRECONDITION",
            &[CREATE, EXPAND, Need::OfflineExpansionOnly],
            |t| async move {
                let (placed, _) = t.published("v").await?;
                t.call(expand(&t, &placed.id(), at_least(t.size() * 2)))
                    .await
                    .refused(
                        Code::FailedPrecondition,
                        "the volume is published, and the driver grows volumes OFFLINE only",
                    )
            },
        ),
    ]
}
