//! A report for a terminal.

use std::fmt::Write as _;

use super::{CaseReport, Report, Verdict};

/// One case in one line, and its reason below it.
pub fn line(case: &CaseReport) -> String {
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
        let _ = write!(text, "\n             {} [{}]", reason, case.spec);
    }
    text
}

/// The whole run in the end: what failed, why, and what was said on the way.
pub fn summary(report: &Report) -> String {
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
            case.verdict.reason().unwrap_or_default()
        );
        if !case.transcript.is_empty() {
            let _ = writeln!(text, "  calls:");
            for call in &case.transcript {
                let _ = writeln!(text, "    {call}");
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
