//! From the driver's words to the plugin's.

use super::{
    AZURE_DISK, AZURE_FILE, CINDER, EBS, GCE, PORTWORX, Untranslatable, VSPHERE, handle,
    over::DEFAULT_NAMESPACE,
    source::{
        AzureDiskSource, AzureFileSource, CinderSource, EbsSource, GceDiskSource, PortworxSource,
        VsphereSource,
    },
};
use crate::{
    volume::{CsiSource, Volume},
    well_known,
};

/// Gives the volume the source that its driver's forerunner would have had.
pub(super) fn tell(volume: &mut Volume, csi: &CsiSource) -> Result<(), Untranslatable> {
    let spec = &mut volume.spec;
    let (fs_type, read_only) = (csi.fs_type.clone(), csi.read_only);
    let id = csi.volume_handle.clone();
    let driver = csi.driver.as_str();
    if driver == EBS.driver {
        spec.aws_elastic_block_store = Some(Box::new(EbsSource {
            volume_id: id,
            fs_type,
            partition: partition(csi)?,
            read_only,
        }));
    } else if driver == GCE.driver {
        spec.gce_persistent_disk = Some(Box::new(GceDiskSource {
            pd_name: handle::gce_disk(&id)?.to_owned(),
            fs_type,
            partition: partition(csi)?,
            read_only,
        }));
    } else if driver == AZURE_DISK.driver {
        spec.azure_disk = Some(Box::new(AzureDiskSource {
            disk_name: handle::azure_disk(&id)?,
            disk_uri: id,
            caching_mode: attribute(csi, "cachingmode").map(str::to_owned),
            fs_type: Some(attribute(csi, "fstype").map_or(fs_type, str::to_owned)),
            read_only: Some(read_only),
            kind: Some("Managed".to_owned()),
        }));
    } else if driver == AZURE_FILE.driver {
        azure_file(volume, csi)?;
    } else if driver == CINDER.driver {
        spec.cinder = Some(Box::new(CinderSource {
            volume_id: id,
            fs_type,
            read_only,
        }));
    } else if driver == VSPHERE.driver {
        let path = csi.volume_attributes.get("initialvolumefilepath");
        spec.vsphere_volume = Some(Box::new(VsphereSource {
            volume_path: path.cloned().unwrap_or_default(),
            fs_type,
            ..VsphereSource::default()
        }));
    } else if driver == PORTWORX.driver {
        spec.portworx_volume = Some(Box::new(PortworxSource {
            volume_id: id,
            fs_type,
            read_only,
        }));
    }
    Ok(())
}

/// An attribute that says something, whatever the case of its name.
fn attribute<'a>(csi: &'a CsiSource, name: &str) -> Option<&'a str> {
    let mut all = csi.volume_attributes.iter();
    let found = all.find(|(key, value)| key.eq_ignore_ascii_case(name) && !value.is_empty());
    found.map(|(_, value)| value.as_str())
}

fn partition(csi: &CsiSource) -> Result<i32, Untranslatable> {
    match csi
        .volume_attributes
        .get("partition")
        .filter(|p| !p.is_empty())
    {
        None => Ok(0),
        Some(number) => number
            .parse()
            .map_err(|_| Untranslatable::Partition(number.clone())),
    }
}

fn azure_file(volume: &mut Volume, csi: &CsiSource) -> Result<(), Untranslatable> {
    let staged = csi.node_stage_secret_ref.as_ref();
    let staged = staged.filter(|secret| !secret.name.is_empty());
    let mut file = AzureFileSource {
        share_name: attribute(csi, "sharename").unwrap_or_default().to_owned(),
        secret_name: attribute(csi, "secretname").unwrap_or_default().to_owned(),
        secret_namespace: attribute(csi, "secretnamespace").map(str::to_owned),
        read_only: csi.read_only,
    };
    if let Some(secret) = staged {
        file.secret_name.clone_from(&secret.name);
        file.secret_namespace = Some(secret.namespace.clone());
    }
    if file.share_name.is_empty() || file.secret_name.is_empty() {
        let parts: Vec<&str> = csi.volume_handle.split('#').collect();
        let [group, account, share, ..] = parts[..] else {
            return Err(Untranslatable::Id {
                what: "a share of Azure",
                id: csi.volume_handle.clone(),
            });
        };
        if file.share_name.is_empty() {
            share.clone_into(&mut file.share_name);
        }
        if file.secret_name.is_empty() {
            file.secret_name = format!("azure-storage-account-{account}-secret");
        }
        if !group.is_empty() {
            let key = well_known::AZURE_FILE_GROUP.to_owned();
            volume.metadata.annotations.insert(key, group.to_owned());
        }
    }
    file.secret_namespace
        .get_or_insert_with(|| DEFAULT_NAMESPACE.to_owned());
    volume.spec.azure_file = Some(Box::new(file));
    Ok(())
}
