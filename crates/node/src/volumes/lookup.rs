//! What the calls need to know: read from the API server, or from the volume itself.

use std::collections::BTreeMap;

use base64::Engine as _;
use orlop_csi::access::SingleNode;
use orlop_csi::client::NodeCapability;
use orlop_csi::{DriverInfo, Secrets, access, proto};
use orlop_model::volume::{CsiSource, SecretRef};
use orlop_model::{Key, Secret, VolumeAttachment};

use super::csi::Cause;
use super::{DeviceKey, Lifetime, Volumes, Want};
use crate::layout::attachment_name;

impl Volumes {
    /// The volume that a claim has as far as is known, which may be behind.
    pub(crate) fn likely_volume(&self, claim: &Key) -> Option<String> {
        let claim = self.parts.claims.get(claim)?;
        Some(claim.spec.volume_name.clone()).filter(|name| !name.is_empty())
    }

    /// What attaching told, read afresh: it must be of this very attachment.
    pub(super) async fn publish_context(
        &self,
        key: &DeviceKey,
        lifetime: Lifetime,
    ) -> Result<BTreeMap<String, String>, Cause> {
        if lifetime == Lifetime::Ephemeral || !self.is_attachable(&key.driver) {
            return Ok(BTreeMap::new());
        }
        let name = attachment_name(&key.handle, &key.driver, &self.parts.node_name);
        let found = self
            .parts
            .cluster
            .get::<VolumeAttachment>(&Key::cluster(&name))
            .await?;
        match found {
            Some(attachment)
                if attachment.status.attached && !attachment.metadata.is_deleting() =>
            {
                Ok(attachment.status.attachment_metadata)
            }
            _ => Err(Cause::NotAttached(name)),
        }
    }

    pub(super) async fn secrets(&self, reference: Option<&SecretRef>) -> Result<Secrets, Cause> {
        let Some(reference) = reference.filter(|reference| !reference.name.is_empty()) else {
            return Ok(Secrets::none());
        };
        let key = Key::namespaced(&reference.namespace, &reference.name);
        let secret = self.parts.cluster.get::<Secret>(&key).await?;
        let secret = secret.ok_or_else(|| Cause::NoSecret(key.clone()))?;
        let decoded = secret.data.into_iter().map(|(name, value)| {
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(value)
                .ok()?;
            Some((name, String::from_utf8(bytes).ok()?))
        });
        decoded
            .collect::<Option<Secrets>>()
            .ok_or(Cause::BinarySecret(key))
    }

    pub(super) fn volume_context(
        &self,
        key: &DeviceKey,
        want: &Want,
        source: &CsiSource,
    ) -> BTreeMap<String, String> {
        let mut context = source.volume_attributes.clone();
        let traits = self.parts.csi_drivers.named(&key.driver);
        if traits.is_some_and(|driver| driver.spec.pod_info_on_mount == Some(true)) {
            let meta = &want.pod.metadata;
            let account = &want.pod.spec.service_account_name;
            for (name, value) in [
                ("pod.name", meta.name.as_str()),
                ("pod.namespace", &meta.namespace),
                ("pod.uid", &meta.uid),
                (
                    "serviceAccount.name",
                    if account.is_empty() {
                        "default"
                    } else {
                        account
                    },
                ),
                (
                    "ephemeral",
                    match want.lifetime {
                        Lifetime::Persistent => "false",
                        Lifetime::Ephemeral => "true",
                    },
                ),
            ] {
                let prefix = orlop_model::well_known::CSI_PARAMETER_PREFIX;
                context.insert(format!("{prefix}{name}"), value.to_owned());
            }
        }
        context
    }
}

pub(super) fn csi_source(want: &Want) -> Result<&CsiSource, Cause> {
    let volume = &want.volume;
    volume
        .spec
        .csi
        .as_ref()
        .ok_or_else(|| Cause::NotCsi(volume.metadata.name.clone()))
}

/// How the pod uses the volume. The kubelet takes the volume's first mode alone.
pub(super) fn capability(
    want: &Want,
    source: &CsiSource,
    info: &DriverInfo,
) -> Result<proto::VolumeCapability, Cause> {
    use proto::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
    let volume = &want.volume;
    let modes: Vec<String> = volume
        .spec
        .access_modes
        .iter()
        .take(1)
        .map(|mode| format!("{mode:?}"))
        .collect();
    let mode = access::mode(&modes, SingleNode::of_node(info))?;
    let access_type = match volume.volume_mode() {
        orlop_model::VolumeMode::Block => AccessType::Block(BlockVolume {}),
        orlop_model::VolumeMode::Filesystem => AccessType::Mount(MountVolume {
            fs_type: source.fs_type.clone(),
            mount_flags: {
                let label = want.label.as_deref().map(super::labels::option);
                let own = volume.spec.mount_options.iter().cloned();
                own.chain(label).collect()
            },
            volume_mount_group: mount_group(want, info),
        }),
    };
    Ok(proto::VolumeCapability {
        access_mode: Some(AccessMode { mode: mode.into() }),
        access_type: Some(access_type),
    })
}

/// The pod's fsGroup, for drivers that apply it themselves.
pub(super) fn mount_group(want: &Want, info: &DriverInfo) -> String {
    let group = want
        .pod
        .spec
        .security_context
        .as_ref()
        .and_then(|context| context.fs_group);
    match group {
        Some(group) if info.node_can(NodeCapability::VolumeMountGroup) => group.to_string(),
        _ => String::new(),
    }
}
