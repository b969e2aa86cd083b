//! One case's run: its time, its cleaning up, its verdict.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::bench::Bench;
use crate::case::{Case, Level, Need, Outcome, Trouble};
use crate::presence::Presence;
use crate::remains::{Remain, Remains};
use crate::report::{CaseReport, Verdict};
use crate::trial::Trial;

/// A case may take as long as so many calls.
const CALLS_PER_CASE: u32 = 10;

/// How a case's body ended.
enum Ending {
    /// By itself.
    Ended(Outcome),
    /// It took too long.
    Late(Duration),
    /// The driver answers nothing any more.
    Hung,
    /// The run was stopped.
    Stopped,
}

/// Runs a case; says, too, whether there is still a driver for the next.
pub(crate) async fn run_case(
    case: &Case,
    bench: &Arc<Bench>,
    stop: &CancellationToken,
) -> (CaseReport, Presence) {
    let began = Instant::now();
    let missing: Vec<String> = case
        .needs
        .iter()
        .filter(|need| !bench.has(**need))
        .map(Need::to_string)
        .collect();
    if !missing.is_empty() {
        let verdict = Verdict::Skipped(format!("needs {}", missing.join(" and ")));
        return (CaseReport::of(case, verdict), Presence::Back);
    }
    let trial = match Trial::new(Arc::clone(bench)) {
        Ok(trial) => trial,
        Err(error) => {
            let words = format!("could not make the case's folders: {error}");
            let verdict = Verdict::Failed(words);
            return (CaseReport::of(case, verdict), Presence::Back);
        }
    };
    let limit = bench.settings.timeout * CALLS_PER_CASE;
    let ending = tokio::select! {
        outcome = tokio::time::timeout(limit, case.run(trial.clone())) => {
            outcome.map_or(Ending::Late(limit), Ending::Ended)
        }
        () = trial.hung() => Ending::Hung,
        () = stop.cancelled() => Ending::Stopped,
    };
    let transcript = trial.transcript();
    // A case that restarts the driver loses it on purpose, and judges by itself how it returns.
    let restarts = case.needs.contains(&Need::Restart);
    let may_be_away = restarts || trial.lost().is_some();
    // One that hangs had its time; without a way to start it anew there is nothing to wait for.
    let hangs = matches!(ending, Ending::Hung);
    let (mut presence, mut remains) = match hangs && bench.settings.restart.is_none() {
        true => (Presence::Gone("it hangs".to_owned()), trial.abandon().await),
        false => clean_up(&trial, bench, may_be_away).await,
    };
    if !may_be_away && trial.lost().is_some() {
        // It went away from the cleaning up, which is done again.
        (presence, remains) = clean_up(&trial, bench, true).await;
    }
    let expected = restarts && presence == Presence::Back;
    let verdict = match (trial.lost(), ending) {
        (_, Ending::Stopped) => Verdict::NotRun("the run was stopped in the middle of it".into()),
        (Some(call), Ending::Hung) => Verdict::Failed(format!("the driver hangs: {call}")),
        (Some(_), Ending::Ended(Err(Trouble::Against(words)))) if restarts && !expected => {
            // The case knows best what it waited for.
            Verdict::Failed(format!("{words}; {}", then(&presence)))
        }
        (Some(call), _) if !expected => {
            let then = then(&presence);
            Verdict::Failed(format!("the driver went away: {call}; {then}"))
        }
        (_, Ending::Late(limit)) => {
            let words = format!("the case did not end within {} s", limit.as_secs());
            judge(case, Err(Trouble::Against(words)), &[], &remains)
        }
        (None, Ending::Hung) => Verdict::Failed("the driver hangs".to_owned()),
        (_, Ending::Ended(outcome)) => judge(case, outcome, &trial.warnings(), &remains),
    };
    let mut report = CaseReport::of(case, verdict.map(|words| bench.scrub(&words)));
    let left = remains.left.into_iter().map(|remain| Remain {
        words: bench.scrub(&remain.words),
        ..remain
    });
    report.remains = left.collect();
    if matches!(report.verdict, Verdict::Failed(_) | Verdict::Warned(_)) {
        let transcript = transcript.iter().map(|line| bench.scrub(line));
        report.transcript = transcript.collect();
    }
    report.took = began.elapsed();
    (report, presence)
}

/// Removes what the case made, once there is a driver to do so.
async fn clean_up(trial: &Trial, bench: &Bench, may_be_away: bool) -> (Presence, Remains) {
    let presence = match may_be_away {
        false => Presence::Back,
        true => bench.wait_for_driver().await,
    };
    let remains = match presence {
        Presence::Back => tokio::select! {
            left = trial.clean() => left,
            () = trial.hung() => trial.abandon().await,
        },
        Presence::Gone(_) => trial.abandon().await,
    };
    (presence, remains)
}

/// What became of a driver that went away.
fn then(presence: &Presence) -> &str {
    match presence {
        Presence::Back => "it is there again",
        Presence::Gone(words) => words,
    }
}

fn judge(case: &Case, outcome: Outcome, warnings: &[String], remains: &Remains) -> Verdict {
    match outcome {
        Err(Trouble::Skip(reason)) => Verdict::Skipped(reason),
        Err(Trouble::Against(words)) if case.level == Level::Must => Verdict::Failed(words),
        Err(Trouble::Against(words)) => Verdict::Warned(words),
        Ok(()) if !remains.is_empty() => Verdict::Failed(format!(
            "what the case made could not be removed: {}",
            remains.words().join("; ")
        )),
        Ok(()) if !warnings.is_empty() => Verdict::Warned(warnings.join("; ")),
        Ok(()) => Verdict::Passed,
    }
}
