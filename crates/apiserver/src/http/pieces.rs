//! Lists, piece by piece.
//!
//! A list of ten thousand objects is megabytes. Made whole it would keep a worker busy while others
//! wait, and a client that reads slowly would keep all of it in memory; made as it is sent, a piece
//! is all there is of it.

use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::read::{META, PARTIAL_LIST, partial, partial_message};
use crate::kinds::KindInfo;
use crate::protobuf;
use crate::registry::Served as _;
use crate::store::Stored;
use crate::table;

/// From which length on a piece is sent.
pub(super) const PIECE: usize = 64 << 10;

/// Adds one object to a piece; told whether it is the first of all.
type Add = Box<dyn FnMut(&Stored, bool, &mut Vec<u8>) + Send>;

/// A list in some form.
pub(super) struct Pieces {
    objects: std::vec::IntoIter<Arc<Stored>>,
    add: Add,
    first: bool,
    /// What the next piece begins with; none when the end was told.
    begun: Option<Vec<u8>>,
    end: &'static [u8],
}

impl Pieces {
    fn new(head: Vec<u8>, objects: Vec<Arc<Stored>>, add: Add, end: &'static [u8]) -> Self {
        Self {
            objects: objects.into_iter(),
            add,
            first: true,
            begun: Some(head),
            end,
        }
    }

    /// The JSON of a list.
    pub(super) fn list(
        kind: &'static KindInfo,
        metadata: &Value,
        objects: Vec<Arc<Stored>>,
    ) -> Self {
        let api_version = kind.api_version();
        let (list, item) = (kind.list_kind, kind.kind);
        let head = format!(
            r#"{{"kind":"{list}","apiVersion":"{api_version}","metadata":{metadata},"items":["#
        );
        // What all items begin with, the list says for them; items of defined kinds say themselves
        // what they are.
        let item_head = format!(r#"{{"apiVersion":"{api_version}","kind":"{item}","#);
        let add = move |object: &Stored, first: bool, piece: &mut Vec<u8>| {
            separate(first, piece);
            if kind.custom.is_none() && !object.is_served_as_stored(kind) {
                let mut item = object.parsed(kind);
                if let Some(fields) = item.as_object_mut() {
                    fields.retain(|name, _| !matches!(name.as_str(), "apiVersion" | "kind"));
                }
                return piece.extend_from_slice(item.to_string().as_bytes());
            }
            let text = object.text(kind);
            let head = kind.custom.is_none().then_some(item_head.as_bytes());
            match head.and_then(|head| text.strip_prefix(head)) {
                Some(rest) => {
                    piece.push(b'{');
                    piece.extend_from_slice(rest);
                }
                None => piece.extend_from_slice(&text),
            }
        };
        Self::new(head.into(), objects, Box::new(add), b"]}")
    }

    /// The JSON of a list of metadata.
    pub(super) fn metadata(
        kind: &'static KindInfo,
        metadata: &Value,
        objects: Vec<Arc<Stored>>,
    ) -> Self {
        let head = format!(
            r#"{{"kind":"{PARTIAL_LIST}","apiVersion":"{META}","metadata":{metadata},"items":["#
        );
        let add = move |object: &Stored, first: bool, piece: &mut Vec<u8>| {
            separate(first, piece);
            piece.extend_from_slice(partial(&object.parsed(kind)).to_string().as_bytes());
        };
        Self::new(head.into(), objects, Box::new(add), b"]}")
    }

    /// The JSON of a table.
    pub(super) fn table(
        kind: &'static KindInfo,
        metadata: &Value,
        objects: Vec<Arc<Stored>>,
        (now, include): (Timestamp, table::Include),
    ) -> Self {
        let columns = json!(table::columns(kind));
        let head = format!(
            r#"{{"kind":"Table","apiVersion":"{META}","metadata":{metadata},"columnDefinitions":{columns},"rows":["#
        );
        let add = move |object: &Stored, first: bool, piece: &mut Vec<u8>| {
            separate(first, piece);
            let row = table::row(kind, &object.parsed(kind), now, include);
            piece.extend_from_slice(row.to_string().as_bytes());
        };
        Self::new(head.into(), objects, Box::new(add), b"]}")
    }

    /// A list in protobuf. How long it is stands at its beginning, so that all objects are
    /// encoded before; each keeps its encoding.
    pub(super) fn list_message(
        kind: &'static KindInfo,
        metadata: &Value,
        objects: Vec<Arc<Stored>>,
    ) -> Self {
        let identity = (&*kind.api_version(), kind.list_kind);
        let message = move |object: &Stored| object.message(kind);
        Self::messages(identity, metadata, objects, message)
    }

    /// A list of metadata in protobuf.
    pub(super) fn metadata_message(
        kind: &'static KindInfo,
        metadata: &Value,
        objects: Vec<Arc<Stored>>,
    ) -> Self {
        let message = move |object: &Stored| Bytes::from(partial_message(&object.parsed(kind)));
        Self::messages((META, PARTIAL_LIST), metadata, objects, message)
    }

    fn messages(
        identity: (&str, &str),
        metadata: &Value,
        objects: Vec<Arc<Stored>>,
        message: impl Fn(&Stored) -> Bytes + Send + 'static,
    ) -> Self {
        let length = |object: &Arc<Stored>| {
            let length = message(object).len();
            protobuf::list_item(length).len() + length
        };
        let length = objects.iter().map(length).sum();
        let head = protobuf::list_head(identity, metadata, length);
        let add = move |object: &Stored, _, piece: &mut Vec<u8>| {
            let message = message(object);
            piece.extend_from_slice(&protobuf::list_item(message.len()));
            piece.extend_from_slice(&message);
        };
        Self::new(head, objects, Box::new(add), &protobuf::ENVELOPE_END)
    }

    /// About how long all of it is.
    pub(super) fn size(&self) -> usize {
        self.objects
            .as_slice()
            .iter()
            .map(|object| object.json().len())
            .sum()
    }
}

fn separate(first: bool, piece: &mut Vec<u8>) {
    if !first {
        piece.push(b',');
    }
}

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut piece = self.begun.take()?;
        for object in self.objects.by_ref() {
            (self.add)(&object, std::mem::take(&mut self.first), &mut piece);
            if piece.len() >= PIECE {
                self.begun = Some(Vec::with_capacity(PIECE + PIECE / 8));
                return Some(piece.into());
            }
        }
        piece.extend_from_slice(self.end);
        Some(piece.into())
    }
}

/// Pieces, compressed.
pub(super) struct Zipped<P> {
    pieces: P,
    /// None when the end was told.
    encoder: Option<GzEncoder<Vec<u8>>>,
}

impl<P> Zipped<P> {
    pub(super) fn new(pieces: P) -> Self {
        let encoder = GzEncoder::new(Vec::new(), Compression::fast());
        Self {
            pieces,
            encoder: Some(encoder),
        }
    }
}

impl<P: Iterator<Item = Bytes>> Iterator for Zipped<P> {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        while let Some(encoder) = &mut self.encoder {
            let written = match self.pieces.next() {
                Some(piece) => {
                    let written = encoder.write_all(&piece);
                    written.map(|()| std::mem::take(encoder.get_mut()))
                }
                None => match self.encoder.take() {
                    Some(encoder) => encoder.finish(),
                    None => break,
                },
            };
            let compressed = written.expect("writing to memory doesn't fail");
            if !compressed.is_empty() {
                return Some(compressed.into());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::kinds;
    use crate::store::Draft;

    fn objects(count: usize, note: usize) -> Vec<Arc<Stored>> {
        let object = |n: usize| {
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": n.to_string() }, "data": { "note": "x".repeat(note) },
            });
            Arc::new(Draft::new(&object).at(n as u64 + 1))
        };
        (0..count).map(object).collect()
    }

    fn kind() -> &'static KindInfo {
        kinds::find("", "v1", "configmaps").unwrap()
    }

    fn meta() -> Value {
        json!({ "resourceVersion": "9" })
    }

    fn list(count: usize, note: usize) -> Pieces {
        Pieces::list(kind(), &meta(), objects(count, note))
    }

    #[test]
    fn the_pieces_of_a_list_are_the_list() {
        for (count, note) in [(0, 0), (1, 0), (3, PIECE), (500, 1000)] {
            let pieces: Vec<Bytes> = list(count, note).collect();
            assert!(pieces.iter().all(|piece| piece.len() < 2 * PIECE + 1024));
            let read: Value = serde_json::from_slice(&pieces.concat()).unwrap();
            assert_eq!(read["kind"], "ConfigMapList");
            let items = read["items"].as_array().unwrap();
            assert_eq!(items.len(), count);
            for (n, item) in items.iter().enumerate() {
                assert_eq!(item["metadata"]["name"], n.to_string());
                assert_eq!(item.get("kind"), None, "the list says what its items are");
            }
        }
    }

    #[test]
    fn the_pieces_of_a_table_are_the_table() {
        for count in [0, 1, 500] {
            let (now, include) = (Timestamp::UNIX_EPOCH, table::Include::Object);
            let objects = objects(count, 1000);
            let values: Vec<Value> = objects.iter().map(|object| object.value()).collect();
            let values: Vec<&Value> = values.iter().collect();
            let mut whole = table::render(kind(), &values, now, include);
            whole["metadata"] = meta();
            let pieces: Vec<Bytes> =
                Pieces::table(kind(), &meta(), objects, (now, include)).collect();
            assert_eq!(pieces.len() > 1, count == 500);
            let read: Value = serde_json::from_slice(&pieces.concat()).unwrap();
            assert_eq!(read, whole);
        }
    }

    #[test]
    fn the_pieces_of_a_list_in_protobuf_are_the_list() {
        for (count, note) in [(0, 0), (1, 200), (500, 1000)] {
            let pieces: Vec<Bytes> =
                Pieces::list_message(kind(), &meta(), objects(count, note)).collect();
            assert_eq!(pieces.len() > 1, count == 500);
            let body = pieces.concat();
            assert!(body.ends_with(&protobuf::ENVELOPE_END));
            let notes = body.windows(4).filter(|window| window == b"note");
            assert_eq!(notes.count(), count);
            let pieces: Vec<Bytes> =
                Pieces::metadata_message(kind(), &meta(), objects(count, note)).collect();
            assert!(pieces.concat().ends_with(&protobuf::ENVELOPE_END));
        }
    }

    #[test]
    fn a_compressed_list_is_the_list() {
        let plain: Vec<Bytes> = list(500, 1000).collect();
        let pieces: Vec<Bytes> = Zipped::new(list(500, 1000)).collect();
        assert!(
            pieces.iter().all(|piece| !piece.is_empty()),
            "an empty one would end the body"
        );
        let mut read = Vec::new();
        let zipped = pieces.concat();
        flate2::read::GzDecoder::new(&*zipped)
            .read_to_end(&mut read)
            .unwrap();
        assert_eq!(read, plain.concat());
    }
}
