use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::table::{Field, Message, Scalar, Shape, Type};
use super::*;
use crate::kinds;
use crate::schema::{self, schema};

fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
    field.extend_from_slice(bytes);
    field
}

/// As Go writes a secret: with zeros that nobody set.
fn secret() -> Vec<u8> {
    let metadata = [
        field(1, b"s"),
        field(3, b"default"),
        field(8, b""),
        vec![7 << 3, 0],
    ]
    .concat();
    let entry = [field(1, b"k"), field(2, b"\xff\x00")].concat();
    let raw = [field(1, &metadata), field(2, &entry), field(3, b"Opaque")].concat();
    envelope("v1", "Secret", &raw)
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
fn fields_of_another_version_are_passed_over() {
    let raw = [field(9, b"new"), field(3, b"Opaque")].concat();
    let object = decode(&envelope("v1", "Secret", &raw)).unwrap();
    assert_eq!(object["type"], "Opaque");
}

#[test]
fn what_is_no_object_is_refused() {
    assert_eq!(decode(b"{}"), Err(DecodeError::Magic));
    assert_eq!(
        decode(&envelope("v1", "Nothing", b"")),
        Err(DecodeError::Kind("Nothing of v1".to_owned()))
    );
    let endless = [MAGIC, &[0xff; 32]].concat();
    assert_eq!(decode(&endless), Err(DecodeError::Malformed));
    let whole = secret();
    for end in 0..whole.len() {
        // Cut short anywhere, it may be a smaller object but must not panic.
        let _ = decode(&whole[..end]);
    }
}

#[test]
fn every_kind_has_an_encoding_but_definitions() {
    for kind in encoded() {
        assert!(serves(kind), "{} {}", kind.api_version(), kind.kind);
    }
}

#[test]
fn delete_options_are_read_from_every_group() {
    let raw = [vec![1 << 3, 0], field(4, b"Foreground")].concat();
    let options = decode(&envelope("storage.k8s.io/v1", "DeleteOptions", &raw)).unwrap();
    assert_eq!(options["gracePeriodSeconds"], 0);
    assert_eq!(options["propagationPolicy"], "Foreground");
}

#[test]
fn zeros_that_were_set_are_kept() {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "p" },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "containers": [{ "name": "c", "livenessProbe": { "tcpSocket": { "port": 0 } } }],
            "volumes": [{ "name": "v", "emptyDir": {} }],
        },
        "status": {},
    });
    assert_eq!(round_trip(&pod), pod);
}

#[test]
fn an_event_frame_has_its_length_in_front() {
    let object = envelope("v1", "Secret", b"");
    let frame = event("ADDED", &object);
    let length = u32::from_be_bytes(frame[..4].try_into().unwrap());
    assert_eq!(usize::try_from(length).unwrap(), frame.len() - 4);
    assert_eq!(&frame[4..11], b"\x0a\x05ADDED");
}

/// Go's client for definitions asks for JSON.
fn encoded() -> impl Iterator<Item = &'static KindInfo> {
    let all = kinds::all().iter();
    all.filter(|kind| kind.kind != "CustomResourceDefinition")
}

fn round_trip(object: &Value) -> Value {
    let text = |name: &str| object[name].as_str().unwrap_or("").to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let raw = message(&api_version, &kind, object).unwrap();
    decode(&envelope(&api_version, &kind, &raw)).unwrap()
}

/// The field of a message that stands under this name in JSON.
fn find<'t>(message: &'t Message, name: &str) -> Option<&'t Field> {
    message.fields.iter().find_map(|field| match field.shape {
        Shape::One(Type::Message(of)) if field.name.is_empty() => find(table().get(of), name),
        _ => (field.name == name).then_some(field),
    })
}

/// The schema and the numbers tell of the same fields with the same types.
#[test]
fn the_table_agrees_with_the_schema() {
    let mut seen = Vec::new();
    let mut missing = Vec::new();
    for kind in encoded() {
        let message = table().find(&kind.api_version(), kind.kind).unwrap();
        agree(
            &schema().of(kind),
            message,
            kind.kind,
            &mut seen,
            &mut missing,
        );
    }
    assert!(missing.is_empty(), "without a number: {missing:?}");
    assert!(seen.len() > 100);
}

fn agree(
    shape: &schema::Shape,
    message: &Message,
    path: &str,
    seen: &mut Vec<schema::TypeId>,
    missing: &mut Vec<String>,
) {
    let schema::Shape::Struct { of, .. } = shape else {
        panic!("{path}: not a structure in the schema");
    };
    if seen.contains(of) {
        return;
    }
    seen.push(*of);
    for (name, known) in &schema().get(*of).fields {
        if matches!(*name, "apiVersion" | "kind") && schema().get(*of).is_kind {
            continue;
        }
        let path = format!("{path}.{name}");
        let Some(field) = find(message, name) else {
            missing.push(path);
            continue;
        };
        match (&known.shape, &field.shape) {
            (schema::Shape::List { items, .. }, Shape::List(of)) => {
                same(items, *of, &path, seen, missing)
            }
            (schema::Shape::Map { values, .. }, Shape::Map(of)) => {
                same(values, *of, &path, seen, missing)
            }
            (one, Shape::One(of)) => same(one, *of, &path, seen, missing),
            (a, b) => panic!("{path}: {a:?} and {b:?}"),
        }
    }
}

fn same(
    shape: &schema::Shape,
    of: Type,
    path: &str,
    seen: &mut Vec<schema::TypeId>,
    missing: &mut Vec<String>,
) {
    use schema::Scalar as S;
    match (shape, of) {
        (schema::Shape::Struct { .. }, Type::Message(of)) => {
            agree(shape, table().get(of), path, seen, missing);
        }
        // The schema says nothing of what is there.
        (schema::Shape::Any, Type::Message(_) | Type::Scalar(Scalar::Json))
        | (schema::Shape::List { .. }, Type::Scalar(Scalar::Strings)) => {}
        (schema::Shape::Scalar(scalar), Type::Scalar(of)) => {
            let expected = match scalar {
                S::String => Scalar::String,
                S::Bytes => Scalar::Bytes,
                S::Bool => Scalar::Bool,
                S::Int32 => Scalar::Int32,
                S::Int64 => Scalar::Int64,
                S::Float => Scalar::Double,
                S::Time => Scalar::Time,
                S::MicroTime => Scalar::MicroTime,
                S::Quantity => Scalar::Quantity,
                S::IntOrString => Scalar::IntOrString,
            };
            assert_eq!(of, expected, "{path}");
        }
        (a, b) => panic!("{path}: {a:?} and {b:?}"),
    }
}

/// A random object of a message, drawn from a stream of random numbers.
struct Draw<'r> {
    random: &'r mut dyn FnMut() -> u64,
}

impl Draw<'_> {
    fn below(&mut self, limit: u64) -> u64 {
        (self.random)() % limit
    }

    fn fields(&mut self, message: &Message, depth: u64, object: &mut Map<String, Value>) {
        for field in &message.fields {
            if self.below(3) > 0 {
                continue;
            }
            match field.shape {
                Shape::One(Type::Message(of)) if field.name.is_empty() => {
                    self.fields(table().get(of), depth, object);
                }
                Shape::One(of) => {
                    if let Some(value) = self.one(of, depth, field.keeps_zero) {
                        object.insert(field.name.to_owned(), value);
                    }
                }
                Shape::List(of) => {
                    let count = self.below(2) + 1;
                    let items: Vec<_> = (0..count)
                        .filter_map(|_| self.one(of, depth, true))
                        .collect();
                    if !items.is_empty() {
                        object.insert(field.name.to_owned(), items.into());
                    }
                }
                Shape::Map(of) => {
                    let mut map = Map::new();
                    for _ in 0..=self.below(2) {
                        let key = format!("k{}", self.below(100));
                        if let Some(value) = self.one(of, depth, true) {
                            map.insert(key, value);
                        }
                    }
                    if !map.is_empty() {
                        object.insert(field.name.to_owned(), map.into());
                    }
                }
            }
        }
    }

    /// A value that JSON of Go could hold: zeros only where they say something.
    fn one(&mut self, of: Type, depth: u64, zeros: bool) -> Option<Value> {
        let small = if zeros {
            self.below(5)
        } else {
            self.below(4) + 1
        };
        let signed = if self.below(2) == 0 {
            small.cast_signed()
        } else {
            -small.cast_signed()
        };
        Some(match of {
            Type::Message(_) if depth == 0 => return None,
            Type::Message(of) => {
                let mut object = Map::new();
                self.fields(table().get(of), depth - 1, &mut object);
                object.into()
            }
            Type::Scalar(Scalar::String) => "ü".repeat(usize::try_from(small).unwrap()).into(),
            Type::Scalar(Scalar::Bytes) => {
                let count = usize::try_from(small).unwrap();
                special::to_base64(&[0xf0, 0, 7, 1, 2][..count]).into()
            }
            Type::Scalar(Scalar::Bool) => (!zeros || small % 2 == 0).into(),
            Type::Scalar(Scalar::Int32) => (signed * 400_000_000).into(),
            Type::Scalar(Scalar::Int64) => (signed * 1_844_674_407_370_955_161).into(),
            Type::Scalar(Scalar::Double) => (signed as f64 * 1.5 + 0.25).into(),
            Type::Scalar(Scalar::Time) => {
                format!("20{}-02-03T04:05:06Z", self.below(90) + 10).into()
            }
            Type::Scalar(Scalar::MicroTime) => format!(
                "19{}-02-03T04:05:06.{:06}Z",
                self.below(90) + 10,
                self.below(1_000_000)
            )
            .into(),
            Type::Scalar(Scalar::Quantity) => format!("{small}Gi").into(),
            Type::Scalar(Scalar::IntOrString) => match self.below(2) {
                0 => signed.into(),
                _ => format!("{small}%").into(),
            },
            Type::Scalar(Scalar::Json) => json!({ "f:metadata": { "a": [signed, null] } }),
            Type::Scalar(Scalar::Strings) => json!(["a", "", "b"]),
        })
    }
}

proptest! {
    #[test]
    fn objects_survive_the_way_there_and_back(
        at in any::<prop::sample::Index>(),
        seed in any::<u64>(),
    ) {
        let message = at.get(table().messages());
        let mut state = seed;
        // A small generator is enough, and lets the table decide what to draw.
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state >> 33
        };
        let mut object = Map::new();
        Draw { random: &mut random }.fields(message, 6, &mut object);
        let raw = encode::message(message, &Value::Object(object.clone()));
        prop_assert_eq!(decode::message(message, &raw), Ok(object), "{}", message.name);
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(
        at in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let message = at.get(table().messages());
        let _ = decode::message(message, &bytes);
        let _ = decode(&[MAGIC, &bytes].concat());
    }
}
