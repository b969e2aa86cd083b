//! What came out of a run.

use std::time::Duration;

use serde::Serialize;

use crate::case::Case;
use crate::remains::Remain;

mod html;
mod junit;
mod text;

pub use html::html;
pub use junit::junit;
pub use text::{Detail, line, summary};

/// How a case went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "verdict", content = "reason")]
pub enum Verdict {
    /// The driver does it.
    Passed,
    /// The driver doesn't do something that it should.
    Warned(String),
    /// The driver doesn't do something that it must.
    Failed(String),
    /// The case makes no sense for this driver or this run.
    Skipped(String),
    /// The run ended before the case, or in the middle of it.
    NotRun(String),
}

impl Verdict {
    /// In one word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Warned(_) => "warned",
            Self::Failed(_) => "failed",
            Self::Skipped(_) => "skipped",
            Self::NotRun(_) => "not run",
        }
    }

    /// Why, if there is something to say.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Passed => None,
            Self::Warned(reason)
            | Self::Failed(reason)
            | Self::Skipped(reason)
            | Self::NotRun(reason) => Some(reason),
        }
    }

    /// The same with its reason changed.
    pub(crate) fn map(self, change: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Passed => Self::Passed,
            Self::Warned(reason) => Self::Warned(change(reason)),
            Self::Failed(reason) => Self::Failed(change(reason)),
            Self::Skipped(reason) => Self::Skipped(change(reason)),
            Self::NotRun(reason) => Self::NotRun(change(reason)),
        }
    }
}

/// One case and how it went.
#[derive(Debug, Clone, Serialize)]
pub struct CaseReport {
    /// The case's name.
    pub id: String,
    /// What must hold.
    pub title: String,
    /// The specification's section.
    pub spec: &'static str,
    /// How it went.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// How long it took, with its cleaning up.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub took: Duration,
    /// What was asked and answered, if it did not pass.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub transcript: Vec<String>,
    /// What could not be cleaned up.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "in_words")]
    pub(crate) remains: Vec<Remain>,
}

impl CaseReport {
    /// A case that took no time and left nothing.
    pub(crate) fn of(case: &Case, verdict: Verdict) -> Self {
        Self {
            id: case.id.clone(),
            title: case.title.clone(),
            spec: case.spec,
            verdict,
            took: Duration::ZERO,
            transcript: Vec::new(),
            remains: Vec::new(),
        }
    }
}

fn in_words<S: serde::Serializer>(remains: &[Remain], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(remains.iter().map(|remain| &remain.words))
}

fn seconds<S: serde::Serializer>(took: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(took.as_secs_f64())
}

/// A whole run.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The driver's name.
    pub driver: String,
    /// The driver's version.
    pub version: String,
    /// When it began, in UTC.
    pub started: String,
    /// How long it took.
    #[serde(rename = "seconds", serialize_with = "seconds")]
    pub took: Duration,
    /// The most bytes that its volumes and snapshots took at once, by the driver's own word.
    pub most_bytes: i64,
    /// Whether whoever ran it stopped it before its end.
    pub stopped: bool,
    /// How many cases the suite has, of which these may be a selection.
    pub suite: usize,
    /// The cases, in order.
    pub cases: Vec<CaseReport>,
}

/// What a whole run says about the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Conclusion {
    /// Nothing failed, nothing was left out.
    Conforms,
    /// Something failed.
    DoesNotConform,
    /// The run was stopped before its end.
    Stopped,
    /// Every case was skipped, or the rest was not run.
    Unknown,
}

impl Conclusion {
    /// What follows the driver's name.
    pub fn words(self) -> &'static str {
        match self {
            Self::Conforms => "conforms",
            Self::DoesNotConform => "does not conform",
            Self::Stopped => "stopped before its end",
            Self::Unknown => "is not known to conform",
        }
    }
}

/// How many cases went how.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// The driver does it.
    pub passed: usize,
    /// It should do better.
    pub warned: usize,
    /// It must do better.
    pub failed: usize,
    /// Not for this driver.
    pub skipped: usize,
    /// The run ended before.
    pub not_run: usize,
}

impl Report {
    /// Whether the driver conforms as far as was seen: nothing failed, nothing was left out.
    pub fn conforms(&self) -> bool {
        self.conclusion() == Conclusion::Conforms
    }

    /// What is known about the driver now.
    pub fn conclusion(&self) -> Conclusion {
        let counts = self.counts();
        if self.stopped {
            Conclusion::Stopped
        } else if counts.failed > 0 {
            Conclusion::DoesNotConform
        } else if counts.not_run > 0 || counts.passed + counts.warned == 0 {
            Conclusion::Unknown
        } else {
            Conclusion::Conforms
        }
    }

    /// That these are not all cases, if so.
    pub fn selection(&self) -> Option<String> {
        let chosen = self.cases.len();
        let some = chosen < self.suite;
        some.then(|| format!("in a selection of {chosen} of {} cases", self.suite))
    }

    /// What has to be removed by hand.
    pub fn left_behind(&self) -> impl Iterator<Item = &str> {
        let remains = self.cases.iter().flat_map(|case| &case.remains);
        remains.map(|remain| remain.words.as_str())
    }

    /// How many cases went how.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for case in &self.cases {
            match case.verdict {
                Verdict::Passed => counts.passed += 1,
                Verdict::Warned(_) => counts.warned += 1,
                Verdict::Failed(_) => counts.failed += 1,
                Verdict::Skipped(_) => counts.skipped += 1,
                Verdict::NotRun(_) => counts.not_run += 1,
            }
        }
        counts
    }

    /// The cases that failed.
    pub fn failed(&self) -> impl Iterator<Item = &CaseReport> {
        let failed = |case: &&CaseReport| matches!(case.verdict, Verdict::Failed(_));
        self.cases.iter().filter(failed)
    }

    /// As JSON.
    pub fn json(&self) -> String {
        /// What most readers look for, before all the rest.
        #[derive(Serialize)]
        struct Whole<'a> {
            verdict: Conclusion,
            counts: Counts,
            left_behind: Vec<&'a str>,
            #[serde(flatten)]
            report: &'a Report,
        }
        let whole = Whole {
            verdict: self.conclusion(),
            counts: self.counts(),
            left_behind: self.left_behind().collect(),
            report: self,
        };
        serde_json::to_string_pretty(&whole)
            .unwrap_or_else(|error| format!("{{\"error\": {:?}}}", error.to_string()))
    }
}
