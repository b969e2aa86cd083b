//! What is on file of a program while it runs, so that whoever comes after a crash can end it.
//!
//! The program writes its number and its time of birth down by itself, before it becomes the
//! program: there is no moment at which it runs and nobody knows. A process is known by both, so
//! none that took over a number is ever ended.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::time::{Instant, timeout_at};

use super::held::Held;
use crate::BootId;
use crate::process::Watched;

/// In the environment of what dies with us: by which note it was run.
const MARK: &str = "ORLOP_NOTE";

/// How often a process is looked at for it.
const LOOKS: usize = 20;

/// How long a killed process may take to be gone.
const PATIENCE: Duration = Duration::from_secs(2);

/// A file about one program at a time.
#[derive(Debug, Clone)]
pub struct Note {
    path: PathBuf,
    pub(super) dies_with_us: bool,
}

/// Why a program that shall be gone is not.
#[derive(Debug, thiserror::Error)]
pub enum EndError {
    /// It was killed, and the kernel can't let it go.
    #[error("an earlier call still hangs in process {pid}, which was killed")]
    Stays {
        /// The process.
        pid: i32,
    },
    /// Another process runs it.
    #[error("another process of this machine runs it for the same, as {} says", path.display())]
    Held {
        /// The file.
        path: PathBuf,
    },
    /// Nobody knows what runs.
    #[error("could not {doing} {}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A process that no other can be taken for, within a boot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    pid: i32,
    /// In clock ticks after boot.
    born: u64,
}

/// A process as it is now.
struct Seen {
    process: Process,
    group: i32,
}

impl Note {
    /// Nothing is read or written yet.
    pub fn at(path: PathBuf) -> Self {
        Self {
            path,
            dies_with_us: false,
        }
    }

    /// The same, for a program that leaves nothing running on purpose: it is killed if we are, and what it
    /// has started is ended also if it is gone itself.
    #[must_use]
    pub fn dying_with_us(self) -> Self {
        Self {
            dies_with_us: true,
            ..self
        }
    }

    /// What a program that dies with us, and all that it starts, has in its environment.
    pub(super) fn mark(&self) -> Option<(&'static str, &Path)> {
        self.dies_with_us.then_some((MARK, &self.path))
    }

    /// Whether a group is of what was run by this note. A process that is just becoming another program
    /// has no environment, and neither has one that took it away: alone, they are what they seem. One that
    /// becomes another while it is read tells the beginning of what it had, so that it is looked at again.
    fn has_marked(&self, group: &[Process]) -> bool {
        let mark = [MARK.as_bytes(), b"=", self.path.as_os_str().as_bytes()].concat();
        let environment = |process: &Process| {
            let read = std::fs::read(format!("/proc/{}/environ", process.pid));
            read.ok().filter(|read| !read.is_empty())
        };
        let looks = || {
            let all: Vec<Vec<u8>> = group.iter().filter_map(environment).collect();
            let has_mark = |it: &Vec<u8>| it.split(|byte| *byte == 0).any(|word| word == mark);
            all.is_empty() || all.iter().any(has_mark)
        };
        !group.is_empty() && (0..LOOKS).any(|_| looks())
    }

    fn failed(&self, doing: &'static str) -> impl FnOnce(io::Error) -> EndError {
        let path = self.path.clone();
        move |source| EndError::Io {
            doing,
            path,
            source,
        }
    }

    /// Keeps others from it, where there may be others.
    pub(super) fn hold(&self) -> Result<Option<Held>, EndError> {
        if !self.dies_with_us {
            return Ok(None);
        }
        let held = Held::at(&self.path).map_err(self.failed("lock"))?;
        let path = self.path.clone();
        held.map(Some).ok_or(EndError::Held { path })
    }

    /// A file for the next program to write itself down in.
    pub(super) fn begin(&self) -> Result<File, EndError> {
        let begun = || {
            if let Some(folder) = self.path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            let mut file = File::create(&self.path)?;
            writeln!(file, "{}", BootId::current()?)?;
            Ok(file)
        };
        begun().map_err(self.failed("write"))
    }

    /// Kills the program, if it runs, with its process group, and does not wait.
    ///
    /// # Errors
    /// If nobody knows what runs.
    pub fn kill(&self) -> Result<Killed, EndError> {
        let listed = self.read().map_err(self.failed("read"))?;
        let seen: Vec<Seen> = listed.iter().filter_map(Process::see).collect();
        let leader = seen.iter().find(|seen| seen.group == seen.process.pid);
        let left = match leader.and_then(|leader| Some((leader, Pid::from_raw(leader.group)?))) {
            Some((leader, group)) => {
                let members = members(leader.group).map_err(self.failed("find processes of"))?;
                // On file before the first of them is gone: without it, nobody would know the others.
                self.write(&members).map_err(self.failed("write"))?;
                let _it_may_be_gone = rustix::process::kill_process_group(group, Signal::KILL);
                members
            }
            None if self.dies_with_us && seen.is_empty() => {
                let group = listed.first().map(|process| process.pid);
                let left = group.map_or_else(|| Ok(Vec::new()), members);
                let left = left.map_err(self.failed("find processes of"))?;
                // While a group has members, nobody else is given its number; then it may be another's,
                // whose leader has gone as well.
                let ours = self.has_marked(&left);
                if let Some(group) = group.and_then(Pid::from_raw).filter(|_| ours) {
                    let _it_may_be_gone = rustix::process::kill_process_group(group, Signal::KILL);
                }
                if ours { left } else { Vec::new() }
            }
            // One that ended by itself has left nothing that is ours to end.
            None => seen.into_iter().map(|seen| seen.process).collect(),
        };
        Ok(Killed { left })
    }

    /// Kills the program, if it runs, and returns once nothing of it is left.
    ///
    /// # Errors
    /// If something of it can't be ended: the file stays.
    pub async fn end(&self) -> Result<(), EndError> {
        let Killed { left } = self.kill()?;
        let until = Instant::now() + PATIENCE;
        for process in &left {
            let Ok(watched) = Watched::new(process.pid) else {
                continue;
            };
            if process.see().is_some() {
                let _told_below = timeout_at(until, watched.ended()).await;
            }
        }
        if let Some(stays) = left.iter().find(|process| process.see().is_some()) {
            return Err(EndError::Stays { pid: stays.pid });
        }
        self.remove()
    }

    /// The program has ended.
    pub(super) fn remove(&self) -> Result<(), EndError> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.failed("remove")(error))
            }
            _ => Ok(()),
        }
    }

    /// Those on file, unless they were of another boot.
    fn read(&self) -> io::Result<Vec<Process>> {
        let text = match std::fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut lines = text.lines();
        let boot = BootId::current()?.to_string();
        if lines.next() != Some(boot.as_str()) {
            return Ok(Vec::new());
        }
        Ok(lines.filter_map(Process::parse).collect())
    }

    fn write(&self, processes: &[Process]) -> io::Result<()> {
        let mut text = format!("{}\n", BootId::current()?);
        for Process { pid, born } in processes {
            text.push_str(&format!("{pid} {born}\n"));
        }
        crate::write_volatile(&self.path, text.as_bytes(), 0o600)
    }
}

/// What was killed, and may take its time to be gone.
#[derive(Debug)]
pub struct Killed {
    left: Vec<Process>,
}

impl Killed {
    /// Whether nothing ran.
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }
}

/// Writes down the process that it is called in. Between fork and exec: it allocates nothing.
pub(super) fn sign(mut note: &File) -> io::Result<()> {
    use rustix::fs::{Mode, OFlags};
    let mut stat = [0; 1024];
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let own = rustix::fs::open(c"/proc/self/stat", flags, Mode::empty())?;
    let length = rustix::io::read(&own, &mut stat)?;
    let (_, _, born) = fields(&stat[..length]).ok_or(io::ErrorKind::InvalidData)?;
    let mut line = [0; 64];
    let mut rest = &mut line[..];
    let pid = rustix::process::getpid().as_raw_nonzero();
    writeln!(rest, "{pid} {born}")?;
    let left = rest.len();
    let length = line.len() - left;
    note.write_all(&line[..length])
}

impl Process {
    fn parse(line: &str) -> Option<Self> {
        let (pid, born) = line.split_once(' ')?;
        Some(Self {
            pid: pid.parse().ok()?,
            born: born.parse().ok()?,
        })
    }

    /// None if it has ended, even if nobody has asked how.
    fn see(&self) -> Option<Seen> {
        see(self.pid).filter(|seen| seen.process == *self)
    }
}

fn see(pid: i32) -> Option<Seen> {
    let stat = std::fs::read(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    let (state, group, born) = fields(&stat)?;
    let process = Process { pid, born };
    (!matches!(state, b'Z' | b'X')).then_some(Seen { process, group })
}

/// State, process group and time of birth, counted after the program's name, which may itself hold
/// blanks and brackets.
fn fields(stat: &[u8]) -> Option<(u8, i32, u64)> {
    let name_ends = stat.iter().rposition(|byte| *byte == b')')?;
    let text = std::str::from_utf8(&stat[name_ends + 1..]).ok()?;
    let mut fields = text.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    let group = fields.nth(1)?.parse().ok()?;
    let born = fields.nth(16)?.parse().ok()?;
    Some((state, group, born))
}

fn members(group: i32) -> io::Result<Vec<Process>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok());
        let seen = pid.and_then(see).filter(|seen| seen.group == group);
        found.extend(seen.map(|seen| seen.process));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_hides_no_field() {
        let stat = b"7 (a) b) S 1 5 6 0 -1 1 0 0 0 0 0 0 0 0 20 0 1 0 4321 0 0";
        assert_eq!(fields(stat), Some((b'S', 5, 4321)));
    }

    #[test]
    fn what_was_written_before_a_reboot_is_of_no_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("note");
        let me = see(i32::try_from(std::process::id()).expect("a number")).expect("it runs");
        let Process { pid, born } = me.process;
        std::fs::write(&path, format!("another boot\n{pid} {born}\n")).expect("a note");
        let note = Note::at(path);
        assert_eq!(note.read().expect("a note"), []);
        note.write(&[me.process]).expect("a note");
        assert_eq!(note.read().expect("a note"), [me.process]);
    }

    #[tokio::test]
    async fn another_process_that_has_the_number_by_now_is_not_ended() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut child = std::process::Command::new("sleep");
        let mut child = std::os::unix::process::CommandExt::process_group(child.arg("60"), 0)
            .spawn()
            .expect("a process");
        let seen = see(i32::try_from(child.id()).expect("a number")).expect("it runs");
        let note = Note::at(folder.path().join("note"));
        let before = Process {
            born: seen.process.born - 1,
            ..seen.process
        };
        note.write(&[before]).expect("a note");
        note.end().await.expect("nothing to end");
        assert!(child.try_wait().expect("a child").is_none());
        note.write(&[seen.process]).expect("a note");
        note.end().await.expect("ended");
        assert!(child.wait().expect("a child").code().is_none());
    }

    #[tokio::test]
    async fn a_group_that_has_the_number_by_now_is_not_ended_if_its_leader_has_gone_as_well() {
        let folder = tempfile::tempdir().expect("a folder");
        let note = Note::at(folder.path().join("note")).dying_with_us();
        let another = Note::at(folder.path().join("another")).dying_with_us();
        for (by, ended) in [(&another, false), (&note, true)] {
            let mut leader = std::process::Command::new("sh");
            leader
                .args(["-c", "sleep 60 >/dev/null 2>&1 & echo $!"])
                .envs(by.mark());
            let leader = std::os::unix::process::CommandExt::process_group(&mut leader, 0)
                .stdout(std::process::Stdio::piped())
                .spawn()
                .expect("a process");
            let pid = i32::try_from(leader.id()).expect("a number");
            let said = leader.wait_with_output().expect("it ended").stdout;
            let left = String::from_utf8(said).expect("a number");
            let left = left.trim().parse().expect("a number");
            note.write(&[Process { pid, born: 1 }]).expect("a note");
            note.end().await.expect("nothing is in the way");
            assert_eq!(see(left).is_none(), ended, "{by:?}");
            if let Some(group) = Pid::from_raw(pid) {
                let _it_may_be_gone = rustix::process::kill_process_group(group, Signal::KILL);
            }
        }
    }

    #[test]
    fn a_process_is_ours_also_while_it_becomes_another_program() {
        let folder = tempfile::tempdir().expect("a folder");
        let note = Note::at(folder.path().join("note")).dying_with_us();
        let script = folder.path().join("script");
        std::fs::write(&script, "[ $1 = 0 ] || exec sh $0 $(($1 - 1))").expect("a script");
        let mut restless = std::process::Command::new("sh");
        restless.arg(script).arg("300").envs(note.mark());
        let mut restless = std::os::unix::process::CommandExt::process_group(&mut restless, 0)
            .spawn()
            .expect("a process");
        let group = i32::try_from(restless.id()).expect("a number");
        loop {
            let group = members(group).expect("processes");
            if group.is_empty() {
                break;
            }
            assert!(note.has_marked(&group));
        }
        restless.wait().expect("a child");
        assert!(!note.has_marked(&[]), "nobody");
    }
}
