//! A container's state folder: its files, its lock, and how they are read.
//!
//! This module decides nothing; it turns files into types and back.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::FlockOperation;
use rustix::process::Pid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::spec::ContainerSpec;

/// No record of a container's life is longer: a message among them is cut to a thousand characters.
const RECORD: usize = 8 << 10;

/// The folder of one attempt to run one container.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StateDir(PathBuf);

/// Why a state folder could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The system refused.
    #[error("could not {doing} {}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file is not what we write.
    #[error("{} is damaged; remove the container's folder once its processes are gone", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What the parser said.
        #[source]
        source: serde_json::Error,
    },
}

/// A moment, written as RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Moment(#[serde(with = "rfc3339")] pub(super) Timestamp);

/// `shim.json`: who lives here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Inhabitants {
    pub(super) boot_id: String,
    pub(super) shim: ProcessId,
    pub(super) init: ProcessId,
    pub(super) launched_at: Moment,
}

/// A process, told apart from a later one with the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ProcessId {
    pub(super) pid: i32,
    /// Clock ticks after boot, field 22 of `/proc/<pid>/stat`.
    pub(super) start_ticks: u64,
}

/// `exit.json`: how it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exit {
    /// As a shell reports it: 128 + signal for a killed program.
    pub code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// In Kubernetes' words.
    pub reason: ExitReason,
    /// For people; empty when the program ran and ended by itself.
    pub message: String,
    /// When the program was executed, if it was.
    #[serde(with = "rfc3339_option")]
    pub started_at: Option<Timestamp>,
    /// When the last process of the container was gone.
    #[serde(with = "rfc3339")]
    pub finished_at: Timestamp,
}

/// Kubernetes' reasons of a terminated container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitReason {
    /// Exit code 0.
    Completed,
    /// Any other exit code, or a signal.
    Error,
    /// The command is missing or cannot be executed.
    StartError,
    /// Its root, volumes or devices could not be set up.
    ContainerCannotRun,
}

impl ExitReason {
    /// As it stands in a container's status.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "Completed",
            Self::Error => "Error",
            Self::StartError => "StartError",
            Self::ContainerCannotRun => "ContainerCannotRun",
        }
    }
}

impl StateDir {
    /// Names a folder; touches nothing.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The log file.
    pub fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// Where the shim assembles the container's root, invisible to the host.
    pub(super) fn root(&self) -> PathBuf {
        self.0.join("root")
    }

    /// Makes the folder, for root alone: `spec.json` may carry secrets.
    pub(super) fn create(&self) -> Result<(), StateError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.0)
            .and_then(|()| match fs::create_dir(self.root()) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                other => other,
            })
            .map_err(|source| self.io("create", &self.0, source))
    }

    /// Takes the room that the records of a container's life need, so that none of them fails once
    /// it runs: a disk that is full then keeps it from starting, which can be told.
    pub(super) fn reserve(&self) -> Result<(), StateError> {
        for name in ["shim.json", "started.json", "exit.json"] {
            let path = temporary(&self.0, name);
            open_to_write(&path)
                .and_then(|mut file| file.write_all(&[b' '; RECORD]))
                .map_err(|source| self.io("write", &self.0.join(name), source))?;
        }
        Ok(())
    }

    pub(super) fn write_spec(&self, spec: &ContainerSpec) -> Result<(), StateError> {
        self.write("spec.json", spec)
    }

    /// What was asked to run here, if anything was.
    pub fn spec(&self) -> Result<Option<ContainerSpec>, StateError> {
        self.read("spec.json")
    }

    pub(super) fn write_inhabitants(&self, who: &Inhabitants) -> Result<(), StateError> {
        self.write("shim.json", who)
    }

    pub(super) fn inhabitants(&self) -> Result<Option<Inhabitants>, StateError> {
        self.read("shim.json")
    }

    pub(super) fn write_started(&self, at: Moment) -> Result<(), StateError> {
        self.write("started.json", &at)
    }

    pub(super) fn started(&self) -> Result<Option<Moment>, StateError> {
        self.read("started.json")
    }

    pub(super) fn write_exit(&self, exit: &Exit) -> Result<(), StateError> {
        self.write("exit.json", exit)
    }

    /// How it ended, if it has.
    pub fn exit(&self) -> Result<Option<Exit>, StateError> {
        self.read("exit.json")
    }

    /// Takes the lock that everybody of a container holds; `None` when somebody
    /// of it is alive, or when nothing was ever asked to run here.
    pub(super) fn try_lock(&self) -> Result<Option<File>, StateError> {
        let path = self.0.join("lock");
        let file = match OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
        {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(self.io("open", &path, source)),
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(self.io("lock", &path, e.into())),
        }
    }

    /// Removes the folder, `spec.json` first: a shim that is late reads it under
    /// the lock and finds nothing to run.
    pub(super) fn remove(&self) -> Result<(), StateError> {
        let gone = |result: io::Result<()>| match result {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        let spec = self.0.join("spec.json");
        gone(fs::remove_file(&spec)).map_err(|source| self.io("remove", &spec, source))?;
        gone(fs::remove_dir_all(&self.0)).map_err(|source| self.io("remove", &self.0, source))
    }

    fn write<T: Serialize>(&self, name: &str, value: &T) -> Result<(), StateError> {
        let path = self.0.join(name);
        let json = serde_json::to_vec(value).map_err(|source| StateError::Damaged {
            path: path.clone(),
            source,
        })?;
        let temporary = temporary(&self.0, name);
        open_to_write(&temporary)
            .and_then(|mut file| {
                file.write_all(&json)?;
                // After it: what was reserved is written over.
                file.set_len(json.len() as u64)
            })
            .and_then(|()| fs::rename(&temporary, &path))
            .map_err(|source| self.io("write", &path, source))
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, StateError> {
        let path = self.0.join(name);
        match fs::read(&path) {
            Ok(json) => serde_json::from_slice(&json)
                .map(Some)
                .map_err(|source| StateError::Damaged { path, source }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(self.io("read", &path, source)),
        }
    }

    fn io(&self, doing: &'static str, path: &Path, source: io::Error) -> StateError {
        StateError::Io {
            doing,
            path: path.to_owned(),
            source,
        }
    }
}

/// Where a record is written before it is shown.
fn temporary(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!(".{name}"))
}

/// What is in the file stays until it is written over: its room might be gone otherwise.
fn open_to_write(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

impl ProcessId {
    /// The process with this number as it is now.
    pub(super) fn of(pid: Pid) -> io::Result<Self> {
        let pid = pid.as_raw_nonzero().get();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let start_ticks = start_ticks(&stat).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("/proc/{pid}/stat has no start time"),
            )
        })?;
        Ok(Self { pid, start_ticks })
    }
}

/// Field 22, counted after the program's name, which may itself hold blanks and
/// brackets.
fn start_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Tells this boot of the host from another.
pub(super) fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

mod rfc3339 {
    use jiff::Timestamp;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(at)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
        String::deserialize(from)?.parse().map_err(D::Error::custom)
    }
}

mod rfc3339_option {
    use jiff::Timestamp;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(
        at: &Option<Timestamp>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match at {
            Some(at) => to.collect_str(at),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Timestamp>, D::Error> {
        Option::<String>::deserialize(from)?
            .map(|text| text.parse().map_err(D::Error::custom))
            .transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_with_brackets_does_not_shift_the_start_time() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 9";
        assert_eq!(start_ticks(stat), Some(4242));
    }

    #[test]
    fn a_process_is_itself_and_not_another() {
        let me = rustix::process::getpid();
        let first = ProcessId::of(me).expect("own stat is readable");
        assert_eq!(ProcessId::of(me).expect("own stat is readable"), first);
    }

    #[test]
    fn the_environment_is_not_shown() {
        let var = EnvVarOf("TOKEN", "s3cret");
        assert!(!format!("{:?}", var.spec()).contains("s3cret"));
    }

    struct EnvVarOf(&'static str, &'static str);
    impl EnvVarOf {
        fn spec(&self) -> ContainerSpec {
            ContainerSpec {
                env: vec![super::super::EnvVar {
                    name: self.0.into(),
                    value: self.1.into(),
                }],
                ..Default::default()
            }
        }
    }
}
