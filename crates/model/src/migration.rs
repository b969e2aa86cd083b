//! What became of the plugins that were once part of Kubernetes: each has a CSI driver in its
//! place, and its volumes, classes and pods' own volumes are told in that driver's words. Pure.
//!
//! | plugin | driver | zones by |
//! |---|---|---|
//! | `kubernetes.io/aws-ebs` | `ebs.csi.aws.com` | `topology.ebs.csi.aws.com/zone` |
//! | `kubernetes.io/gce-pd` | `pd.csi.storage.gke.io` | `topology.gke.io/zone` |
//! | `kubernetes.io/azure-disk` | `disk.csi.azure.com` | `topology.disk.csi.azure.com/zone`, classes only |
//! | `kubernetes.io/azure-file` | `file.csi.azure.com` | - |
//! | `kubernetes.io/cinder` | `cinder.csi.openstack.org` | `topology.cinder.csi.openstack.org/zone` |
//! | `kubernetes.io/vsphere-volume` | `csi.vsphere.vmware.com` | `topology.csi.vmware.com/zone`, `…/region` |
//! | `kubernetes.io/portworx-volume` | `pxd.portworx.com` | - |

use std::{borrow::Cow, sync::Arc};

use crate::{
    access::{AccessMode, VolumeMode},
    meta::{Key, Meta},
    pod::PodVolume,
    volume::{CsiSource, Volume, VolumeSpec},
};

mod back;
mod class;
mod handle;
mod over;
mod regions;
pub mod source;
mod topology;

#[cfg(test)]
mod tests;

pub use class::{Twice, class};
pub use handle::repaired as repaired_handle;

/// Why something of a plugin can't be told in its driver's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Untranslatable {
    /// An id of a form that the plugin never had.
    #[error("{id:?} is not the id of {what}")]
    Id {
        /// What it should name.
        what: &'static str,
        /// The id.
        id: String,
    },
    /// Disks that the driver doesn't have.
    #[error("disks of kind {0:?} have no place in the driver; copy the data to a managed disk")]
    Kind(String),
    /// A secret, of whose namespace nothing is said.
    #[error("neither the volume nor its claim tells the secret's namespace; set secretNamespace")]
    NoSecretNamespace,
    /// Zones that lie in no region, or in several.
    #[error("zones {0:?} are not all of one region")]
    Zones(Vec<String>),
    /// A number that isn't one.
    #[error("partition {0:?} is not a number")]
    Partition(String),
}

/// A plugin, and who took its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Successor {
    pub(crate) plugin: &'static str,
    pub(crate) driver: &'static str,
    /// The driver's label for zones, as classes name them.
    pub(crate) zone: Option<&'static str>,
    /// How the driver's volumes tell where they are.
    pub(crate) places: Places,
}

/// How volumes tell where they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Places {
    /// They don't, or as ever.
    Unknown,
    /// By this label.
    Zones(&'static str),
    /// By one for zones and one for regions.
    ZonesAndRegions(&'static str, &'static str),
}

pub(crate) const EBS: Successor = Successor {
    plugin: "kubernetes.io/aws-ebs",
    driver: "ebs.csi.aws.com",
    zone: Some("topology.ebs.csi.aws.com/zone"),
    places: Places::Zones("topology.ebs.csi.aws.com/zone"),
};
pub(crate) const GCE: Successor = Successor {
    plugin: "kubernetes.io/gce-pd",
    driver: "pd.csi.storage.gke.io",
    zone: Some("topology.gke.io/zone"),
    places: Places::Zones("topology.gke.io/zone"),
};
pub(crate) const AZURE_DISK: Successor = Successor {
    plugin: "kubernetes.io/azure-disk",
    driver: "disk.csi.azure.com",
    zone: Some("topology.disk.csi.azure.com/zone"),
    places: Places::Unknown,
};
pub(crate) const AZURE_FILE: Successor = Successor {
    plugin: "kubernetes.io/azure-file",
    driver: "file.csi.azure.com",
    zone: None,
    places: Places::Unknown,
};
pub(crate) const CINDER: Successor = Successor {
    plugin: "kubernetes.io/cinder",
    driver: "cinder.csi.openstack.org",
    zone: Some("topology.cinder.csi.openstack.org/zone"),
    places: Places::Zones("topology.cinder.csi.openstack.org/zone"),
};
pub(crate) const VSPHERE: Successor = Successor {
    plugin: "kubernetes.io/vsphere-volume",
    driver: "csi.vsphere.vmware.com",
    zone: Some("topology.csi.vmware.com/zone"),
    places: Places::ZonesAndRegions(
        "topology.csi.vmware.com/zone",
        "topology.csi.vmware.com/region",
    ),
};
pub(crate) const PORTWORX: Successor = Successor {
    plugin: "kubernetes.io/portworx-volume",
    driver: "pxd.portworx.com",
    zone: None,
    places: Places::Unknown,
};

const SUCCESSORS: [&Successor; 7] = [
    &EBS,
    &GCE,
    &AZURE_DISK,
    &AZURE_FILE,
    &CINDER,
    &VSPHERE,
    &PORTWORX,
];

/// The driver that took a plugin's place.
pub fn driver_of(plugin: &str) -> Option<&'static str> {
    let mut all = SUCCESSORS.iter();
    all.find(|one| one.plugin == plugin).map(|one| one.driver)
}

/// Whether this names a plugin that is part of Kubernetes, and no driver took its place.
pub fn is_left_over(plugin: &str) -> bool {
    plugin.starts_with("kubernetes.io/") && driver_of(plugin).is_none()
}

/// The plugin whose place a driver took.
pub fn plugin_of(driver: &str) -> Option<&'static str> {
    let mut all = SUCCESSORS.iter();
    all.find(|one| one.driver == driver).map(|one| one.plugin)
}

/// What a CSI driver knows a volume by: its own words, or those of the driver that took its
/// plugin's place. `None` for volumes of neither, and for such as no driver can know.
pub fn source(volume: &Volume) -> Option<Cow<'_, CsiSource>> {
    match &volume.spec.csi {
        Some(csi) => Some(Cow::Borrowed(csi)),
        None => {
            let old = over::InTree::of_volume(&volume.spec)?;
            over::persistent(&old, volume).ok().map(Cow::Owned)
        }
    }
}

/// How a volume may be used, as its driver is told.
pub fn access_modes(volume: &Volume) -> Cow<'_, [AccessMode]> {
    match &volume.spec.gce_persistent_disk {
        Some(_) => Cow::Owned(over::gce_modes(&volume.spec.access_modes)),
        None => Cow::Borrowed(&volume.spec.access_modes),
    }
}

/// The volume in the words of the driver that took its plugin's place; `None` if it isn't one of
/// such a plugin.
///
/// # Errors
/// If it is one that the driver can't know.
pub fn volume(volume: &Volume) -> Result<Option<Volume>, Untranslatable> {
    let Some(old) = over::InTree::of_volume(&volume.spec) else {
        return Ok(None);
    };
    let csi = over::persistent(&old, volume)?;
    let mut new = volume.clone();
    topology::over(&mut new, old.successor());
    new.spec.access_modes = access_modes(volume).into_owned();
    clear(&mut new.spec);
    new.spec.csi = Some(csi);
    Ok(Some(new))
}

/// As [`volume`]; as it is, if there is nothing to tell or no way to.
pub fn in_the_drivers_words(volume: Arc<Volume>) -> Arc<Volume> {
    match self::volume(&volume) {
        Ok(Some(new)) => Arc::new(new),
        Ok(None) | Err(_) => volume,
    }
}

/// A pod's own volume as the driver's; `None` if it isn't one of a plugin that has a successor.
///
/// # Errors
/// As [`volume`].
pub fn inline(volume: &PodVolume, namespace: &str) -> Result<Option<Volume>, Untranslatable> {
    let Some(old) = over::InTree::of_pod(volume) else {
        return Ok(None);
    };
    let over::Inline { name, csi, mode } = over::inline(&old, &volume.name, namespace)?;
    Ok(Some(Volume {
        metadata: Meta::named(&Key::cluster(name)),
        spec: VolumeSpec {
            access_modes: vec![mode],
            volume_mode: Some(VolumeMode::Filesystem),
            csi: Some(csi),
            ..VolumeSpec::default()
        },
        ..Volume::default()
    }))
}

/// The volume in the words of the plugin whose place its driver took; `None` if it took none.
///
/// # Errors
/// If it is one that the plugin couldn't have had.
pub fn back(volume: &Volume) -> Result<Option<Volume>, Untranslatable> {
    let Some(csi) = &volume.spec.csi else {
        return Ok(None);
    };
    let mut all = SUCCESSORS.iter();
    let Some(successor) = all.find(|one| one.driver == csi.driver) else {
        return Ok(None);
    };
    let mut new = volume.clone();
    new.spec.csi = None;
    back::tell(&mut new, csi)?;
    topology::back(&mut new, successor)?;
    Ok(Some(new))
}

fn clear(spec: &mut VolumeSpec) {
    spec.aws_elastic_block_store = None;
    spec.gce_persistent_disk = None;
    spec.azure_disk = None;
    spec.azure_file = None;
    spec.cinder = None;
    spec.vsphere_volume = None;
    spec.portworx_volume = None;
}
