//! Bodies in Kubernetes' protobuf encoding, for the few kinds that kubectl sends so.
//!
//! `kubectl create namespace`, `configmap`, `secret` and `serviceaccount` encode what they
//! send whether or not the server asked for it, and don't try again. The tables below are
//! the field numbers of those kinds; answers are always JSON. A field that isn't in a
//! table is refused rather than dropped.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// What an encoded object starts with.
const MAGIC: &[u8] = b"k8s\0";

/// How a field is encoded.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Text,
    Bytes,
    Number,
    Flag,
    /// Seconds since 1970 and nanoseconds.
    Time,
    Message(&'static [Field]),
    TextMap,
    BytesMap,
}

#[derive(Debug, Clone, Copy)]
struct Field {
    number: u64,
    name: &'static str,
    kind: Kind,
    repeated: bool,
}

const fn one(number: u64, name: &'static str, kind: Kind) -> Field {
    Field {
        number,
        name,
        kind,
        repeated: false,
    }
}

const fn many(number: u64, name: &'static str, kind: Kind) -> Field {
    Field {
        number,
        name,
        kind,
        repeated: true,
    }
}

const OWNER: &[Field] = &[
    one(1, "kind", Kind::Text),
    one(3, "name", Kind::Text),
    one(4, "uid", Kind::Text),
    one(5, "apiVersion", Kind::Text),
    one(6, "controller", Kind::Flag),
    one(7, "blockOwnerDeletion", Kind::Flag),
];
const METADATA: &[Field] = &[
    one(1, "name", Kind::Text),
    one(2, "generateName", Kind::Text),
    one(3, "namespace", Kind::Text),
    one(4, "selfLink", Kind::Text),
    one(5, "uid", Kind::Text),
    one(6, "resourceVersion", Kind::Text),
    one(7, "generation", Kind::Number),
    one(8, "creationTimestamp", Kind::Time),
    one(9, "deletionTimestamp", Kind::Time),
    one(10, "deletionGracePeriodSeconds", Kind::Number),
    one(11, "labels", Kind::TextMap),
    one(12, "annotations", Kind::TextMap),
    many(13, "ownerReferences", Kind::Message(OWNER)),
    many(14, "finalizers", Kind::Text),
];
const REFERENCE: &[Field] = &[
    one(1, "kind", Kind::Text),
    one(2, "namespace", Kind::Text),
    one(3, "name", Kind::Text),
    one(4, "uid", Kind::Text),
    one(5, "apiVersion", Kind::Text),
    one(6, "resourceVersion", Kind::Text),
    one(7, "fieldPath", Kind::Text),
];
const NAMESPACE: &[Field] = &[
    one(1, "metadata", Kind::Message(METADATA)),
    one(
        2,
        "spec",
        Kind::Message(&[many(1, "finalizers", Kind::Text)]),
    ),
    one(3, "status", Kind::Message(&[one(1, "phase", Kind::Text)])),
];
const CONFIG_MAP: &[Field] = &[
    one(1, "metadata", Kind::Message(METADATA)),
    one(2, "data", Kind::TextMap),
    one(3, "binaryData", Kind::BytesMap),
    one(4, "immutable", Kind::Flag),
];
const SECRET: &[Field] = &[
    one(1, "metadata", Kind::Message(METADATA)),
    one(2, "data", Kind::BytesMap),
    one(3, "type", Kind::Text),
    one(4, "stringData", Kind::TextMap),
    one(5, "immutable", Kind::Flag),
];
const SERVICE_ACCOUNT: &[Field] = &[
    one(1, "metadata", Kind::Message(METADATA)),
    many(2, "secrets", Kind::Message(REFERENCE)),
    many(
        3,
        "imagePullSecrets",
        Kind::Message(&[one(1, "name", Kind::Text)]),
    ),
    one(4, "automountServiceAccountToken", Kind::Flag),
];
const TYPE: &[Field] = &[one(1, "apiVersion", Kind::Text), one(2, "kind", Kind::Text)];
/// Why a body can't be decoded.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DecodeError {
    #[error("the body doesn't start as an encoded object does")]
    Magic,
    #[error("the body is cut short or isn't protobuf")]
    Malformed,
    #[error("{0} can't be sent as protobuf to this server; send application/json")]
    Kind(String),
    #[error("field {0} of the object can't be sent as protobuf; send application/json")]
    Field(u64),
}

/// Decodes an enveloped object.
pub(super) fn decode(body: &[u8]) -> Result<Value, DecodeError> {
    let envelope = body.strip_prefix(MAGIC).ok_or(DecodeError::Magic)?;
    // The raw object is taken apart here, since its fields depend on its type.
    let mut raw: &[u8] = &[];
    let mut kind = Map::new();
    let mut rest = envelope;
    while !rest.is_empty() {
        let (number, wire) = take(&mut rest)?;
        match (number, wire) {
            (1, Wire::Bytes(bytes)) => kind = message(TYPE, bytes)?,
            (2, Wire::Bytes(bytes)) => raw = bytes,
            (3 | 4, Wire::Bytes(_)) => {}
            (other, _) => return Err(DecodeError::Field(other)),
        }
    }
    let text = |name: &str| kind.get(name).and_then(Value::as_str).unwrap_or("");
    let fields = match (text("apiVersion"), text("kind")) {
        ("v1", "Namespace") => NAMESPACE,
        ("v1", "ConfigMap") => CONFIG_MAP,
        ("v1", "Secret") => SECRET,
        ("v1", "ServiceAccount") => SERVICE_ACCOUNT,
        (_, other) => return Err(DecodeError::Kind(other.to_owned())),
    };
    let mut object = message(fields, raw)?;
    object.extend(kind);
    Ok(Value::Object(object))
}

#[derive(Debug)]
enum Wire<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

/// The next field.
fn take<'b>(rest: &mut &'b [u8]) -> Result<(u64, Wire<'b>), DecodeError> {
    let tag = varint(rest)?;
    let wire = match tag & 7 {
        0 => Wire::Number(varint(rest)?),
        2 => {
            let length = usize::try_from(varint(rest)?).map_err(|_| DecodeError::Malformed)?;
            let (bytes, after) = rest
                .split_at_checked(length)
                .ok_or(DecodeError::Malformed)?;
            *rest = after;
            Wire::Bytes(bytes)
        }
        _ => return Err(DecodeError::Malformed),
    };
    Ok((tag >> 3, wire))
}

fn varint(rest: &mut &[u8]) -> Result<u64, DecodeError> {
    let mut number = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, after) = rest.split_first().ok_or(DecodeError::Malformed)?;
        *rest = after;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(DecodeError::Malformed)
}

fn message(fields: &[Field], bytes: &[u8]) -> Result<Map<String, Value>, DecodeError> {
    let mut object = Map::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (number, wire) = take(&mut rest)?;
        let field = fields.iter().find(|field| field.number == number);
        let field = field.ok_or(DecodeError::Field(number))?;
        match (field.kind, wire) {
            (Kind::TextMap | Kind::BytesMap, Wire::Bytes(entry)) => {
                let kind = if matches!(field.kind, Kind::TextMap) {
                    Kind::Text
                } else {
                    Kind::Bytes
                };
                let entry = message(&[one(1, "key", Kind::Text), one(2, "value", kind)], entry)?;
                let key = entry
                    .get("key")
                    .and_then(Value::as_str)
                    .unwrap_or("")
                    .to_owned();
                let value = entry.get("value").cloned().unwrap_or_else(|| "".into());
                let map = object
                    .entry(field.name)
                    .or_insert_with(|| Value::Object(Map::new()));
                map[key] = value;
            }
            (kind, wire) => {
                let value = scalar(kind, wire)?;
                if field.repeated {
                    let list = object
                        .entry(field.name)
                        .or_insert_with(|| Value::Array(Vec::new()));
                    if let Some(list) = list.as_array_mut() {
                        list.push(value);
                    }
                } else if !is_zero(&value) {
                    object.insert(field.name.to_owned(), value);
                }
            }
        }
    }
    Ok(object)
}

fn scalar(kind: Kind, wire: Wire<'_>) -> Result<Value, DecodeError> {
    match (kind, wire) {
        (Kind::Text, Wire::Bytes(bytes)) => {
            let text = std::str::from_utf8(bytes).map_err(|_| DecodeError::Malformed)?;
            Ok(text.into())
        }
        (Kind::Bytes, Wire::Bytes(bytes)) => Ok(STANDARD.encode(bytes).into()),
        (Kind::Number, Wire::Number(number)) => Ok(number.cast_signed().into()),
        (Kind::Flag, Wire::Number(number)) => Ok((number != 0).into()),
        (Kind::Time, Wire::Bytes(bytes)) => {
            let fields = [
                one(1, "seconds", Kind::Number),
                one(2, "nanos", Kind::Number),
            ];
            let time = message(&fields, bytes)?;
            let Some(seconds) = time.get("seconds").and_then(Value::as_i64) else {
                return Ok(Value::Null);
            };
            let time = jiff::Timestamp::from_second(seconds).map_err(|_| DecodeError::Malformed)?;
            Ok(crate::registry::stamp(time).into())
        }
        (Kind::Message(fields), Wire::Bytes(bytes)) => message(fields, bytes).map(Value::Object),
        _ => Err(DecodeError::Malformed),
    }
}

/// The encoder writes fields that were never set.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Array(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut field = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        field.extend_from_slice(bytes);
        field
    }

    fn envelope(kind: &str, raw: &[u8]) -> Vec<u8> {
        let kind = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [
            MAGIC.to_vec(),
            field(1, &kind),
            field(2, raw),
            field(3, b""),
            field(4, b""),
        ]
        .concat()
    }

    fn secret() -> Vec<u8> {
        let metadata = [
            field(1, b"s"),
            field(3, b"default"),
            field(8, b""),
            vec![7 << 3, 0],
        ]
        .concat();
        let entry = [field(1, b"k"), field(2, b"\xff\x00")].concat();
        envelope(
            "Secret",
            &[field(1, &metadata), field(2, &entry), field(3, b"Opaque")].concat(),
        )
    }

    #[test]
    fn a_secret_is_read_as_kubectl_sends_it() {
        let expected = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": { "name": "s", "namespace": "default" },
            "data": { "k": "/wA=" },
        });
        assert_eq!(decode(&secret()), Ok(expected));
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        assert_eq!(decode(b"{}"), Err(DecodeError::Magic));
        assert_eq!(
            decode(&envelope("Pod", b"")),
            Err(DecodeError::Kind("Pod".to_owned()))
        );
        assert_eq!(
            decode(&envelope("Secret", &field(9, b""))),
            Err(DecodeError::Field(9))
        );
        let whole = secret();
        for end in MAGIC.len() + 1..whole.len() {
            // Cut short anywhere, it may be a smaller object but must not panic.
            let _ = decode(&whole[..end]);
        }
        let endless = [MAGIC, &[0xff; 32]].concat();
        assert_eq!(decode(&endless), Err(DecodeError::Malformed));
    }
}
