//! What stands in the frames of the store's file.
//!
//! A file begins with its format, then holds every object as of one revision, then the end
//! of these, then one group per commit.

use super::Key;
use super::batch::Batch;
use super::frame;
use super::object::Stored;

/// The format that this program writes, and the newest that it reads.
pub(super) const FORMAT: u32 = 1;
const NAME: &[u8] = b"orlop-store";

const BEGIN: u8 = 1;
const OBJECT: u8 = 2;
const BASE: u8 = 3;
const GROUP: u8 = 4;

/// One record, as read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record<'r> {
    /// The first record of a file.
    Begin {
        /// What the rest is written in.
        format: u32,
    },
    /// An object of the base.
    Object {
        /// Where it lives.
        key: Key,
        /// What [`Stored::from_disk`] reads.
        object: &'r [u8],
    },
    /// The base is whole.
    Base {
        /// The revision of the base.
        revision: u64,
        /// How many objects it has.
        objects: u64,
    },
    /// The changes of one commit.
    Group {
        /// The revision after it.
        revision: u64,
        /// The objects changed, and what they are now; none for those that went.
        changes: Vec<(Key, Option<&'r [u8]>)>,
    },
}

/// Appends the first record of a file.
pub(super) fn begin(buffer: &mut Vec<u8>) {
    frame::write(buffer, |buffer| {
        buffer.push(BEGIN);
        buffer.extend_from_slice(&FORMAT.to_le_bytes());
        buffer.extend_from_slice(NAME);
    });
}

/// Appends an object of the base.
pub(super) fn object(buffer: &mut Vec<u8>, key: &Key, object: &Stored) {
    frame::write(buffer, |buffer| {
        buffer.push(OBJECT);
        text(buffer, &key.to_disk());
        buffer.extend_from_slice(&object.to_disk());
    });
}

/// Appends the end of the base.
pub(super) fn base(buffer: &mut Vec<u8>, revision: u64, objects: u64) {
    frame::write(buffer, |buffer| {
        buffer.push(BASE);
        buffer.extend_from_slice(&revision.to_le_bytes());
        buffer.extend_from_slice(&objects.to_le_bytes());
    });
}

/// Appends the changes of one commit.
pub(super) fn group(buffer: &mut Vec<u8>, batch: &Batch) {
    frame::write(buffer, |buffer| {
        buffer.push(GROUP);
        buffer.extend_from_slice(&batch.revision().to_le_bytes());
        for event in batch.events() {
            text(buffer, &event.key.to_disk());
            let object = if event.deleted {
                Vec::new()
            } else {
                event.object.to_disk()
            };
            length(buffer, object.len());
            buffer.extend_from_slice(&object);
        }
    });
}

fn text(buffer: &mut Vec<u8>, text: &str) {
    length(buffer, text.len());
    buffer.extend_from_slice(text.as_bytes());
}

fn length(buffer: &mut Vec<u8>, length: usize) {
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    buffer.extend_from_slice(&length.to_le_bytes());
}

/// Reads a record. None if a frame holds none, which a checksum doesn't rule out: another
/// version may have written it.
pub(super) fn read(payload: &[u8]) -> Option<Record<'_>> {
    let (&kind, rest) = payload.split_first()?;
    let mut rest = Bytes(rest);
    match kind {
        BEGIN => {
            let format = rest.u32()?;
            // Whatever a newer format adds stands behind the name.
            rest.0.starts_with(NAME).then_some(Record::Begin { format })
        }
        OBJECT => {
            let key = rest.key()?;
            Some(Record::Object {
                key,
                object: rest.0,
            })
        }
        BASE => {
            let (revision, objects) = (rest.u64()?, rest.u64()?);
            rest.0
                .is_empty()
                .then_some(Record::Base { revision, objects })
        }
        GROUP => {
            let revision = rest.u64()?;
            let mut changes = Vec::new();
            while !rest.0.is_empty() {
                let key = rest.key()?;
                let object = rest.counted()?;
                changes.push((key, (!object.is_empty()).then_some(object)));
            }
            Some(Record::Group { revision, changes })
        }
        _ => None,
    }
}

struct Bytes<'b>(&'b [u8]);

impl<'b> Bytes<'b> {
    fn u32(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number))
    }

    fn u64(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn counted(&mut self) -> Option<&'b [u8]> {
        let length = self.u32()? as usize;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn key(&mut self) -> Option<Key> {
        Key::from_disk(std::str::from_utf8(self.counted()?).ok()?)
    }
}
