//! GET of an object and of a collection.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, Response, StatusCode};
use serde_json::{Value, json};

use super::negotiate::{Answer, Encoding, Form};
use super::pieces::Pieces;
use super::query::{Query, Selection};
use super::{Api, reply};
use crate::kinds::KindInfo;
use crate::protobuf;
use crate::refusal::{FieldError, Refusal};
use crate::registry::{Served as _, Target, resource_of, text};
use crate::store::{Expired, Place, Stored, Wanted};
use crate::table;

/// How long a reader waits for a revision that this server hasn't reached.
const FRESHNESS_PATIENCE: Duration = Duration::from_secs(3);

pub(super) const META: &str = "meta.k8s.io/v1";
const PARTIAL: &str = "PartialObjectMetadata";
pub(super) const PARTIAL_LIST: &str = "PartialObjectMetadataList";

/// Some objects of a kind at one revision.
pub(super) struct Page {
    pub(super) revision: u64,
    pub(super) objects: Vec<Arc<Stored>>,
    next: Option<String>,
    remaining: Option<usize>,
}

impl Api {
    pub(super) async fn get(
        &self,
        target: &Target,
        query: &Query,
        answer: Answer,
    ) -> Result<Response<Body>, Refusal> {
        self.await_revision(query.revision()?).await?;
        let object = self.registry.store.get(&target.key());
        let object = object.ok_or_else(|| Refusal::not_found(target.kind, &target.name))?;
        let body = self.render(target.kind, answer, query, &object);
        let content_type = answer.encoding.content_type();
        Ok(reply::with_type(StatusCode::OK, content_type, body))
    }

    /// An object in the form and encoding asked for.
    pub(super) fn render(
        &self,
        kind: &KindInfo,
        Answer { form, encoding }: Answer,
        query: &Query,
        object: &Arc<Stored>,
    ) -> bytes::Bytes {
        match form {
            Form::Object => match encoding {
                Encoding::Json => object.shared_text(kind),
                Encoding::Protobuf => {
                    let message = object.message(kind);
                    protobuf::envelope(&kind.api_version(), kind.kind, &message).into()
                }
            },
            Form::Table => {
                let value = object.parsed(kind);
                let now = self.registry.clock.now();
                let mut table = table::render(kind, &[&value], now, query.include);
                table["metadata"]["resourceVersion"] = object.revision.to_string().into();
                table.to_string().into()
            }
            Form::Metadata => match encoding {
                Encoding::Json => partial(&object.parsed(kind)).to_string().into(),
                Encoding::Protobuf => {
                    let message = partial_message(&object.parsed(kind));
                    protobuf::envelope(META, PARTIAL, &message).into()
                }
            },
        }
    }

    pub(super) async fn list(
        &self,
        (kind, namespace): (&'static KindInfo, &str),
        query: &Query,
        answer: Answer,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, Refusal> {
        let selection = query.selection(kind)?;
        let page = self.page((kind, namespace), query, &selection).await?;
        let mut metadata = json!({ "resourceVersion": page.revision.to_string() });
        if let Some(next) = &page.next {
            metadata["continue"] = next.as_str().into();
        }
        if let Some(remaining) = page.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        if answer.form == Form::Object && kind.custom.is_some() && page.next.is_none() {
            metadata["continue"] = "".into();
        }
        let objects = page.objects;
        let pieces = match (answer.form, answer.encoding) {
            (Form::Object, Encoding::Json) => Pieces::list(kind, &metadata, objects),
            (Form::Object, Encoding::Protobuf) => Pieces::list_message(kind, &metadata, objects),
            (Form::Table, _) => {
                let how = (self.registry.clock.now(), query.include);
                Pieces::table(kind, &metadata, objects, how)
            }
            (Form::Metadata, Encoding::Json) => Pieces::metadata(kind, &metadata, objects),
            (Form::Metadata, Encoding::Protobuf) => {
                Pieces::metadata_message(kind, &metadata, objects)
            }
        };
        let content_type = answer.encoding.content_type();
        Ok(reply::pieces(headers, content_type, pieces))
    }

    /// The objects that a list is about.
    pub(super) async fn page(
        &self,
        (kind, namespace): (&'static KindInfo, &str),
        query: &Query,
        selection: &Selection,
    ) -> Result<Page, Refusal> {
        let resource = resource_of(kind);
        let namespace = (!namespace.is_empty()).then_some(namespace);
        let asked = query.revision()?;
        let (at, after) = if query.continue_token.is_empty() {
            check_match(query, asked)?;
            self.await_revision(asked).await?;
            let exact = query.resource_version_match == "Exact";
            (asked.filter(|_| exact), None)
        } else {
            let (revision, after) = parse_continue(&query.continue_token)?;
            if asked.is_some() {
                let why = "specifying resource version is not allowed when using continue";
                return Err(Refusal::bad_request(why));
            }
            (Some(revision), Some(after))
        };
        let limit = query.limit.unwrap_or(usize::MAX);
        let state = self.registry.store.read();
        let revision = at.unwrap_or(state.revision());
        let wanted = Wanted {
            namespace,
            revision,
            after: after
                .as_ref()
                .map(|(namespace, name)| (&**namespace, &**name)),
            // What is selected is found out below, when the store isn't held up any more.
            limit: if selection.is_everything() {
                limit
            } else {
                usize::MAX
            },
        };
        let found = state.page(&resource, &wanted);
        drop(state);
        let found = found.map_err(|expired| list_expired(expired, &query.continue_token))?;
        let mut last = None;
        let mut objects = Vec::with_capacity(found.objects.len().min(limit));
        let mut rest = found
            .objects
            .into_iter()
            .filter(|(_, object)| selection.matches(object));
        for (place, object) in rest.by_ref().take(limit) {
            last = Some(place);
            objects.push(object);
        }
        let more = found.remaining > 0 || rest.next().is_some();
        let next = last
            .filter(|_| more)
            .map(|last| continue_token(revision, &last));
        Ok(Page {
            revision,
            objects,
            // How many of those that follow are selected isn't known.
            remaining: next
                .as_ref()
                .filter(|_| selection.is_everything())
                .map(|_| found.remaining),
            next,
        })
    }

    /// Waits for a revision that this server hasn't reached yet.
    pub(super) async fn await_revision(&self, asked: Option<u64>) -> Result<(), Refusal> {
        let Some(asked) = asked else { return Ok(()) };
        let mut revisions = self.registry.store.revisions();
        let reached = revisions.wait_for(|revision| *revision >= asked);
        match tokio::time::timeout(FRESHNESS_PATIENCE, reached).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err(Refusal::too_new(
                asked,
                self.registry.store.read().revision(),
            )),
        }
    }
}

fn check_match(query: &Query, asked: Option<u64>) -> Result<(), Refusal> {
    let field = "resourceVersionMatch";
    let refuse = |error| Err(Refusal::invalid_named("ListOptions.meta.k8s.io", &[error]));
    match query.resource_version_match.as_str() {
        "Exact" | "NotOlderThan" if query.resource_version.is_empty() => {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            refuse(FieldError::forbidden(field, why))
        }
        "Exact" if asked.is_none() => {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            refuse(FieldError::forbidden(field, why))
        }
        "" | "Exact" | "NotOlderThan" => Ok(()),
        other => refuse(FieldError::not_supported(
            field,
            &other.into(),
            &["Exact", "NotOlderThan", ""],
        )),
    }
}

/// The metadata of an object, as an object of their own.
pub(super) fn partial(object: &Value) -> Value {
    json!({
        "kind": PARTIAL,
        "apiVersion": META,
        "metadata": object["metadata"],
    })
}

pub(super) fn partial_message(object: &Value) -> Vec<u8> {
    protobuf::message(META, PARTIAL, object).unwrap_or_default()
}

/// The form of continue tokens.
const TOKEN_VERSION: &str = "meta.k8s.io/v1";

fn continue_token(revision: u64, (namespace, name): &Place) -> String {
    let start = [namespace, name];
    let token = json!({ "v": TOKEN_VERSION, "rv": revision, "start": start });
    URL_SAFE_NO_PAD.encode(token.to_string())
}

fn parse_continue(token: &str) -> Result<(u64, Place), Refusal> {
    let parse = || {
        let token = URL_SAFE_NO_PAD
            .decode(token)
            .map_err(|_| "illegal base64 data".to_owned())?;
        let token: Value = serde_json::from_slice(&token).map_err(|_| {
            let first = char::from(token.first().copied().unwrap_or(b' '));
            format!("invalid character {first:?} looking for beginning of value")
        })?;
        let version = text(&token, "/v");
        if version != TOKEN_VERSION {
            return Err(format!(
                "server does not recognize this encoded version {version}"
            ));
        }
        let start = &token["start"];
        match (start[0].as_str(), start[1].as_str(), token["rv"].as_u64()) {
            (Some(namespace), Some(name), Some(revision)) => {
                Ok((revision, (namespace.into(), name.into())))
            }
            _ => Err("it names no object".to_owned()),
        }
    };
    parse().map_err(|why| {
        Refusal::bad_request(format!(
            "invalid continue token: continue key is not valid: {why}"
        ))
    })
}

fn list_expired(expired: Expired, continue_token: &str) -> Refusal {
    if continue_token.is_empty() {
        return Refusal::expired(format!(
            "The resourceVersion for the provided list is too old: {} ({})",
            expired.asked, expired.oldest
        ));
    }
    Refusal::expired(
        "The provided continue parameter is too old to display a consistent list result. You \
         must start a new list without the continue parameter.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_continue_token_is_refused_or_says_what_it_said() {
        let token = continue_token(7, &("default".into(), "a".into()));
        let other = URL_SAFE_NO_PAD.encode(r#"{"v":"meta.k8s.io/v1","rv":1,"start":["","x"]}"#);
        let corpus: &[&[u8]] = &[token.as_bytes(), other.as_bytes()];
        crate::fuzz::run("continue tokens", corpus, |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else {
                return;
            };
            if let Ok((revision, place)) = parse_continue(text) {
                let again = continue_token(revision, &place);
                let (then, there) = parse_continue(&again).expect("ours");
                assert_eq!((then, there), (revision, place));
            }
        });
        let (revision, place) = parse_continue(&token).expect("ours");
        assert_eq!((revision, place), (7, ("default".into(), "a".into())));
    }
}
