//! One object as it is kept: its JSON text and the few metadata the server itself needs.
//!
//! The text is the answer to a GET as it stands, so reads never serialize. Only the
//! writer knows an object's revision, so a [`Draft`] leaves a gap for it and the writer
//! fills the gap with a copy, without parsing. That copy is made as the line of a watch that tells
//! of the change, with the object's text within: one piece of memory, encoded once, is the answer
//! to a GET, the item of a list and the event of every watcher.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use serde_json::Value;

use super::meta::Meta;

/// An object ready to be written, but for its revision.
#[derive(Debug, Clone)]
pub struct Draft {
    json: Vec<u8>,
    gap: usize,
    meta: Meta,
}

/// An object at one revision. Immutable, and as small as can be: there are many.
#[derive(Debug)]
pub struct Stored {
    /// The revision that wrote it: its `metadata.resourceVersion`.
    pub revision: u64,
    /// What the server reads without parsing the text.
    pub meta: Meta,
    /// The JSON text, resourceVersion included; within the line of a watch if it has a sort.
    text: Box<[u8]>,
    /// Where the revision stands in the JSON text.
    gap: u32,
    /// How the text came to be.
    sort: Option<Sort>,
    /// The object in another encoding, made when first asked for.
    encoded: OnceLock<Box<Bytes>>,
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
            meta: Meta::of(object),
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
    meta: &'t Meta,
}

impl Text<'_> {
    fn at(&self, revision: u64) -> Stored {
        self.stored(revision, [b"", b"", b"", b""], None)
    }

    fn of_event(&self, sort: Sort, revision: u64) -> Stored {
        let [begin, name, between] = opening(sort);
        self.stored(revision, [begin, name, between, CLOSING], Some(sort))
    }

    fn stored(&self, revision: u64, around: [&[u8]; 4], sort: Option<Sort>) -> Stored {
        let [begin, name, between, end] = around;
        let digits = revision.to_string();
        let digits = digits.as_bytes();
        let text = [begin, name, between, self.head, digits, self.tail, end].concat();
        Stored {
            revision,
            meta: self.meta.clone(),
            text: text.into(),
            gap: u32::try_from(self.head.len()).unwrap_or(0),
            sort,
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
        let (json, gap) = (self.json(), self.gap as usize);
        Text {
            head: &json[..gap],
            tail: &json[gap + decimal_length(self.revision)..],
            meta: &self.meta,
        }
    }

    /// The JSON text, resourceVersion included.
    pub fn json(&self) -> &[u8] {
        &self.text[self.place()]
    }

    /// The JSON text as it lies in memory, for whoever sends it.
    pub fn shared_json(self: &Arc<Self>) -> Bytes {
        self.shared().slice(self.place())
    }

    /// Where the JSON text lies.
    fn place(&self) -> Range<usize> {
        match self.sort {
            None => 0..self.text.len(),
            Some(sort) => {
                let from = opening(sort).iter().map(|part| part.len()).sum();
                from..self.text.len() - CLOSING.len()
            }
        }
    }

    /// All of the memory, kept as long as somebody has it.
    fn shared(self: &Arc<Self>) -> Bytes {
        struct Owner(Arc<Stored>);
        impl AsRef<[u8]> for Owner {
            fn as_ref(&self) -> &[u8] {
                &self.0.text
            }
        }
        Bytes::from_owner(Owner(Arc::clone(self)))
    }

    /// The line of a watch that tells of a change of this sort to the object as it stands.
    pub fn line(self: &Arc<Self>, sort: Sort) -> Bytes {
        if self.sort == Some(sort) {
            self.shared()
        } else {
            line(sort.name(), self.json())
        }
    }

    /// The object in the encoding that `encode` makes, which is called once.
    pub fn encoded(&self, encode: impl FnOnce(&Value) -> Vec<u8>) -> Bytes {
        let encode = || Box::new(encode(&self.value()).into());
        Bytes::clone(self.encoded.get_or_init(encode))
    }

    /// Parses the text.
    pub fn value(&self) -> Value {
        serde_json::from_slice(self.json())
            .expect("the text was written by Draft or checked on load")
    }

    /// The record on disk: revision and gap as little-endian u64 and u32, then the text.
    pub(super) fn to_disk(&self) -> Vec<u8> {
        let json = self.json();
        let mut record = Vec::with_capacity(12 + json.len());
        record.extend_from_slice(&self.revision.to_le_bytes());
        record.extend_from_slice(&self.gap.to_le_bytes());
        record.extend_from_slice(json);
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
        let gap = u32::from_le_bytes(*gap);
        let at = gap as usize;
        let digits = json.get(at..at + decimal_length(revision));
        if digits != Some(revision.to_string().as_bytes()) {
            return Err(MalformedObject::Record);
        }
        // The whole text is parsed, so that damage is found here and not by a reader.
        let object: Value = serde_json::from_slice(json).map_err(MalformedObject::Json)?;
        Ok(Self {
            revision,
            meta: Meta::of(&object),
            text: json.into(),
            gap,
            sort: None,
            encoded: OnceLock::new(),
        })
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
