//! Disks that nodes reach by themselves, over iSCSI or Fibre Channel.
//!
//! Nothing is done anywhere to attach one, but a kubelet waits until attach-detach says that it is,
//! by the name that the kubelet itself makes of it.

use serde::{Deserialize, Serialize};

use crate::{
    access::AccessMode,
    meta::{Key, Meta},
    pod::PodVolume,
    volume::{Volume, VolumeSpec},
};

/// The plugins of such disks, with which the names of their disks begin.
pub const PLUGINS: [&str; 2] = ["kubernetes.io/iscsi", "kubernetes.io/fc"];

/// A disk by iSCSI.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IscsiSource {
    /// Where its target answers.
    pub target_portal: String,
    /// Its target's name.
    pub iqn: String,
    /// Which disk of the target's.
    pub lun: i32,
    /// Whether it is read-only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

/// A disk by Fibre Channel.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FcSource {
    /// The names of its targets.
    #[serde(rename = "targetWWNs", skip_serializing_if = "Vec::is_empty")]
    pub target_wwns: Vec<String>,
    /// Which disk of the targets'.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lun: Option<i32>,
    /// Its own names, where it isn't told by its targets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub wwids: Vec<String>,
    /// Whether it is read-only.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
}

impl IscsiSource {
    fn unique_name(&self) -> String {
        let [plugin, _] = PLUGINS;
        let (portal, iqn, lun) = (&self.target_portal, &self.iqn, self.lun);
        format!("{plugin}/{portal}:{iqn}:{lun}")
    }
}

impl FcSource {
    /// Lists as Go prints them.
    fn unique_name(&self) -> Option<String> {
        let [_, plugin] = PLUGINS;
        match (&self.target_wwns[..], self.lun, &self.wwids[..]) {
            ([_, ..], Some(lun), _) => {
                Some(format!("{plugin}/[{}]:{lun}", self.target_wwns.join(" ")))
            }
            (_, _, [_, ..]) => Some(format!("{plugin}/[{}]", self.wwids.join(" "))),
            _ => None,
        }
    }
}

/// The name by which attach-detach and the node talk of such a disk.
pub fn unique_name(spec: &VolumeSpec) -> Option<String> {
    let iscsi = spec.iscsi.as_ref().map(|disk| disk.unique_name());
    iscsi.or_else(|| spec.fc.as_ref()?.unique_name())
}

/// The plugin of a disk by its unique name; `None` if it isn't such a disk.
pub fn plugin(unique_name: &str) -> Option<&'static str> {
    let is_of = |plugin: &&str| {
        let rest = unique_name.strip_prefix(plugin);
        rest.is_some_and(|rest| rest.starts_with('/'))
    };
    PLUGINS.into_iter().find(is_of)
}

/// A pod's own disk as a volume. Pods say nothing of how many nodes may have it: many may.
pub fn inline(volume: &PodVolume) -> Option<Volume> {
    let spec = VolumeSpec {
        access_modes: vec![AccessMode::ReadWriteMany],
        iscsi: volume.iscsi.clone(),
        fc: volume.fc.clone(),
        ..VolumeSpec::default()
    };
    unique_name(&spec)?;
    Some(Volume {
        metadata: Meta::named(&Key::cluster(&volume.name)),
        spec,
        ..Volume::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn name(source: serde_json::Value) -> Option<String> {
        unique_name(&serde_json::from_value(source).unwrap())
    }

    #[test]
    fn disks_have_the_names_that_kubelets_make_of_them() {
        let iscsi = json!({"iscsi": {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2001-04.com.example:a", "lun": 2}});
        assert_eq!(
            name(iscsi).as_deref(),
            Some("kubernetes.io/iscsi/10.0.0.1:3260:iqn.2001-04.com.example:a:2")
        );
        let by_targets = json!({"fc": {"targetWWNs": ["500a", "500b"], "lun": 0, "wwids": ["x"]}});
        assert_eq!(
            name(by_targets).as_deref(),
            Some("kubernetes.io/fc/[500a 500b]:0")
        );
        let by_itself = json!({"fc": {"wwids": ["3600508b4"]}});
        assert_eq!(
            name(by_itself).as_deref(),
            Some("kubernetes.io/fc/[3600508b4]")
        );
        for unclear in [
            json!({"fc": {"targetWWNs": ["500a"]}}),
            json!({"fc": {}}),
            json!({}),
        ] {
            assert_eq!(name(unclear), None);
        }
    }

    #[test]
    fn a_name_tells_its_plugin() {
        assert_eq!(plugin("kubernetes.io/fc/[a]:0"), Some("kubernetes.io/fc"));
        assert_eq!(plugin("kubernetes.io/csi/d^h"), None);
        assert_eq!(plugin("kubernetes.io/fcoe/a"), None);
    }
}
