//! One object as it is kept: its JSON text and the few metadata the server itself needs.
//!
//! The text is the answer to a GET as it stands, so reads never serialize. Only the
//! writer knows an object's revision, so a [`Draft`] leaves a gap for it and the writer
//! fills the gap with a copy, without parsing. That copy is made as the line of a watch that tells
//! of the change, with the object's text within: one piece of memory, encoded once, is the answer
//! to a GET, the item of a list and the event of every watcher.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;

/// The metadata kept in parsed form beside the text.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// `metadata.labels`, sorted by key.
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// The uids of `metadata.ownerReferences`.
    pub owners: Box<[Box<str>]>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
}

/// An object ready to be written, but for its revision.
#[derive(Debug, Clone)]
pub struct Draft {
    json: Vec<u8>,
    gap: usize,
    meta: Arc<Meta>,
}

/// An object at one revision. Immutable.
#[derive(Debug)]
pub struct Stored {
    /// The revision that wrote it: its `metadata.resourceVersion`.
    pub revision: u64,
    /// The JSON text, resourceVersion included.
    pub json: Bytes,
    /// What the server reads without parsing the text.
    pub meta: Arc<Meta>,
    gap: usize,
    /// How the text came to be, and the line of a watch that tells so, around the text.
    line: Option<(Sort, Bytes)>,
    /// The object in another encoding, made when first asked for.
    encoded: OnceLock<Bytes>,
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// It was not there before.
    Added,
    /// It was there before.
    Modified,
    /// It is gone.
    Deleted,
}

impl Sort {
    /// The `type` of a watch event.
    pub fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// The text of a stored object isn't the JSON of a Kubernetes object.
#[derive(Debug, thiserror::Error)]
pub enum MalformedObject {
    /// The text doesn't parse.
    #[error("the stored text is not the JSON of an object")]
    Json(#[source] serde_json::Error),
    /// The header is too short or points outside of the text.
    #[error("the stored record is cut short")]
    Record,
}

impl Draft {
    /// How many bytes of text it has, its revision aside.
    pub(crate) fn len(&self) -> usize {
        self.json.len()
    }

    /// Serializes an object. Its `metadata.resourceVersion`, if any, is left out.
    pub fn new(object: &Value) -> Self {
        let mut json = Vec::with_capacity(1024);
        let mut gap = None;
        json.push(b'{');
        let empty = serde_json::Map::new();
        let fields = object.as_object().unwrap_or(&empty);
        if !fields.contains_key("metadata") {
            gap = Some(write_metadata(&mut json, &empty));
        }
        // What it is comes first, so that a list can leave it out.
        let named = |name: &&str| fields.contains_key(*name);
        let first = ["apiVersion", "kind"].into_iter().filter(named);
        let rest = fields.keys().map(String::as_str);
        let rest = rest.filter(|name| !matches!(*name, "apiVersion" | "kind"));
        for name in first.chain(rest) {
            let value = &fields[name];
            if json.len() > 1 {
                json.push(b',');
            }
            if name == "metadata" {
                gap = Some(write_metadata(
                    &mut json,
                    value.as_object().unwrap_or(&empty),
                ));
            } else {
                write_field(&mut json, name, value);
            }
        }
        json.push(b'}');
        Self {
            json,
            gap: gap.unwrap_or(1),
            meta: Arc::new(Meta::of(object)),
        }
    }

    /// The parsed metadata.
    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// Fills in the revision.
    pub fn at(&self, revision: u64) -> Stored {
        let text = Text {
            head: &self.json[..self.gap],
            tail: &self.json[self.gap..],
            meta: &self.meta,
        };
        text.at(revision)
    }

    /// Fills in the revision, for a change of this sort.
    pub(super) fn become_event(&self, sort: Sort, revision: u64) -> Stored {
        let text = Text {
            head: &self.json[..self.gap],
            tail: &self.json[self.gap..],
            meta: &self.meta,
        };
        text.of_event(sort, revision)
    }
}

/// A text around the gap for its revision.
struct Text<'t> {
    head: &'t [u8],
    tail: &'t [u8],
    meta: &'t Arc<Meta>,
}

impl Text<'_> {
    fn at(&self, revision: u64) -> Stored {
        let digits = revision.to_string();
        self.stored(revision, self.around(&digits, [b"", b"", b""], b""), None)
    }

    fn of_event(&self, sort: Sort, revision: u64) -> Stored {
        let digits = revision.to_string();
        let [begin, name, between] = opening(sort);
        let line = self.around(&digits, [begin, name, between], CLOSING);
        let from = begin.len() + name.len() + between.len();
        let json = line.slice(from..line.len() - CLOSING.len());
        self.stored(revision, json, Some((sort, line)))
    }

    fn around(&self, digits: &str, before: [&[u8]; 3], after: &[u8]) -> Bytes {
        let [begin, name, between] = before;
        [
            begin,
            name,
            between,
            self.head,
            digits.as_bytes(),
            self.tail,
            after,
        ]
        .concat()
        .into()
    }

    fn stored(&self, revision: u64, json: Bytes, line: Option<(Sort, Bytes)>) -> Stored {
        Stored {
            revision,
            json,
            meta: Arc::clone(self.meta),
            gap: self.head.len(),
            line,
            encoded: OnceLock::new(),
        }
    }
}

/// What stands before an object in the line of a watch.
fn opening(sort: Sort) -> [&'static [u8]; 3] {
    [br#"{"type":""#, sort.name().as_bytes(), br#"","object":"#]
}

/// What stands behind it.
const CLOSING: &[u8] = b"}\n";

/// The line of a watch around an object's text.
pub(crate) fn line(sort: &str, object: &[u8]) -> Bytes {
    let [begin, _, between] = opening(Sort::Added);
    [begin, sort.as_bytes(), between, object, CLOSING]
        .concat()
        .into()
}

impl Stored {
    /// The same object under another revision: what a DELETED event carries.
    pub(crate) fn at(&self, revision: u64) -> Stored {
        self.around_gap().at(revision)
    }

    /// The same, for a change of this sort.
    pub(super) fn become_event(&self, sort: Sort, revision: u64) -> Stored {
        self.around_gap().of_event(sort, revision)
    }

    fn around_gap(&self) -> Text<'_> {
        let after = self.gap + decimal_length(self.revision);
        Text {
            head: &self.json[..self.gap],
            tail: &self.json[after..],
            meta: &self.meta,
        }
    }

    /// The line of a watch that tells of a change of this sort to the object as it stands.
    pub fn line(&self, sort: Sort) -> Bytes {
        match &self.line {
            Some((ours, line)) if *ours == sort => line.clone(),
            _ => line(sort.name(), &self.json),
        }
    }

    /// The object in the encoding that `encode` makes, which is called once.
    pub fn encoded(&self, encode: impl FnOnce(&Value) -> Vec<u8>) -> Bytes {
        let encoded = self.encoded.get_or_init(|| encode(&self.value()).into());
        encoded.clone()
    }

    /// Parses the text.
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.json)
            .expect("the text was written by Draft or checked on load")
    }

    /// The record on disk: revision and gap as little-endian u64 and u32, then the text.
    pub(super) fn to_disk(&self) -> Vec<u8> {
        let mut record = Vec::with_capacity(12 + self.json.len());
        record.extend_from_slice(&self.revision.to_le_bytes());
        record.extend_from_slice(&u32::try_from(self.gap).unwrap_or(0).to_le_bytes());
        record.extend_from_slice(&self.json);
        record
    }

    pub(super) fn from_disk(record: &[u8]) -> Result<Self, MalformedObject> {
        let (revision, rest) = record
            .split_first_chunk::<8>()
            .ok_or(MalformedObject::Record)?;
        let (gap, json) = rest
            .split_first_chunk::<4>()
            .ok_or(MalformedObject::Record)?;
        let revision = u64::from_le_bytes(*revision);
        let gap = u32::from_le_bytes(*gap) as usize;
        let digits = json.get(gap..gap + decimal_length(revision));
        if digits != Some(revision.to_string().as_bytes()) {
            return Err(MalformedObject::Record);
        }
        // The whole text is parsed, so that damage is found here and not by a reader.
        let object: Value = serde_json::from_slice(json).map_err(MalformedObject::Json)?;
        let meta = Arc::new(Meta::of(&object));
        Ok(Self {
            revision,
            json: Bytes::copy_from_slice(json),
            meta,
            gap,
            line: None,
            encoded: OnceLock::new(),
        })
    }
}

impl Meta {
    fn of(object: &Value) -> Self {
        let metadata = &object["metadata"];
        let labels = metadata["labels"].as_object().map(|labels| {
            let pairs = labels.iter();
            let pair = |(key, value): (&String, &Value)| {
                (key.as_str().into(), value.as_str().unwrap_or("").into())
            };
            let mut pairs: Vec<(Box<str>, Box<str>)> = pairs.map(pair).collect();
            pairs.sort_unstable();
            pairs.into()
        });
        let owners = metadata["ownerReferences"].as_array().map(|owners| {
            owners
                .iter()
                .filter_map(|owner| owner["uid"].as_str())
                .map(Into::into)
                .collect()
        });
        Self {
            uid: metadata["uid"].as_str().unwrap_or("").into(),
            labels: labels.unwrap_or_default(),
            owners: owners.unwrap_or_default(),
            deleting: metadata["deletionTimestamp"].is_string(),
        }
    }
}

fn write_metadata(json: &mut Vec<u8>, metadata: &serde_json::Map<String, Value>) -> usize {
    json.extend_from_slice(br#""metadata":{"resourceVersion":""#);
    let gap = json.len();
    json.push(b'"');
    for (name, value) in metadata
        .iter()
        .filter(|(name, _)| *name != "resourceVersion")
    {
        json.push(b',');
        write_field(json, name, value);
    }
    json.push(b'}');
    gap
}

fn write_field(json: &mut Vec<u8>, name: &str, value: &Value) {
    serde_json::to_writer(&mut *json, name).expect("writing to memory doesn't fail");
    json.push(b':');
    serde_json::to_writer(&mut *json, value).expect("a Value has string keys only");
}

fn decimal_length(number: u64) -> usize {
    number
        .checked_ilog10()
        .map_or(1, |digits| digits as usize + 1)
}
