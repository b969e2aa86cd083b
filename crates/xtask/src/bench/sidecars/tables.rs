//! What the sets took, as tables.

use std::collections::BTreeMap;

use crate::bench::{audit::Counts, figures::Figures, report::Better};

/// Requests of each sort per object, by step.
pub(super) type Requests = BTreeMap<String, (usize, Counts)>;

/// The steps in the order in which they happened, of whoever had most.
pub(super) fn steps(requests: &[Requests]) -> Vec<String> {
    let mut steps: Vec<String> = Vec::new();
    for step in requests.iter().flat_map(BTreeMap::keys) {
        if !steps.contains(step) {
            steps.push(step.clone());
        }
    }
    // By what is done, then by how many.
    let order = |step: &String| {
        let (word, count) = step.split_once(' ').unwrap_or((step, ""));
        let all = ["bind", "reclaim", "attach", "detach", "cut", "drop"];
        let place = all.iter().position(|one| *one == word);
        (place, count.parse::<usize>().unwrap_or_default())
    };
    steps.sort_by_key(order);
    steps
}

pub(super) type OwnedRow = (String, &'static str, String, Better);

pub(super) fn rows(steps: &[String]) -> Vec<OwnedRow> {
    use Better::{Less, More};
    let mut rows: Vec<OwnedRow> = vec![(
        "memory of the sidecars, after 20 s at rest".to_owned(),
        "MiB",
        "memory idle".to_owned(),
        Less,
    )];
    let claims = steps.iter().filter_map(|step| step.strip_prefix("bind "));
    rows.extend(claims.map(|count| {
        let label = format!("… with {count} claims");
        (label, "MiB", format!("memory {count}"), Less)
    }));
    for step in steps {
        let (word, count) = step.split_once(' ').unwrap_or((step, ""));
        let label = match word {
            "bind" => format!("{count} claims to Bound"),
            "reclaim" => format!("{count} claims deleted, to volume gone"),
            "attach" => "attach".to_owned(),
            "detach" => "detach".to_owned(),
            "cut" => "snapshot, to ready".to_owned(),
            _ => "snapshot deleted, to content gone".to_owned(),
        };
        rows.push((label, "/s", format!("{step}: rate"), More));
        for (label, unit, name) in [
            ("… p50", "ms", "time p50"),
            ("… p99", "ms", "time p99"),
            ("… requests in all", "each", "requests"),
            ("… of the sidecars", "each", "requests sidecars"),
            ("… of binder and protection", "each", "requests control"),
            ("… answered 404", "each", "requests 404"),
            ("… answered 409", "each", "requests 409"),
            ("… sidecars' processor", "s/1000", "processor sidecars"),
            ("… control plane's processor", "s/1000", "processor control"),
            ("… API server's and etcd's", "s/1000", "processor server"),
        ] {
            rows.push((label.to_owned(), unit, format!("{step}: {name}"), Less));
        }
    }
    rows
}

/// Which requests each step took, per object.
pub(super) fn requests(columns: &[(&str, Figures)], all: &[Requests]) -> String {
    let mut text = "| requests per object | by | |".to_owned();
    for (heading, _) in columns {
        text.push_str(&format!(" {heading} |"));
    }
    text.push_str(&format!(
        "\n|---|---|---|{}\n",
        "--:|".repeat(columns.len())
    ));
    for step in steps(all) {
        let mut sorts: Vec<_> = all
            .iter()
            .filter_map(|one| one.get(&step))
            .flat_map(|(_, counts)| counts.keys())
            .collect();
        sorts.sort();
        sorts.dedup();
        for sort in sorts {
            let mut values = Vec::new();
            for one in all {
                let found = one.get(&step);
                let per = found.map(|(objects, counts)| {
                    counts.get(sort).copied().unwrap_or_default() as f64 / *objects as f64
                });
                values.push(per);
            }
            // Now and then one of a thousand is asked for twice; that is not worth a row.
            if values.iter().flatten().all(|value| *value < 0.01) {
                continue;
            }
            let mut what = sort.what.clone();
            if sort.code >= 400 {
                what.push_str(&format!(" → {}", sort.code));
            }
            text.push_str(&format!("| {step} | {} | {what} |", sort.who.word()));
            for value in values {
                let told = value.map_or("-".to_owned(), |value| format!("{value:.2}"));
                text.push_str(&format!(" {told} |"));
            }
            text.push('\n');
        }
    }
    text
}
