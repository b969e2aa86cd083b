//! A report for people: one page that needs nothing else.

use std::fmt::Write as _;

use super::junit::escaped;
use super::{Conclusion, Report, Verdict};

const STYLE: &str = "
:root { color-scheme: light dark; --line: #8884; --bad: #c62828; --warn: #b26a00; --good: #2e7d32 }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem; margin: 0 } .sub { opacity: .7 }
.counts { display: flex; gap: 1.5rem; margin: 1.2rem 0; font-size: 1.1rem }
.counts b { font-size: 1.6rem; display: block }
.failed, .failed summary { color: var(--bad) } .warned { color: var(--warn) } .passed { color: var(--good) }
.skipped { opacity: .6 } a { color: inherit }
table { border-collapse: collapse; width: 100% } td { border-top: 1px solid var(--line); padding: .3rem .5rem; vertical-align: top }
td:first-child { white-space: nowrap; font-weight: 600 } code { font-size: .85em; overflow-wrap: anywhere }
tr.group td { padding-top: 1.4rem; font-weight: 700; border: 0 }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: .8rem; background: #8881; padding: .6rem; color: initial }
@media (prefers-color-scheme: dark) { pre { color: #ddd } :root { --bad: #ef7b7b; --warn: #f0b35a; --good: #7fce83 } }
";

/// The report as a self-contained page.
pub fn html(report: &Report) -> String {
    let counts = report.counts();
    let verdict = match report.conclusion() {
        Conclusion::Stopped => "was stopped before the end",
        other => other.words(),
    };
    let selection = report
        .selection()
        .map_or(String::new(), |words| format!(" {words}"));
    let not_run = match counts.not_run {
        0 => String::new(),
        some => format!("<div class=\"skipped\"><b>{some}</b>not run</div>"),
    };
    let driver = escaped(&format!("{} {}", report.driver, report.version));
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>CSI conformance: {driver}</title><style>{STYLE}</style></head><body>\n\
         <h1>{driver} {verdict}{selection}</h1>\n<div class=\"sub\">orlop conformance, CSI 1.12, {}, {:.1} s</div>\n\
         <div class=\"counts\"><div class=\"failed\"><b>{}</b>failed</div>\
         <div class=\"warned\"><b>{}</b>warned</div><div class=\"passed\"><b>{}</b>passed</div>\
         <div class=\"skipped\"><b>{}</b>skipped</div>{not_run}</div>\n",
        escaped(&report.started),
        report.took.as_secs_f64(),
        counts.failed,
        counts.warned,
        counts.passed,
        counts.skipped
    );
    let mut failed = report.failed().peekable();
    if failed.peek().is_some() {
        page.push_str("<ul class=\"failed\">\n");
        for case in failed {
            let (id, title) = (escaped(&case.id), escaped(&case.title));
            let _ = writeln!(
                page,
                "<li><a href=\"#{id}\"><code>{id}</code></a> {title}</li>"
            );
        }
        page.push_str("</ul>\n");
    }
    page.push_str("<table>\n");
    let mut group = "";
    for case in &report.cases {
        let its = case.id.split('.').next().unwrap_or_default();
        if its != group {
            group = its;
            let _ = writeln!(
                page,
                "<tr class=\"group\"><td colspan=\"3\">{}</td></tr>",
                escaped(group)
            );
        }
        let word = case.verdict.word();
        let class = match case.verdict {
            Verdict::NotRun(_) => "skipped",
            _ => word,
        };
        let _ = write!(
            page,
            "<tr id=\"{0}\"><td class=\"{class}\">{word}</td><td><code>{0}</code><br>{1}<br><span class=\"sub\">{2}</span>",
            escaped(&case.id),
            escaped(&case.title),
            escaped(case.spec)
        );
        if let Some(reason) = case.verdict.reason() {
            let _ = write!(page, "<div class=\"{class}\">{}</div>", escaped(reason));
        }
        if matches!(case.verdict, Verdict::Failed(_)) && !case.transcript.is_empty() {
            let calls = escaped(&case.transcript.join("\n"));
            let _ = write!(
                page,
                "<details><summary>calls</summary><pre>{calls}</pre></details>"
            );
        }
        let _ = writeln!(
            page,
            "</td><td class=\"sub\">{:.3}&nbsp;s</td></tr>",
            case.took.as_secs_f64()
        );
    }
    page.push_str("</table>\n");
    let remains: Vec<_> = report.left_behind().collect();
    if !remains.is_empty() {
        page.push_str("<h1>Left behind</h1><ul>\n");
        for remain in remains {
            let _ = writeln!(page, "<li>{}</li>", escaped(remain));
        }
        page.push_str("</ul>\n");
    }
    page.push_str("</body></html>\n");
    page
}
