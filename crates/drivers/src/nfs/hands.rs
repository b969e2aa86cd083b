//! Workers: the processes that touch servers.
//!
//! A thread that waits for a server that is gone cannot be ended; a process can. So every call that
//! may touch one is a process: it gets its [`Order`] on its standard input, which also tells it that
//! the driver lives, and says what it does on its standard output. It lives as long as it says
//! something. The call's caller leaves at its own deadline; work that goes well goes on, and keeps
//! the volume's turn, so that a repeated call meets it running or done, never half begun.

use std::cell::Cell;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::Code;

use super::failure::Failure;
use super::order::{Answer, Order, Word};
use super::{diagnosis, work};

/// How long a worker may be silent once it has reached its server.
const SILENCE: Duration = Duration::from_secs(30);

/// What a call leaves itself to answer before its caller gives up.
const MARGIN: Duration = Duration::from_millis(500);

/// Who does the work.
#[derive(Clone, Debug)]
pub enum Hands {
    /// A process for each call: this program with these arguments.
    Processes(Vec<OsString>),
    /// A thread for each call, on a folder that stands for all servers: `server/share` below it. For
    /// tests on machines without an NFS client.
    StandIn(PathBuf),
}

impl Hands {
    pub(super) fn stand_in(&self) -> Option<PathBuf> {
        match self {
            Self::Processes(_) => None,
            Self::StandIn(folder) => Some(folder.clone()),
        }
    }

    /// Has it done; `held` is kept until there is an answer, however long its caller waits.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        order: Order,
        patience: Duration,
        held: T,
    ) -> Result<Answer, Failure> {
        let deadline = Instant::now() + patience.saturating_sub(MARGIN).max(MARGIN);
        let (words, mut said) = mpsc::channel(64);
        let export = order.work.export().cloned();
        let worker = match self {
            Self::Processes(program) => Some(start(program, &order).await?),
            Self::StandIn(_) => None,
        };
        match worker {
            Some(child) => {
                tokio::spawn(follow(child, words, held));
            }
            None => {
                tokio::task::spawn_blocking(move || {
                    let held = Cell::new(Some(held));
                    work::carry_out(&order, &|word| {
                        let given_back = is_answer(&word).then(|| held.take());
                        drop(given_back);
                        drop(words.blocking_send(word));
                    });
                });
            }
        }
        let mut doing = "begin".to_owned();
        let mut files = 0;
        loop {
            match tokio::time::timeout_at(deadline, said.recv()).await {
                Ok(Some(Word::Doing(what))) => doing = what,
                Ok(Some(Word::Beat(count))) => files = count,
                Ok(Some(Word::Done(answer))) => return Ok(answer),
                Ok(Some(Word::Failed(failure))) => return Err(failure),
                Ok(None) => {
                    let told = format!("the worker ended without a word while it was to {doing}");
                    return Err(Failure::new(Code::Internal, told));
                }
                Err(_) if files > 0 => {
                    let told = format!(
                        "still busy to {doing}, {files} files done; the work goes on, repeat the \
                         call to see how it ends"
                    );
                    return Err(Failure::new(Code::DeadlineExceeded, told));
                }
                Err(_) => {
                    return Err(diagnosis::silent(
                        export.as_ref(),
                        &doing,
                        patience.as_secs(),
                    ));
                }
            }
        }
    }
}

/// What comes after it is tidying up, which is in nobody's way.
fn is_answer(word: &Word) -> bool {
    matches!(word, Word::Done(_) | Word::Failed(_))
}

async fn start(program: &[OsString], order: &Order) -> Result<Child, Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(Code::Internal, format!("could not start a worker: {error}"))
    };
    let Some((name, arguments)) = program.split_first() else {
        return Err(Failure::new(Code::Internal, "no worker is set"));
    };
    let mut child = Command::new(name)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let mut line = serde_json::to_vec(order).map_err(|error| failed(error.into()))?;
    line.push(b'\n');
    if let Some(stdin) = &mut child.stdin {
        stdin.write_all(&line).await.map_err(failed)?;
    }
    Ok(child)
}

/// Passes on what a worker says until it ends, and ends it if it says nothing for too long: at once
/// if its caller has left before it reached its server.
async fn follow<T>(mut child: Child, words: mpsc::Sender<Word>, held: T) {
    let mut held = Some(held);
    let Some(stdout) = child.stdout.take() else {
        return;
    };
    let mut lines = BufReader::new(stdout).lines();
    let mut reached = false;
    loop {
        let patience = if reached { SILENCE } else { SILENCE * 4 };
        let line = tokio::select! {
            line = tokio::time::timeout(patience, lines.next_line()) => line,
            () = words.closed(), if !reached => break,
        };
        let Ok(Ok(Some(line))) = line else { break };
        match serde_json::from_str::<Word>(&line) {
            Ok(word) => {
                reached |= matches!(word, Word::Beat(_));
                let given_back = is_answer(&word).then(|| held.take());
                drop(given_back);
                // Nobody may listen any more; the work goes on.
                let _ = words.send(word).await;
            }
            Err(_) => tracing::warn!(line, "a worker said something strange"),
        }
    }
    // One that waits for its server is in the kernel's hands, and goes when that lets it go.
    let _ = child.start_kill();
    let _ = tokio::time::timeout(SILENCE, child.wait()).await;
}
