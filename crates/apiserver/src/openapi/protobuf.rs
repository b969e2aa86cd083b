//! The v2 document in the protobuf form of gnostic's `OpenAPIv2.proto`.
//!
//! Go clients ask for v2 in no other form. They need definitions only, so only
//! the messages that those are made of are written.

use serde_json::{Map, Value};

/// Encodes a document made by `super::v2`.
pub(super) fn document(document: &Value) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, document["swagger"].as_str());
    let mut info = Message::default();
    info.text(1, document["info"]["title"].as_str());
    info.text(2, document["info"]["version"].as_str());
    out.message(2, &info);
    out.message(8, &Message::default());
    out.message(9, &named_schemas(document["definitions"].as_object()));
    out.bytes
}

fn named_schemas(schemas: Option<&Map<String, Value>>) -> Message {
    let mut out = Message::default();
    for (name, value) in schemas.into_iter().flatten() {
        let mut named = Message::default();
        named.text(1, Some(name));
        named.message(2, &schema(value));
        out.message(1, &named);
    }
    out
}

fn schema(value: &Value) -> Message {
    let mut out = Message::default();
    out.text(1, value["$ref"].as_str());
    out.text(2, value["format"].as_str());
    out.text(4, value["description"].as_str());
    if let Some(default) = value.get("default") {
        out.message(5, &any(default));
    }
    for name in value["required"].as_array().into_iter().flatten() {
        out.text(19, name.as_str());
    }
    if let Some(values) = value.get("additionalProperties") {
        let mut item = Message::default();
        item.message(1, &schema(values));
        out.message(21, &item);
    }
    if let Some(name) = value["type"].as_str() {
        let mut item = Message::default();
        item.text(1, Some(name));
        out.message(22, &item);
    }
    if let Some(items) = value.get("items") {
        let mut item = Message::default();
        item.message(1, &schema(items));
        out.message(23, &item);
    }
    if let Some(properties) = value["properties"].as_object() {
        out.message(25, &named_schemas(Some(properties)));
    }
    for (name, extension) in value.as_object().into_iter().flatten() {
        if name.starts_with("x-") {
            let mut named = Message::default();
            named.text(1, Some(name));
            named.message(2, &any(extension));
            out.message(31, &named);
        }
    }
    out
}

/// Extensions travel as YAML text, of which JSON is a part.
fn any(value: &Value) -> Message {
    let mut out = Message::default();
    out.text(2, Some(&value.to_string()));
    out
}

#[derive(Default)]
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn text(&mut self, field: u64, text: Option<&str>) {
        if let Some(text) = text {
            self.delimited(field, text.as_bytes());
        }
    }

    fn message(&mut self, field: u64, message: &Self) {
        self.delimited(field, &message.bytes);
    }

    fn delimited(&mut self, field: u64, bytes: &[u8]) {
        const LENGTH_DELIMITED: u64 = 2;
        self.varint(field << 3 | LENGTH_DELIMITED);
        self.varint(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.bytes.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }
}
