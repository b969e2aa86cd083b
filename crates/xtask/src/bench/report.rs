//! Figures as a table, side by side.

use std::fs;

use super::figures::Figures;

/// Whether more is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Better {
    More,
    Less,
}
use Better::{Less, More};

/// What a row says: its label, in which unit, and under which name it was taken down.
pub(super) type Row<'t> = (&'t str, &'t str, &'t str, Better);

/// What is told of an API server.
pub(super) const API_SERVER: [Row<'_>; 32] = [
    ("start to ready", "ms", "start", Less),
    ("memory, empty", "MiB", "memory empty", Less),
    ("memory, full", "MiB", "memory full", Less),
    ("memory, most ever", "MiB", "memory peak", Less),
    ("create ConfigMaps", "/s", "create configmap: rate", More),
    ("… p99", "ms", "create configmap: time p99", Less),
    (
        "… server's processor",
        "s/1000",
        "create configmap: processor",
        Less,
    ),
    (
        "… client's processor",
        "s/1000",
        "create configmap: client processor",
        Less,
    ),
    ("create claims", "/s", "create claim: rate", More),
    ("… p99", "ms", "create claim: time p99", Less),
    (
        "… server's processor",
        "s/1000",
        "create claim: processor",
        Less,
    ),
    ("create volumes", "/s", "create volume: rate", More),
    ("get", "/s", "get: rate", More),
    ("… p99", "ms", "get: time p99", Less),
    ("… server's processor", "s/1000", "get: processor", Less),
    (
        "… client's processor",
        "s/1000",
        "get: client processor",
        Less,
    ),
    ("list all claims", "ms", "list: time p50", Less),
    (
        "… client's processor",
        "s/1000",
        "list: client processor",
        Less,
    ),
    ("list them by 500", "ms", "list paged: time p50", Less),
    ("create to answer p50", "ms", "latency: answer p50", Less),
    ("create to event p50", "ms", "latency: event p50", Less),
    ("create to event p99", "ms", "latency: event p99", Less),
    ("fan-out, last has it", "ms", "fan-out: last p50", Less),
    ("fan-out, delivered", "/s", "fan-out: delivered", More),
    ("… server's processor", "s/1000", "fan-out: processor", Less),
    (
        "… client's processor",
        "s/1000",
        "fan-out: client processor",
        Less,
    ),
    ("alone: event p99", "ms", "crowd: alone event p99", Less),
    (
        "in a crowd: event p99",
        "ms",
        "crowd: crowd event p99",
        Less,
    ),
    ("alone: create p99", "ms", "crowd: alone answer p99", Less),
    (
        "in a crowd: create p99",
        "ms",
        "crowd: crowd answer p99",
        Less,
    ),
    ("alone: creates", "/s", "crowd: alone rate", More),
    ("in a crowd: creates", "/s", "crowd: crowd rate", More),
];

/// The machine, and what else it was doing.
pub(super) fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let model = read("/proc/cpuinfo");
    let model = model
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map_or("", |rest| rest.trim_start_matches([' ', '\t', ':']));
    let load = read("/proc/loadavg");
    let load = load.split_whitespace().next().unwrap_or("?").to_owned();
    let kernel = read("/proc/sys/kernel/osrelease");
    format!(
        "{cores} × {model}, Linux {}, load {load} at the end",
        kernel.trim()
    )
}

/// One side's figures, and what it is called.
pub(super) type Column<'t> = (&'t str, Figures);

/// By how much one column is better than another: the heading, the one, the other.
pub(super) type Ratio<'t> = (&'t str, usize, usize);

/// The table, as Markdown. Rows that nobody has a figure for are left out.
pub(super) fn table(columns: &[Column<'_>], ratios: &[Ratio<'_>], rows: &[Row<'_>]) -> String {
    let headings = columns.iter().map(|(heading, _)| *heading);
    let headings = headings.chain(ratios.iter().map(|(heading, ..)| *heading));
    let mut text = "| | |".to_owned();
    for heading in headings {
        text.push_str(&format!(" {heading} |"));
    }
    text.push_str("\n|---|---|");
    text.push_str(&"--:|".repeat(columns.len() + ratios.len()));
    text.push('\n');
    for (label, unit, name, better) in rows {
        let values: Vec<_> = columns
            .iter()
            .map(|(_, figures)| figures.get(name))
            .collect();
        if values.iter().all(Option::is_none) {
            continue;
        }
        text.push_str(&format!("| {label} | {unit} |"));
        for value in &values {
            text.push_str(&format!(" {} |", value.map_or("-".to_owned(), round)));
        }
        for (_, one, other) in ratios {
            let factor = match (values[*one], values[*other], better) {
                (Some(one), Some(other), Better::More) => one / other,
                (Some(one), Some(other), Better::Less) => other / one,
                _ => f64::NAN,
            };
            let factor = match factor.is_finite() {
                true => format!("{} ×", round(factor)),
                false => "-".to_owned(),
            };
            text.push_str(&format!(" {factor} |"));
        }
        text.push('\n');
    }
    text
}

/// Three digits that say something.
pub(super) fn round(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_by_how_much_ours_is_better() {
        let column = |heading, start, rate| {
            let mut figures = Figures::default();
            figures.set("start", start);
            figures.set("get: rate", rate);
            (heading, figures)
        };
        let columns = [
            column("ours", 50.0, 3000.0),
            column("theirs", 3000.0, 1000.0),
        ];
        let table = table(&columns, &[("better by", 0, 1)], &API_SERVER);
        assert!(
            table.contains("| start to ready | ms | 50.0 | 3000 | 60.0 × |"),
            "{table}"
        );
        assert!(
            table.contains("| get | /s | 3000 | 1000 | 3.00 × |"),
            "{table}"
        );
        assert!(
            !table.contains("memory"),
            "what wasn't measured isn't told: {table}"
        );
    }
}
