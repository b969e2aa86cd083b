//! Running the few system programs that we rely on.
//!
//! Absolute paths, arguments as they are, an empty environment, no shell. A program dies with the
//! thread that started it, so that a killed driver leaves no stray mkfs behind.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Why a program did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It is not installed.
    #[error("{} is missing; install the package {package}", path.display())]
    Missing {
        /// Where it should be.
        path: PathBuf,
        /// The Debian package that has it.
        package: &'static str,
    },
    /// It could not be started.
    #[error("could not start {}", path.display())]
    Start {
        /// The program.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It ran and said no.
    #[error("{} failed with {status}: {said}", path.display())]
    Failed {
        /// The program.
        path: PathBuf,
        /// Its exit code or signal, in words.
        status: String,
        /// Its exit code, if it ended by itself.
        code: Option<i32>,
        /// The end of what it printed.
        said: String,
    },
}

/// A system program and the package that brings it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    pub(crate) path: &'static str,
    pub(crate) package: &'static str,
}

impl Program {
    /// Runs to the end; succeeds if the exit code is 0.
    pub(crate) fn run<A: AsRef<OsStr>>(self, arguments: &[A]) -> Result<(), ProgramError> {
        run(Path::new(self.path), self.package, arguments)
    }
}

#[expect(
    unsafe_code,
    reason = "pre_exec is the only way to bind a child's life to ours"
)]
fn run<A: AsRef<OsStr>>(
    path: &Path,
    package: &'static str,
    arguments: &[A],
) -> Result<(), ProgramError> {
    let parent = rustix::process::getpid();
    let mut command = Command::new(path);
    command
        .args(arguments)
        .env_clear()
        .env("LC_ALL", "C")
        .env("PATH", "/usr/sbin:/usr/bin");
    command.stdin(Stdio::null()).current_dir("/");
    // SAFETY: between fork and exec the closure makes two system calls that are async-signal-safe
    // and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            // Our parent may have died before the line above took effect.
            if rustix::process::getppid() == Some(parent) {
                Ok(())
            } else {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        });
    }
    let output = command.output().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => ProgramError::Missing {
            path: path.to_owned(),
            package,
        },
        _ => ProgramError::Start {
            path: path.to_owned(),
            source,
        },
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = if output.stderr.is_empty() {
        &output.stdout
    } else {
        &output.stderr
    };
    Err(ProgramError::Failed {
        path: path.to_owned(),
        status: output.status.to_string(),
        code: output.status.code(),
        said: tail(said),
    })
}

/// The last few hundred characters on one line: enough to see why, short enough for an event.
fn tail(output: &[u8]) -> String {
    const KEEP: usize = 400;
    let text = String::from_utf8_lossy(output);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let cut = line.len().saturating_sub(KEEP);
    let start = (cut..=line.len())
        .find(|at| line.is_char_boundary(*at))
        .unwrap_or(line.len());
    line[start..].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_names_its_package() {
        let program = Program {
            path: "/usr/sbin/no-such-program",
            package: "e2fsprogs",
        };
        let error = program.run::<&str>(&[]).unwrap_err();
        assert!(
            error.to_string().contains("install the package e2fsprogs"),
            "{error}"
        );
    }

    #[test]
    fn a_failing_program_is_quoted() {
        let program = Program {
            path: "/usr/bin/ls",
            package: "coreutils",
        };
        let error = program.run(&["--", "/no such; path"]).unwrap_err();
        match &error {
            ProgramError::Failed { code, said, .. } => {
                assert_eq!(*code, Some(2));
                assert!(said.contains("/no such; path"), "{said}");
            }
            other => panic!("{other}"),
        }
    }

    #[test]
    fn only_the_end_of_long_output_is_kept() {
        let text = "ü".repeat(1000);
        let kept = tail(text.as_bytes());
        assert!(kept.len() <= 400 && !kept.is_empty());
    }
}
