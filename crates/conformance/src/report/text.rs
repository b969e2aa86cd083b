//! A report for a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::{CaseReport, Report, Verdict};

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
    /// The letters of a reason.
    const REASON: usize = 400;
    /// The letters of a call and of its answer.
    const CALL: usize = 200;

    fn reason(self, text: &str) -> Cow<'_, str> {
        self.cut(text, Self::REASON)
    }

    fn call(self, text: &str) -> Cow<'_, str> {
        self.cut(text, Self::CALL)
    }

    /// The beginning of a long text, and the end that an answer to a call is.
    fn cut(self, text: &str, letters: usize) -> Cow<'_, str> {
        let count = text.chars().count();
        if self == Self::Full || count <= letters {
            return Cow::Borrowed(text);
        }
        let begin: String = text.chars().take(letters / 2).collect();
        let end: String = text.chars().skip(count - letters / 2).collect();
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
        let reason = detail.reason(reason);
        let _ = write!(text, "\n             {reason} [{}]", case.spec);
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
        let _ = writeln!(
            text,
            "  the driver: {}",
            detail.reason(case.verdict.reason().unwrap_or_default())
        );
        if !case.transcript.is_empty() {
            let (left_out, calls) = detail.calls(&case.transcript);
            let _ = match left_out {
                0 => writeln!(text, "  calls:"),
                some => writeln!(text, "  calls, after {some} more (--verbose shows all):"),
            };
            for call in calls {
                let _ = writeln!(text, "    {}", detail.call(call));
            }
        }
    }
    let remains: Vec<_> = report.cases.iter().flat_map(|case| &case.remains).collect();
    if !remains.is_empty() {
        let _ = writeln!(text, "\nLeft behind, to be removed by hand:");
        for remain in remains {
            let _ = writeln!(text, "  {remain}");
        }
    }
    let verdict = match (report.stopped, counts.failed) {
        (true, _) => "stopped before its end",
        (false, 0) => "conforms",
        (false, _) => "does not conform",
    };
    let not_run = match counts.not_run {
        0 => String::new(),
        some => format!(", {some} not run"),
    };
    let _ = writeln!(
        text,
        "\n{} {}: {verdict}; {} passed, {} failed, {} warned, {} skipped{} in {:.1} s",
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

    #[test]
    fn a_failure_is_told_by_its_last_calls_and_in_full_if_asked_for() {
        let calls: Vec<_> = (0..9)
            .map(|number| format!("call-{number} {} answer-{number}", "é".repeat(900)))
            .collect();
        let case = CaseReport {
            id: "a.b".into(),
            title: "something holds".into(),
            spec: "CreateVolume",
            verdict: Verdict::Failed("it does not".into()),
            took: Duration::ZERO,
            transcript: calls,
            remains: Vec::new(),
        };
        let report = Report {
            driver: "d".into(),
            version: "1".into(),
            started: String::new(),
            took: Duration::ZERO,
            most_bytes: 0,
            stopped: false,
            cases: vec![case],
        };
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
