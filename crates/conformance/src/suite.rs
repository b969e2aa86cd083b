//! The cases, the choice among them, and their run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use orlop_csi::{CallError, proto};
use proto::volume_capability::access_mode::Mode;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use crate::bench::{Bench, MeetError};
use crate::case::Case;
use crate::cases;
use crate::make::{block_capability, mount_capability};
use crate::presence::Presence;
use crate::remains::Remain;
use crate::report::{CaseReport, Report, Verdict};
use crate::room;
use crate::run::run_case;
use crate::settings::Settings;

/// A choice of cases: a part of their names, or a glob over the whole name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// With `*` for anything and `?` for any letter it is a glob, else a part.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    fn matches(&self, id: &str) -> bool {
        if self.0.contains(['*', '?']) {
            glob(self.0.as_bytes(), id.as_bytes())
        } else {
            id.contains(&self.0)
        }
    }
}

fn glob(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern.split_first(), text.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => (0..=text.len()).any(|skipped| glob(rest, &text[skipped..])),
        (Some((b'?', pattern)), Some((_, text))) => glob(pattern, text),
        (Some((wanted, pattern)), Some((found, text))) if wanted == found => glob(pattern, text),
        _ => false,
    }
}

/// Why a run could not even begin.
#[derive(Debug, thiserror::Error)]
pub enum CannotRun {
    /// The folders could not be made.
    #[error("could not make the run's folders")]
    Folder(#[source] std::io::Error),
    /// The driver does not say who it is.
    #[error("the driver does not answer; is it running, and is the endpoint right?")]
    Driver(#[source] Box<CallError>),
    /// The driver is at the endpoint but does not answer in time.
    #[error("the driver did not say who it is within {} s", .0.as_secs())]
    Silent(Duration),
}

impl From<MeetError> for CannotRun {
    fn from(error: MeetError) -> Self {
        match error {
            MeetError::Call(error) => Self::Driver(error),
            MeetError::Folder(error) => Self::Folder(error),
        }
    }
}

/// What happens in a run, for whoever watches.
#[derive(Debug)]
pub enum Event<'a> {
    /// The driver was met, and this much of its storage may be needed at once.
    Met {
        /// In bytes.
        needed: i64,
        /// What is left by the driver's own word, if it says so.
        left: Option<i64>,
    },
    /// A case begins.
    Begins(&'a Case),
    /// A case has ended.
    Ended(&'a CaseReport),
}

/// Cases in the order in which they run.
#[derive(Debug, Clone)]
pub struct Suite {
    cases: Vec<Case>,
    /// How many there were before any was left out.
    all: usize,
}

impl Default for Suite {
    fn default() -> Self {
        Self::new()
    }
}

impl Suite {
    /// Every case.
    pub fn new() -> Self {
        let cases = cases::all();
        let all = cases.len();
        Self { cases, all }
    }

    /// The cases that match any of `focus` (all, if there are none) and none of `skip`.
    #[must_use]
    pub fn select(mut self, focus: &[Pattern], skip: &[Pattern]) -> Self {
        let any = |patterns: &[Pattern], id: &str| patterns.iter().any(|p| p.matches(id));
        self.cases
            .retain(|case| (focus.is_empty() || any(focus, &case.id)) && !any(skip, &case.id));
        self
    }

    /// The cases.
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }

    /// Runs the cases one after the other. After `stop` no case begins any more; the one that
    /// runs is ended, and cleaned up after, before this returns. Neither does one after a driver
    /// went away and did not come back.
    pub async fn run(
        &self,
        settings: Settings,
        stop: &CancellationToken,
        mut watch: impl FnMut(Event<'_>),
    ) -> Result<Report, CannotRun> {
        let began = Instant::now();
        let started = jiff::Timestamp::now().to_string();
        let timeout = settings.timeout;
        let meeting = tokio::time::timeout(timeout, Bench::meet(settings)).await;
        let mut bench = meeting
            .map_err(|_| CannotRun::Silent(timeout))?
            .map_err(CannotRun::from)?;
        if bench.can(orlop_csi::client::ControllerCapability::CreateDeleteVolume) {
            watch(Event::Met {
                needed: room::needed(bench.settings.volume_size),
                left: room::left(&bench).await,
            });
        }
        find_kinds(&mut bench).await;
        let bench = Arc::new(bench);
        let mut reports: Vec<CaseReport> = Vec::new();
        let mut not_run = None;
        for case in &self.cases {
            if stop.is_cancelled() {
                not_run = not_run.or(Some("the run was stopped"));
            }
            if let Some(reason) = not_run {
                let verdict = Verdict::NotRun(reason.to_owned());
                reports.push(CaseReport::of(case, verdict));
                continue;
            }
            watch(Event::Begins(case));
            let (report, presence) = run_case(case, &bench, stop).await;
            watch(Event::Ended(&report));
            reports.push(report);
            if let Presence::Gone(_) = presence {
                not_run = Some("the driver went away before it");
            }
        }
        let is_left_out = |case: &CaseReport| matches!(case.verdict, Verdict::NotRun(_));
        let stopped = stop.is_cancelled() && reports.iter().any(is_left_out);
        let left = bench.folder.remove();
        for report in &mut reports {
            // The folders of a case may have gone with those of the run.
            report.remains.retain(Remain::is_there);
        }
        if let Some(last) = reports.last_mut() {
            last.remains.extend(left);
        }
        Ok(Report {
            driver: bench.controller.name.clone(),
            version: bench.controller.version.clone(),
            started,
            took: began.elapsed(),
            most_bytes: bench.room().most(),
            stopped,
            suite: self.all,
            cases: reports,
        })
    }
}

/// Learns which kinds of volumes the driver makes: a refusal with `INVALID_ARGUMENT` is a no.
async fn find_kinds(bench: &mut Bench) {
    use orlop_csi::client::ControllerCapability::CreateDeleteVolume;
    if !bench.can(CreateDeleteVolume) {
        return;
    }
    let mut kinds = [true, true];
    let fs_type = bench.settings.fs_type.clone();
    for (at, capability) in [
        mount_capability(Mode::SingleNodeWriter, &fs_type),
        block_capability(Mode::SingleNodeWriter),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("orlop-conformance-{}-kind-{at}", bench.tag);
        let mut request = proto::CreateVolumeRequest {
            name,
            volume_capabilities: vec![capability],
            capacity_range: Some(crate::make::at_least(bench.settings.volume_size)),
            parameters: bench.settings.parameters.clone(),
            secrets: bench.settings.secrets.of(orlop_csi::Method::CreateVolume),
            ..Default::default()
        };
        if bench.serves(orlop_csi::client::PluginService::VolumeAccessibilityConstraints) {
            request.accessibility_requirements =
                bench
                    .topology
                    .clone()
                    .map(|here| proto::TopologyRequirement {
                        requisite: vec![here.clone()],
                        preferred: vec![here],
                    });
        }
        let driver = &bench.settings.controller;
        match driver.call_raw(&request, bench.settings.timeout).await {
            Ok(reply) => {
                let delete = proto::DeleteVolumeRequest {
                    volume_id: reply.volume.unwrap_or_default().volume_id,
                    secrets: bench.settings.secrets.of(orlop_csi::Method::DeleteVolume),
                };
                // A failure is found again, and told, by the cases about deletion.
                let _ = driver.call_raw(&delete, bench.settings.timeout).await;
            }
            Err(refusal) => kinds[at] = refusal.code != Code::InvalidArgument,
        }
    }
    bench.set_kinds(kinds[0], kinds[1]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_parts_or_globs() {
        for (pattern, id, matches) in [
            ("create", "create.repeat", true),
            ("repeat", "create.repeat", true),
            ("create.*", "create.repeat", true),
            ("create.*", "late.create.x", false),
            ("*.rep?at", "create.repeat", true),
            ("stage", "create.repeat", false),
        ] {
            assert_eq!(
                Pattern::new(pattern).matches(id),
                matches,
                "{pattern} on {id}"
            );
        }
    }

    #[test]
    fn every_case_has_a_name_of_its_own_with_a_group() {
        let suite = Suite::new();
        let mut ids: Vec<_> = suite.cases().iter().map(|case| case.id.clone()).collect();
        ids.sort();
        let before = ids.len();
        ids.dedup();
        assert_eq!(ids.len(), before, "two cases have one name");
        for case in suite.cases() {
            let plain = |letter: char| {
                letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_'
            };
            let parts: Vec<_> = case.id.split('.').collect();
            assert!(
                parts.len() == 2
                    && parts
                        .iter()
                        .all(|part| !part.is_empty() && part.chars().all(plain)),
                "{}",
                case.id
            );
            assert!(
                !case.title.is_empty() && !case.spec.is_empty(),
                "{}",
                case.id
            );
        }
    }

    #[test]
    fn focus_and_skip_choose() {
        let chosen = Suite::new().select(&[Pattern::new("identity.")], &[Pattern::new("*probe*")]);
        assert!(!chosen.cases().is_empty());
        assert!(
            chosen
                .cases()
                .iter()
                .all(|case| case.group() == "identity" && !case.id.contains("probe"))
        );
    }
}
