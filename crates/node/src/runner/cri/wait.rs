//! Noticing the end of a runtime's container.
//!
//! The runtime tells which process it is; the kernel tells when that ends. A runtime that does
//! not tell is asked again from time to time.

use std::time::Duration;

use jiff::Timestamp;
use orlop_host::process::Watched;
use serde::Deserialize;
use tracing::warn;

use super::super::Finish;
use super::call::CriError;
use super::container::CriContainer;
use super::{Words, api, finish};
use crate::words::chain;

/// How soon a runtime is asked again that does not answer, or has not noticed yet.
const SHORTEST: Duration = Duration::from_millis(20);
const LONGEST: Duration = Duration::from_secs(2);

/// What runtimes tell beyond the interface.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Info {
    pid: i32,
}

pub(super) async fn ended(container: &CriContainer) -> Finish {
    let mut pause = SHORTEST;
    // A process that has ended is known to the runtime soon after.
    let mut watched: Option<(i32, Option<Watched>)> = None;
    loop {
        let words = match &watched {
            Some(_) => Words::Few,
            None => Words::Many,
        };
        let pid = match look(container, words).await {
            Ok(Look::Ended(finish)) => return finish,
            // Its process is known.
            Ok(Look::Runs { pid: 0 }) => watched.as_ref().map_or(0, |(known, _)| *known),
            Ok(Look::Runs { pid }) => pid,
            Err(error) if error.is_gone() => return lost(container),
            Err(error) => {
                let error = chain(&error);
                warn!(container = %container.id, error, "could not learn how a container is");
                0
            }
        };
        match &watched {
            // Held since before the runtime said that it runs: it is the right process.
            Some((known, Some(process))) if *known == pid => {
                if process.ended().await.is_ok() {
                    watched = Some((pid, None));
                    pause = SHORTEST;
                }
                continue;
            }
            Some((known, None)) if *known == pid => {}
            _ if pid > 0 => {
                let process = Watched::new(pid).ok();
                if process.is_some() {
                    watched = Some((pid, process));
                    continue;
                }
            }
            _ => {}
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
    }
}

enum Look {
    Runs { pid: i32 },
    Ended(Finish),
}

async fn look(container: &CriContainer, words: Words) -> Result<Look, CriError> {
    let answer = container.runner.status(&container.container, words).await?;
    let status = answer.status.ok_or(CriError::Lacks("a status"))?;
    if status.state() == api::ContainerState::ContainerExited {
        return Ok(Look::Ended(finish(&status)));
    }
    let info = answer.info.get("info").map_or("{}", String::as_str);
    let info: Info = serde_json::from_str(info).unwrap_or_default();
    Ok(Look::Runs { pid: info.pid })
}

/// Somebody took it away from under us.
fn lost(container: &CriContainer) -> Finish {
    Finish {
        code: 137,
        signal: None,
        reason: "ContainerStatusUnknown".to_owned(),
        message: "The container could not be located when the pod was terminated".to_owned(),
        started_at: Some(container.started_at),
        finished_at: Timestamp::now(),
    }
}
