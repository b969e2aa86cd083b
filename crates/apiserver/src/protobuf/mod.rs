//! Kubernetes' protobuf encoding of objects, which Go's typed clients prefer.
//!
//! Objects are kept as JSON; this room turns them into protobuf and back. It knows field
//! numbers from one table (`numbers.txt`, read at first use) and nothing else of any kind.
//! An encoded object travels in an envelope that names its kind; a list holds its items
//! without one; a watch event holds an enveloped object in a frame with its length.

mod decode;
mod encode;
mod special;
mod table;
#[cfg(test)]
mod tests;
mod wire;

use serde_json::Value;

use crate::document::{DEEPEST, depth};
use crate::kinds::KindInfo;
use crate::registry::text;
use table::{Message, table};
use wire::{Take, Writer};

/// The media type of an object.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";
/// The media type of a watch.
pub(crate) const WATCH_TYPE: &str = "application/vnd.kubernetes.protobuf;stream=watch";

/// What an enveloped object starts with.
const MAGIC: &[u8] = b"k8s\0";

/// Why a body can't be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    #[error("the body doesn't start as an encoded object does")]
    Magic,
    #[error("the body is cut short or isn't protobuf")]
    Malformed,
    #[error("exceeded max depth: more than {DEEPEST} levels")]
    Deep,
    #[error("{0} can't be sent as protobuf to this server; send application/json")]
    Kind(String),
}

/// Whether objects of this kind can be encoded.
pub(crate) fn serves(kind: &KindInfo) -> bool {
    table().find(&kind.api_version(), kind.kind).is_some()
}

/// An object without its envelope; none if its kind has no encoding.
///
/// What the table has no place for is left out, as are values that aren't of the table's
/// type; [`crate::schema`] refused both when the object was written.
pub(crate) fn message(api_version: &str, kind: &str, object: &Value) -> Option<Vec<u8>> {
    let message = table().find(api_version, kind)?;
    Some(encode::message(message, object))
}

/// An object in its envelope; none if its kind has no encoding.
pub(crate) fn object(object: &Value) -> Option<Vec<u8>> {
    let (api_version, kind) = (text(object, "/apiVersion"), text(object, "/kind"));
    let raw = message(api_version, kind, object)?;
    Some(envelope(api_version, kind, &raw))
}

/// Puts an encoded object into its envelope.
pub(crate) fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
    let mut body = Writer::with_capacity(raw.len() + 64);
    open_envelope(&mut body, (api_version, kind), raw.len());
    body.raw(raw);
    body.raw(&ENVELOPE_END);
    body.finish()
}

fn open_envelope(body: &mut Writer, (api_version, kind): (&str, &str), length: usize) {
    body.raw(MAGIC);
    body.message(1, |identity| {
        identity.bytes(1, api_version.as_bytes());
        identity.bytes(2, kind.as_bytes());
    });
    body.announce(2, length);
}

/// What stands behind an enveloped object: encoding and content type of its bytes. Go's encoder
/// writes both, empty.
pub(crate) const ENVELOPE_END: [u8; 4] = [0x1a, 0, 0x22, 0];

/// An enveloped list up to its first item. The items' lengths are those of [`list_item`] together.
pub(crate) fn list_head(
    (api_version, kind): (&str, &str),
    metadata: &Value,
    items: usize,
) -> Vec<u8> {
    let mut list = Writer::default();
    let head = message("meta.k8s.io/v1", "ListMeta", metadata).unwrap_or_default();
    list.bytes(1, &head);
    let list = list.finish();
    let mut body = Writer::with_capacity(list.len() + 64);
    open_envelope(&mut body, (api_version, kind), list.len() + items);
    body.raw(&list);
    body.finish()
}

/// What stands before an item of a list.
pub(crate) fn list_item(length: usize) -> Vec<u8> {
    let mut item = Writer::with_capacity(6);
    item.announce(2, length);
    item.finish()
}

/// One event of a watch about an enveloped object.
pub(crate) fn event(sort: &str, object: &[u8]) -> Vec<u8> {
    let mut event = Writer::with_capacity(object.len() + 32);
    event.bytes(1, sort.as_bytes());
    event.message(2, |raw| raw.bytes(1, object));
    let event = event.finish();
    let mut frame = Vec::with_capacity(event.len() + 4);
    let length = u32::try_from(event.len()).unwrap_or(u32::MAX);
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&event);
    frame
}

/// Reads an enveloped object.
pub(crate) fn decode(body: &[u8]) -> Result<Value, DecodeError> {
    let mut rest = body.strip_prefix(MAGIC).ok_or(DecodeError::Magic)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    while let Some((number, value)) = wire::next(&mut rest)? {
        match (number, value) {
            (1, Take::Bytes(mut identity)) => {
                while let Some((number, value)) = wire::next(&mut identity)? {
                    match number {
                        1 => api_version = value.text()?,
                        2 => kind = value.text()?,
                        _ => {}
                    }
                }
            }
            (2, Take::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let message: &Message = table()
        .find(&api_version, &kind)
        .ok_or_else(|| DecodeError::Kind(format!("{kind} of {api_version}")))?;
    let mut object = decode::message(message, raw)?;
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    let object = Value::Object(object);
    // Some fields are JSON of their own.
    if depth(&object) > DEEPEST {
        return Err(DecodeError::Deep);
    }
    Ok(object)
}
