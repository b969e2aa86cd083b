//! Protobuf's own rules: tags, varints, lengths.

use super::DecodeError;

const VARINT: u64 = 0;
const FIXED64: u64 = 1;
const DELIMITED: u64 = 2;
const FIXED32: u64 = 5;

/// Writes one message.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity))
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn number(&mut self, field: u32, value: i64) {
        self.varint(u64::from(field) << 3 | VARINT);
        self.varint(value.cast_unsigned());
    }

    pub(super) fn double(&mut self, field: u32, value: f64) {
        self.varint(u64::from(field) << 3 | FIXED64);
        self.raw(&value.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.announce(field, bytes.len());
        self.raw(bytes);
    }

    /// Begins a field of so many bytes, which the caller adds.
    pub(super) fn announce(&mut self, field: u32, length: usize) {
        self.varint(u64::from(field) << 3 | DELIMITED);
        self.varint(length as u64);
    }

    pub(super) fn message(&mut self, field: u32, fill: impl FnOnce(&mut Writer)) {
        let mut inner = Writer::default();
        fill(&mut inner);
        self.bytes(field, &inner.0);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// The value of one field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Take<'b> {
    Number(i64),
    Double(f64),
    Bytes(&'b [u8]),
}

impl<'b> Take<'b> {
    pub(super) fn number(self) -> Result<i64, DecodeError> {
        match self {
            Self::Number(number) => Ok(number),
            Self::Double(_) | Self::Bytes(_) => Err(DecodeError::Malformed),
        }
    }

    pub(super) fn bytes(self) -> Result<&'b [u8], DecodeError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Number(_) | Self::Double(_) => Err(DecodeError::Malformed),
        }
    }

    pub(super) fn text(self) -> Result<String, DecodeError> {
        let text = std::str::from_utf8(self.bytes()?).map_err(|_| DecodeError::Malformed)?;
        Ok(text.to_owned())
    }
}

/// The next field of a message; none at its end.
pub(super) fn next<'b>(rest: &mut &'b [u8]) -> Result<Option<(u32, Take<'b>)>, DecodeError> {
    if rest.is_empty() {
        return Ok(None);
    }
    let tag = varint(rest)?;
    let field = u32::try_from(tag >> 3).map_err(|_| DecodeError::Malformed)?;
    let value = match tag & 7 {
        VARINT => Take::Number(varint(rest)?.cast_signed()),
        DELIMITED => {
            let length = usize::try_from(varint(rest)?).map_err(|_| DecodeError::Malformed)?;
            let (bytes, after) = rest
                .split_at_checked(length)
                .ok_or(DecodeError::Malformed)?;
            *rest = after;
            Take::Bytes(bytes)
        }
        FIXED64 => {
            let (bytes, after) = rest
                .split_first_chunk::<8>()
                .ok_or(DecodeError::Malformed)?;
            *rest = after;
            Take::Double(f64::from_le_bytes(*bytes))
        }
        FIXED32 => {
            let (bytes, after) = rest
                .split_first_chunk::<4>()
                .ok_or(DecodeError::Malformed)?;
            *rest = after;
            Take::Number(i64::from(i32::from_le_bytes(*bytes)))
        }
        _ => return Err(DecodeError::Malformed),
    };
    Ok(Some((field, value)))
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
