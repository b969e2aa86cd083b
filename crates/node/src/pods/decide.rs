//! What moves one pod towards what it should be. Pure.
//!
//! ```text
//! wanted:  volumes ready -> init containers, one after the other -> containers
//! missing: the API server is asked -> wanted, or ending
//! ending:  terminate -> (deadline) kill -> volumes released -> folder removed -> deleted
//! ```
//! Volumes are released only when no container runs: what a pod may still use is never
//! taken from under it.

use jiff::Timestamp;
use orlop_model::PodPhase;
use orlop_model::pod::RestartPolicy;

/// What is known when a decision is taken.
#[derive(Debug)]
pub(super) struct View {
    pub(super) life: Life,
    pub(super) policy: RestartPolicy,
    pub(super) init: Vec<(String, Now)>,
    pub(super) main: Vec<(String, Now)>,
    pub(super) volumes: VolumesNow,
    /// When the first of the pod's tokens must be replaced.
    pub(super) renew_at: Option<Timestamp>,
    /// When its emptyDirs have to be measured.
    pub(super) measure_at: Option<Timestamp>,
    pub(super) now: Timestamp,
}

/// Where in its life a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Life {
    Wanted,
    /// No pod that the watch shows; but that may be behind.
    Missing,
    Ending {
        /// When what still runs is killed.
        deadline: Timestamp,
        then: Then,
    },
}

/// What remains of a pod that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// Its folder, for its logs.
    Keep,
    /// Nothing here.
    Remove,
    /// Nothing here, and nothing on the API server.
    RemoveAndDelete,
}

/// What a container does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Now {
    /// It was never started.
    Absent,
    Running(Asked),
    Ended {
        code: i32,
        /// When it may be started again, should it be.
        restart_at: Timestamp,
    },
}

/// What a running container was asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asked {
    Nothing,
    Terminate,
    Kill,
}

/// How far the pod's volumes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VolumesNow {
    NotReady,
    Ready,
    /// Given up, but something is still left.
    Releasing,
    /// Given up, and nothing is left.
    Released,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing before something happens.
    Rest,
    /// Nothing before this moment, unless something happens.
    Until(Timestamp),
    /// Ask the API server itself whether the pod is gone.
    FindOut,
    SetUpVolumes,
    RenewTokens,
    MeasureVolumes,
    Start(String),
    Terminate(Vec<String>),
    Kill(Vec<String>),
    ReleaseVolumes,
    RemoveFolder(Then),
}

/// Decides the next step of one pod.
pub(super) fn decide(view: &View) -> Step {
    match view.life {
        Life::Ending { deadline, then } => end(view, deadline, then),
        Life::Missing => Step::FindOut,
        Life::Wanted if verdict(view).is_some() => end(view, view.now, Then::Keep),
        Life::Wanted => match bring(view) {
            Step::SetUpVolumes => Step::SetUpVolumes,
            step => upkeep(view, step),
        },
    }
}

/// What is due beside a pod's next step.
fn upkeep(view: &View, step: Step) -> Step {
    let due = |at: Option<Timestamp>| at.is_some_and(|at| at <= view.now);
    if due(view.renew_at) {
        return Step::RenewTokens;
    }
    if due(view.measure_at) {
        return Step::MeasureVolumes;
    }
    let next = [view.renew_at, view.measure_at].into_iter().flatten().min();
    match (step, next) {
        (Step::Rest, Some(at)) => Step::Until(at),
        (Step::Until(other), Some(at)) => Step::Until(at.min(other)),
        (step, _) => step,
    }
}

/// How the pod ended, if all its containers ended for good.
pub(super) fn verdict(view: &View) -> Option<PodPhase> {
    let failed_init = view.init.iter().any(|(_, now)| failed(*now));
    if failed_init && view.policy == RestartPolicy::Never {
        return Some(PodPhase::Failed);
    }
    let all_ended = view
        .main
        .iter()
        .all(|(_, now)| matches!(now, Now::Ended { .. }));
    if view.main.is_empty() || !all_ended {
        return None;
    }
    let any_failed = view.main.iter().any(|(_, now)| failed(*now));
    match (view.policy, any_failed) {
        (RestartPolicy::Always, _) | (RestartPolicy::OnFailure, true) => None,
        (RestartPolicy::OnFailure | RestartPolicy::Never, false) => Some(PodPhase::Succeeded),
        (RestartPolicy::Never, true) => Some(PodPhase::Failed),
    }
}

fn failed(now: Now) -> bool {
    matches!(now, Now::Ended { code, .. } if code != 0)
}

fn bring(view: &View) -> Step {
    if view.volumes != VolumesNow::Ready {
        return Step::SetUpVolumes;
    }
    for (name, now) in &view.init {
        match *now {
            Now::Absent => return Step::Start(name.clone()),
            Now::Running(_) => return Step::Rest,
            Now::Ended { code: 0, .. } => {}
            Now::Ended { restart_at, .. } => return start_at(name, restart_at, view.now),
        }
    }
    let mut earliest: Option<Timestamp> = None;
    for (name, now) in &view.main {
        match *now {
            Now::Absent => return Step::Start(name.clone()),
            Now::Ended { code, restart_at } if restarts(view.policy, code) => {
                if restart_at <= view.now {
                    return Step::Start(name.clone());
                }
                earliest = Some(earliest.map_or(restart_at, |earliest| earliest.min(restart_at)));
            }
            Now::Running(_) | Now::Ended { .. } => {}
        }
    }
    earliest.map_or(Step::Rest, Step::Until)
}

fn start_at(name: &str, at: Timestamp, now: Timestamp) -> Step {
    if at <= now {
        Step::Start(name.to_owned())
    } else {
        Step::Until(at)
    }
}

fn restarts(policy: RestartPolicy, code: i32) -> bool {
    match policy {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => code != 0,
        RestartPolicy::Never => false,
    }
}

fn end(view: &View, deadline: Timestamp, then: Then) -> Step {
    let running = |below: Asked| {
        let all = view.init.iter().chain(&view.main);
        all.filter(|(_, now)| matches!(now, Now::Running(asked) if *asked < below))
            .map(|(name, _)| name.clone())
            .collect::<Vec<_>>()
    };
    let any_running = view
        .init
        .iter()
        .chain(&view.main)
        .any(|(_, now)| matches!(now, Now::Running(_)));
    if any_running {
        return if view.now >= deadline {
            match running(Asked::Kill) {
                names if names.is_empty() => Step::Rest,
                names => Step::Kill(names),
            }
        } else {
            match running(Asked::Terminate) {
                names if names.is_empty() => Step::Until(deadline),
                names => Step::Terminate(names),
            }
        };
    }
    match view.volumes {
        VolumesNow::NotReady | VolumesNow::Ready => Step::ReleaseVolumes,
        VolumesNow::Releasing => Step::Rest,
        VolumesNow::Released => match then {
            Then::Keep => Step::Rest,
            Then::Remove | Then::RemoveAndDelete => Step::RemoveFolder(then),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Asked::{Kill, Nothing, Terminate};
    use RestartPolicy::{Always, Never, OnFailure};

    const T: fn(i64) -> Timestamp = |s| Timestamp::from_second(s).expect("a time");

    fn ended(code: i32) -> Now {
        Now::Ended {
            code,
            restart_at: T(0),
        }
    }

    fn view(policy: RestartPolicy, init: &[Now], main: &[Now]) -> View {
        let named = |prefix: &str, all: &[Now]| {
            all.iter()
                .enumerate()
                .map(|(i, now)| (format!("{prefix}{i}"), *now))
                .collect()
        };
        View {
            life: Life::Wanted,
            policy,
            init: named("i", init),
            main: named("m", main),
            volumes: VolumesNow::Ready,
            renew_at: None,
            measure_at: None,
            now: T(100),
        }
    }

    fn ending(then: Then, deadline: i64) -> Life {
        Life::Ending {
            deadline: T(deadline),
            then,
        }
    }

    fn start(name: &str) -> Step {
        Step::Start(name.to_owned())
    }

    #[test]
    fn nothing_starts_before_the_volumes_are_ready() {
        let mut view = view(Always, &[], &[Now::Absent]);
        view.volumes = VolumesNow::NotReady;
        assert_eq!(decide(&view), Step::SetUpVolumes);
        view.volumes = VolumesNow::Ready;
        assert_eq!(decide(&view), start("m0"));
    }

    #[test]
    fn tokens_are_renewed_in_time_as_long_as_the_pod_is_wanted() {
        let mut view = view(Always, &[], &[Now::Running(Nothing)]);
        for (renew_at, step) in [
            (None, Step::Rest),
            (Some(T(160)), Step::Until(T(160))),
            (Some(T(100)), Step::RenewTokens),
            (Some(T(50)), Step::RenewTokens),
        ] {
            view.renew_at = renew_at;
            assert_eq!(decide(&view), step, "{renew_at:?}");
        }
        view.volumes = VolumesNow::NotReady;
        assert_eq!(decide(&view), Step::SetUpVolumes);
        view.life = ending(Then::Remove, 50);
        assert_eq!(decide(&view), Step::Kill(vec!["m0".into()]));
    }

    #[test]
    fn volumes_are_measured_in_time_as_long_as_the_pod_is_wanted() {
        let mut view = view(Always, &[], &[Now::Running(Nothing)]);
        for (renew_at, measure_at, step) in [
            (None, Some(T(160)), Step::Until(T(160))),
            (Some(T(150)), Some(T(160)), Step::Until(T(150))),
            (Some(T(170)), Some(T(160)), Step::Until(T(160))),
            (Some(T(170)), Some(T(100)), Step::MeasureVolumes),
            (Some(T(100)), Some(T(100)), Step::RenewTokens),
        ] {
            view.renew_at = renew_at;
            view.measure_at = measure_at;
            assert_eq!(decide(&view), step, "{renew_at:?} {measure_at:?}");
        }
        view.life = ending(Then::Keep, 50);
        assert_eq!(decide(&view), Step::Kill(vec!["m0".into()]));
    }

    #[test]
    fn init_containers_run_one_after_the_other() {
        let cases = [
            (vec![Now::Absent, Now::Absent], start("i0")),
            (vec![Now::Running(Nothing), Now::Absent], Step::Rest),
            (vec![ended(0), Now::Absent], start("i1")),
            (vec![ended(0), ended(0)], start("m0")),
            (vec![ended(1), Now::Absent], start("i0")),
        ];
        for (init, step) in cases {
            assert_eq!(
                decide(&view(Always, &init, &[Now::Absent])),
                step,
                "{init:?}"
            );
        }
    }

    #[test]
    fn a_failed_init_container_ends_a_pod_that_never_restarts() {
        let view = view(Never, &[ended(1)], &[Now::Absent]);
        assert_eq!(verdict(&view), Some(PodPhase::Failed));
        assert_eq!(decide(&view), Step::ReleaseVolumes);
    }

    #[test]
    fn the_restart_policy_decides_what_starts_again() {
        let cases = [
            (Always, 0, start("m0"), None),
            (Always, 1, start("m0"), None),
            (
                OnFailure,
                0,
                Step::ReleaseVolumes,
                Some(PodPhase::Succeeded),
            ),
            (OnFailure, 1, start("m0"), None),
            (Never, 0, Step::ReleaseVolumes, Some(PodPhase::Succeeded)),
            (Never, 1, Step::ReleaseVolumes, Some(PodPhase::Failed)),
        ];
        for (policy, code, step, phase) in cases {
            let view = view(policy, &[], &[ended(code)]);
            assert_eq!(
                (decide(&view), verdict(&view)),
                (step, phase),
                "{policy:?} {code}"
            );
        }
    }

    #[test]
    fn a_crashing_container_waits_its_time_and_others_do_not() {
        let later = Now::Ended {
            code: 1,
            restart_at: T(130),
        };
        let even_later = Now::Ended {
            code: 1,
            restart_at: T(150),
        };
        assert_eq!(
            decide(&view(Always, &[], &[even_later, later])),
            Step::Until(T(130))
        );
        assert_eq!(
            decide(&view(Always, &[], &[later, Now::Absent])),
            start("m1")
        );
    }

    #[test]
    fn an_ending_pod_is_asked_then_killed_then_released_then_removed() {
        let mut view = view(Always, &[], &[Now::Running(Nothing), ended(0)]);
        view.life = ending(Then::RemoveAndDelete, 110);
        assert_eq!(decide(&view), Step::Terminate(vec!["m0".into()]));
        view.main[0].1 = Now::Running(Terminate);
        assert_eq!(decide(&view), Step::Until(T(110)));
        view.now = T(110);
        assert_eq!(decide(&view), Step::Kill(vec!["m0".into()]));
        view.main[0].1 = Now::Running(Kill);
        assert_eq!(decide(&view), Step::Rest);
        view.main[0].1 = ended(137);
        assert_eq!(decide(&view), Step::ReleaseVolumes);
        view.volumes = VolumesNow::Releasing;
        assert_eq!(decide(&view), Step::Rest);
        view.volumes = VolumesNow::Released;
        assert_eq!(decide(&view), Step::RemoveFolder(Then::RemoveAndDelete));
    }

    #[test]
    fn nothing_is_taken_from_a_pod_that_is_only_missing() {
        for volumes in [
            VolumesNow::NotReady,
            VolumesNow::Ready,
            VolumesNow::Releasing,
            VolumesNow::Released,
        ] {
            for now in [Now::Absent, Now::Running(Nothing), ended(0)] {
                let mut view = view(Never, &[], &[now]);
                view.life = Life::Missing;
                view.volumes = volumes;
                assert_eq!(decide(&view), Step::FindOut, "{volumes:?} {now:?}");
            }
        }
    }

    #[test]
    fn a_finished_pod_keeps_its_folder() {
        let mut view = view(Never, &[], &[ended(0)]);
        view.volumes = VolumesNow::Released;
        assert_eq!(decide(&view), Step::Rest);
    }

    #[test]
    fn volumes_are_never_released_while_anything_runs() {
        for asked in [Nothing, Terminate, Kill] {
            for volumes in [VolumesNow::Ready, VolumesNow::NotReady] {
                for now in [100, 200] {
                    let mut view = view(Never, &[], &[ended(0), Now::Running(asked)]);
                    view.life = ending(Then::Remove, 150);
                    view.volumes = volumes;
                    view.now = T(now);
                    let step = decide(&view);
                    assert!(
                        !matches!(step, Step::ReleaseVolumes | Step::RemoveFolder(_)),
                        "{view:?}"
                    );
                }
            }
        }
    }
}
