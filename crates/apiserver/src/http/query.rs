//! The parameters of a request.

use std::time::Duration;

use http::{Method, Uri};

use crate::kinds::KindInfo;
use crate::refusal::{Fault, FieldError, Refusal};
use crate::registry::Served as _;
use crate::schema::FieldValidation;
use crate::selector::{Fields, Labels};
use crate::store::Stored;
use crate::table::Include;

/// The longest name of who writes, in bytes.
const LONGEST_MANAGER: usize = 128;

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
    dry_run_texts: Vec<String>,
    field_validation_text: String,
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
            "limit" => {
                let limit: Option<i64> = number(&value)?;
                let limit = limit.and_then(|limit| usize::try_from(limit).ok());
                self.limit = limit.filter(|&limit| limit > 0);
            }
            "continue" => self.continue_token = value,
            "timeout" => self.timeout = duration(&value)?,
            "timeoutSeconds" => self.timeout_seconds = number(&value)?,
            "allowWatchBookmarks" => self.bookmarks = flag(&value),
            "sendInitialEvents" => self.initial_events = Some(flag(&value)),
            "dryRun" => self.dry_run_texts.push(value),
            "fieldManager" => self.field_manager = value,
            "fieldValidation" => self.field_validation_text = value,
            "force" => self.force = flag(&value),
            "gracePeriodSeconds" => self.grace = number(&value)?,
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
            "tailLines" => self.logs.tail_lines = number(&value)?,
            "limitBytes" => self.logs.limit_bytes = number(&value)?,
            "sinceSeconds" => self.logs.since_seconds = number(&value)?,
            "sinceTime" => self.logs.since_time = value,
            _ => {}
        }
        Ok(())
    }

    /// Takes over what only writes heed, or says what is wrong with it.
    pub(super) fn for_write(mut self, method: &Method) -> Result<Self, Refusal> {
        let subject = match *method {
            Method::POST => "CreateOptions.meta.k8s.io",
            Method::PUT => "UpdateOptions.meta.k8s.io",
            Method::PATCH => "PatchOptions.meta.k8s.io",
            _ => "DeleteOptions.meta.k8s.io",
        };
        let mut errors = Vec::new();
        self.dry_run_texts.retain(|text| !text.is_empty());
        self.dry_run = !self.dry_run_texts.is_empty();
        if self.dry_run_texts.iter().any(|text| text != "All") {
            let asked = self.dry_run_texts.clone().into();
            errors.push(FieldError::not_supported("dryRun", &asked, &["All"]));
        }
        let manager = self.field_manager.as_str();
        if manager.len() > LONGEST_MANAGER {
            let fault = Fault::TooLong(LONGEST_MANAGER);
            errors.push(FieldError::new("fieldManager", fault));
        }
        let hidden = manager
            .chars()
            .enumerate()
            .find(|(_, letter)| letter.is_control());
        if let Some((at, letter)) = hidden {
            let code = u32::from(letter);
            let detail = format!("invalid character U+{code:04X} (at position {at})");
            errors.push(FieldError::invalid("fieldManager", &manager.into(), detail));
        }
        match FieldValidation::parse(&self.field_validation_text) {
            Some(validation) => self.field_validation = validation,
            None => {
                let asked = self.field_validation_text.as_str().into();
                let supported = &["", "Ignore", "Strict", "Warn"];
                errors.push(FieldError::not_supported(
                    "fieldValidation",
                    &asked,
                    supported,
                ));
            }
        }
        if errors.is_empty() {
            Ok(self)
        } else {
            Err(Refusal::invalid_named(subject, &errors))
        }
    }

    /// The revision asked for; none for "the newest" and for "any".
    pub(super) fn revision(&self) -> Result<Option<u64>, Refusal> {
        match self.resource_version.as_str() {
            "" | "0" => Ok(None),
            text => text.parse().map(Some).map_err(|_| {
                Refusal::bad_request(format!(
                    "invalid resource version: resourceVersion: Invalid value: {text:?}: \
                         strconv.ParseUint: parsing {text:?}: invalid syntax"
                ))
            }),
        }
    }

    /// The revision to watch from, of which the original says otherwise that it is none.
    pub(super) fn watched_revision(&self) -> Result<Option<u64>, Refusal> {
        self.revision().map_err(|refusal| {
            let message = refusal.message;
            let bare = message.strip_prefix("invalid resource version: ");
            Refusal::unclassified(bare.unwrap_or(&message))
        })
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
        self.labels.match_pairs(|| object.meta.labels())
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

fn number<T: std::str::FromStr>(value: &str) -> Result<Option<T>, Refusal> {
    if value.is_empty() {
        return Ok(None);
    }
    // The words are those that clients know from the original.
    value.parse().map(Some).map_err(|_| {
        Refusal::bad_request(format!(
            "strconv.ParseInt: parsing {value:?}: invalid syntax"
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
