//! A report for CI.

use std::fmt::Write as _;

use super::{Report, Verdict};

/// The report as JUnit XML. Warnings pass, with their text as output; what was not run is an error,
/// so that a run that was cut short is not taken for a clean one.
pub fn junit(report: &Report) -> String {
    let counts = report.counts();
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(
        xml,
        "<testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\" time=\"{:.3}\" timestamp=\"{}\">",
        escaped(&format!("CSI conformance of {}", report.driver)),
        report.cases.len(),
        counts.failed,
        counts.not_run,
        counts.skipped,
        report.took.as_secs_f64(),
        escaped(&report.started)
    );
    let verdict = report.conclusion().words();
    let suite = report.suite;
    let _ = writeln!(
        xml,
        "  <properties><property name=\"verdict\" value=\"{verdict}\"/>\
         <property name=\"cases-in-suite\" value=\"{suite}\"/></properties>"
    );
    for case in &report.cases {
        let (group, name) = case.id.split_once('.').unwrap_or(("", &case.id));
        let _ = write!(
            xml,
            "  <testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\"",
            escaped(group),
            escaped(name),
            case.took.as_secs_f64()
        );
        let calls = case.transcript.join("\n");
        let _ = match &case.verdict {
            Verdict::Passed => writeln!(xml, "/>"),
            Verdict::Skipped(reason) => {
                writeln!(
                    xml,
                    "><skipped message=\"{}\"/></testcase>",
                    escaped(reason)
                )
            }
            Verdict::NotRun(reason) => {
                let reason = escaped(&format!("not run: {reason}"));
                writeln!(
                    xml,
                    "><error message=\"{reason}\" type=\"not run\"/></testcase>"
                )
            }
            Verdict::Warned(reason) => {
                writeln!(
                    xml,
                    "><system-out>{}</system-out></testcase>",
                    escaped(reason)
                )
            }
            Verdict::Failed(reason) => writeln!(
                xml,
                "><failure message=\"{}\" type=\"{}\">{}</failure></testcase>",
                escaped(reason),
                escaped(case.spec),
                escaped(&format!("{}\n{calls}", case.title))
            ),
        };
    }
    xml.push_str("</testsuite>\n");
    xml
}

/// Text as it may stand in XML: also without the control characters that it bans.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\n' | '\t' => safe.push(letter),
            letter if letter.is_control() || matches!(letter, '\u{FFFE}' | '\u{FFFF}') => {
                safe.push('\u{FFFD}');
            }
            letter => safe.push(letter),
        }
    }
    safe
}
