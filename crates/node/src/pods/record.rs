//! What the node knows of one pod beyond the API server: its containers, and how far its
//! volumes are. All of it is found again after a restart.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use orlop_model::Volume;
use orlop_runtime::Backoff;

use super::decide::{Asked, Now};
use super::leaving::Leaving;
use crate::runner::{Finish, RunningContainer};
use crate::volumes::DeviceKey;

/// A container that ran this long has recovered; the kubelet's.
const RECOVERED: SignedDuration = SignedDuration::from_mins(10);

/// One pod.
#[derive(Default)]
pub(super) struct Record {
    /// Whether the containers on record were looked for.
    pub(super) adopted: bool,
    pub(super) containers: BTreeMap<String, ContainerRecord>,
    /// Where the pod's volumes are, by their name in the pod.
    pub(super) places: BTreeMap<String, Place>,
    /// When the files of a volume must be written again, by its name in the pod.
    pub(super) renew: BTreeMap<String, Timestamp>,
    /// Volumes whose files come from something that has changed since.
    pub(super) stale: BTreeSet<String>,
    /// When the pod's emptyDirs are measured, if that is needed.
    pub(super) measure_at: Option<Timestamp>,
    /// Why the pod has to end before its time.
    pub(super) evicted: Option<String>,
    pub(super) volumes_ready: bool,
    /// Since when the pod waits for its volumes.
    pub(super) volumes_asked: Option<Timestamp>,
    /// What was last said of that wait.
    pub(super) volumes_said: Option<String>,
    pub(super) released: bool,
    /// What keeps it from leaving.
    pub(super) leaving: Leaving,
    /// Whether the API server itself was asked if the pod is there, and said so.
    pub(super) confirmed: bool,
    /// When the API server said that the pod is gone.
    pub(super) gone_since: Option<Timestamp>,
    /// Why the pod does not get on, for its status.
    pub(super) trouble: Option<String>,
    /// When the node first saw it.
    pub(super) seen_at: Option<Timestamp>,
}

/// Where a volume of the pod is.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// Here.
    At(PathBuf),
    /// With a CSI driver.
    Csi { key: DeviceKey, volume: Arc<Volume> },
}

/// One container.
pub(super) struct ContainerRecord {
    pub(super) attempt: u32,
    pub(super) state: State,
    /// How the attempt before ended.
    pub(super) last: Option<Finish>,
    /// Restarts since it last ran for long, or since the node role began.
    pub(super) streak: u32,
}

pub(super) enum State {
    Running {
        container: Arc<dyn RunningContainer>,
        asked: Asked,
    },
    Ended(Finish),
}

impl ContainerRecord {
    /// The record of an attempt that an earlier node role started. The waits begin anew, as
    /// the kubelet's do: earlier attempts may have ended because all was stopped.
    pub(super) fn found(attempt: u32, state: State, last: Option<Finish>) -> Self {
        Self {
            attempt,
            state,
            last,
            streak: 0,
        }
    }

    pub(super) fn now(&self) -> Now {
        match &self.state {
            State::Running { asked, .. } => Now::Running(*asked),
            State::Ended(finish) => Now::Ended {
                code: finish.code,
                restart_at: self.restart_at(finish),
            },
        }
    }

    /// The first restart is immediate; from then on the wait doubles, as the kubelet's.
    fn restart_at(&self, finish: &Finish) -> Timestamp {
        let streak = if recovered(finish) { 0 } else { self.streak };
        if streak == 0 {
            return finish.finished_at;
        }
        let backoff = Backoff {
            first: Duration::from_secs(10),
            most: Duration::from_mins(5),
        };
        let wait = SignedDuration::try_from(backoff.after(streak)).unwrap_or(SignedDuration::MAX);
        finish
            .finished_at
            .checked_add(wait)
            .unwrap_or(finish.finished_at)
    }

    /// The record of the next attempt.
    pub(super) fn next(&self, state: State) -> Self {
        let State::Ended(finish) = &self.state else {
            return Self {
                attempt: self.attempt + 1,
                state,
                last: None,
                streak: 0,
            };
        };
        let streak = if recovered(finish) {
            1
        } else {
            self.streak + 1
        };
        Self {
            attempt: self.attempt + 1,
            state,
            last: Some(finish.clone()),
            streak,
        }
    }
}

fn recovered(finish: &Finish) -> bool {
    finish
        .started_at
        .is_some_and(|started| finish.finished_at.duration_since(started) >= RECOVERED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finish(started: i64, finished: i64) -> Finish {
        Finish {
            code: 1,
            signal: None,
            reason: "Error".into(),
            message: String::new(),
            started_at: Timestamp::from_second(started).ok(),
            finished_at: Timestamp::from_second(finished).expect("a time"),
        }
    }

    fn wait(record: &ContainerRecord) -> i64 {
        let (Now::Ended { restart_at, .. }, State::Ended(finish)) = (record.now(), &record.state)
        else {
            panic!("it ended")
        };
        restart_at.as_second() - finish.finished_at.as_second()
    }

    #[test]
    fn the_wait_before_a_restart_doubles_and_is_forgotten_after_a_long_run() {
        let ended = |finish| State::Ended(finish);
        let mut record = ContainerRecord {
            attempt: 0,
            state: ended(finish(0, 1)),
            last: None,
            streak: 0,
        };
        let mut waits = vec![wait(&record)];
        for _ in 0..7 {
            record = record.next(ended(finish(0, 1)));
            waits.push(wait(&record));
        }
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 300, 300]);
        record = record.next(ended(finish(0, 600)));
        assert_eq!(wait(&record), 0);
        record = record.next(ended(finish(0, 1)));
        assert_eq!(wait(&record), 10);
        assert_eq!(record.attempt, 9);
    }

    #[test]
    fn a_container_that_is_found_ended_restarts_at_once_and_waits_from_then_on() {
        let record = ContainerRecord::found(7, State::Ended(finish(0, 1)), None);
        assert_eq!(wait(&record), 0);
        let record = record.next(State::Ended(finish(1, 2)));
        assert_eq!((record.attempt, wait(&record)), (8, 10));
    }
}
