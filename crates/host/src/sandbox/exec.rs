//! The last steps of a container's own program: who it is, where it starts, and
//! which file its command names.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Gid, Uid};
use rustix::thread::CapabilitySet;

use super::init::Refusal;
use super::spec::{ContainerSpec, Privilege, User};
use super::state::ExitReason;

const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What a program that runs as root keeps; runtimes' default less `MKNOD`.
const KEPT: [CapabilitySet; 13] = [
    CapabilitySet::CHOWN,
    CapabilitySet::DAC_OVERRIDE,
    CapabilitySet::FOWNER,
    CapabilitySet::FSETID,
    CapabilitySet::KILL,
    CapabilitySet::NET_BIND_SERVICE,
    CapabilitySet::NET_RAW,
    CapabilitySet::SETFCAP,
    CapabilitySet::SETGID,
    CapabilitySet::SETPCAP,
    CapabilitySet::SETUID,
    CapabilitySet::SYS_CHROOT,
    CapabilitySet::AUDIT_WRITE,
];

/// Why a program could not be executed.
#[derive(Debug, thiserror::Error)]
enum ExecError {
    #[error("no command is given")]
    NoCommand,
    #[error("command {name:?} is not in PATH {path:?}; name a program that the host has")]
    NotInPath { name: String, path: OsString },
    #[error("command {} does not exist", program.display())]
    Missing { program: PathBuf },
    #[error("command {} is a folder", program.display())]
    Folder { program: PathBuf },
    #[error("command {} may not be executed; set its x bits", program.display())]
    NotExecutable { program: PathBuf },
    #[error("could not execute {}", program.display())]
    Exec {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("could not start in {}", folder.display())]
    WorkingDir {
        folder: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("could not become user {uid}, group {gid}")]
    User {
        uid: u32,
        gid: u32,
        #[source]
        source: io::Error,
    },
    #[error("could not give up capabilities")]
    Capabilities(#[source] io::Error),
}

impl ExecError {
    /// A shell's exit codes.
    fn code(&self) -> i32 {
        match self {
            Self::NoCommand | Self::NotInPath { .. } | Self::Missing { .. } => 127,
            Self::Folder { .. }
            | Self::NotExecutable { .. }
            | Self::Exec { .. }
            | Self::WorkingDir { .. }
            | Self::User { .. }
            | Self::Capabilities(_) => 126,
        }
    }
}

/// Becomes the program; returns only when that is not possible.
pub(super) fn become_program(spec: &ContainerSpec) -> Refusal {
    let error = match try_become(spec) {
        Ok(never) => match never {},
        Err(error) => error,
    };
    Refusal {
        code: error.code(),
        reason: ExitReason::StartError,
        message: super::init::chain(&error),
    }
}

fn try_become(spec: &ContainerSpec) -> Result<std::convert::Infallible, ExecError> {
    let (name, arguments) = spec.command.split_first().ok_or(ExecError::NoCommand)?;
    let env = environment(spec);
    let folder = spec.working_dir.clone().unwrap_or_else(|| "/".into());
    fs::create_dir_all(&folder)
        .and_then(|()| std::env::set_current_dir(&folder))
        .map_err(|source| ExecError::WorkingDir { folder, source })?;
    if spec.privilege == Privilege::Restricted {
        drop_capabilities().map_err(ExecError::Capabilities)?;
    }
    become_user(&spec.user)?;
    let program = find(name, path_of(&env))?;
    let source = Command::new(&program)
        .arg0(name)
        .args(arguments)
        .env_clear()
        .envs(env.iter().map(|(name, value)| (name, value)))
        .exec();
    Err(ExecError::Exec { program, source })
}

/// The environment, later variables over earlier ones.
fn environment(spec: &ContainerSpec) -> Vec<(String, String)> {
    let home = if spec.user.uid == 0 { "/root" } else { "/" };
    let mut env = vec![
        ("PATH".to_owned(), USUAL_PATH.to_owned()),
        ("HOME".to_owned(), home.to_owned()),
    ];
    if let Some(hostname) = &spec.hostname {
        env.push(("HOSTNAME".to_owned(), hostname.clone()));
    }
    env.extend(
        spec.env
            .iter()
            .map(|var| (var.name.clone(), var.value.clone())),
    );
    env
}

fn path_of(env: &[(String, String)]) -> &str {
    env.iter()
        .rev()
        .find(|(name, _)| name == "PATH")
        .map_or("", |(_, value)| value)
}

/// The file that a command names, looked up as a shell would.
fn find(name: &str, path: &str) -> Result<PathBuf, ExecError> {
    if name.contains('/') {
        return executable(Path::new(name)).map(|()| name.into());
    }
    let mut almost = None;
    for folder in path.split(':').filter(|folder| !folder.is_empty()) {
        let program = Path::new(folder).join(name);
        match executable(&program) {
            Ok(()) => return Ok(program),
            Err(ExecError::NotExecutable { program }) => {
                almost = Some(ExecError::NotExecutable { program });
            }
            Err(_) => {}
        }
    }
    Err(almost.unwrap_or_else(|| ExecError::NotInPath {
        name: name.to_owned(),
        path: path.into(),
    }))
}

fn executable(program: &Path) -> Result<(), ExecError> {
    let program = || program.to_owned();
    match fs::metadata(program()) {
        Err(_) => Err(ExecError::Missing { program: program() }),
        Ok(found) if found.is_dir() => Err(ExecError::Folder { program: program() }),
        Ok(found) if found.permissions().mode() & 0o111 == 0 => {
            Err(ExecError::NotExecutable { program: program() })
        }
        Ok(_) => Ok(()),
    }
}

fn drop_capabilities() -> io::Result<()> {
    let kept = KEPT
        .into_iter()
        .fold(CapabilitySet::empty(), CapabilitySet::union);
    for capability in CapabilitySet::all().difference(kept).iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // A kernel that does not know the capability does not grant it.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

fn become_user(user: &User) -> Result<(), ExecError> {
    let groups: Vec<Gid> = user
        .groups
        .iter()
        .map(|group| Gid::from_raw(*group))
        .collect();
    rustix::thread::set_thread_groups(&groups)
        .and_then(|()| rustix::thread::set_thread_gid(Gid::from_raw(user.gid)))
        .and_then(|()| rustix::thread::set_thread_uid(Uid::from_raw(user.uid)))
        .map_err(|source| ExecError::User {
            uid: user.uid,
            gid: user.gid,
            source: source.into(),
        })
}
