//! What is looked for, where, and how it is cleaned: read as the original reads it, from a
//! folder with one file per key (a mounted ConfigMap) or from one file.

use std::{
    collections::BTreeMap,
    io,
    path::{Component, Path, PathBuf},
};

use orlop_model::{AccessMode, VolumeMode, selector::NodeSelectorTerm};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::pattern::{BadPattern, Patterns};

mod labels;

/// Everything that is configured.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// By class.
    pub classes: BTreeMap<String, ClassConfig>,
    /// Classes that can't be used, and why: the others are none the worse for them.
    pub unusable: BTreeMap<String, String>,
    /// Labels of the node that its volumes get, too.
    pub node_labels: Vec<String>,
    /// Further labels of volumes.
    pub labels: BTreeMap<String, String>,
    /// Whether volumes belong to whichever node has this one's name, not to this very node.
    pub by_name_only: bool,
    /// Whether volumes go with their node.
    pub owned_by_node: bool,
}

/// What is looked for for a class.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassConfig {
    /// The folder, as the host calls it.
    pub host_dir: PathBuf,
    /// The same folder, as this process calls it.
    pub mount_dir: PathBuf,
    /// What the volumes are offered as.
    pub volume_mode: VolumeMode,
    /// How they may be used.
    pub access_mode: AccessMode,
    /// The file system that is made on a device, where volumes of files are asked for.
    pub fs_type: Option<String>,
    /// Which names count.
    pub names: Patterns,
    /// How a device is cleaned.
    pub cleaner: BlockCleaner,
    /// Further nodes that reach the volumes.
    pub selector: Vec<NodeSelectorTerm>,
}

/// How a block device is cleaned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockCleaner {
    /// By ourselves.
    Wipe(Wipe),
    /// By a program and its arguments, which finds the device in `LOCAL_PV_BLKDEVICE`.
    Command(Vec<String>),
}

/// How we clean a block device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wipe {
    /// Beginning and end, where file systems and the like are known by. The rest can be read.
    Quick,
    /// The device is told that it is empty. What it then reads as is its business.
    Discard,
    /// All of it is zeros.
    Zero,
    /// Random bytes so many times, then zeros.
    Shred(u32),
}

/// Why a configuration can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It can't be read.
    #[error("could not read {}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is no YAML.
    #[error("{key}: {why}")]
    Yaml {
        /// Where.
        key: String,
        /// What is wrong.
        why: String,
    },
    /// It has a key or value that isn't known.
    #[error("the configuration can't be understood: {0}")]
    Shape(#[source] serde_json::Error),
    /// It asks for what isn't there.
    #[error("{0}")]
    Unsupported(&'static str),
    /// Volumes can't have such a label.
    #[error("{0}")]
    Label(String),
    /// A class is told too little, or the impossible.
    #[error("storageClassMap: {class}: {what}")]
    Class {
        /// The class.
        class: String,
        /// What is wrong with it.
        what: String,
    },
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct Raw {
    storage_class_map: BTreeMap<String, Value>,
    #[serde(rename = "nodeLabelsForPV")]
    node_labels: Vec<String>,
    #[serde(rename = "labelsForPV")]
    labels: BTreeMap<String, String>,
    use_node_name_only: bool,
    #[serde(rename = "setPVOwnerRef")]
    set_pv_owner_ref: bool,
    #[serde(rename = "useAlphaAPI")]
    use_alpha_api: bool,
    use_job_for_cleaning: bool,
    remove_node_not_ready_taint: bool,
    // These change nothing here: cleaning needs no jobs, and nothing is looked at again and again.
    #[serde(rename = "jobTolerations")]
    _job_tolerations: Value,
    #[serde(rename = "minResyncPeriod")]
    _min_resync_period: Value,
    #[serde(rename = "provisionerNotReadyNodeTaintKey")]
    _taint: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct RawClass {
    host_dir: PathBuf,
    mount_dir: PathBuf,
    volume_mode: Option<VolumeMode>,
    access_mode: Option<AccessMode>,
    fs_type: Option<String>,
    name_pattern: Option<String>,
    block_cleaner_command: Option<Vec<String>>,
    block_cleaner: Option<String>,
    selector: Vec<NodeSelectorTerm>,
}

impl Config {
    /// Reads a folder with one file per key, or a file with all of them: the keys themselves, or
    /// a ConfigMap.
    ///
    /// # Errors
    /// It can't be read, or isn't one.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let failed = |source| ConfigError::Read {
            path: path.to_owned(),
            source,
        };
        if !path.is_dir() {
            return Self::parse(&std::fs::read_to_string(path).map_err(failed)?);
        }
        let mut keys = Map::new();
        for entry in std::fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let key = entry.file_name().to_string_lossy().into_owned();
            // A mounted ConfigMap keeps its versions there, and editors what isn't saved yet.
            if key.starts_with('.') || key.ends_with('~') || !entry.path().is_file() {
                continue;
            }
            let text = std::fs::read_to_string(entry.path()).map_err(failed)?;
            keys.insert(key, Value::String(text));
        }
        Self::from_keys(keys)
    }

    /// Understands the text of a file.
    ///
    /// # Errors
    /// It isn't one.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        match yaml("the file", text)? {
            Value::Object(mut all) if all.get("kind").is_some_and(|kind| kind == "ConfigMap") => {
                match all.remove("data") {
                    Some(Value::Object(keys)) => Self::from_keys(keys),
                    _ => Self::from_keys(Map::new()),
                }
            }
            Value::Object(keys) => Self::from_keys(keys),
            _ => Self::from_keys(Map::new()),
        }
    }

    fn from_keys(keys: Map<String, Value>) -> Result<Self, ConfigError> {
        let mut all = Map::new();
        for (key, value) in keys {
            let value = match value {
                Value::String(text) => yaml(&key, &text)?,
                other => other,
            };
            if !value.is_null() {
                all.insert(key, value);
            }
        }
        let raw: Raw = serde_json::from_value(Value::Object(all)).map_err(ConfigError::Shape)?;
        raw.checked()
    }
}

fn yaml(key: &str, text: &str) -> Result<Value, ConfigError> {
    serde_saphyr::from_str(text).map_err(|error| ConfigError::Yaml {
        key: key.to_owned(),
        why: error.to_string(),
    })
}

impl Raw {
    fn checked(self) -> Result<Config, ConfigError> {
        let refused = |what| Err(ConfigError::Unsupported(what));
        if self.use_alpha_api {
            return refused("useAlphaAPI: no Kubernetes has that API any more; leave it out");
        }
        if self.use_job_for_cleaning {
            return refused(
                "useJobForCleaning: disks are cleaned by the provisioner itself, which goes on \
                 where it was after a restart; leave it out",
            );
        }
        if self.remove_node_not_ready_taint {
            return refused("removeNodeNotReadyTaint: taints are not removed; leave it out");
        }
        if self.storage_class_map.is_empty() {
            return refused("storageClassMap: no class is configured; name at least one");
        }
        let mut labels = self.labels.iter();
        if let Some(fault) = labels.find_map(|(key, value)| labels::fault(key, value)) {
            return Err(ConfigError::Label(fault));
        }
        let (mut classes, mut unusable) = (BTreeMap::new(), BTreeMap::new());
        for (class, raw) in self.storage_class_map {
            let raw = serde_json::from_value::<RawClass>(raw).map_err(|error| error.to_string());
            match raw.and_then(RawClass::checked) {
                Ok(checked) => drop(classes.insert(class, checked)),
                Err(what) => drop(unusable.insert(class, what)),
            }
        }
        if classes.is_empty()
            && let Some((class, what)) = unusable.pop_first()
        {
            return Err(ConfigError::Class { class, what });
        }
        Ok(Config {
            classes,
            unusable,
            node_labels: self.node_labels,
            labels: self.labels,
            by_name_only: self.use_node_name_only,
            owned_by_node: self.set_pv_owner_ref,
        })
    }
}

impl RawClass {
    fn checked(self) -> Result<ClassConfig, String> {
        for (name, folder, who) in [
            ("hostDir", &self.host_dir, "the host"),
            ("mountDir", &self.mount_dir, "the provisioner"),
        ] {
            if folder.as_os_str().is_empty() {
                return Err(format!("{name} is missing: the folder as {who} sees it"));
            }
            if !folder.is_absolute() {
                let folder = folder.display();
                return Err(format!("{name} must be an absolute path, not \"{folder}\""));
            }
        }
        if self
            .host_dir
            .components()
            .any(|c| c == Component::ParentDir)
        {
            let folder = self.host_dir.display();
            return Err(format!(
                "hostDir must not have \"..\" in it, which no volume's path may: \"{folder}\""
            ));
        }
        let names = Patterns::parse(self.name_pattern.as_deref().unwrap_or("*"))
            .map_err(|error: BadPattern| format!("namePattern: {error}"))?;
        let cleaner = match (self.block_cleaner_command, self.block_cleaner.as_deref()) {
            (Some(_), Some(_)) => {
                return Err("blockCleaner and blockCleanerCommand exclude each other".to_owned());
            }
            (Some(command), None) => cleaner_command(command)?,
            (None, None | Some("zero")) => BlockCleaner::Wipe(Wipe::Zero),
            (None, Some("quick")) => BlockCleaner::Wipe(Wipe::Quick),
            (None, Some("discard")) => BlockCleaner::Wipe(Wipe::Discard),
            (None, Some("shred")) => BlockCleaner::Wipe(Wipe::Shred(3)),
            (None, Some(other)) => {
                return Err(format!(
                    "blockCleaner: {other:?} is none of quick, discard, zero, shred"
                ));
            }
        };
        Ok(ClassConfig {
            host_dir: self.host_dir,
            mount_dir: self.mount_dir,
            volume_mode: self.volume_mode.unwrap_or_default(),
            access_mode: self.access_mode.unwrap_or(AccessMode::ReadWriteOnce),
            fs_type: self.fs_type.filter(|kind| !kind.is_empty()),
            names,
            cleaner,
            selector: self.selector,
        })
    }
}

/// The scripts of the original's image are done here without them.
fn cleaner_command(command: Vec<String>) -> Result<BlockCleaner, String> {
    let Some(program) = command.first() else {
        return Err("blockCleanerCommand is empty; leave it out for the default".to_owned());
    };
    let wipe = match program.as_str() {
        "/scripts/quick_reset.sh" => Wipe::Quick,
        "/scripts/blkdiscard.sh" => Wipe::Discard,
        "/scripts/dd_zero.sh" => Wipe::Zero,
        "/scripts/shred.sh" => {
            let passes = command.get(1).map_or("3", String::as_str);
            let parsed = passes.parse().ok().filter(|n| (1..=100).contains(n));
            Wipe::Shred(
                parsed.ok_or_else(|| format!("shred.sh: {passes:?} is no number of passes"))?,
            )
        }
        other if Path::new(other).is_absolute() => return Ok(BlockCleaner::Command(command)),
        other => {
            return Err(format!(
                "blockCleanerCommand: {other:?} must be an absolute path"
            ));
        }
    };
    Ok(BlockCleaner::Wipe(wipe))
}

#[cfg(test)]
mod tests;
