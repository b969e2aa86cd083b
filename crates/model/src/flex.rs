//! FlexVolume: volumes of drivers that are programs, as all who call them know them.

use std::collections::BTreeMap;

use crate::{
    access::AccessMode,
    meta::{Key, Meta},
    pod::PodVolume,
    volume::{FlexSource, Volume, VolumeSpec},
};

/// The names that volumes of Kubernetes' own plugins begin with.
const KUBERNETES: &str = "kubernetes.io";

/// Where a driver's program is below the drivers' folder: `vendor~driver` and `driver`; none if that
/// can't be the name of a driver.
pub fn program(driver: &str) -> Option<(String, &str)> {
    let parts: Vec<&str> = driver.split('/').collect();
    let plain = |part: &&str| {
        let fits = !part.is_empty() && !part.starts_with('.') && part.len() < 256;
        fits && !part.contains(['~', '\0'])
    };
    let fits = parts.len() <= 2 && parts.iter().all(plain) && parts[0] != KUBERNETES;
    fits.then(|| (parts.join("~"), parts[parts.len() - 1]))
}

/// The name by which attach-detach and the node talk of a driver's volume.
pub fn unique_name(driver: &str, volume: &str) -> String {
    format!("{driver}/{volume}")
}

/// The unique name of a volume; none if it isn't one of a driver that there can be.
pub fn unique_name_of(volume: &Volume) -> Option<String> {
    let driver = &volume.spec.flex_volume.as_ref()?.driver;
    program(driver)?;
    Some(unique_name(driver, &volume.metadata.name))
}

/// Driver and volume of a unique name; none if it is of another plugin.
pub fn parts(unique_name: &str) -> Option<(&str, &str)> {
    let (driver, volume) = unique_name.rsplit_once('/')?;
    // Nearly all names are of other plugins.
    if driver.starts_with(KUBERNETES) {
        return None;
    }
    program(driver)?;
    let plain = !volume.is_empty() && !volume.starts_with('.');
    plain.then_some((driver, volume))
}

/// What a driver is told of a volume, under the kubelet's keys: `more` of them, and at last the
/// volume's own options, which win.
pub fn options(
    source: &FlexSource,
    volume: &str,
    read_only: bool,
    more: BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let mode = if read_only { "ro" } else { "rw" };
    let told = [
        ("fsType", source.fs_type.as_str()),
        ("readwrite", mode),
        ("pvOrVolumeName", volume),
    ];
    let told = told.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let all = told.into_iter().chain(more);
    let mut options: BTreeMap<String, String> = all
        .map(|(key, value)| (format!("{KUBERNETES}/{key}"), value))
        .collect();
    options.extend(source.options.clone());
    options
}

/// A pod's own volume as one of the cluster. Pods say nothing of how many nodes may have it: many may.
pub fn inline(volume: &PodVolume) -> Option<Volume> {
    let source = volume.flex_volume.as_ref()?;
    let spec = VolumeSpec {
        access_modes: vec![AccessMode::ReadWriteMany],
        flex_volume: Some(source.clone()),
        ..VolumeSpec::default()
    };
    Some(Volume {
        metadata: Meta::named(&Key::cluster(&volume.name)),
        spec,
        ..Volume::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_elsewhere_is_no_drivers() {
        for (driver, expected) in [
            (
                "example.org/disk",
                Some(("example.org~disk".to_owned(), "disk")),
            ),
            ("disk", Some(("disk".to_owned(), "disk"))),
            ("a/b/c", None),
            ("../disk", None),
            ("a/..", None),
            ("a~b/disk", None),
            ("a/.disk", None),
            ("a/", None),
            ("a\0b/disk", None),
            ("kubernetes.io/csi", None),
            ("", None),
        ] {
            assert_eq!(program(driver), expected, "{driver:?}");
        }
    }

    #[test]
    fn a_unique_name_is_the_kubelets_and_tells_its_parts() {
        let name = unique_name("example.org/disk", "data");
        assert_eq!(name, "example.org/disk/data");
        assert_eq!(parts(&name), Some(("example.org/disk", "data")));
        for other in [
            "kubernetes.io/csi/d^h",
            "kubernetes.io/fc/[a]:0",
            "kubernetes.io/iscsi/10.0.0.1:3260:iqn.2001-04.com.example:a:2",
            "data",
            "example.org/disk/",
            "example.org/disk/..",
            "a/b/c/d",
        ] {
            assert_eq!(parts(other), None, "{other}");
        }
    }

    #[test]
    fn options_are_the_kubelets_and_the_volumes_own_win() {
        let own = [("size", "1G"), ("kubernetes.io/readwrite", "odd")];
        let own = own.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let source = FlexSource {
            driver: "example.org/disk".into(),
            fs_type: "ext4".into(),
            options: BTreeMap::from(own),
            ..FlexSource::default()
        };
        let more = BTreeMap::from([("pod.name".to_owned(), "web".to_owned())]);
        let told = serde_json::to_string(&options(&source, "v-data", true, more)).unwrap();
        let expected = concat!(
            r#"{"kubernetes.io/fsType":"ext4","kubernetes.io/pod.name":"web","#,
            r#""kubernetes.io/pvOrVolumeName":"v-data","kubernetes.io/readwrite":"odd","size":"1G"}"#
        );
        assert_eq!(told, expected);
    }
}
