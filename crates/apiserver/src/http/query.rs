//! The parameters of a request.

use std::time::Duration;

use http::Uri;

use crate::kinds::KindInfo;
use crate::refusal::Refusal;
use crate::registry::Served as _;
use crate::schema::FieldValidation;
use crate::selector::{Fields, Labels};
use crate::store::Stored;
use crate::table::Include;

/// All parameters that any request understands. Unknown ones are ignored, as the original does.
#[derive(Debug, Clone, Default)]
pub(super) struct Query {
    pub(super) watch: bool,
    pub(super) label_selector: String,
    pub(super) field_selector: String,
    pub(super) resource_version: String,
    pub(super) resource_version_match: String,
    pub(super) limit: Option<usize>,
    pub(super) continue_token: String,
    pub(super) timeout_seconds: Option<u64>,
    /// How long the client waits for an answer.
    pub(super) timeout: Option<Duration>,
    pub(super) bookmarks: bool,
    pub(super) initial_events: Option<bool>,
    pub(super) dry_run: bool,
    pub(super) field_manager: String,
    pub(super) field_validation: FieldValidation,
    pub(super) force: bool,
    pub(super) grace: Option<i64>,
    pub(super) propagation: String,
    pub(super) orphan_dependents: bool,
    pub(super) include: Include,
    pub(super) logs: LogQuery,
}

/// The parameters of `pods/log`.
#[derive(Debug, Clone, Default)]
pub(super) struct LogQuery {
    pub(super) container: String,
    pub(super) follow: bool,
    pub(super) previous: bool,
    pub(super) timestamps: bool,
    pub(super) tail_lines: Option<u64>,
    pub(super) limit_bytes: Option<u64>,
    pub(super) since_seconds: Option<u64>,
    pub(super) since_time: String,
}

impl Query {
    pub(super) fn parse(uri: &Uri) -> Result<Self, Refusal> {
        let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|error| Refusal::bad_request(error.to_string()))?;
        let mut query = Self::default();
        for (name, value) in pairs.0 {
            query.set(&name, value)?;
        }
        Ok(query)
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), Refusal> {
        match name {
            "watch" => self.watch = flag(&value),
            "labelSelector" => self.label_selector = value,
            "fieldSelector" => self.field_selector = value,
            "resourceVersion" => self.resource_version = value,
            "resourceVersionMatch" => self.resource_version_match = value,
            "limit" => self.limit = number(name, &value)?.filter(|&limit| limit > 0),
            "continue" => self.continue_token = value,
            "timeout" => self.timeout = duration(&value)?,
            "timeoutSeconds" => self.timeout_seconds = number(name, &value)?,
            "allowWatchBookmarks" => self.bookmarks = flag(&value),
            "sendInitialEvents" => self.initial_events = Some(flag(&value)),
            "dryRun" => self.dry_run = dry_run(&value)?,
            "fieldManager" => self.field_manager = value,
            "fieldValidation" => {
                self.field_validation = FieldValidation::parse(&value).ok_or_else(|| {
                    Refusal::bad_request(format!(
                        "fieldValidation: Unsupported value: {value:?}: supported values: \
                         \"Ignore\", \"Strict\", \"Warn\""
                    ))
                })?;
            }
            "force" => self.force = flag(&value),
            "gracePeriodSeconds" => self.grace = number(name, &value)?,
            "propagationPolicy" => self.propagation = value,
            "orphanDependents" => self.orphan_dependents = flag(&value),
            "includeObject" => {
                self.include = match value.as_str() {
                    "None" => Include::None,
                    "Object" => Include::Object,
                    _ => Include::Metadata,
                };
            }
            "container" => self.logs.container = value,
            "follow" => self.logs.follow = flag(&value),
            "previous" => self.logs.previous = flag(&value),
            "timestamps" => self.logs.timestamps = flag(&value),
            "tailLines" => self.logs.tail_lines = number(name, &value)?,
            "limitBytes" => self.logs.limit_bytes = number(name, &value)?,
            "sinceSeconds" => self.logs.since_seconds = number(name, &value)?,
            "sinceTime" => self.logs.since_time = value,
            _ => {}
        }
        Ok(())
    }

    /// The revision asked for; none for "the newest" and for "any".
    pub(super) fn revision(&self) -> Result<Option<u64>, Refusal> {
        match self.resource_version.as_str() {
            "" | "0" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| Refusal::bad_request(format!("invalid resource version: \"{text}\""))),
        }
    }

    pub(super) fn selection(&self, kind: &'static KindInfo) -> Result<Selection, Refusal> {
        let refuse = |error: &dyn std::fmt::Display| Refusal::bad_request(error.to_string());
        Ok(Selection {
            kind,
            labels: Labels::parse(&self.label_selector).map_err(|error| refuse(&error))?,
            fields: Fields::parse(kind, &self.field_selector).map_err(|error| refuse(&error))?,
        })
    }
}

/// Which objects of a kind a request is about.
#[derive(Debug, Clone)]
pub(super) struct Selection {
    kind: &'static KindInfo,
    labels: Labels,
    fields: Fields,
}

impl Selection {
    pub(super) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(super) fn matches(&self, object: &Stored) -> bool {
        if self.is_everything() {
            return true;
        }
        // The labels are at hand; the rest has to be parsed.
        self.labels.match_pairs(&object.meta.labels)
            && (self.fields.is_empty() || self.fields.matches(&object.parsed(self.kind)))
    }

    /// The name of the one object in question, if there is one.
    pub(super) fn name(&self) -> Option<&str> {
        self.fields.pinned("metadata.name")
    }
}

fn flag(value: &str) -> bool {
    !matches!(value.to_ascii_lowercase().as_str(), "false" | "0")
}

fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<Option<T>, Refusal> {
    if value.is_empty() {
        return Ok(None);
    }
    value.parse().map(Some).map_err(|_| {
        Refusal::bad_request(format!(
            "parameter {name}: \"{value}\" is not a valid number"
        ))
    })
}

/// A time as Go writes it, such as `1m30s`; none says nothing.
fn duration(text: &str) -> Result<Option<Duration>, Refusal> {
    const UNITS: [(&str, f64); 7] = [
        ("ns", 1e-9),
        ("us", 1e-6),
        ("µs", 1e-6),
        ("ms", 1e-3),
        ("s", 1.0),
        ("m", 60.0),
        ("h", 3600.0),
    ];
    let parse = || {
        let mut seconds = 0.0;
        let mut rest = text.strip_prefix('+').unwrap_or(text);
        while !rest.is_empty() {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
            let (amount, after) = rest.split_at(end);
            let end = after.find(|c: char| c.is_ascii_digit() || c == '.');
            let (unit, after) = after.split_at(end.unwrap_or(after.len()));
            let (_, size) = UNITS.iter().find(|(name, _)| *name == unit)?;
            seconds += amount.parse::<f64>().ok()? * size;
            rest = after;
        }
        Duration::try_from_secs_f64(seconds).ok()
    };
    match text {
        "" | "0" => Ok(None),
        _ => match parse() {
            Some(Duration::ZERO) => Ok(None),
            Some(duration) => Ok(Some(duration)),
            None => Err(Refusal::bad_request(format!(
                "invalid timeout specified in the request URL - time: invalid duration {text:?}"
            ))),
        },
    }
}

fn dry_run(value: &str) -> Result<bool, Refusal> {
    match value {
        "" => Ok(false),
        "All" => Ok(true),
        other => Err(Refusal::bad_request(format!(
            "dryRun: Unsupported value: \"{other}\": supported values: \"All\""
        ))),
    }
}
