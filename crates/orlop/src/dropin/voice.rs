//! How much is logged, and how.

use std::io::IsTerminal as _;

use anyhow::{Result, anyhow, bail};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::{filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

use super::settings::View;

/// Logs as the flags say; where they don't, by a filter of ours, or as much as the originals.
pub(super) fn tune(view: &View<'_>, filter: Option<&str>) -> Result<()> {
    let filter = match filter {
        Some(filter) if !view.is_set("v") => filter
            .parse()
            .map_err(|error| anyhow!("--log {filter:?} is no filter: {error}"))?,
        _ => as_loud_as(view.int("v")),
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(filter);
    match view.text("logging-format").as_str() {
        "text" => registry.with(lines).init(),
        "json" => registry
            .with(lines.with_ansi(false).event_format(json::Lines))
            .init(),
        other => bail!("--logging-format={other}: must be one of text, json"),
    }
    Ok(())
}

/// The filter for one of Go's numbers.
pub(crate) fn as_loud_as(v: i64) -> Targets {
    Targets::new()
        .with_default(LevelFilter::WARN)
        .with_target("orlop", level(v))
}

/// What Go's numbers are in our levels.
fn level(v: i64) -> LevelFilter {
    match v {
        ..4 => LevelFilter::INFO,
        4 => LevelFilter::DEBUG,
        5.. => LevelFilter::TRACE,
    }
}

/// One JSON object per line, with the fields that Kubernetes' components use.
mod json {
    use std::fmt;

    use serde_json::{Map, Value, json};
    use tracing::{
        Event, Level, Subscriber,
        field::{Field, Visit},
    };
    use tracing_subscriber::{
        fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
        registry::LookupSpan,
    };

    pub(super) struct Lines;

    impl<S, N> FormatEvent<S, N> for Lines
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
        N: for<'a> FormatFields<'a> + 'static,
    {
        fn format_event(
            &self,
            _: &FmtContext<'_, S, N>,
            mut writer: Writer<'_>,
            event: &Event<'_>,
        ) -> fmt::Result {
            let metadata = event.metadata();
            let millis = jiff::Timestamp::now().as_millisecond();
            let mut line = Line(Map::new());
            line.0.insert("ts".into(), json!(millis));
            line.0.insert("caller".into(), json!(metadata.target()));
            event.record(&mut line);
            let verbosity = match *metadata.level() {
                Level::ERROR | Level::WARN | Level::INFO => 0,
                Level::DEBUG => 4,
                Level::TRACE => 5,
            };
            // Only what is no error has one, with Kubernetes' components.
            if *metadata.level() != Level::ERROR {
                line.0.insert("v".into(), json!(verbosity));
            }
            writeln!(writer, "{}", Value::Object(line.0))
        }
    }

    struct Line(Map<String, Value>);

    impl Line {
        fn put(&mut self, field: &Field, value: Value) {
            let name = match field.name() {
                "message" => "msg",
                "error" => "err",
                name => name,
            };
            self.0.insert(name.to_owned(), value);
        }
    }

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            self.put(field, json!(format!("{value:?}")));
        }

        fn record_str(&mut self, field: &Field, value: &str) {
            self.put(field, json!(value));
        }

        fn record_bool(&mut self, field: &Field, value: bool) {
            self.put(field, json!(value));
        }

        fn record_i64(&mut self, field: &Field, value: i64) {
            self.put(field, json!(value));
        }

        fn record_u64(&mut self, field: &Field, value: u64) {
            self.put(field, json!(value));
        }
    }
}
