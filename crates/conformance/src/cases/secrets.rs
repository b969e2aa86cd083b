//! Secrets: sent with every call that takes them, found nowhere afterwards.
//!
//! Each case sends a value that exists nowhere else and looks for it where the driver speaks.

use std::collections::BTreeMap;
use std::fmt::Debug;

use orlop_csi::client::{ControllerCapability as Can, GroupCapability, NodeCapability};
use orlop_csi::{SERVICE_ACCOUNT_TOKENS, Unary, proto};

use super::CREATE;
use crate::case::{Case, Need, Outcome, Trouble, ensure};
use crate::spec;
use crate::trial::Trial;

const NOBODY: &str = "orlop-conformance-nobody";
const PATH: &str = "/nonexistent/orlop-conformance";

type Map = BTreeMap<String, String>;

/// A value to look for, known to the run so that no report shows it.
fn canary(t: &Trial) -> String {
    let value = format!(
        "canary-{:016x}{:016x}",
        fastrand::u64(..),
        fastrand::u64(..)
    );
    t.bench().add_canary(value.clone());
    value
}

fn secrets(canary: &str) -> Map {
    [("password".to_owned(), canary.to_owned())].into()
}

pub(super) fn cases() -> Vec<Case> {
    [refusals(), answers(), logs()].concat()
}

/// A call that must fail, and whose message must not tell the secret.
fn kept<R: Unary + Debug>(
    what: &str,
    need: &[Need],
    request: impl Fn(&Trial, Map) -> R + Send + Sync + 'static,
) -> Case
where
    R::Reply: Debug,
{
    Case::must(
        format!("secrets.{what}_refusal"),
        spec::SECRETS,
        format!(
            "a refusal of {} does not show the request's secrets",
            R::METHOD.name()
        ),
        need,
        move |t| {
            let canary = canary(&t);
            let request = request(&t, secrets(&canary));
            async move {
                let answer = t.call(request).await;
                let shown =
                    matches!(&answer.result, Err(refusal) if refusal.message.contains(&canary));
                ensure!(
                    !shown,
                    "{} was refused with a message that shows the value of a secret",
                    answer.asked
                );
                Ok(())
            }
        },
    )
}

fn refusals() -> Vec<Case> {
    let snapshots = [Need::Controller(Can::CreateDeleteSnapshot)];
    let groups = [Need::Group(
        GroupCapability::CreateDeleteGetVolumeGroupSnapshot,
    )];
    let attach = [Need::Controller(Can::PublishUnpublishVolume)];
    vec![
        kept("create_volume", &[CREATE], |t, secrets| {
            proto::CreateVolumeRequest {
                secrets,
                volume_capabilities: Vec::new(),
                ..t.create_request("v")
            }
        }),
        kept("delete_volume", &[CREATE], |_, secrets| {
            proto::DeleteVolumeRequest {
                secrets,
                ..Default::default()
            }
        }),
        kept("controller_publish", &attach, |t, secrets| {
            proto::ControllerPublishVolumeRequest {
                volume_id: NOBODY.into(),
                node_id: t.bench().node_id.clone(),
                volume_capability: Some(t.capability()),
                secrets,
                ..Default::default()
            }
        }),
        kept("controller_unpublish", &attach, |_, secrets| {
            proto::ControllerUnpublishVolumeRequest {
                secrets,
                ..Default::default()
            }
        }),
        kept("validate", &[CREATE], |t, secrets| {
            proto::ValidateVolumeCapabilitiesRequest {
                volume_id: NOBODY.into(),
                volume_capabilities: vec![t.capability()],
                secrets,
                ..Default::default()
            }
        }),
        kept(
            "expand",
            &[Need::Controller(Can::ExpandVolume)],
            |t, secrets| proto::ControllerExpandVolumeRequest {
                volume_id: NOBODY.into(),
                capacity_range: Some(crate::make::at_least(t.size())),
                secrets,
                ..Default::default()
            },
        ),
        kept(
            "modify",
            &[Need::Controller(Can::ModifyVolume)],
            |_, secrets| proto::ControllerModifyVolumeRequest {
                volume_id: NOBODY.into(),
                mutable_parameters: [("key".to_owned(), "value".to_owned())].into(),
                secrets,
            },
        ),
        kept("create_snapshot", &snapshots, |t, secrets| {
            proto::CreateSnapshotRequest {
                secrets,
                ..t.snapshot_request(NOBODY, "s")
            }
        }),
        kept("delete_snapshot", &snapshots, |_, secrets| {
            proto::DeleteSnapshotRequest {
                secrets,
                ..Default::default()
            }
        }),
        kept(
            "list_snapshots",
            &[Need::Controller(Can::ListSnapshots)],
            |_, secrets| proto::ListSnapshotsRequest {
                max_entries: -1,
                secrets,
                ..Default::default()
            },
        ),
        kept(
            "get_snapshot",
            &[Need::Controller(Can::GetSnapshot)],
            |_, secrets| proto::GetSnapshotRequest {
                snapshot_id: NOBODY.into(),
                secrets,
            },
        ),
        kept("create_group", &groups, |t, secrets| {
            proto::CreateVolumeGroupSnapshotRequest {
                name: t.name("g"),
                source_volume_ids: vec![NOBODY.into()],
                secrets,
                ..Default::default()
            }
        }),
        kept("delete_group", &groups, |_, secrets| {
            proto::DeleteVolumeGroupSnapshotRequest {
                secrets,
                ..Default::default()
            }
        }),
        kept("get_group", &groups, |_, secrets| {
            proto::GetVolumeGroupSnapshotRequest {
                group_snapshot_id: NOBODY.into(),
                snapshot_ids: vec![NOBODY.into()],
                secrets,
            }
        }),
        kept(
            "stage",
            &[Need::Node(NodeCapability::StageUnstageVolume)],
            |t, secrets| proto::NodeStageVolumeRequest {
                volume_id: NOBODY.into(),
                staging_target_path: PATH.into(),
                volume_capability: Some(t.capability()),
                secrets,
                ..Default::default()
            },
        ),
        kept("publish", &[CREATE], |t, secrets| {
            proto::NodePublishVolumeRequest {
                volume_id: NOBODY.into(),
                target_path: PATH.into(),
                staging_target_path: PATH.into(),
                volume_capability: Some(t.capability()),
                secrets,
                ..Default::default()
            }
        }),
        kept(
            "node_expand",
            &[Need::Node(NodeCapability::ExpandVolume)],
            |_, secrets| proto::NodeExpandVolumeRequest {
                volume_id: NOBODY.into(),
                volume_path: PATH.into(),
                secrets,
                ..Default::default()
            },
        ),
    ]
}

fn answers() -> Vec<Case> {
    vec![Case::should(
        "secrets.contexts_are_public",
        spec::SECRETS,
        "neither volume_context nor publish_context holds a secret",
        &[CREATE],
        |t| async move {
            let canary = canary(&t);
            let request = proto::CreateVolumeRequest {
                secrets: secrets(&canary),
                ..t.create_request("v")
            };
            let volume = t.create(request).await?;
            let holds = |map: &Map| {
                map.iter()
                    .any(|(key, value)| key.contains(&canary) || value.contains(&canary))
            };
            ensure!(
                !holds(&volume.volume_context),
                "volume_context holds a secret of CreateVolume; everybody who reads a PersistentVolume sees it"
            );
            if t.attaches() {
                let request = proto::ControllerPublishVolumeRequest {
                    secrets: secrets(&canary),
                    ..t.attach_request(&volume, &t.bench().node_id)
                };
                let context = t.call(request).await.ok()?.publish_context;
                ensure!(
                    !holds(&context),
                    "publish_context holds a secret of ControllerPublishVolume"
                );
            }
            Ok(())
        },
    )]
}

/// The driver's log, once it has had a call's time to be written.
async fn log_lacks(t: &Trial, canary: &str, what: &str) -> Outcome {
    let Some(path) = t.bench().settings.driver_log.clone() else {
        return Err(Trouble::Skip("there is no --driver-log".to_owned()));
    };
    // What was said before this answer came is in the log when it has come.
    t.call(proto::ProbeRequest {}).await.ok()?;
    let log = std::fs::read(&path).map_err(crate::make::io("could not read the driver's log"))?;
    let found = log
        .windows(canary.len())
        .any(|bytes| bytes == canary.as_bytes());
    ensure!(!found, "the driver's log {} holds {what}", path.display());
    Ok(())
}

fn logs() -> Vec<Case> {
    vec![
        Case::must(
            "secrets.controller_log",
            spec::SECRETS,
            "a volume's life at the controller leaves no secret in the log",
            &[CREATE, Need::DriverLog],
            |t| async move {
                let canary = canary(&t);
                let request = proto::CreateVolumeRequest {
                    secrets: secrets(&canary),
                    ..t.create_request("v")
                };
                let volume = t.create(request).await?;
                if t.attaches() {
                    let node_id = t.bench().node_id.clone();
                    let request = proto::ControllerPublishVolumeRequest {
                        secrets: secrets(&canary),
                        ..t.attach_request(&volume, &node_id)
                    };
                    t.call(request).await.ok()?;
                    let request = proto::ControllerUnpublishVolumeRequest {
                        volume_id: volume.volume_id.clone(),
                        node_id,
                        secrets: secrets(&canary),
                    };
                    t.call(request).await.ok()?;
                }
                if t.bench().can(Can::CreateDeleteSnapshot) {
                    let request = proto::CreateSnapshotRequest {
                        secrets: secrets(&canary),
                        ..t.snapshot_request(&volume.volume_id, "s")
                    };
                    let snapshot = t.call(request).await.ok()?.snapshot.unwrap_or_default();
                    let request = proto::DeleteSnapshotRequest {
                        snapshot_id: snapshot.snapshot_id,
                        secrets: secrets(&canary),
                    };
                    t.call(request).await.ok()?;
                }
                let request = proto::DeleteVolumeRequest {
                    secrets: secrets(&canary),
                    ..t.delete_request(&volume.volume_id)
                };
                t.call(request).await.ok()?;
                log_lacks(&t, &canary, "a secret").await
            },
        ),
        Case::must(
            "secrets.node_log",
            spec::SECRETS,
            "a volume's life on the node leaves no secret in the log",
            &[CREATE, Need::DriverLog],
            |t| async move {
                let canary = canary(&t);
                let volume = t.volume("v").await?;
                let placed = t.attached(volume, t.capability()).await?;
                if t.stages() {
                    let request = proto::NodeStageVolumeRequest {
                        secrets: secrets(&canary),
                        ..placed.stage_request()
                    };
                    t.call(request).await.ok()?;
                }
                let target = t.target("v")?;
                let request = proto::NodePublishVolumeRequest {
                    secrets: secrets(&canary),
                    ..placed.publish_request(&target)
                };
                t.call(request).await.ok()?;
                t.take_down(&placed, &target).await?;
                log_lacks(&t, &canary, "a secret").await
            },
        ),
        Case::must(
            "secrets.token_log",
            spec::SECRETS,
            "a pod's token in the volume context is not in the log",
            &[CREATE, Need::DriverLog],
            |t| async move {
                let canary = canary(&t);
                let placed = t.staged_volume("v").await?;
                let target = t.target("v")?;
                let mut request = placed.publish_request(&target);
                let tokens = format!("{{\"\":{{\"token\":\"{canary}\"}}}}");
                request
                    .volume_context
                    .insert(SERVICE_ACCOUNT_TOKENS.to_owned(), tokens);
                // A driver may refuse a context that it doesn't know; it must keep quiet either way.
                t.call(request).await;
                log_lacks(&t, &canary, "a pod's token").await
            },
        ),
    ]
}
