//! From the plugin's words to the driver's.

use std::collections::BTreeMap;

use super::{
    AZURE_DISK, AZURE_FILE, CINDER, EBS, GCE, PORTWORX, Successor, Untranslatable, VSPHERE, handle,
    regions,
    source::{
        AzureDiskSource, AzureFileSource, CinderSource, EbsSource, GceDiskSource, PortworxSource,
        VsphereSource,
    },
    topology,
};
use crate::{
    access::AccessMode,
    pod::PodVolume,
    volume::{CsiSource, SecretRef, Volume, VolumeSpec},
    well_known,
};

/// The namespace of a secret of which nothing else is told.
pub(super) const DEFAULT_NAMESPACE: &str = "default";

/// A volume of a plugin.
pub(super) enum InTree<'a> {
    Ebs(&'a EbsSource),
    Gce(&'a GceDiskSource),
    AzureDisk(&'a AzureDiskSource),
    AzureFile(&'a AzureFileSource),
    Cinder(&'a CinderSource),
    Vsphere(&'a VsphereSource),
    Portworx(&'a PortworxSource),
}

/// The one field of a plugin that is set.
macro_rules! first {
    ($of:expr) => {
        None.or($of.aws_elastic_block_store.as_deref().map(InTree::Ebs))
            .or($of.gce_persistent_disk.as_deref().map(InTree::Gce))
            .or($of.azure_disk.as_deref().map(InTree::AzureDisk))
            .or($of.azure_file.as_deref().map(InTree::AzureFile))
            .or($of.cinder.as_deref().map(InTree::Cinder))
            .or($of.vsphere_volume.as_deref().map(InTree::Vsphere))
            .or($of.portworx_volume.as_deref().map(InTree::Portworx))
    };
}

impl<'a> InTree<'a> {
    pub(super) fn of_volume(spec: &'a VolumeSpec) -> Option<Self> {
        first!(spec)
    }

    pub(super) fn of_pod(volume: &'a PodVolume) -> Option<Self> {
        first!(volume)
    }

    pub(super) fn successor(&self) -> &'static Successor {
        match self {
            Self::Ebs(_) => &EBS,
            Self::Gce(_) => &GCE,
            Self::AzureDisk(_) => &AZURE_DISK,
            Self::AzureFile(_) => &AZURE_FILE,
            Self::Cinder(_) => &CINDER,
            Self::Vsphere(_) => &VSPHERE,
            Self::Portworx(_) => &PORTWORX,
        }
    }
}

/// A PersistentVolume's source.
pub(super) fn persistent(old: &InTree<'_>, volume: &Volume) -> Result<CsiSource, Untranslatable> {
    let mut csi = match old {
        InTree::Gce(disk) => gce(disk, gce_id(disk, volume)?),
        InTree::AzureFile(file) => {
            let claim = volume.spec.claim_ref.as_ref();
            let told = file.secret_namespace.clone();
            let namespace = told.or_else(|| claim.map(|claim| claim.namespace.clone()));
            let namespace = namespace.filter(|name| !name.is_empty());
            let group = volume.metadata.annotation(well_known::AZURE_FILE_GROUP);
            azure_file(
                file,
                group.unwrap_or_default(),
                &volume.metadata.name,
                &namespace.ok_or(Untranslatable::NoSecretNamespace)?,
            )
        }
        InTree::Portworx(source) => {
            let mut csi = portworx(source);
            let name = volume.metadata.annotation(well_known::PORTWORX_SECRET_NAME);
            let space = volume
                .metadata
                .annotation(well_known::PORTWORX_SECRET_NAMESPACE);
            let secret = name.zip(space).map(|(name, namespace)| SecretRef {
                name: name.to_owned(),
                namespace: namespace.to_owned(),
            });
            csi.controller_publish_secret_ref.clone_from(&secret);
            csi.node_stage_secret_ref.clone_from(&secret);
            csi.node_publish_secret_ref.clone_from(&secret);
            csi.controller_expand_secret_ref.clone_from(&secret);
            csi.node_expand_secret_ref = secret;
            csi
        }
        InTree::Ebs(disk) => ebs(disk)?,
        InTree::AzureDisk(disk) => azure_disk(disk)?,
        InTree::Cinder(source) => cinder(source),
        InTree::Vsphere(disk) => vsphere(disk),
    };
    old.successor().driver.clone_into(&mut csi.driver);
    Ok(csi)
}

/// A pod's own volume.
pub(super) struct Inline {
    /// By which its staging folder is found.
    pub(super) name: String,
    pub(super) csi: CsiSource,
    pub(super) mode: AccessMode,
}

/// A pod's own volume's source.
pub(super) fn inline(
    old: &InTree<'_>,
    volume: &str,
    namespace: &str,
) -> Result<Inline, Untranslatable> {
    let once_or_read = |read_only: bool| match read_only {
        true => AccessMode::ReadOnlyMany,
        false => AccessMode::ReadWriteOnce,
    };
    let once = AccessMode::ReadWriteOnce;
    let prefixed = |id: &str| format!("{}-{id}", old.successor().driver);
    let (mut csi, name, mode) = match old {
        InTree::Ebs(disk) => {
            let csi = ebs(disk)?;
            let name = prefixed(&csi.volume_handle);
            (csi, name, once)
        }
        InTree::Gce(disk) => {
            let id = handle::of_zone(handle::UNSPECIFIED, handle::UNSPECIFIED, &disk.pd_name);
            let name = prefixed(&disk.pd_name);
            (gce(disk, id), name, once_or_read(disk.read_only))
        }
        InTree::AzureDisk(disk) => {
            let mut csi = azure_disk(disk)?;
            csi.volume_attributes.retain(|_, value| !value.is_empty());
            (csi, disk.disk_uri.clone(), once)
        }
        InTree::AzureFile(file) => {
            let namespace = match namespace {
                "" => DEFAULT_NAMESPACE,
                other => other,
            };
            let csi = azure_file(file, "", volume, namespace);
            let name = csi.volume_handle.clone();
            (csi, name, AccessMode::ReadWriteMany)
        }
        InTree::Cinder(source) => (cinder(source), prefixed(&source.volume_id), once),
        InTree::Vsphere(disk) => (vsphere(disk), prefixed(&disk.volume_path), once),
        InTree::Portworx(source) => {
            let mode = once_or_read(source.read_only);
            (portworx(source), prefixed(&source.volume_id), mode)
        }
    };
    old.successor().driver.clone_into(&mut csi.driver);
    Ok(Inline { name, csi, mode })
}

fn attributes<const N: usize>(all: [(&str, String); N]) -> BTreeMap<String, String> {
    all.map(|(key, value)| (key.to_owned(), value)).into()
}

fn ebs(disk: &EbsSource) -> Result<CsiSource, Untranslatable> {
    Ok(CsiSource {
        volume_handle: handle::ebs(&disk.volume_id)?,
        read_only: disk.read_only,
        fs_type: disk.fs_type.clone(),
        volume_attributes: attributes([("partition", disk.partition.to_string())]),
        ..CsiSource::default()
    })
}

fn gce(disk: &GceDiskSource, id: String) -> CsiSource {
    let partition = match disk.partition {
        0 => String::new(),
        number => number.to_string(),
    };
    CsiSource {
        volume_handle: id,
        read_only: disk.read_only,
        fs_type: disk.fs_type.clone(),
        volume_attributes: attributes([("partition", partition)]),
        ..CsiSource::default()
    }
}

/// Where the disk is, by the volume's labels.
fn gce_id(disk: &GceDiskSource, volume: &Volume) -> Result<String, Untranslatable> {
    let labels = &volume.metadata.labels;
    let label = |key: &str| labels.get(key).filter(|value| !value.is_empty());
    let zones = label(topology::BETA_ZONE).or_else(|| label(topology::ZONE));
    let zones: Vec<String> = match zones {
        Some(zones) => topology::listed(zones),
        None => vec![handle::UNSPECIFIED.to_owned()],
    };
    let (project, disk) = (handle::UNSPECIFIED, &disk.pd_name);
    match zones.as_slice() {
        [zone] => Ok(handle::of_zone(project, zone, disk)),
        zones => Ok(handle::of_region(project, &regions::gce(zones)?, disk)),
    }
}

/// The plugin never let several nodes write, though it took such volumes; the driver refuses
/// them.
pub(super) fn gce_modes(modes: &[AccessMode]) -> Vec<AccessMode> {
    match modes {
        [] => Vec::new(),
        modes if modes.iter().all(|mode| *mode == AccessMode::ReadOnlyMany) => {
            vec![AccessMode::ReadOnlyMany]
        }
        _ => vec![AccessMode::ReadWriteOnce],
    }
}

fn azure_disk(disk: &AzureDiskSource) -> Result<CsiSource, Untranslatable> {
    if let Some(kind) = &disk.kind
        && !kind.eq_ignore_ascii_case("Managed")
    {
        return Err(Untranslatable::Kind(kind.clone()));
    }
    let mut csi = CsiSource {
        volume_handle: disk.disk_uri.clone(),
        read_only: disk.read_only.unwrap_or_default(),
        fs_type: disk.fs_type.clone().unwrap_or_default(),
        volume_attributes: attributes([("kind", "Managed".to_owned())]),
        ..CsiSource::default()
    };
    let optional = [
        ("cachingmode", &disk.caching_mode),
        ("fstype", &disk.fs_type),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            csi.volume_attributes.insert(key.to_owned(), value.clone());
        }
    }
    Ok(csi)
}

fn azure_file(file: &AzureFileSource, group: &str, volume: &str, namespace: &str) -> CsiSource {
    let (secret, share) = (&file.secret_name, &file.share_name);
    let account = handle::storage_account(secret).unwrap_or(secret);
    CsiSource {
        volume_handle: format!("{group}#{account}#{share}#{volume}#{namespace}"),
        read_only: file.read_only,
        volume_attributes: attributes([("sharename", share.clone())]),
        node_stage_secret_ref: Some(SecretRef {
            name: secret.clone(),
            namespace: namespace.to_owned(),
        }),
        ..CsiSource::default()
    }
}

fn cinder(source: &CinderSource) -> CsiSource {
    CsiSource {
        volume_handle: source.volume_id.clone(),
        read_only: source.read_only,
        fs_type: source.fs_type.clone(),
        ..CsiSource::default()
    }
}

fn vsphere(disk: &VsphereSource) -> CsiSource {
    let policy = &disk.storage_policy_name;
    CsiSource {
        volume_handle: disk.volume_path.clone(),
        fs_type: disk.fs_type.clone(),
        volume_attributes: match policy.is_empty() {
            true => BTreeMap::new(),
            false => attributes([("storagepolicyname", policy.clone())]),
        },
        ..CsiSource::default()
    }
}

fn portworx(source: &PortworxSource) -> CsiSource {
    CsiSource {
        volume_handle: source.volume_id.clone(),
        fs_type: source.fs_type.clone(),
        ..CsiSource::default()
    }
}
