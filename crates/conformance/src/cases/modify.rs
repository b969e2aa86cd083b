//! `ControllerModifyVolume` and mutable parameters.

use std::collections::BTreeMap;

use orlop_csi::client::ControllerCapability as Can;
use orlop_csi::proto;
use tonic::Code;

use super::CREATE;
use crate::case::{Case, Need, ensure};
use crate::spec;

fn modify(
    volume_id: &str,
    parameters: BTreeMap<String, String>,
) -> proto::ControllerModifyVolumeRequest {
    proto::ControllerModifyVolumeRequest {
        volume_id: volume_id.to_owned(),
        mutable_parameters: parameters,
        ..Default::default()
    }
}

fn nonsense() -> BTreeMap<String, String> {
    BTreeMap::from([(
        "orlop-conformance-no-such-parameter".to_owned(),
        "1".to_owned(),
    )])
}

pub(super) fn cases() -> Vec<Case> {
    let needs = [CREATE, Need::Controller(Can::ModifyVolume)];
    let given = [
        CREATE,
        Need::Controller(Can::ModifyVolume),
        Need::MutableParameters,
    ];
    vec![
        Case::must(
            "modify.unknown_volume",
            spec::MODIFY_VOLUME,
            "an unknown volume is NOT_FOUND",
            &given,
            |t| async move {
                let parameters = t.bench().settings.mutable_parameters.clone();
                t.call(modify("orlop-conformance-none", parameters))
                    .await
                    .refused(Code::NotFound, "there is no such volume")
            },
        ),
        Case::must(
            "modify.unsupported_parameter",
            spec::MODIFY_VOLUME,
            "a parameter that the driver doesn't know is INVALID_ARGUMENT",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                t.call(modify(&volume.volume_id, nonsense()))
                    .await
                    .refused(Code::InvalidArgument, "no driver has such a parameter")
            },
        ),
        Case::must(
            "modify.works",
            spec::MODIFY_VOLUME,
            "a volume's parameters are changed",
            &given,
            |t| async move {
                let volume = t.volume("v").await?;
                let parameters = t.bench().settings.mutable_parameters.clone();
                t.call(modify(&volume.volume_id, parameters))
                    .await
                    .ok()
                    .map(drop)
            },
        ),
        Case::must(
            "modify.repeat_is_idempotent",
            spec::MODIFY_VOLUME,
            "the same change again succeeds",
            &given,
            |t| async move {
                let volume = t.volume("v").await?;
                for _ in 0..5 {
                    let parameters = t.bench().settings.mutable_parameters.clone();
                    t.call(modify(&volume.volume_id, parameters))
                        .await
                        .ok_because("ControllerModifyVolume is idempotent")?;
                }
                Ok(())
            },
        ),
        Case::must(
            "modify.refused_when_partly_unsupported",
            spec::MODIFY_VOLUME,
            "a change with one unknown parameter is refused as a whole",
            &given,
            |t| async move {
                let volume = t.volume("v").await?;
                let mut parameters = t.bench().settings.mutable_parameters.clone();
                parameters.extend(nonsense());
                t.call(modify(&volume.volume_id, parameters))
                    .await
                    .refused(Code::InvalidArgument, "one of the parameters is unknown")
            },
        ),
        Case::must(
            "modify.deleted_volume",
            spec::MODIFY_VOLUME,
            "a deleted volume is NOT_FOUND",
            &given,
            |t| async move {
                let volume = t.volume("v").await?;
                t.call(t.delete_request(&volume.volume_id)).await.ok()?;
                let parameters = t.bench().settings.mutable_parameters.clone();
                t.call(modify(&volume.volume_id, parameters))
                    .await
                    .refused(Code::NotFound, "the volume was deleted")
            },
        ),
        Case::must(
            "modify.create_with_parameters",
            spec::CREATE_VOLUME,
            "a volume is created with mutable parameters, and again the same",
            &given,
            |t| async move {
                let request = proto::CreateVolumeRequest {
                    mutable_parameters: t.bench().settings.mutable_parameters.clone(),
                    ..t.create_request("v")
                };
                let first = t.create(request.clone()).await?;
                let again = t.create(request).await?;
                ensure!(
                    first.volume_id == again.volume_id,
                    "two volumes for one name: {:?} and {:?}",
                    first.volume_id,
                    again.volume_id
                );
                let parameters = t.bench().settings.mutable_parameters.clone();
                t.call(modify(&first.volume_id, parameters))
                    .await
                    .ok()
                    .map(drop)
            },
        ),
        Case::must(
            "modify.create_with_unsupported_parameters",
            spec::CREATE_VOLUME,
            "CreateVolume with an unknown mutable parameter is INVALID_ARGUMENT, and makes nothing",
            &needs,
            |t| async move {
                let request = proto::CreateVolumeRequest {
                    mutable_parameters: nonsense(),
                    ..t.create_request("v")
                };
                t.call(request.clone())
                    .await
                    .refused(Code::InvalidArgument, "no driver has such a parameter")?;
                let plain = proto::CreateVolumeRequest {
                    mutable_parameters: BTreeMap::new(),
                    ..request
                };
                t.create(plain).await.map(drop)
            },
        ),
        Case::must(
            "modify.leaves_the_volume",
            spec::MODIFY_VOLUME,
            "a refused change leaves the volume's context and size",
            &needs,
            |t| async move {
                let request = t.create_request("v");
                let before = t.create(request.clone()).await?;
                t.call(modify(&before.volume_id, nonsense()))
                    .await
                    .refused(Code::InvalidArgument, "no driver has such a parameter")?;
                let after = t.create(request).await?;
                ensure!(
                    after == before,
                    "the volume was {before:?}, and {after:?} after a refused change"
                );
                Ok(())
            },
        ),
    ]
}
