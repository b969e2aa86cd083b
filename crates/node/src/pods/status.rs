//! A pod's status, from what is known of its containers. Pure.

use jiff::Timestamp;
use orlop_model::node::Condition;
use orlop_model::pod::{
    Container, ContainerState, ContainerStatus, PodStatus, RestartPolicy, RunningSince, Terminated,
    Waiting,
};
use orlop_model::{Pod, PodPhase};

use super::decide::{Life, Now, View, verdict};
use super::record::{ContainerRecord, Record, State};
use crate::layout::PodUid;
use crate::runner::{ContainerId, Finish};

/// The conditions that the node writes; `PodScheduled` is the scheduler's.
const READY_TO_START: &str = "PodReadyToStartContainers";
const INITIALIZED: &str = "Initialized";
const READY: &str = "Ready";
const CONTAINERS_READY: &str = "ContainersReady";

/// Why a container that ended waits.
const BACK_OFF: &str = "CrashLoopBackOff";

/// The status that the pod should have.
pub(super) fn status(pod: &Pod, uid: &PodUid, record: &Record, view: &View) -> PodStatus {
    let phase = match &record.evicted {
        Some(_) if !pod.is_finished() => PodPhase::Failed,
        _ => phase(pod, view),
    };
    let each = |containers: &[Container], role: Role| -> Vec<ContainerStatus> {
        containers
            .iter()
            .map(|container| {
                let id = ContainerId {
                    pod: uid.clone(),
                    container: container.name.clone(),
                    attempt: 0,
                };
                let record_of = record.containers.get(&container.name);
                let line = Line {
                    container,
                    id,
                    record: record_of,
                    role,
                };
                line.status(record, view)
            })
            .collect()
    };
    let initialized = view
        .init
        .iter()
        .all(|(_, now)| matches!(now, Now::Ended { code: 0, .. }));
    let init = each(&pod.spec.init_containers, Role::Init);
    let main = each(&pod.spec.containers, Role::Main { initialized });
    let conditions = conditions(
        pod,
        phase,
        &Facts {
            initialized,
            volumes_ready: record.volumes_ready && !record.released,
            unready: main
                .iter()
                .filter(|status| !status.ready)
                .map(|status| status.name.clone())
                .collect(),
            uninitialized: view
                .init
                .iter()
                .filter(|(_, now)| !matches!(now, Now::Ended { code: 0, .. }))
                .map(|(name, _)| name.clone())
                .collect(),
            now: seconds(view.now),
        },
    );
    PodStatus {
        phase: Some(phase),
        reason: match &record.evicted {
            Some(_) => "Evicted".to_owned(),
            None => String::new(),
        },
        message: record.evicted.clone().unwrap_or_default(),
        conditions,
        start_time: pod.status.start_time.or(record.seen_at.map(seconds)),
        init_container_statuses: init,
        container_statuses: main,
        // There are none here.
        ephemeral_container_statuses: Vec::new(),
    }
}

/// The containers that wait for a restart, as the pod on the API server does not say yet.
pub(super) fn backing_off<'a>(pod: &Pod, wanted: &'a PodStatus) -> Vec<&'a str> {
    let told: Vec<_> = waits(&pod.status).collect();
    waits(wanted)
        .filter(|wait| !told.contains(wait))
        .map(|(name, _)| name)
        .collect()
}

/// The containers that wait for a restart, and which one.
fn waits(status: &PodStatus) -> impl Iterator<Item = (&str, i32)> {
    let init = status.init_container_statuses.iter();
    let all = init.chain(&status.container_statuses);
    all.filter(|container| {
        let waiting = container.state.waiting.as_ref();
        waiting.is_some_and(|waiting| waiting.reason == BACK_OFF)
    })
    .map(|container| (container.name.as_str(), container.restart_count))
}

/// Whether the pod on the API server says something else.
pub(super) fn differs(pod: &Pod, wanted: &PodStatus) -> bool {
    let have = &pod.status;
    have.phase != wanted.phase
        || have.start_time != wanted.start_time
        || have.init_container_statuses != wanted.init_container_statuses
        || have.container_statuses != wanted.container_statuses
        || wanted
            .conditions
            .iter()
            .any(|condition| !have.conditions.contains(condition))
}

fn phase(pod: &Pod, view: &View) -> PodPhase {
    if pod.is_finished() {
        return pod.phase();
    }
    if let Some(verdict) = verdict(view) {
        return verdict;
    }
    let ended = |(_, now): &(String, Now)| matches!(now, Now::Ended { .. });
    if let Life::Ending { .. } = view.life
        && !view.main.is_empty()
        && view.main.iter().all(ended)
    {
        // It will not be started again, whatever its policy says.
        let view = View {
            policy: RestartPolicy::Never,
            init: Vec::new(),
            main: view.main.clone(),
            ..*view
        };
        return verdict(&view).unwrap_or(PodPhase::Failed);
    }
    let started = |(_, now): &(String, Now)| *now != Now::Absent;
    if !view.main.is_empty() && view.main.iter().all(started) {
        PodPhase::Running
    } else {
        PodPhase::Pending
    }
}

struct Facts {
    initialized: bool,
    volumes_ready: bool,
    unready: Vec<String>,
    uninitialized: Vec<String>,
    now: Timestamp,
}

fn conditions(pod: &Pod, phase: PodPhase, facts: &Facts) -> Vec<Condition> {
    let finished = phase == PodPhase::Succeeded;
    let initialized = if facts.initialized || finished {
        (true, "", String::new())
    } else {
        let message = format!(
            "containers with incomplete status: [{}]",
            facts.uninitialized.join(" ")
        );
        (false, "ContainersNotInitialized", message)
    };
    let ready = if finished {
        (false, "PodCompleted", String::new())
    } else if phase == PodPhase::Failed {
        (false, "PodFailed", String::new())
    } else if facts.unready.is_empty() {
        (true, "", String::new())
    } else {
        let message = format!(
            "containers with unready status: [{}]",
            facts.unready.join(" ")
        );
        (false, "ContainersNotReady", message)
    };
    [
        (READY_TO_START, (facts.volumes_ready, "", String::new())),
        (INITIALIZED, initialized),
        (READY, ready.clone()),
        (CONTAINERS_READY, ready),
    ]
    .into_iter()
    .map(|(type_, (holds, reason, message))| {
        let status = if holds { "True" } else { "False" };
        let before = pod
            .status
            .conditions
            .iter()
            .find(|condition| condition.type_ == type_);
        let since = before
            .filter(|before| before.status == status)
            .and_then(|before| before.last_transition_time);
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
            last_transition_time: Some(since.unwrap_or(facts.now)),
        }
    })
    .collect()
}

/// One container, as its status sees it.
struct Line<'a> {
    container: &'a Container,
    id: ContainerId,
    record: Option<&'a ContainerRecord>,
    role: Role,
}

/// What a container is for.
#[derive(Clone, Copy)]
enum Role {
    /// To come to an end before the others begin.
    Init,
    /// To run, once the pod is initialized.
    Main { initialized: bool },
}

impl Line<'_> {
    fn status(mut self, pod: &Record, view: &View) -> ContainerStatus {
        let waiting = |reason: &str, message: String| ContainerState {
            waiting: Some(Waiting {
                reason: reason.to_owned(),
                message,
            }),
            ..ContainerState::default()
        };
        let Some(record) = self.record else {
            let reason = match self.role {
                Role::Init | Role::Main { initialized: true } => "ContainerCreating",
                Role::Main { initialized: false } => "PodInitializing",
            };
            let message = pod.trouble.clone().unwrap_or_default();
            return self.describe(waiting(reason, message), ContainerState::default(), 0);
        };
        self.id.attempt = record.attempt;
        let last = record
            .last
            .as_ref()
            .map(|finish| self.ended(finish, record.attempt.saturating_sub(1)));
        let last = last.unwrap_or_default();
        match &record.state {
            State::Running { container, .. } => {
                let since = RunningSince {
                    started_at: Some(seconds(container.started_at())),
                };
                let running = ContainerState {
                    running: Some(since),
                    ..ContainerState::default()
                };
                self.describe(running, last, record.attempt)
            }
            State::Ended(finish) => {
                let ended = self.ended(finish, record.attempt);
                // One that waits for its next start shows its end as the last state.
                if let Now::Ended { restart_at, .. } = record.now()
                    && restart_at > view.now
                    && view.life == Life::Wanted
                    && verdict(view).is_none()
                    && restarts(view.policy, finish.code)
                {
                    let wait = restart_at.duration_since(finish.finished_at).as_secs();
                    let message = format!(
                        "back-off {wait}s restarting failed container={}",
                        self.container.name
                    );
                    return self.describe(waiting(BACK_OFF, message), ended, record.attempt);
                }
                self.describe(ended, last, record.attempt)
            }
        }
    }

    fn describe(
        &self,
        state: ContainerState,
        last_state: ContainerState,
        restarts: u32,
    ) -> ContainerStatus {
        let running = state.running.is_some();
        let ready = match self.role {
            Role::Init => state.terminated.as_ref().is_some_and(|t| t.exit_code == 0),
            Role::Main { .. } => running,
        };
        ContainerStatus {
            name: self.container.name.clone(),
            ready,
            started: Some(running),
            restart_count: i32::try_from(restarts).unwrap_or(i32::MAX),
            image: self.container.image.clone(),
            image_id: String::new(),
            container_id: if self.record.is_some() {
                format!("orlop://{}", self.id)
            } else {
                String::new()
            },
            state,
            last_state,
        }
    }

    fn ended(&self, finish: &Finish, attempt: u32) -> ContainerState {
        let id = ContainerId {
            attempt,
            ..self.id.clone()
        };
        ContainerState {
            terminated: Some(Terminated {
                exit_code: finish.code,
                signal: finish.signal,
                reason: finish.reason.clone(),
                message: finish.message.clone(),
                // Kubernetes' word for "never": left out, it is read as the year 1.
                started_at: Some(finish.started_at.map_or(Timestamp::UNIX_EPOCH, seconds)),
                finished_at: Some(seconds(finish.finished_at)),
                container_id: format!("orlop://{id}"),
            }),
            ..ContainerState::default()
        }
    }
}

fn restarts(policy: RestartPolicy, code: i32) -> bool {
    policy == RestartPolicy::Always || policy == RestartPolicy::OnFailure && code != 0
}

/// Kubernetes writes whole seconds; more would never compare equal to what comes back.
pub(super) fn seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
