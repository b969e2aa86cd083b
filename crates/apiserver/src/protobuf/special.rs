//! Messages that are leaves in JSON: times, quantities, and the like.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;

use super::DecodeError;
use super::wire::{self, Take};
use crate::registry::stamp;

/// How finely a time is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Precision {
    Second,
    Microsecond,
}

pub(super) fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

pub(super) fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub(super) fn parse_time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// A time; null for the zero time, which is encoded as nothing.
pub(super) fn time(mut rest: &[u8], precision: Precision) -> Result<Value, DecodeError> {
    if rest.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanoseconds) = (0, 0);
    while let Some((number, taken)) = wire::next(&mut rest)? {
        match number {
            1 => seconds = taken.number()?,
            2 => nanoseconds = taken.number()?,
            _ => {}
        }
    }
    let nanoseconds = i32::try_from(nanoseconds).map_err(|_| DecodeError::Malformed)?;
    let time = Timestamp::new(seconds, nanoseconds).map_err(|_| DecodeError::Malformed)?;
    Ok(match precision {
        Precision::Second => stamp(time).into(),
        Precision::Microsecond => time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string().into(),
    })
}

pub(super) fn quantity(mut rest: &[u8]) -> Result<Value, DecodeError> {
    let mut text = String::new();
    while let Some((number, taken)) = wire::next(&mut rest)? {
        if number == 1 {
            text = taken.text()?;
        }
    }
    if text.is_empty() {
        text.push('0');
    }
    Ok(text.into())
}

pub(super) fn int_or_string(mut rest: &[u8]) -> Result<Value, DecodeError> {
    let (mut sort, mut int, mut text) = (0, 0, String::new());
    while let Some((number, taken)) = wire::next(&mut rest)? {
        match number {
            1 => sort = taken.number()?,
            2 => int = taken.number()?,
            3 => text = taken.text()?,
            _ => {}
        }
    }
    Ok(if sort == 1 { text.into() } else { int.into() })
}

/// JSON text in a message of its own; null if there is none.
pub(super) fn json(mut rest: &[u8]) -> Result<Value, DecodeError> {
    let mut text: &[u8] = b"null";
    while let Some((number, taken)) = wire::next(&mut rest)? {
        if let (1, Take::Bytes(bytes)) = (number, taken)
            && !bytes.is_empty()
        {
            text = bytes;
        }
    }
    serde_json::from_slice(text).map_err(|_| DecodeError::Malformed)
}

pub(super) fn strings(mut rest: &[u8]) -> Result<Value, DecodeError> {
    let mut items = Vec::new();
    while let Some((number, taken)) = wire::next(&mut rest)? {
        if number == 1 {
            items.push(Value::String(taken.text()?));
        }
    }
    Ok(Value::Array(items))
}
