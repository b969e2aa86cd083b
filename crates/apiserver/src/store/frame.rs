//! How records stand in a file: each in a frame with its length and a checksum.
//!
//! A frame that a crash cut short can't be mistaken for a whole one. A frame that is wrong
//! although whole ones follow it was damaged after it had been written; [`Frames`] tells
//! the two apart, since the first is no loss and the second is.

use std::io::{self, Read};

/// What a frame begins with. No text in UTF-8 holds these bytes, so that frames can be found
/// again behind a damaged one.
const MARK: [u8; 4] = [0xff, 0xfe, b'o', b'r'];
const HEAD: usize = 12;
/// The longest frame: a group of writes at the API's limits stays far below it.
const LONGEST: u32 = 1 << 30;

/// Appends a frame around what `fill` writes.
pub(super) fn write(buffer: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = buffer.len();
    buffer.extend_from_slice(&[0; HEAD]);
    fill(buffer);
    let length = u32::try_from(buffer.len() - start - HEAD).unwrap_or(u32::MAX);
    debug_assert!(length <= LONGEST, "a frame of {length} bytes");
    let checksum = checksum(length, &buffer[start + HEAD..]);
    buffer[start..start + 4].copy_from_slice(&MARK);
    buffer[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
    buffer[start + 8..start + HEAD].copy_from_slice(&checksum.to_le_bytes());
}

fn checksum(length: u32, payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&length.to_le_bytes());
    hasher.update(payload);
    hasher.finalize()
}

/// The frames of a file, one after the other.
#[derive(Debug)]
pub(super) struct Frames<R> {
    reader: R,
    /// Where the next frame begins: all before it is good.
    good: u64,
}

/// What comes next in a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A whole frame.
    Frame(Vec<u8>),
    /// Nothing but zeros, or what is no whole frame.
    End {
        /// How many bytes there are up to the last that isn't zero.
        unfinished: u64,
    },
    /// Something that isn't a frame, with whole frames behind it.
    Damage,
}

impl<R: Read> Frames<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, good: 0 }
    }

    /// How many bytes of whole frames have been read.
    pub(super) fn good(&self) -> u64 {
        self.good
    }

    pub(super) fn next(&mut self) -> io::Result<Next> {
        let mut head = Vec::with_capacity(HEAD);
        (&mut self.reader)
            .take(HEAD as u64)
            .read_to_end(&mut head)?;
        if head.len() < HEAD {
            return Ok(end(&head));
        }
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (length, sum) = (word(4), word(8));
        let mut payload = Vec::new();
        if head[..4] == MARK && length <= LONGEST {
            (&mut self.reader)
                .take(length.into())
                .read_to_end(&mut payload)?;
            if payload.len() == length as usize && checksum(length, &payload) == sum {
                self.good += (HEAD + payload.len()) as u64;
                return Ok(Next::Frame(payload));
            }
        }
        let mut rest = head;
        rest.append(&mut payload);
        self.reader.read_to_end(&mut rest)?;
        Ok(if holds_frame(&rest[1..]) {
            Next::Damage
        } else {
            end(&rest)
        })
    }
}

fn end(rest: &[u8]) -> Next {
    let last = rest.iter().rposition(|byte| *byte != 0);
    Next::End {
        unfinished: last.map_or(0, |last| last as u64 + 1),
    }
}

/// Whether a whole frame stands anywhere in these bytes.
fn holds_frame(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some(at) = rest.windows(MARK.len()).position(|window| window == MARK) {
        let candidate = &rest[at..];
        if let Some((head, payload)) = candidate.split_at_checked(HEAD) {
            let word = |at: usize| {
                u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
            };
            let whole = payload.get(..word(4) as usize);
            if whole.is_some_and(|payload| checksum(word(4), payload) == word(8)) {
                return true;
            }
        }
        rest = &candidate[1..];
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(payloads: &[&[u8]]) -> Vec<u8> {
        let mut file = Vec::new();
        for payload in payloads {
            write(&mut file, |buffer| buffer.extend_from_slice(payload));
        }
        file
    }

    fn read(file: &[u8]) -> (Vec<Vec<u8>>, Next) {
        let mut frames = Frames::new(file);
        let mut all = Vec::new();
        loop {
            match frames.next().unwrap() {
                Next::Frame(payload) => all.push(payload),
                end => return (all, end),
            }
        }
    }

    #[test]
    fn a_file_cut_anywhere_ends_with_its_last_whole_frame() {
        let whole = file(&[b"one", b"", b"three"]);
        let ends = [HEAD + 3, 2 * HEAD + 3, 3 * HEAD + 8];
        for cut in 0..=whole.len() {
            let (frames, end) = read(&whole[..cut]);
            assert_eq!(frames.len(), ends.iter().filter(|end| **end <= cut).count());
            let good = ends.iter().filter(|end| **end <= cut).max().unwrap_or(&0);
            let Next::End { unfinished } = end else {
                panic!("cut at {cut}: {end:?}");
            };
            // What ends in zeros looks shorter than it is.
            assert!(unfinished <= (cut - good) as u64, "cut at {cut}");
            assert_eq!(unfinished == 0, cut == *good, "cut at {cut}");
        }
    }

    #[test]
    fn a_wrong_byte_before_a_whole_frame_is_damage_and_after_the_last_is_not() {
        let whole = file(&[b"one", b"two"]);
        for at in 0..whole.len() {
            let mut wrong = whole.clone();
            wrong[at] ^= 0x40;
            let (frames, end) = read(&wrong);
            if at < HEAD + 3 {
                assert_eq!((frames.len(), end), (0, Next::Damage), "byte {at}");
            } else {
                assert_eq!(frames.len(), 1, "byte {at}");
                let unfinished = (HEAD + 3) as u64;
                assert_eq!(end, Next::End { unfinished }, "byte {at}");
            }
        }
    }
}
