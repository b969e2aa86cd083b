//! The text of a list, piece by piece.
//!
//! A list of ten thousand objects is megabytes. Made whole it would keep a worker busy while others
//! wait, and a client that reads slowly would keep all of it in memory; made as it is sent, a piece
//! is all there is of it.

use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

use crate::kinds::KindInfo;
use crate::registry::Served as _;
use crate::store::Stored;

/// From which length on a piece is sent.
pub(super) const PIECE: usize = 64 << 10;

/// The JSON of a list.
pub(super) struct ListText {
    kind: &'static KindInfo,
    /// What all items begin with, if the list says it for them.
    item_head: Option<Vec<u8>>,
    objects: std::vec::IntoIter<Arc<Stored>>,
    /// What the next piece begins with; none when the end was told.
    begun: Option<Vec<u8>>,
    first: bool,
}

impl ListText {
    pub(super) fn new(
        kind: &'static KindInfo,
        metadata: &Value,
        objects: Vec<Arc<Stored>>,
    ) -> Self {
        let api_version = kind.api_version();
        let (list, item) = (kind.list_kind, kind.kind);
        let head = format!(
            r#"{{"kind":"{list}","apiVersion":"{api_version}","metadata":{metadata},"items":["#
        );
        let item_head = format!(r#"{{"apiVersion":"{api_version}","kind":"{item}","#);
        Self {
            kind,
            // Items of defined kinds say themselves what they are.
            item_head: kind.custom.is_none().then(|| item_head.into()),
            objects: objects.into_iter(),
            begun: Some(head.into()),
            first: true,
        }
    }

    /// About how long all of it is.
    pub(super) fn size(&self) -> usize {
        self.objects
            .as_slice()
            .iter()
            .map(|object| object.json.len())
            .sum()
    }
}

impl Iterator for ListText {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut piece = self.begun.take()?;
        for object in self.objects.by_ref() {
            if !std::mem::take(&mut self.first) {
                piece.push(b',');
            }
            let text = object.text(self.kind);
            let head = self.item_head.as_deref();
            match head.and_then(|head| text.strip_prefix(head)) {
                Some(rest) => {
                    piece.push(b'{');
                    piece.extend_from_slice(rest);
                }
                None => piece.extend_from_slice(&text),
            }
            if piece.len() >= PIECE {
                self.begun = Some(Vec::with_capacity(PIECE + PIECE / 8));
                return Some(piece.into());
            }
        }
        piece.extend_from_slice(b"]}");
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

    use serde_json::json;

    use super::*;
    use crate::kinds;
    use crate::store::Draft;

    fn list(count: usize, note: usize) -> ListText {
        let kind = kinds::find("", "v1", "configmaps").unwrap();
        let object = |n: usize| {
            let object = json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": n.to_string() }, "data": { "note": "x".repeat(note) },
            });
            Arc::new(Draft::new(&object).at(n as u64 + 1))
        };
        let objects = (0..count).map(object).collect();
        ListText::new(kind, &json!({ "resourceVersion": "9" }), objects)
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
