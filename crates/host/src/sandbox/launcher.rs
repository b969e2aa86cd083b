//! The node role's side of a container: start it, take it over, wait for its
//! end, stop it.
//!
//! Nothing here holds state that is needed later: dropping a [`Running`] leaves
//! the container running, and [`Launcher::adopt`] finds it again. Every operation
//! may be repeated, and abandoned at any `await`.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::unix::AsyncFd;

use super::init::chain;
use super::shim::KILL_NOW;
use super::spec::ContainerSpec;
use super::state::{Exit, Inhabitants, ProcessId, StateDir, StateError, boot_id};
use super::sys;

/// How long a shim may hold its lock without saying who it is. It says so within
/// milliseconds of taking it; only a stopped or starved machine needs longer.
const ANNOUNCEMENT: Duration = Duration::from_secs(10);

/// How long each step of a kill may take before the next, harsher one. A shim
/// that can act does so within milliseconds.
const INSISTENCE: Duration = Duration::from_secs(3);

/// How to run [`super::shim_main`] in a process of its own; the state folder is
/// appended as the last argument.
#[derive(Debug, Clone)]
pub struct ShimCommand {
    /// The program, usually this one.
    pub program: PathBuf,
    /// What makes it a shim, such as `container-shim --state-dir`.
    pub args: Vec<OsString>,
}

/// Starts containers and finds them again.
#[derive(Debug, Clone)]
pub struct Launcher {
    shim: ShimCommand,
}

/// What is found in a state folder.
#[derive(Debug)]
pub enum Adopted {
    /// It runs.
    Running(Running),
    /// It ran, or could not be run.
    Exited(Exit),
    /// Nothing ever ran from this folder; it may be started.
    NeverStarted,
    /// It ran and is gone without a record: the host rebooted, or somebody
    /// killed its shim.
    Lost,
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// With a record.
    Exited(Exit),
    /// Without one.
    Lost,
}

/// Why a container could not be started, found or signalled.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The state folder is in the way.
    #[error("could not use the container's state folder")]
    State(#[from] StateError),
    /// The shim program itself does not run.
    #[error("could not run the shim {}", program.display())]
    Spawn {
        /// Which program.
        program: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The shim ran and left nothing behind.
    #[error("the shim of {} gave up: {said}", dir.display())]
    Shim {
        /// The state folder.
        dir: PathBuf,
        /// Its own words.
        said: String,
    },
    /// The shim lives but does not say who it is.
    #[error("the shim of {} holds its lock but does not answer; look for a stopped process", dir.display())]
    Silent {
        /// The state folder.
        dir: PathBuf,
    },
    /// Something of the container is alive that must be gone for this.
    #[error("the container of {} still runs", dir.display())]
    StillRuns {
        /// The state folder.
        dir: PathBuf,
    },
    /// The system refused.
    #[error("could not {doing} the container of {}", dir.display())]
    Process {
        /// What was tried.
        doing: &'static str,
        /// The state folder.
        dir: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl Launcher {
    /// A launcher that runs shims like this.
    pub fn new(shim: ShimCommand) -> Self {
        Self { shim }
    }

    /// Runs a container from a folder; a container that runs or ran from it
    /// already is returned instead. A command that cannot be executed is
    /// [`Adopted::Exited`], not an error.
    pub async fn start(&self, dir: &StateDir, spec: &ContainerSpec) -> Result<Adopted, RunError> {
        dir.create()?;
        match Found::look(dir.spec())? {
            Found::Sound(_) => {}
            Found::Missing => dir.write_spec(spec)?,
            Found::Damaged(_) => return self.adopt(dir).await,
        }
        let output = tokio::process::Command::new(&self.shim.program)
            .args(&self.shim.args)
            .arg(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .env_clear()
            .process_group(0)
            .output()
            .await
            .map_err(|source| RunError::Spawn {
                program: self.shim.program.clone(),
                source,
            })?;
        match self.adopt(dir).await? {
            Adopted::NeverStarted => Err(RunError::Shim {
                dir: dir.path().to_owned(),
                said: match String::from_utf8_lossy(&output.stderr).trim() {
                    "" => format!("it ended with {} and said nothing", output.status),
                    said => said.to_owned(),
                },
            }),
            found => Ok(found),
        }
    }

    /// Finds out what became of the container of a folder. A folder with a
    /// damaged file and nobody alive tells of a container that is
    /// [`Adopted::Lost`]: nothing in it will ever say more.
    pub async fn adopt(&self, dir: &StateDir) -> Result<Adopted, RunError> {
        let silent_at = tokio::time::Instant::now() + ANNOUNCEMENT;
        let mut pause = Duration::from_millis(1);
        loop {
            let exit = match Found::look(dir.exit())? {
                Found::Sound(exit) => return Ok(Adopted::Exited(exit)),
                other => other,
            };
            let spec = Found::look(dir.spec())?;
            if let (Found::Missing, Found::Missing) = (&spec, &exit) {
                return Ok(Adopted::NeverStarted);
            }
            let unreadable = match Found::look(dir.inhabitants())? {
                Found::Sound(who) => return take_over(dir, &who).await,
                Found::Damaged(error) => Some(error),
                Found::Missing => None,
            };
            if dir.try_lock()?.is_some() {
                return forsaken(dir);
            }
            if let Some(error) = unreadable {
                // Somebody lives here, and nothing tells who.
                return Err(error.into());
            }
            if tokio::time::Instant::now() >= silent_at {
                return Err(RunError::Silent {
                    dir: dir.path().to_owned(),
                });
            }
            // A shim is just starting: its record is one rename away. This is
            // the only wait without an event, and a node role meets it only if
            // its predecessor died within the same milliseconds.
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    /// Removes the folder of a container that does not run.
    pub async fn remove(&self, dir: &StateDir) -> Result<(), RunError> {
        match self.adopt(dir).await? {
            Adopted::Running(_) => {
                return Err(RunError::StillRuns {
                    dir: dir.path().to_owned(),
                });
            }
            Adopted::Exited(_) | Adopted::NeverStarted | Adopted::Lost => {}
        }
        if !dir.path().exists() {
            return Ok(());
        }
        let lock = dir.try_lock()?;
        if lock.is_none() && !matches!(dir.exit(), Ok(Some(_))) {
            // A late shim took the lock since we looked. (One that has written
            // its exit record may hold it for an instant longer; that is
            // harmless.) With the lock in our hands a late one finds no spec.
            return Err(RunError::StillRuns {
                dir: dir.path().to_owned(),
            });
        }
        Ok(dir.remove()?)
    }
}

/// A state file, as it was found.
enum Found<T> {
    Missing,
    Damaged(StateError),
    Sound(T),
}

impl<T> Found<T> {
    /// Errors of the system stay errors: they may pass.
    fn look(read: Result<Option<T>, StateError>) -> Result<Self, StateError> {
        match read {
            Ok(Some(value)) => Ok(Self::Sound(value)),
            Ok(None) => Ok(Self::Missing),
            Err(error @ StateError::Damaged { .. }) => Ok(Self::Damaged(error)),
            Err(error) => Err(error),
        }
    }

    fn sound(self) -> Option<T> {
        match self {
            Self::Sound(value) => Some(value),
            Self::Missing | Self::Damaged(_) => None,
        }
    }
}

/// What became of a container of which nobody is alive; asked with the lock in
/// hand, for somebody may have come and gone since the first look.
fn forsaken(dir: &StateDir) -> Result<Adopted, RunError> {
    let exit = Found::look(dir.exit())?;
    let who = Found::look(dir.inhabitants())?;
    let spec = Found::look(dir.spec())?;
    Ok(match (exit, who, spec) {
        (Found::Sound(exit), _, _) => Adopted::Exited(exit),
        (Found::Missing, Found::Missing, Found::Missing | Found::Sound(_)) => Adopted::NeverStarted,
        _ => Adopted::Lost,
    })
}

/// How a container ended whose shim is gone.
fn last_words(dir: &StateDir) -> Result<Ended, RunError> {
    let exit = Found::look(dir.exit())?.sound();
    Ok(exit.map_or(Ended::Lost, Ended::Exited))
}

/// Opens the shim that a record names, if it is the same process still.
async fn take_over(dir: &StateDir, who: &Inhabitants) -> Result<Adopted, RunError> {
    let process = |doing| {
        move |source: io::Error| RunError::Process {
            doing,
            dir: dir.path().to_owned(),
            source,
        }
    };
    if boot_id().map_err(process("find"))? != who.boot_id {
        return Ok(Adopted::Lost);
    }
    if let Some(pidfd) = open(who.shim).map_err(process("find"))? {
        let pidfd = sys::watch(pidfd).map_err(process("watch"))?;
        let started = Found::look(dir.started())?.sound();
        return Ok(Adopted::Running(Running {
            pidfd: Arc::new(pidfd),
            init: who.init,
            dir: dir.clone(),
            started_at: started.unwrap_or(who.launched_at).0,
        }));
    }
    // The shim is gone, and init dies with it: but not before the kernel gets
    // to it, and its mounts are held until then.
    if let Some(init) = open(who.init).map_err(process("find"))?
        && !slain(init).await.map_err(process("watch"))?
    {
        return Err(RunError::StillRuns {
            dir: dir.path().to_owned(),
        });
    }
    Ok(match last_words(dir)? {
        Ended::Exited(exit) => Adopted::Exited(exit),
        Ended::Lost => Adopted::Lost,
    })
}

/// Kills a process; false if it is not gone within [`INSISTENCE`], as one that
/// waits for a dead device is not.
async fn slain(process: OwnedFd) -> io::Result<bool> {
    let _it_may_have_ended = pidfd_send_signal(&process, Signal::KILL);
    let process = sys::watch(process)?;
    match tokio::time::timeout(INSISTENCE, process.readable()).await {
        Ok(gone) => {
            gone?.retain_ready();
            Ok(true)
        }
        Err(_elapsed) => Ok(false),
    }
}

/// A descriptor for exactly this process; `None` if it is gone.
fn open(id: ProcessId) -> io::Result<Option<OwnedFd>> {
    let Some(pid) = Pid::from_raw(id.pid) else {
        return Ok(None);
    };
    let pidfd = match pidfd_open(pid, PidfdFlags::NONBLOCK) {
        Ok(pidfd) => pidfd,
        Err(rustix::io::Errno::SRCH) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    // Readable means dead; nobody may have reaped it yet.
    let mut watched = [PollFd::new(&pidfd, PollFlags::IN)];
    if poll(&mut watched, Some(&Timespec::default()))? > 0 {
        return Ok(None);
    }
    // The descriptor pins the process it was opened for, so a comparison made
    // after opening cannot be outrun by a reuse of the number.
    match ProcessId::of(pid) {
        Ok(now) if now == id => Ok(Some(pidfd)),
        Ok(_) => Ok(None),
        Err(e) if e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(libc::ESRCH) => {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

/// A container that runs, or did when this was made.
#[derive(Debug, Clone)]
pub struct Running {
    /// The shim.
    pidfd: Arc<AsyncFd<OwnedFd>>,
    init: ProcessId,
    dir: StateDir,
    started_at: Timestamp,
}

impl Running {
    /// When its program was executed.
    pub fn started_at(&self) -> Timestamp {
        self.started_at
    }

    /// Its state folder.
    pub fn dir(&self) -> &StateDir {
        &self.dir
    }

    /// Waits until the last process of the container is gone.
    pub async fn wait(&self) -> Result<Ended, RunError> {
        self.pidfd
            .readable()
            .await
            .map_err(|source| self.process("watch", source))?
            .retain_ready();
        last_words(&self.dir)
    }

    /// Asks the program to end: SIGTERM to it alone, as container runtimes do.
    pub fn terminate(&self) -> Result<(), RunError> {
        self.signal(Signal::TERM, "stop")
    }

    /// Kills every process of the container. Must be called within a tokio
    /// runtime, which goes on killing, more harshly, should the shim not act.
    pub fn kill(&self) -> Result<(), RunError> {
        self.signal(KILL_NOW, "kill")?;
        let container = self.clone();
        tokio::spawn(async move {
            if let Err(error) = container.insist().await {
                tracing::error!(
                    dir = %container.dir.path().display(),
                    error = chain(&error),
                    "could not kill a container"
                );
            }
        });
        Ok(())
    }

    /// Sees a kill through that the shim was asked for: kills init itself, and
    /// then a shim that does not notice its end. The shim comes last, since
    /// without it nobody would tell that something of the container is left.
    async fn insist(&self) -> Result<Ended, RunError> {
        if let Some(ended) = self.end_soon().await? {
            return Ok(ended);
        }
        tracing::warn!(dir = %self.dir.path().display(), "a shim does not kill its container; killing it directly");
        if let Some(init) = open(self.init).map_err(|e| self.process("find", e))?
            && !slain(init).await.map_err(|e| self.process("kill", e))?
        {
            return Err(self.still_runs());
        }
        if let Some(ended) = self.end_soon().await? {
            return Ok(ended);
        }
        self.signal(Signal::KILL, "kill")?;
        self.end_soon().await?.ok_or_else(|| self.still_runs())
    }

    /// The end, if it comes within [`INSISTENCE`].
    async fn end_soon(&self) -> Result<Option<Ended>, RunError> {
        tokio::time::timeout(INSISTENCE, self.wait())
            .await
            .ok()
            .transpose()
    }

    fn still_runs(&self) -> RunError {
        RunError::StillRuns {
            dir: self.dir.path().to_owned(),
        }
    }

    /// Asks, waits for the grace period, kills, and waits for the end, but not
    /// for ever: what even the kernel cannot kill is [`RunError::StillRuns`].
    pub async fn stop(&self, grace: Duration) -> Result<Ended, RunError> {
        if !grace.is_zero() {
            self.terminate()?;
            if let Ok(ended) = tokio::time::timeout(grace, self.wait()).await {
                return ended;
            }
        }
        self.signal(KILL_NOW, "kill")?;
        self.insist().await
    }

    fn signal(&self, signal: Signal, doing: &'static str) -> Result<(), RunError> {
        match pidfd_send_signal(self.pidfd.get_ref(), signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(e) => Err(self.process(doing, e.into())),
        }
    }

    fn process(&self, doing: &'static str, source: io::Error) -> RunError {
        RunError::Process {
            doing,
            dir: self.dir.path().to_owned(),
            source,
        }
    }
}
