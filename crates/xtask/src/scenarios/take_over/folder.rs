//! What a node has put into its folder for one pod, in a form in which two nodes' can be compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

/// What is of one pod and its volumes, and differs from pod to pod.
pub(super) struct Names {
    pub(super) root: &'static str,
    pub(super) uid: String,
    pub(super) driver: String,
    /// What each is called below, and its name.
    pub(super) volumes: Vec<(&'static str, String)>,
}

impl Names {
    /// A path in the pod's folder.
    pub(super) fn pod(&self, below: &str) -> PathBuf {
        Path::new(self.root)
            .join("pods")
            .join(&self.uid)
            .join(below)
    }

    fn devices(&self) -> PathBuf {
        Path::new(self.root).join("plugins/kubernetes.io/csi/volumeDevices")
    }

    fn staged(&self) -> PathBuf {
        let csi = Path::new(self.root).join("plugins/kubernetes.io/csi");
        csi.join(&self.driver)
    }

    fn is_of(&self, text: &str) -> bool {
        let volumes = self.volumes.iter().map(|(_, name)| name);
        let mut names = volumes.chain([&self.uid, &self.driver]);
        names.any(|name| text.contains(name.as_str()))
    }

    /// The node's mounts for it, each with its number: a mount that was made anew has another one.
    pub(super) fn mounts(&self) -> Result<BTreeSet<String>> {
        let table = fs::read_to_string("/proc/self/mountinfo")?;
        let fields = table.lines().filter_map(|line| {
            let mut fields = line.split(' ');
            Some((fields.next()?, fields.nth(3)?))
        });
        let ours = fields.filter(|(_, path)| path.starts_with(self.root) && self.is_of(path));
        Ok(ours.map(|(id, path)| format!("{id} {path}")).collect())
    }

    /// What must not be there when the pod is gone: folders, mounts, and devices on its files.
    pub(super) fn left(&self) -> Result<Vec<String>> {
        let mut left: Vec<String> = self.mounts()?.into_iter().collect();
        let mut places = vec![self.pod("")];
        for (_, volume) in &self.volumes {
            let devices = self.devices();
            places.push(devices.join(volume));
            places.push(devices.join("staging").join(volume));
            places.push(devices.join("publish").join(volume));
        }
        let staged = fs::read_dir(self.staged()).into_iter().flatten().flatten();
        places.extend(staged.map(|entry| entry.path()));
        let there = places.into_iter().filter(|place| place.exists());
        left.extend(there.map(|place| place.display().to_string()));
        for device in fs::read_dir("/sys/block")?.flatten() {
            let file = device.path().join("loop/backing_file");
            let file = fs::read_to_string(file).unwrap_or_default();
            // The driver's own devices are on its pool.
            if file.starts_with(self.root) && self.is_of(&file) {
                left.push(format!("{:?} on {}", device.file_name(), file.trim()));
            }
        }
        Ok(left)
    }

    /// A text with this pod's names replaced by words, and without what no two runs have alike.
    fn plain(&self, text: &str) -> String {
        let mut text = text.replace(&self.uid, "UID");
        for (word, name) in &self.volumes {
            text = text.replace(name.as_str(), word);
        }
        text
    }
}

/// Everything in the folder that is of a pod and its volumes: what it is, and what is in it.
pub(super) struct Folder(BTreeMap<String, String>);

impl Folder {
    pub(super) fn read(names: &Names) -> Result<Self> {
        let mut entries = BTreeMap::new();
        let handles = handles(names)?;
        let mut add = |path: &Path, what: String| {
            let mut shown = names.plain(&path.display().to_string());
            let mut what = names.plain(&what);
            for (hash, word) in &handles {
                shown = shown.replace(hash, word);
                what = what.replace(hash, word);
            }
            // The kubelet has these in memory, and ours on the disk.
            if !shown.contains("/kubernetes.io~downward-api/") {
                entries.insert(timeless(&shown), timeless(&what));
            }
        };
        let volumes = names
            .volumes
            .iter()
            .map(|(_, name)| names.devices().join(name));
        for top in [
            names.pod("volumes"),
            names.pod("volumeDevices"),
            names.staged(),
        ]
        .into_iter()
        .chain(volumes)
        .chain([
            names.devices().join("staging"),
            names.devices().join("publish"),
        ]) {
            walk(&top, names, &mut add)?;
        }
        Ok(Self(entries))
    }

    /// In which they differ, in words.
    pub(super) fn differences(&self, other: &Self) -> Vec<String> {
        let none = "nothing".to_owned();
        let all: BTreeSet<&String> = self.0.keys().chain(other.0.keys()).collect();
        all.into_iter()
            .filter_map(|path| {
                let one = self.0.get(path).unwrap_or(&none);
                let two = other.0.get(path).unwrap_or(&none);
                (one != two).then(|| format!("{path}\n  the kubelet: {one}\n  ours: {two}"))
            })
            .collect()
    }
}

/// The folders of staged volumes are named by a hash of what the driver calls them, which is told in
/// the files therein.
fn handles(names: &Names) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(names.staged()).into_iter().flatten().flatten() {
        let data = entry.path().join("vol_data.json");
        let data =
            fs::read_to_string(&data).with_context(|| format!("there is no {}", data.display()))?;
        let data: serde_json::Value = serde_json::from_str(&data)?;
        let handle = data["volumeHandle"].as_str().unwrap_or_default();
        found.push((
            entry.file_name().to_string_lossy().into_owned(),
            "HASH".to_owned(),
        ));
        found.push((handle.to_owned(), "HANDLE".to_owned()));
    }
    // An attachment's name is a hash, too; and a device's handle stands in its own data alone.
    for (word, volume) in &names.volumes {
        let places = [
            names.pod("volumes/kubernetes.io~csi").join(volume),
            names.devices().join(volume).join("data"),
        ];
        for place in places {
            let Ok(data) = fs::read_to_string(place.join("vol_data.json")) else {
                continue;
            };
            let data: serde_json::Value = serde_json::from_str(&data)?;
            for (key, plain) in [("attachmentID", "ATTACHMENT"), ("volumeHandle", "HANDLE")] {
                let value = data[key].as_str().unwrap_or_default();
                if !value.is_empty() {
                    found.push((value.to_owned(), format!("{plain}-{word}")));
                }
            }
        }
    }
    found.retain(|(text, _)| !text.is_empty());
    Ok(found)
}

/// Tells of a place and all below it, but enters no mount.
fn walk(path: &Path, names: &Names, add: &mut impl FnMut(&Path, String)) -> Result<()> {
    let Ok(found) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    // Who may read it is not compared: of ours only the node may, which is less.
    let kind = found.file_type();
    let mounts = names.mounts()?;
    let shown = path.display().to_string();
    let mounted = mounts
        .iter()
        .any(|mount| mount.ends_with(&format!(" {shown}")));
    if mounted {
        // What is mounted there is the driver's, or the pod's.
        add(path, "a mount".to_owned());
    } else if kind.is_symlink() {
        add(
            path,
            format!("a link to {}", fs::read_link(path)?.display()),
        );
    } else if kind.is_dir() {
        add(path, "a folder".to_owned());
        for entry in fs::read_dir(path)? {
            walk(&entry?.path(), names, add)?;
        }
    } else if kind.is_file() {
        let text = fs::read_to_string(path)?;
        let text = if path.ends_with("token") {
            "a token"
        } else {
            &text
        };
        add(path, format!("a file: {text:?}"));
    } else {
        let block = kind.is_block_device();
        add(path, format!("something else, a device: {block}"));
    }
    Ok(())
}

/// A text without the names of the times at which files were written.
fn timeless(text: &str) -> String {
    let part = |part: &str| match part.split_once("..20") {
        Some((before, _)) => format!("{before}..TIME"),
        None => part.to_owned(),
    };
    text.split('/').map(part).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_left_out_and_the_rest_stays() {
        assert_eq!(
            timeless("a/..2026_11_18_07_00_00.123/text"),
            "a/..TIME/text"
        );
        assert_eq!(timeless("a link to ..2026_11"), "a link to ..TIME");
        assert_eq!(timeless("a/..data"), "a/..data");
    }

    #[test]
    fn what_only_one_has_is_told() {
        let folder = |entries: &[(&str, &str)]| {
            let owned = |(path, what): &(&str, &str)| ((*path).to_owned(), (*what).to_owned());
            Folder(entries.iter().map(owned).collect())
        };
        let one = folder(&[("a", "x"), ("b", "y")]);
        assert!(one.differences(&one).is_empty());
        let other = folder(&[("a", "x"), ("c", "y")]);
        let told = one.differences(&other);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].starts_with("b\n") && told[0].ends_with("ours: nothing"));
    }
}
