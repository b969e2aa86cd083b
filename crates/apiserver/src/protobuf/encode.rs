//! From JSON to protobuf.

use serde_json::{Map, Value};

use super::special;
use super::table::{Message, Scalar, Shape, Type, table};
use super::wire::Writer;

/// One message from an object's fields.
pub(super) fn message(message: &Message, object: &Value) -> Vec<u8> {
    let mut out = Writer::with_capacity(512);
    if let Value::Object(object) = object {
        fields(message, object, &mut out);
    }
    out.finish()
}

fn fields(message: &Message, object: &Map<String, Value>, out: &mut Writer) {
    for field in &message.fields {
        if field.name.is_empty() {
            if let Shape::One(Type::Message(of)) = field.shape {
                let mut inner = Writer::default();
                fields(table().get(of), object, &mut inner);
                if !inner.is_empty() {
                    out.bytes(field.number, &inner.finish());
                }
            }
            continue;
        }
        match (&field.shape, object.get(field.name)) {
            (Shape::One(of), Some(value)) => one(field.number, *of, value, out),
            (Shape::List(of), Some(Value::Array(items))) => {
                for item in items {
                    one(field.number, *of, item, out);
                }
            }
            (Shape::Map(of), Some(Value::Object(entries))) => {
                for (key, value) in entries {
                    out.message(field.number, |entry| {
                        entry.bytes(1, key.as_bytes());
                        one(2, *of, value, entry);
                    });
                }
            }
            (Shape::List(_) | Shape::Map(_), _) | (Shape::One(_), None) => {}
        }
    }
}

fn one(number: u32, of: Type, value: &Value, out: &mut Writer) {
    match (of, value) {
        (Type::Message(of), Value::Object(object)) => {
            out.message(number, |inner| fields(table().get(of), object, inner));
        }
        (Type::Message(_), _) => {}
        (Type::Scalar(of), value) => {
            // What isn't of the table's type has no encoding.
            let _ = scalar(number, of, value, out);
        }
    }
}

fn scalar(number: u32, of: Scalar, value: &Value, out: &mut Writer) -> Option<()> {
    match of {
        Scalar::String => out.bytes(number, value.as_str()?.as_bytes()),
        Scalar::Bytes => out.bytes(number, &special::from_base64(value.as_str()?)?),
        Scalar::Bool => out.number(number, i64::from(value.as_bool()?)),
        Scalar::Int32 | Scalar::Int64 => out.number(number, value.as_i64()?),
        Scalar::Double => out.double(number, value.as_f64()?),
        Scalar::Time | Scalar::MicroTime => {
            let time = special::parse_time(value.as_str()?)?;
            out.message(number, |out| {
                out.number(1, time.as_second());
                out.number(2, i64::from(time.subsec_nanosecond()));
            });
        }
        Scalar::Quantity => {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => return None,
            };
            out.message(number, |out| out.bytes(1, text.as_bytes()));
        }
        Scalar::IntOrString => {
            let (sort, int, text) = match value {
                Value::String(text) => (1, 0, text.as_str()),
                other => (0, other.as_i64()?, ""),
            };
            out.message(number, |out| {
                out.number(1, sort);
                out.number(2, int);
                out.bytes(3, text.as_bytes());
            });
        }
        Scalar::Json => {
            let text = value.to_string();
            out.message(number, |out| out.bytes(1, text.as_bytes()));
        }
        Scalar::Strings => {
            let items = value.as_array()?;
            out.message(number, |out| {
                for item in items.iter().filter_map(Value::as_str) {
                    out.bytes(1, item.as_bytes());
                }
            });
        }
    }
    Some(())
}
