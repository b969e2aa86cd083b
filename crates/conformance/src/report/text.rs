//! A report for a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::{CaseReport, Report, Verdict};
use crate::answer::REQUEST;
use crate::trial::ANSWER;

/// How much of what was asked and answered is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// What tells most: the beginning of each thing, and the last calls of a case.
    Short,
    /// All of it.
    Full,
}

impl Detail {
    /// The last calls of a case; what goes wrong, goes wrong at its end.
    const CALLS: usize = 4;
    /// The letters of a request, and of an answer without trouble.
    const MESSAGE: usize = 160;

    /// A reason, all of it but the request, which is among the calls: what the driver said is what
    /// its author can act on.
    fn reason(self, text: &str) -> Cow<'_, str> {
        match text.split_once(REQUEST) {
            Some((words, request)) if self == Self::Short => {
                let request = self.cut(request);
                Cow::Owned(format!("{words}{REQUEST}{request}"))
            }
            _ => Cow::Borrowed(text),
        }
    }

    /// A call and its answer, which is shown whole if it is a refusal.
    fn call(self, text: &str) -> Cow<'_, str> {
        match text.split_once(ANSWER) {
            Some((request, reply)) if reply.starts_with("OK") => {
                Cow::Owned(format!("{}{ANSWER}{}", self.cut(request), self.cut(reply)))
            }
            Some((request, refusal)) => {
                Cow::Owned(format!("{}{ANSWER}{refusal}", self.cut(request)))
            }
            None => self.cut(text),
        }
    }

    /// The beginning of a long text, and its end.
    fn cut(self, text: &str) -> Cow<'_, str> {
        let count = text.chars().count();
        if self == Self::Full || count <= Self::MESSAGE {
            return Cow::Borrowed(text);
        }
        let half = Self::MESSAGE / 2;
        let begin: String = text.chars().take(half).collect();
        let end: String = text.chars().skip(count - half).collect();
        Cow::Owned(format!("{begin} … {end}"))
    }

    /// The calls that are shown, and how many are not.
    fn calls(self, all: &[String]) -> (usize, &[String]) {
        match self {
            Self::Full => (0, all),
            Self::Short => {
                let left_out = all.len().saturating_sub(Self::CALLS);
                (left_out, &all[left_out..])
            }
        }
    }
}

/// Broken into lines at blanks, so that no terminal breaks words; all but the first are indented.
fn wrapped(text: &str, indent: usize) -> String {
    const WIDTH: usize = 100;
    let mut lines = String::with_capacity(text.len());
    let mut column = indent;
    for (at, word) in text.split(' ').enumerate() {
        let letters = word.chars().count();
        if at > 0 && column + 1 + letters > WIDTH {
            let _ = write!(lines, "\n{:indent$}", "");
            column = indent;
        } else if at > 0 {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += letters;
    }
    lines
}

/// One case in one line, and its reason below it.
pub fn line(case: &CaseReport, detail: Detail) -> String {
    let sign = match case.verdict {
        Verdict::Passed => "✓",
        Verdict::Warned(_) => "!",
        Verdict::Failed(_) => "✗",
        Verdict::Skipped(_) | Verdict::NotRun(_) => "-",
    };
    let took = case.took.as_secs_f64();
    let mut text = format!("{sign} {took:7.3} s  {:<44} {}", case.id, case.title);
    if let Verdict::Skipped(reason) | Verdict::NotRun(reason) = &case.verdict {
        let _ = write!(text, " ({}: {reason})", case.verdict.word());
    } else if let Some(reason) = case.verdict.reason() {
        let reason = format!("{} [{}]", detail.reason(reason), case.spec);
        let _ = write!(text, "\n{:13}{}", "", wrapped(&reason, 13));
    }
    text
}

/// The whole run in the end: what failed, why, and what was said on the way.
pub fn summary(report: &Report, detail: Detail) -> String {
    let mut text = String::new();
    let counts = report.counts();
    for case in &report.cases {
        if !matches!(case.verdict, Verdict::Failed(_)) {
            continue;
        }
        let _ = writeln!(text, "\n✗ {} ({})", case.id, case.spec);
        let _ = writeln!(text, "  must hold: {}", case.title);
        let reason = detail.reason(case.verdict.reason().unwrap_or_default());
        let reason = format!("the driver: {reason}");
        let _ = writeln!(text, "  {}", wrapped(&reason, 4));
        if !case.transcript.is_empty() {
            let (left_out, calls) = detail.calls(&case.transcript);
            let _ = match left_out {
                0 => writeln!(text, "  calls:"),
                some => writeln!(text, "  calls, after {some} more (--verbose shows all):"),
            };
            for call in calls {
                let _ = writeln!(text, "    {}", wrapped(&detail.call(call), 6));
            }
        }
    }
    let remains: Vec<_> = report.left_behind().collect();
    if !remains.is_empty() {
        let _ = writeln!(text, "\nLeft behind, to be removed by hand:");
        for remain in remains {
            let _ = writeln!(text, "  {remain}");
        }
    }
    let verdict = report.conclusion().words();
    let selection = report
        .selection()
        .map_or(String::new(), |words| format!(" {words}"));
    let not_run = match counts.not_run {
        0 => String::new(),
        some => format!(", {some} not run"),
    };
    let _ = writeln!(
        text,
        "\n{} {}: {verdict}{selection}; {} passed, {} failed, {} warned, {} skipped{} in {:.1} s",
        report.driver,
        report.version,
        counts.passed,
        counts.failed,
        counts.warned,
        counts.skipped,
        not_run,
        report.took.as_secs_f64()
    );
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::remains::Remain;

    fn report(cases: Vec<CaseReport>) -> Report {
        Report {
            driver: "d".into(),
            version: "1".into(),
            started: String::new(),
            took: Duration::ZERO,
            most_bytes: 0,
            stopped: false,
            suite: cases.len(),
            cases,
        }
    }

    fn case(verdict: Verdict) -> CaseReport {
        CaseReport {
            id: "a.b".into(),
            title: "something holds".into(),
            spec: "CreateVolume",
            verdict,
            took: Duration::ZERO,
            transcript: Vec::new(),
            remains: Vec::new(),
        }
    }

    #[test]
    fn what_the_driver_said_is_told_whole_and_in_lines_that_fit() {
        let said = format!("it went {}wrong; free the lock", "very, very ".repeat(40));
        let request = format!("CreateVolumeRequest {{ {} }}", "name ".repeat(100));
        let reason = format!("CreateVolume was answered with Internal ({said}){REQUEST}{request}");
        let mut failed = case(Verdict::Failed(reason));
        failed.transcript = vec![format!("{request}{ANSWER}Internal ({said})")];
        let shown = [
            line(&failed, Detail::Short),
            summary(&report(vec![failed]), Detail::Short),
        ];
        for shown in shown {
            let one_line: Vec<_> = shown.split_whitespace().collect();
            assert!(one_line.join(" ").contains(&said), "{shown}");
            assert!(!one_line.join(" ").contains(&request), "{shown}");
            assert!(
                shown.lines().all(|line| line.chars().count() <= 100),
                "{shown}"
            );
        }
    }

    #[test]
    fn a_selection_is_told_in_the_verdict() {
        let mut whole = report(vec![case(Verdict::Passed)]);
        assert!(summary(&whole, Detail::Short).contains("d 1: conforms; 1 passed"));
        whole.suite = 685;
        let told = summary(&whole, Detail::Short);
        assert!(
            told.contains("conforms in a selection of 1 of 685 cases; 1 passed"),
            "{told}"
        );
    }

    #[test]
    fn programs_find_the_verdict_the_counts_and_what_is_left_first() {
        let mut left = case(Verdict::Failed("no".into()));
        left.remains = vec![Remain::at_driver("volume v: Internal".into())];
        let json = report(vec![left, case(Verdict::Passed)]).json();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(json["verdict"], "does_not_conform", "{json}");
        assert_eq!(json["counts"]["failed"], 1, "{json}");
        assert_eq!(json["left_behind"][0], "volume v: Internal", "{json}");
        assert_eq!(json["cases"][1]["verdict"], "passed", "{json}");
    }

    #[test]
    fn a_run_that_was_cut_short_is_not_a_clean_junit_report() {
        let mut cut = report(vec![
            case(Verdict::Passed),
            case(Verdict::NotRun("the run was stopped".into())),
        ]);
        cut.stopped = true;
        let xml = crate::report::junit(&cut);
        assert!(xml.contains("errors=\"1\" skipped=\"0\""), "{xml}");
        assert!(
            xml.contains("<error message=\"not run: the run was stopped\""),
            "{xml}"
        );
        assert!(xml.contains("value=\"stopped before its end\""), "{xml}");
    }

    #[test]
    fn a_failure_is_told_by_its_last_calls_and_in_full_if_asked_for() {
        let calls: Vec<_> = (0..9)
            .map(|number| format!("call-{number} {} answer-{number}", "é".repeat(900)))
            .collect();
        let mut case = case(Verdict::Failed("it does not".into()));
        case.transcript = calls;
        let report = report(vec![case]);
        let short = summary(&report, Detail::Short);
        assert!(
            short.contains("call-8") && short.contains("answer-8"),
            "{short}"
        );
        assert!(
            short.contains("after 5 more") && !short.contains("call-4"),
            "{short}"
        );
        assert!(
            short.lines().all(|line| line.chars().count() < 250),
            "{short}"
        );
        let full = summary(&report, Detail::Full);
        assert!(full.contains("call-0") && full.len() > 9 * 900, "{full}");
    }
}
