//! OpenMetrics' text in Prometheus' older form, which is what scrapers get that ask for nothing.
//!
//! There a counter is called as its samples are, numbers may be whole, and nothing marks the end.

use std::fmt::Write as _;

/// Rewrites it.
pub(crate) fn from_open(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    // Of a metric's description the help comes first, and needs its type.
    let mut help = None;
    for line in text.lines() {
        // Writing into a string can't fail.
        let _ = match described(line) {
            Some(("HELP", name, said)) => {
                help = Some((name, said));
                Ok(())
            }
            Some(("TYPE", name, kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", kind),
                    "info" => ("_info", "gauge"),
                    "stateset" => ("", "gauge"),
                    "unknown" => ("", "untyped"),
                    _ => ("", kind),
                };
                if let Some((_, said)) = help.take().filter(|(of, _)| *of == name) {
                    let _ = writeln!(plain, "# HELP {name}{suffix} {said}");
                }
                writeln!(plain, "# TYPE {name}{suffix} {kind}")
            }
            Some(_) => Ok(()),
            None if line.starts_with('#') => Ok(()),
            None => writeln!(plain, "{}", sample(line)),
        };
    }
    plain
}

/// The parts of a line that describes a metric.
fn described(line: &str) -> Option<(&str, &str, &str)> {
    let mut parts = line.strip_prefix("# ")?.splitn(3, ' ');
    Some((parts.next()?, parts.next()?, parts.next()?))
}

/// A sample, with whole numbers as such: `le="1"` is another series than `le="1.0"`.
fn sample(line: &str) -> String {
    let line = line.strip_suffix(".0").unwrap_or(line);
    for before in ["{le=\"", ",le=\""] {
        if let Some((head, rest)) = line.split_once(before)
            && let Some((bound, tail)) = rest.split_once('"')
        {
            let bound = bound.strip_suffix(".0").unwrap_or(bound);
            return format!("{head}{before}{bound}\"{tail}");
        }
    }
    line.to_owned()
}

#[cfg(test)]
mod tests {
    use prometheus_client::{
        encoding::text::encode,
        metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
        registry::Registry,
    };

    use super::*;

    #[test]
    fn metrics_are_described_by_the_names_of_their_samples() {
        let mut registry = Registry::default();
        let adds = Family::<Vec<(String, String)>, Counter>::default();
        adds.get_or_create(&vec![("role".to_owned(), "a,le=\"1.0\"".to_owned())])
            .inc();
        registry.register("adds", "Added", adds);
        let depth = Gauge::<f64, std::sync::atomic::AtomicU64>::default();
        depth.set(2.0);
        registry.register("depth", "Waiting", depth);
        let took = Histogram::new([0.5, 1.0]);
        took.observe(0.75);
        registry.register("took_seconds", "Took", took);
        let mut text = String::new();
        encode(&mut text, &registry).expect("a string takes it");
        let plain = from_open(&text);
        let expected = "# HELP adds_total Added.
# TYPE adds_total counter
adds_total{role=\"a,le=\\\"1.0\\\"\"} 1
# HELP depth Waiting.
# TYPE depth gauge
depth 2
# HELP took_seconds Took.
# TYPE took_seconds histogram
took_seconds_sum 0.75
took_seconds_count 1
took_seconds_bucket{le=\"0.5\"} 0
took_seconds_bucket{le=\"1\"} 1
took_seconds_bucket{le=\"+Inf\"} 1
";
        assert_eq!(plain, expected);
    }

    #[test]
    fn kinds_that_the_older_form_lacks_are_the_nearest_it_has() {
        let open = "# HELP build Built.\n# TYPE build info\nbuild_info{v=\"1\"} 1\n# TYPE x unknown\n# UNIT x y\nx 1.5\n# EOF\n";
        let plain = "# HELP build_info Built.\n# TYPE build_info gauge\nbuild_info{v=\"1\"} 1\n# TYPE x untyped\nx 1.5\n";
        assert_eq!(from_open(open), plain);
    }
}
