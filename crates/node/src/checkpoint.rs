//! What the node knows of its volumes after a restart: the kubelet's `vol_data.json`
//! files, written before the effect that they announce and removed after its reverse.
//!
//! Reading decides nothing: everything found is uncertain, since the call that a file
//! announces may have been made or not.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::layout::{Layout, PodUid};
use crate::volumes::{DeviceKey, Lifetime, Shape};

const FILE: &str = "vol_data.json";

/// A checkpoint, with the kubelet's keys. The staging folder's has only two of them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct VolumeData {
    #[serde(rename = "attachmentID", skip_serializing_if = "String::is_empty")]
    pub(crate) attachment_id: String,
    pub(crate) driver_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) node_name: String,
    #[serde(
        rename = "seLinuxMountContext",
        skip_serializing_if = "String::is_empty"
    )]
    pub(crate) label: String,
    #[serde(rename = "specVolID", skip_serializing_if = "String::is_empty")]
    pub(crate) spec_volume: String,
    pub(crate) volume_handle: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) volume_lifecycle_mode: String,
}

impl VolumeData {
    /// The checkpoint of a staged volume.
    pub(crate) fn staged(key: &DeviceKey) -> Self {
        Self {
            driver_name: key.driver.clone(),
            volume_handle: key.handle.clone(),
            ..Self::default()
        }
    }

    /// With the SELinux label that it is mounted with, if any.
    pub(crate) fn labelled(self, label: Option<&str>) -> Self {
        Self {
            label: label.unwrap_or_default().to_owned(),
            ..self
        }
    }

    fn label(&self) -> Option<String> {
        Some(self.label.clone()).filter(|label| !label.is_empty())
    }

    /// Writes it into a folder, which is made with the kubelet's mode. It must survive
    /// this process, not the host: no mount does either.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        make_folder(folder)?;
        let mut json = serde_json::to_vec(self)?;
        // As Go's encoder ends a value.
        json.push(b'\n');
        orlop_host::write_volatile(&folder.join(FILE), &json, 0o600)
    }

    /// `None` if there is none, or none that can be read.
    pub(crate) fn read(folder: &Path) -> Option<Self> {
        let path = folder.join(FILE);
        let json = std::fs::read(&path).ok()?;
        serde_json::from_slice(&json)
            .inspect_err(|error| {
                warn!(path = %path.display(), %error, "skipping a checkpoint that can't be read");
            })
            .ok()
    }

    fn lifetime(&self) -> Lifetime {
        Lifetime::of_word(&self.volume_lifecycle_mode)
    }

    fn key(&self) -> Option<DeviceKey> {
        let safe = Layout::is_safe(&self.driver_name) && !self.volume_handle.is_empty();
        safe.then(|| DeviceKey {
            driver: self.driver_name.clone(),
            handle: self.volume_handle.clone(),
        })
    }
}

/// Makes a folder and its parents, closed to others.
pub(crate) fn make_folder(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o750)
        .create(folder)
}

/// Makes a folder for something to be mounted on; one that is there already is not looked at, since
/// what is mounted on it may not answer.
pub(crate) fn make_point(point: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    point.parent().map_or(Ok(()), make_folder)?;
    match std::fs::DirBuilder::new().mode(0o750).create(point) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Removes the checkpoint and its folder, never anything else: a folder that is not
/// empty holds what nobody knows of, and stays.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    gone(std::fs::remove_file(folder.join(FILE)))?;
    clear_unfinished(folder)?;
    gone(std::fs::remove_dir(folder))
}

/// Removes what a crash in the middle of a write has left.
fn clear_unfinished(folder: &Path) -> io::Result<()> {
    for (name, path) in entries(folder) {
        if name.starts_with(orlop_host::durable::UNFINISHED_PREFIX) {
            gone(std::fs::remove_file(path))?;
        }
    }
    Ok(())
}

/// Reads the checkpoint in a folder that nobody writes to yet, and clears away what a crash left
/// there: a write that was cut short, also where the volume goes on being used; and a folder without
/// a checkpoint, from between the last two steps of a removal or the first two of what is announced.
/// A mount in it keeps the folder from being removed.
fn read_after_crash(folder: &Path) -> Option<VolumeData> {
    let cleared = clear_unfinished(folder);
    let data = VolumeData::read(folder);
    if data.is_none() {
        let _it_stays_if_it_is_not_empty = cleared.and_then(|()| std::fs::remove_dir(folder));
    }
    data
}

/// Treats what is not there as removed.
pub(crate) fn gone(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// What the checkpoints tell.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) devices: BTreeMap<DeviceKey, FoundDevice>,
    /// Every pod that has a folder.
    pub(crate) pods: BTreeSet<PodUid>,
}

/// What the checkpoints tell of one volume.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FoundDevice {
    pub(crate) shape: Shape,
    pub(crate) lifetime: Lifetime,
    pub(crate) maybe_staged: bool,
    /// The SELinux label that it is mounted with.
    pub(crate) label: Option<String>,
    /// Volume name by pod.
    pub(crate) maybe_published: BTreeMap<PodUid, String>,
}

/// Reads all checkpoints.
pub(crate) fn scan(layout: &Layout) -> Found {
    let mut found = Found::default();
    for (driver, folder) in entries(&layout.csi()) {
        if driver == "volumeDevices" {
            continue;
        }
        for (_, folder) in entries(&folder) {
            let data = read_after_crash(&folder);
            if let Some((key, label)) = data.and_then(|data| Some((data.key()?, data.label()))) {
                let device = found.device(key, Shape::Files);
                device.maybe_staged = true;
                device.label = label;
            }
        }
    }
    for (volume, folder) in entries(&layout.block()) {
        let Some(data) = read_after_crash(&folder.join("data")) else {
            let _it_stays_if_it_is_not_empty = std::fs::remove_dir(&folder);
            continue;
        };
        let Some(key) = data.key() else { continue };
        let shape = Shape::Block {
            volume: volume.clone(),
        };
        let device = found.device(key, shape);
        device.maybe_staged = true;
        let published = entries(&layout.block_publications(&volume)).into_iter();
        for (pod, _) in published.chain(entries(&layout.block_maps(&volume))) {
            if let Some(pod) = PodUid::new(pod) {
                device.maybe_published.insert(pod, volume.clone());
            }
        }
    }
    for (pod, _) in entries(&layout.pods()) {
        let Some(pod) = PodUid::new(pod) else {
            continue;
        };
        for (volume, folder) in entries(&layout.csi_volumes(&pod)) {
            let data = read_after_crash(&folder);
            let known = data.and_then(|data| Some((data.key()?, data.lifetime(), data.label())));
            if let Some((key, lifetime, label)) = known {
                let device = found.device(key, Shape::Files);
                device.lifetime = lifetime;
                device.label = label;
                device.maybe_published.insert(pod.clone(), volume);
            }
        }
        // The pod's link is made before the driver is asked for a device.
        for (volume, _) in entries(&layout.pod_devices(&pod)) {
            let shape = Shape::Block {
                volume: volume.clone(),
            };
            let mut devices = found.devices.values_mut();
            if let Some(device) = devices.find(|device| device.shape == shape) {
                device.maybe_published.insert(pod.clone(), volume);
            }
        }
        found.pods.insert(pod);
    }
    found
}

impl Found {
    fn device(&mut self, key: DeviceKey, shape: Shape) -> &mut FoundDevice {
        self.devices.entry(key).or_insert_with(|| FoundDevice {
            shape,
            lifetime: Lifetime::Persistent,
            maybe_staged: false,
            label: None,
            maybe_published: BTreeMap::new(),
        })
    }
}

fn entries(folder: &Path) -> Vec<(String, PathBuf)> {
    let Ok(read) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut entries: Vec<_> = read
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.file_name().into_string().ok()?, entry.path()))
        })
        .collect();
    entries.sort();
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> DeviceKey {
        DeviceKey {
            driver: "d.example".into(),
            handle: "h-1".into(),
        }
    }

    #[test]
    fn what_was_announced_is_found_again() {
        let root = tempfile::tempdir().expect("a folder");
        let layout = Layout::new(root.path());
        let pod = PodUid::new("u-1").expect("a uid");
        VolumeData::staged(&key())
            .write(&layout.staging_folder("d.example", "h-1"))
            .expect("written");
        let data = VolumeData {
            spec_volume: "pv".into(),
            ..VolumeData::staged(&key())
        };
        let folder = layout.csi_volumes(&pod).join("pv");
        data.write(&folder).expect("written");
        let found = scan(&layout);
        let device = &found.devices[&key()];
        assert!(device.maybe_staged);
        assert_eq!(
            device.maybe_published,
            BTreeMap::from([(pod.clone(), "pv".to_owned())])
        );
        assert_eq!(found.pods, BTreeSet::from([pod]));

        remove(&folder).expect("removed");
        assert!(!folder.exists());
    }

    #[test]
    fn a_volume_that_lives_with_its_pod_is_known_for_one() {
        let root = tempfile::tempdir().expect("a folder");
        let layout = Layout::new(root.path());
        let pod = PodUid::new("u-1").expect("a uid");
        let data = VolumeData {
            spec_volume: "scratch".into(),
            volume_lifecycle_mode: "Ephemeral".into(),
            ..VolumeData::staged(&key())
        };
        let folder = layout.csi_volumes(&pod).join("scratch");
        data.write(&folder).expect("written");
        let found = scan(&layout);
        let device = &found.devices[&key()];
        assert_eq!(device.lifetime, Lifetime::Ephemeral);
        assert!(!device.maybe_staged);
        assert!(device.maybe_published.contains_key(&pod));
    }

    #[test]
    fn a_block_volume_is_found_again_with_its_pods() {
        let root = tempfile::tempdir().expect("a folder");
        let layout = Layout::new(root.path());
        let pod = PodUid::new("u-1").expect("a uid");
        VolumeData::staged(&key())
            .write(&layout.block_data("pv"))
            .expect("written");
        make_folder(&layout.block_publications("pv")).expect("made");
        std::fs::write(layout.block_target("pv", &pod), "").expect("a file");
        let asked = PodUid::new("u-2").expect("a uid");
        make_folder(&layout.pod_devices(&asked)).expect("made");
        let link = layout.pod_device(&asked, "pv");
        std::os::unix::fs::symlink("nowhere yet", link).expect("a link");
        let found = scan(&layout);
        let device = &found.devices[&key()];
        assert_eq!(
            device.shape,
            Shape::Block {
                volume: "pv".into()
            }
        );
        let pods: Vec<_> = device.maybe_published.keys().collect();
        assert_eq!(
            pods,
            [&pod, &asked],
            "the call for the second may be under way"
        );
    }

    #[test]
    fn a_write_that_was_cut_short_leaves_nothing() {
        let root = tempfile::tempdir().expect("a folder");
        let layout = Layout::new(root.path());
        let used = [
            layout.staging_folder("d.example", "h-1"),
            layout.block_data("pv-1"),
        ];
        for (folder, handle) in used.iter().zip(["h-1", "h-2"]) {
            let key = DeviceKey {
                handle: handle.into(),
                ..key()
            };
            VolumeData::staged(&key).write(folder).expect("written");
        }
        let pod = PodUid::new("u-1").expect("a uid");
        let begun = [
            layout.staging_folder("d.example", "h-3"),
            layout.block_data("pv-2"),
            layout.csi_volumes(&pod).join("pv-3"),
        ];
        for folder in used.iter().chain(&begun) {
            make_folder(folder).expect("made");
            let unfinished = folder.join(".unfinished-vol_data.json-1-2");
            std::fs::write(unfinished, "{").expect("a file");
        }
        assert_eq!(scan(&layout).devices.len(), 2);
        for folder in &used {
            let names: Vec<_> = entries(folder).into_iter().map(|(name, _)| name).collect();
            assert_eq!(names, [FILE], "{}", folder.display());
        }
        for folder in &begun {
            assert!(!folder.exists(), "{}", folder.display());
        }
        assert!(!layout.block().join("pv-2").exists());
    }

    #[test]
    fn garbage_is_skipped_and_a_folder_with_content_stays() {
        let root = tempfile::tempdir().expect("a folder");
        let layout = Layout::new(root.path());
        let pod = PodUid::new("u-1").expect("a uid");
        let folder = layout.csi_volumes(&pod).join("pv");
        make_folder(&folder.join("mount")).expect("made");
        std::fs::write(folder.join(FILE), "{").expect("a file");
        assert!(scan(&layout).devices.is_empty());
        assert!(folder.join("mount").exists());
    }

    #[test]
    fn the_keys_are_the_kubelets() {
        let data = VolumeData {
            attachment_id: "csi-1".into(),
            node_name: "n".into(),
            spec_volume: "pv".into(),
            volume_lifecycle_mode: "Persistent".into(),
            ..VolumeData::staged(&key())
        };
        assert_eq!(
            serde_json::to_string(&data).expect("json"),
            r#"{"attachmentID":"csi-1","driverName":"d.example","nodeName":"n","specVolID":"pv","volumeHandle":"h-1","volumeLifecycleMode":"Persistent"}"#
        );
        let labelled = VolumeData::staged(&key()).labelled(Some("u:r:t:s0"));
        assert_eq!(
            serde_json::to_string(&labelled).expect("json"),
            r#"{"driverName":"d.example","seLinuxMountContext":"u:r:t:s0","volumeHandle":"h-1"}"#
        );
    }
}
