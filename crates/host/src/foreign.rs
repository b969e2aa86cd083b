//! Running programs that others wrote and nobody vouches for, such as old volume drivers.
//!
//! Each has a deadline and a limit of what it may print, and is a process group of its own, which
//! is killed as a whole when it oversteps. What it leaves running after it has ended is its own
//! business: file systems in user space live like that. One that outlives us is on file, as a
//! [`Note`]: nothing is run by that note again before it is ended. Where one of another machine may go on
//! in our place, which knows nothing of the file, a program dies with us.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::time::timeout;

mod held;
mod note;

pub use note::{EndError, Killed, Note};

/// How long to read on when the program has ended and somebody still holds its output open.
const LINGER: Duration = Duration::from_millis(300);

/// A program that another process is just writing can't be executed; it will be done soon.
const BUSY_AGAIN: Duration = Duration::from_millis(20);
const BUSY_TRIES: usize = 25;

/// What a program may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Time.
    pub deadline: Duration,
    /// Bytes of output, for each of its two kinds.
    pub output: usize,
}

/// What a program said, and how it ended.
#[derive(Debug)]
pub struct Said {
    /// Its output.
    pub stdout: Vec<u8>,
    /// Its complaints.
    pub stderr: Vec<u8>,
    /// How it ended.
    pub status: ExitStatus,
}

/// Why a program did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum ForeignError {
    /// It could not be started.
    #[error("could not start {}", path.display())]
    Start {
        /// The program.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It took too long, and was killed with all it had started.
    #[error("{} was killed: it ran for {} s", path.display(), after.as_secs_f32())]
    Deadline {
        /// The program.
        path: PathBuf,
        /// How long it had.
        after: Duration,
    },
    /// It said too much, and was killed with all it had started.
    #[error("{} was killed: it printed more than {limit} bytes", path.display())]
    TooMuch {
        /// The program.
        path: PathBuf,
        /// How much it might have said.
        limit: usize,
    },
    /// One that ran before, for the same, could not be ended.
    #[error("could not end what ran before")]
    Before(#[from] EndError),
    /// Nobody knows how it ended.
    #[error("lost track of {}", path.display())]
    Lost {
        /// The program.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Runs a program to its end, with its arguments as they are and a bare environment. What an earlier
/// one with the same note has left running is ended first.
pub async fn run(
    path: &Path,
    arguments: &[String],
    limits: Limits,
    note: &Note,
) -> Result<Said, ForeignError> {
    let _held = note.hold()?;
    note.end().await?;
    let ended = run_noted(path, arguments, limits, note).await;
    match &ended {
        Ok(_) | Err(ForeignError::Start { .. }) => note.remove()?,
        Err(_) => {
            let _told_by_the_next = note.end().await;
        }
    }
    ended
}

async fn run_noted(
    path: &Path,
    arguments: &[String],
    limits: Limits,
    note: &Note,
) -> Result<Said, ForeignError> {
    let (mut child, _parent) = start(path, arguments, note).await?;
    let group = Group(
        child
            .id()
            .and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)),
    );
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let work = async {
        let reading = async {
            tokio::try_join!(
                fill(out, &mut stdout, limits.output),
                fill(err, &mut stderr, limits.output)
            )
        };
        tokio::pin!(reading);
        let mut all_read = false;
        let status = loop {
            tokio::select! {
                read = &mut reading, if !all_read => {
                    read?;
                    all_read = true;
                }
                status = child.wait() => break status.map_err(Stop::Lost)?,
            }
        };
        if !all_read && let Ok(read) = timeout(LINGER, &mut reading).await {
            read?;
        }
        Ok(status)
    };
    let path = || path.to_owned();
    let ended = timeout(limits.deadline, work).await;
    if !matches!(ended, Ok(Ok(_))) {
        // Before the leader of its group is gone: with it one would lose the others.
        let _told_by_the_next = note.kill();
    }
    match ended {
        Ok(Ok(status)) => {
            group.spare();
            Ok(Said {
                stdout,
                stderr,
                status,
            })
        }
        Ok(Err(Stop::TooMuch)) => Err(ForeignError::TooMuch {
            path: path(),
            limit: limits.output,
        }),
        Ok(Err(Stop::Lost(source))) => Err(ForeignError::Lost {
            path: path(),
            source,
        }),
        Err(_) => Err(ForeignError::Deadline {
            path: path(),
            after: limits.deadline,
        }),
    }
}

#[expect(
    unsafe_code,
    reason = "pre_exec is the only way to have a program on file before it runs"
)]
async fn start(
    path: &Path,
    arguments: &[String],
    note: &Note,
) -> Result<(Child, Parent), ForeignError> {
    let failed = |source| ForeignError::Start {
        path: path.to_owned(),
        source,
    };
    let us = rustix::process::getpid();
    let dies_with_us = note.dies_with_us;
    for _ in 0..BUSY_TRIES {
        let file = note.begin()?;
        let mut command = Command::new(path);
        command
            .args(arguments)
            .env_clear()
            .env("LC_ALL", "C")
            .env("HOME", "/")
            .env(
                "PATH",
                "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            )
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .current_dir("/")
            .envs(note.mark())
            .process_group(0)
            .kill_on_drop(true);
        // SAFETY: between fork and exec the closure makes system calls that are async-signal-safe and
        // allocates nothing; the file stays open as long as the command.
        unsafe {
            command.pre_exec(move || {
                if dies_with_us {
                    let kill = Signal::KILL;
                    rustix::process::set_parent_process_death_signal(Some(kill))?;
                    if rustix::process::getppid() != Some(us) {
                        return Err(io::ErrorKind::BrokenPipe.into());
                    }
                }
                note::sign(&file)
            });
        }
        match Parent::of(command).await {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                tokio::time::sleep(BUSY_AGAIN).await;
            }
            other => return other.map_err(failed),
        }
    }
    Err(failed(io::ErrorKind::ExecutableFileBusy.into()))
}

/// The thread that has started a program. To the kernel it is the parent with which a program dies, and a thread of the runtime's may end at any time; this one lives until it is dropped.
struct Parent {
    _let_go: std::sync::mpsc::Sender<()>,
}

impl Parent {
    async fn of(mut command: Command) -> io::Result<(Child, Self)> {
        let runtime = tokio::runtime::Handle::current();
        let (started, child) = oneshot::channel();
        let (let_go, is_let_go) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new().name("foreign".into());
        thread.spawn(move || {
            let _runtime = runtime.enter();
            // If nobody waits for it any more, it is dropped, which kills it.
            if started.send(command.spawn()).is_ok() {
                let _nothing_is_ever_sent = is_let_go.recv();
            }
        })?;
        let child = child.await.map_err(io::Error::other)??;
        let parent = Self { _let_go: let_go };
        Ok((child, parent))
    }
}

/// Why a program is stopped.
enum Stop {
    TooMuch,
    Lost(io::Error),
}

async fn fill(
    from: Option<impl AsyncRead + Unpin>,
    into: &mut Vec<u8>,
    limit: usize,
) -> Result<(), Stop> {
    let Some(mut from) = from else { return Ok(()) };
    loop {
        match from.read_buf(into).await {
            Ok(0) => return Ok(()),
            Ok(_) if into.len() > limit => return Err(Stop::TooMuch),
            Ok(_) => {}
            Err(error) => return Err(Stop::Lost(error)),
        }
    }
}

/// A process group that is killed unless it is spared: also when nobody waits any more.
struct Group(Option<Pid>);

impl Group {
    fn spare(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            let _it_may_be_gone = rustix::process::kill_process_group(group, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        deadline: Duration::from_secs(20),
        output: 10_000,
    };

    async fn shell(script: &str, limits: Limits) -> Result<Said, ForeignError> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("calls/note");
        let said = noted(script, limits, &Note::at(path.clone())).await;
        assert!(!path.exists(), "it has ended");
        said
    }

    async fn noted(script: &str, limits: Limits, note: &Note) -> Result<Said, ForeignError> {
        let arguments = ["-c".to_owned(), script.to_owned()];
        run(Path::new("/bin/sh"), &arguments, limits, note).await
    }

    /// Whether a process runs; a zombie whose parent is slow to look is dead enough.
    fn runs(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }

    #[tokio::test]
    async fn what_outlived_those_who_started_it_is_ended_before_another_one_runs() {
        let folder = tempfile::tempdir().expect("a folder");
        let note = Note::at(folder.path().join("note"));
        let pids = folder.path().join("pids");
        let script = format!(
            "trap '' TERM; sleep 600 & echo $! $$ > {0}.new; mv {0}.new {0}; wait",
            pids.display()
        );
        let mut first = Box::pin(noted(&script, LIMITS, &note));
        while !pids.exists() {
            let soon = Duration::from_millis(10);
            assert!(timeout(soon, &mut first).await.is_err(), "it hangs");
        }
        // As with `kill -9`: nothing of it is dropped.
        std::mem::forget(first);
        let pids = std::fs::read_to_string(&pids).expect("pids");
        let mut pids = pids.split_whitespace();
        assert!(pids.clone().all(runs));
        let check = pids.clone().map(|pid| format!("[ -e /proc/{pid}/fd/0 ]"));
        let script = format!("{} || echo gone", check.collect::<Vec<_>>().join(" || "));
        let second = noted(&script, LIMITS, &note).await.expect("it ran");
        assert_eq!(second.stdout, b"gone\n");
        assert!(!pids.any(runs));
        assert!(!folder.path().join("note").exists());
    }

    #[tokio::test]
    async fn a_program_lives_no_longer_than_who_has_it_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let note = Note::at(folder.path().join("note")).dying_with_us();
        let begun = folder.path().join("begun");
        let script = format!("sleep 600 & echo > {}; wait", begun.display());
        let arguments = ["-c".to_owned(), script];
        let started = start(Path::new("/bin/sh"), &arguments, &note).await;
        let (child, parent) = started.expect("it runs");
        let pid = child.id().expect("it runs").to_string();
        // As with `kill -9`: nobody is there to kill it. Threads that come and go don't matter.
        std::mem::forget(child);
        while !begun.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(runs(&pid));
        drop(parent);
        let until = tokio::time::Instant::now() + Duration::from_secs(20);
        while runs(&pid) {
            assert!(tokio::time::Instant::now() < until, "it lives on");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // What it has started is for the next one to end.
        let killed = note.kill().expect("it is on file");
        note.end().await.expect("nothing is left");
        assert!(!killed.is_empty(), "its child lived on");
    }

    #[tokio::test]
    async fn what_another_runs_is_left_alone_and_nothing_is_left_of_it_in_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let calls = folder.path().join("calls");
        let note = Note::at(calls.join("n1/vol")).dying_with_us();
        let pid = folder.path().join("pid");
        let script = format!(
            "echo $$ > {0}.new; mv {0}.new {0}; sleep 600",
            pid.display()
        );
        let mut first = Box::pin(noted(&script, LIMITS, &note));
        while !pid.exists() {
            let soon = Duration::from_millis(10);
            assert!(timeout(soon, &mut first).await.is_err(), "it hangs");
        }
        let second = noted("true", LIMITS, &note).await;
        let busy = matches!(second, Err(ForeignError::Before(EndError::Held { .. })));
        assert!(busy, "{second:?}");
        let pid = std::fs::read_to_string(&pid).expect("a pid");
        assert!(runs(pid.trim()), "it was killed");
        drop(first);
        noted("true", LIMITS, &note).await.expect("it ran");
        assert!(!calls.exists(), "nothing runs");
    }

    #[tokio::test]
    async fn both_outputs_and_the_code_are_told() {
        let said = shell("echo out; echo err >&2; exit 3", LIMITS).await;
        let said = said.expect("it ran");
        assert_eq!(said.stdout, b"out\n");
        assert_eq!(said.stderr, b"err\n");
        assert_eq!(said.status.code(), Some(3));
    }

    #[tokio::test]
    async fn a_program_that_hangs_is_killed_with_all_it_started() {
        let folder = tempfile::tempdir().expect("a folder");
        let pids = folder.path().join("pids");
        let script = format!(
            "trap '' TERM; sleep 600 & echo $! > {0}; echo $$ >> {0}; wait",
            pids.display()
        );
        let limits = Limits {
            deadline: Duration::from_secs(2),
            ..LIMITS
        };
        let error = shell(&script, limits).await.expect_err("it hangs");
        assert!(matches!(error, ForeignError::Deadline { .. }), "{error}");
        for pid in std::fs::read_to_string(&pids).expect("pids").lines() {
            assert!(!runs(pid), "{pid} lives");
        }
    }

    #[tokio::test]
    async fn a_program_that_says_too_much_is_killed() {
        let error = shell("while :; do echo more; done", LIMITS).await;
        let error = error.expect_err("too much");
        assert!(matches!(error, ForeignError::TooMuch { .. }), "{error}");
    }

    #[tokio::test]
    async fn what_a_program_leaves_running_is_neither_waited_for_nor_killed() {
        let said = shell("sleep 3 & echo $!", LIMITS).await.expect("it ran");
        let pid = String::from_utf8(said.stdout).expect("text");
        let stat = format!("/proc/{}/stat", pid.trim());
        let stat = std::fs::read_to_string(stat).expect("it runs");
        assert!(!stat.contains(") Z "), "{stat}");
    }

    #[tokio::test]
    async fn what_cannot_be_started_says_so() {
        let folder = tempfile::tempdir().expect("a folder");
        let note = Note::at(folder.path().join("note"));
        let error = run(Path::new("/no/such"), &[], LIMITS, &note).await;
        assert!(matches!(error, Err(ForeignError::Start { .. })));
    }
}
