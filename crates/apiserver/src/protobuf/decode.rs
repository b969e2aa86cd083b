//! From protobuf to JSON, as Go would write it: without what was never set.

use serde_json::{Map, Value};

use super::DecodeError;
use super::special;
use super::table::{Field, Message, Scalar, Shape, Type, table};
use super::wire::{self, Take};

/// The fields of one message. Fields that the table doesn't have are passed over, as Go's
/// decoder does: they are of another version of the API.
pub(super) fn message(message: &Message, bytes: &[u8]) -> Result<Map<String, Value>, DecodeError> {
    let mut object = Map::new();
    into(message, bytes, &mut object)?;
    Ok(object)
}

fn into(
    message: &Message,
    mut rest: &[u8],
    object: &mut Map<String, Value>,
) -> Result<(), DecodeError> {
    while let Some((number, taken)) = wire::next(&mut rest)? {
        let Some(field) = message.fields.iter().find(|field| field.number == number) else {
            continue;
        };
        match &field.shape {
            Shape::One(Type::Message(of)) if field.name.is_empty() => {
                into(table().get(*of), taken.bytes()?, object)?;
            }
            Shape::One(of) => {
                let value = one(*of, taken)?;
                if says_something(field, *of, &value) {
                    object.insert(field.name.to_owned(), value);
                } else {
                    // The last one wins, also when it is a zero.
                    object.remove(field.name);
                }
            }
            Shape::List(of) => {
                let value = one(*of, taken)?;
                let list = object
                    .entry(field.name)
                    .or_insert_with(|| Value::Array(Vec::new()));
                if let Value::Array(list) = list {
                    list.push(value);
                }
            }
            Shape::Map(of) => {
                let (key, value) = entry(*of, taken.bytes()?)?;
                let map = object
                    .entry(field.name)
                    .or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(map) = map {
                    map.insert(key, value);
                }
            }
        }
    }
    Ok(())
}

fn entry(of: Type, mut rest: &[u8]) -> Result<(String, Value), DecodeError> {
    let (mut key, mut value) = (String::new(), None);
    while let Some((number, taken)) = wire::next(&mut rest)? {
        match number {
            1 => key = taken.text()?,
            2 => value = Some(one(of, taken)?),
            _ => {}
        }
    }
    // A value that is left out is the zero of its type; maps hold nothing but texts,
    // bytes, quantities and lists of strings.
    let value = match (value, of) {
        (Some(value), _) => value,
        (None, Type::Scalar(Scalar::Quantity)) => "0".into(),
        (None, Type::Scalar(Scalar::Strings)) => Value::Array(Vec::new()),
        (None, Type::Message(_)) => Value::Object(Map::new()),
        (None, Type::Scalar(_)) => "".into(),
    };
    Ok((key, value))
}

fn one(of: Type, taken: Take<'_>) -> Result<Value, DecodeError> {
    match of {
        Type::Message(of) => message(table().get(of), taken.bytes()?).map(Value::Object),
        Type::Scalar(of) => scalar(of, taken),
    }
}

fn scalar(of: Scalar, taken: Take<'_>) -> Result<Value, DecodeError> {
    Ok(match of {
        Scalar::String => taken.text()?.into(),
        Scalar::Bytes => special::to_base64(taken.bytes()?).into(),
        Scalar::Bool => (taken.number()? != 0).into(),
        // Go keeps the low half of a number that is too large.
        Scalar::Int32 => (taken.number()? as i32).into(),
        Scalar::Int64 => taken.number()?.into(),
        Scalar::Double => match taken {
            Take::Double(number) => serde_json::Number::from_f64(number)
                .map(Value::Number)
                .ok_or(DecodeError::Malformed)?,
            Take::Number(_) | Take::Bytes(_) => return Err(DecodeError::Malformed),
        },
        Scalar::Time => special::time(taken.bytes()?, special::Precision::Second)?,
        Scalar::MicroTime => special::time(taken.bytes()?, special::Precision::Microsecond)?,
        Scalar::Quantity => special::quantity(taken.bytes()?)?,
        Scalar::IntOrString => special::int_or_string(taken.bytes()?)?,
        Scalar::Json => special::json(taken.bytes()?)?,
        Scalar::Strings => special::strings(taken.bytes()?)?,
    })
}

/// Whether somebody set this value.
fn says_something(field: &Field, of: Type, value: &Value) -> bool {
    let omits_zero = match of {
        Type::Message(_) | Type::Scalar(Scalar::Quantity | Scalar::IntOrString | Scalar::Json) => {
            false
        }
        Type::Scalar(_) => !field.keeps_zero,
    };
    match value {
        // Zero times and empty JSON have no text.
        Value::Null => false,
        Value::String(text) => !(omits_zero && text.is_empty()),
        Value::Bool(flag) => !omits_zero || *flag,
        Value::Number(number) => !(omits_zero && number.as_f64() == Some(0.0)),
        Value::Array(items) => !(omits_zero && items.is_empty()),
        Value::Object(_) => true,
    }
}
