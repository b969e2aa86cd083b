//! Where everything of the node lies: the kubelet's own directory layout, so that a
//! kubelet could take the folder over.
//!
//! Pure: paths are made here, not looked at. Names that come from outside are checked
//! before they become a part of a path ([`PodUid::new`], [`Layout::is_safe`]).

use std::fmt;
use std::path::{Path, PathBuf};

use orlop_host::place::is_plain_name;
use sha2::{Digest as _, Sha256};

/// A pod's uid, known to be usable as a file name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodUid(String);

impl PodUid {
    /// `None` for a text that could not be one component of a path.
    pub fn new(uid: impl Into<String>) -> Option<Self> {
        let uid = uid.into();
        is_plain_name(uid.as_ref()).then_some(Self(uid))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The folder of one node.
#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The layout below a root such as `/var/lib/kubelet`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Whether a name from outside can be one component of a path.
    pub fn is_safe(name: &str) -> bool {
        is_plain_name(name.as_ref())
    }

    /// Where drivers announce themselves.
    pub fn plugins_registry(&self) -> PathBuf {
        self.root.join("plugins_registry")
    }

    /// Where drivers have their sockets.
    pub fn plugins(&self) -> PathBuf {
        self.root.join("plugins")
    }

    /// All pods.
    pub fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    /// One pod.
    pub fn pod(&self, pod: &PodUid) -> PathBuf {
        self.pods().join(pod.as_str())
    }

    /// The containers of a pod.
    pub fn containers(&self, pod: &PodUid) -> PathBuf {
        self.pod(pod).join("containers")
    }

    /// One attempt to run a container.
    pub fn attempt(&self, pod: &PodUid, container: &str, attempt: u32) -> PathBuf {
        self.containers(pod)
            .join(container)
            .join(attempt.to_string())
    }

    /// The parts of a pod's volumes that containers have as mounts of their own.
    pub(crate) fn subpaths(&self, pod: &PodUid) -> PathBuf {
        self.pod(pod).join("volume-subpaths")
    }

    /// A pod's volume of a plugin.
    pub fn volume(&self, pod: &PodUid, plugin: &str, name: &str) -> PathBuf {
        self.pod(pod)
            .join("volumes")
            .join(format!("kubernetes.io~{plugin}"))
            .join(name)
    }

    /// The file system of a disk that is a `local` volume.
    pub(crate) fn local_disk(&self, volume: &str) -> PathBuf {
        self.plugins()
            .join("kubernetes.io/local-volume/mounts")
            .join(volume)
    }

    /// The devices of `local` volumes that a pod has.
    pub(crate) fn local_devices(&self, pod: &PodUid) -> PathBuf {
        let folder = self.pod(pod).join("volumeDevices");
        folder.join("kubernetes.io~local-volume")
    }

    /// A FlexVolume driver's folder, for what is its own and no pod's.
    pub(crate) fn flex(&self, driver: &str) -> PathBuf {
        self.plugins().join("kubernetes.io/flexvolume").join(driver)
    }

    /// Where a FlexVolume driver's device is mounted.
    pub(crate) fn flex_global(&self, driver: &str, volume: &str) -> PathBuf {
        self.flex(driver).join("mounts").join(volume)
    }

    /// Where a FlexVolume driver's volume is mounted for a pod.
    pub(crate) fn flex_target(&self, pod: &PodUid, driver: &str, volume: &str) -> PathBuf {
        let folder = self.pod(pod).join("volumes");
        folder.join(driver.replace('/', "~")).join(volume)
    }

    /// All such volumes of a pod: driver, name, and where.
    pub(crate) fn flex_targets(&self, pod: &PodUid) -> Vec<(String, String, PathBuf)> {
        let mut found = Vec::new();
        for (plugin, folder) in Self::entries(&self.pod(pod).join("volumes")) {
            if plugin.starts_with("kubernetes.io~") {
                continue;
            }
            let driver = plugin.replace('~', "/");
            for (volume, path) in Self::entries(&folder) {
                found.push((driver.clone(), volume, path));
            }
        }
        found
    }

    /// The FlexVolume drivers that keep something here.
    pub(crate) fn flex_drivers(&self) -> Vec<String> {
        self.flex_drivers_with("users")
    }

    fn flex_drivers_with(&self, what: &str) -> Vec<String> {
        let mut found = Vec::new();
        for (first, folder) in Self::entries(&self.flex("")) {
            if folder.join(what).is_dir() {
                found.push(first.clone());
            }
            for (second, folder) in Self::entries(&folder) {
                if folder.join(what).is_dir() {
                    found.push(format!("{first}/{second}"));
                }
            }
        }
        found
    }

    /// What is on file of a call to a FlexVolume driver, for a volume or for none, while it runs.
    pub(crate) fn flex_call(&self, driver: &str, volume: Option<&str>) -> PathBuf {
        // No volume's name begins like that.
        let name = volume.unwrap_or(".init");
        self.flex(driver).join("calls").join(name)
    }

    /// All such files.
    pub(crate) fn flex_calls(&self) -> Vec<PathBuf> {
        let drivers = self.flex_drivers_with("calls").into_iter();
        let folders = drivers.map(|driver| self.flex(&driver).join("calls"));
        let files = folders.flat_map(|folder| Self::entries(&folder));
        files.map(|(_, path)| path).collect()
    }

    /// What is in a folder, by name; nothing if it can't be read.
    pub(crate) fn entries(folder: &Path) -> Vec<(String, PathBuf)> {
        let read = std::fs::read_dir(folder).into_iter().flatten();
        let mut entries: Vec<_> = read
            .filter_map(|entry| {
                let entry = entry.ok()?;
                Some((entry.file_name().into_string().ok()?, entry.path()))
            })
            .collect();
        entries.sort();
        entries
    }

    /// A pod's CSI volumes.
    pub(crate) fn csi_volumes(&self, pod: &PodUid) -> PathBuf {
        self.pod(pod).join("volumes/kubernetes.io~csi")
    }

    /// Where a CSI volume is published for a pod as files.
    pub(crate) fn csi_target(&self, pod: &PodUid, volume: &str) -> PathBuf {
        self.csi_volumes(pod).join(volume).join("mount")
    }

    /// All of the kubelet's folders for CSI.
    pub(crate) fn csi(&self) -> PathBuf {
        self.plugins().join("kubernetes.io/csi")
    }

    /// The folder of a staged volume.
    pub(crate) fn staging_folder(&self, driver: &str, handle: &str) -> PathBuf {
        self.csi()
            .join(driver)
            .join(hex(&Sha256::digest(handle.as_bytes())))
    }

    /// Where a volume is staged as files.
    pub(crate) fn staging_target(&self, driver: &str, handle: &str) -> PathBuf {
        self.staging_folder(driver, handle).join("globalmount")
    }

    /// All folders for raw block volumes.
    pub(crate) fn block(&self) -> PathBuf {
        self.csi().join("volumeDevices")
    }

    /// Where a volume is staged as a device.
    pub(crate) fn block_staging(&self, volume: &str) -> PathBuf {
        self.block().join("staging").join(volume)
    }

    /// The folder of a device's checkpoint.
    pub(crate) fn block_data(&self, volume: &str) -> PathBuf {
        self.block().join(volume).join("data")
    }

    /// Where devices are bound for all pods.
    pub(crate) fn block_maps(&self, volume: &str) -> PathBuf {
        self.block().join(volume).join("dev")
    }

    /// Where a device is bound for a pod.
    pub(crate) fn block_map(&self, volume: &str, pod: &PodUid) -> PathBuf {
        self.block_maps(volume).join(pod.as_str())
    }

    /// Where a device is published for all pods.
    pub(crate) fn block_publications(&self, volume: &str) -> PathBuf {
        self.block().join("publish").join(volume)
    }

    /// Where a device is published for a pod.
    pub(crate) fn block_target(&self, volume: &str, pod: &PodUid) -> PathBuf {
        self.block_publications(volume).join(pod.as_str())
    }

    /// The pod's own links to devices.
    pub(crate) fn pod_devices(&self, pod: &PodUid) -> PathBuf {
        self.pod(pod).join("volumeDevices/kubernetes.io~csi")
    }

    /// The pod's own link to a device.
    pub(crate) fn pod_device(&self, pod: &PodUid, volume: &str) -> PathBuf {
        self.pod_devices(pod).join(volume)
    }
}

/// Which run of a container a log is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run {
    /// The one that runs, or ran last.
    Latest,
    /// The one before it.
    Previous,
}

/// The log of a container, in the CRI's format (`orlop_host::sandbox::log` reads it);
/// `None` if there was no such run.
pub fn log_path(root: &Path, pod: &PodUid, container: &str, run: Run) -> Option<PathBuf> {
    if !Layout::is_safe(container) {
        return None;
    }
    let folder = Layout::new(root).containers(pod).join(container);
    let mut attempts: Vec<u32> = std::fs::read_dir(&folder)
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    attempts.sort_unstable();
    let back = match run {
        Run::Latest => 1,
        Run::Previous => 2,
    };
    let attempt = attempts.get(attempts.len().checked_sub(back)?)?;
    Some(folder.join(attempt.to_string()).join("log"))
}

/// The name of the VolumeAttachment that attach-detach makes for a volume on a node.
pub(crate) fn attachment_name(handle: &str, driver: &str, node: &str) -> String {
    let digest = Sha256::digest(format!("{handle}{driver}{node}").as_bytes());
    format!("csi-{}", hex(&digest))
}

/// What the driver calls a volume that is written in a pod's own specification.
pub(crate) fn inline_handle(pod: &PodUid, volume: &str) -> String {
    let digest = Sha256::digest(format!("{pod}{volume}").as_bytes());
    format!("csi-{}", hex(&digest))
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _writing_to_a_string_cannot_fail = write!(text, "{byte:02x}");
            text
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_the_kubelets() {
        let layout = Layout::new("/var/lib/kubelet");
        let pod = PodUid::new("u-1").expect("a uid");
        assert_eq!(
            layout.csi_target(&pod, "pvc-1"),
            Path::new("/var/lib/kubelet/pods/u-1/volumes/kubernetes.io~csi/pvc-1/mount")
        );
        assert_eq!(
            layout.staging_target("d", "abc"),
            Path::new(
                "/var/lib/kubelet/plugins/kubernetes.io/csi/d/\
                 ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad/globalmount"
            )
        );
    }

    #[test]
    fn a_flexvolume_drivers_paths_are_the_kubelets() {
        let layout = Layout::new("/var/lib/kubelet");
        let pod = PodUid::new("u-1").expect("a uid");
        assert_eq!(
            layout.flex_target(&pod, "example.org/disk", "data"),
            Path::new("/var/lib/kubelet/pods/u-1/volumes/example.org~disk/data")
        );
        assert_eq!(
            layout.flex_global("example.org/disk", "data"),
            Path::new(
                "/var/lib/kubelet/plugins/kubernetes.io/flexvolume/example.org/disk/mounts/data"
            )
        );
    }

    #[test]
    fn a_uid_that_climbs_out_of_its_folder_is_no_uid() {
        for uid in ["", ".", "..", "a/b", "a\0b"] {
            assert_eq!(PodUid::new(uid), None, "{uid:?}");
        }
    }

    #[test]
    fn the_latest_log_is_that_of_the_highest_attempt() {
        let root = tempfile::tempdir().expect("a folder");
        let pod = PodUid::new("u").expect("a uid");
        for attempt in [2, 9, 10] {
            let folder = Layout::new(root.path()).attempt(&pod, "web", attempt);
            std::fs::create_dir_all(folder).expect("a folder");
        }
        let log = |run| log_path(root.path(), &pod, "web", run).expect("a log");
        assert!(log(Run::Latest).ends_with("web/10/log"));
        assert!(log(Run::Previous).ends_with("web/9/log"));
        assert_eq!(log_path(root.path(), &pod, "../web", Run::Latest), None);
    }
}
