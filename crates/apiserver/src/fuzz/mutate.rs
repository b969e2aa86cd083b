//! Bytes that are nearly right.

/// What texts of this server's languages are made of.
const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "'",
    "\\",
    "\n",
    "  ",
    "- ",
    "#",
    "&a ",
    "*a",
    "<<: ",
    "|\n",
    "null",
    "true",
    "false",
    "~",
    "yes",
    "0",
    "-1",
    "1e9",
    "9223372036854775807",
    "1.5",
    "0x1f",
    "\"metadata\":{",
    "\"name\":\"x\"",
    "\"spec\":{",
    "\"$patch\":\"delete\"",
    "\"$patch\":\"replace\"",
    "\"$setElementOrder/a\":[",
    "\"$retainKeys\":[",
    "\"$deleteFromPrimitiveList/finalizers\":[",
    "\"op\":\"copy\"",
    "\"path\":\"/-\"",
    "~1",
    "/metadata/finalizers/0",
    "[{",
    "}]",
    " in (",
    " notin (",
    ")",
    "!",
    "!=",
    "==",
    ">",
    "self",
    "oldSelf",
    ".all(x, ",
    ".map(x, ",
    "has(",
    " ? ",
    " && ",
    "size(",
    "'",
    "Gi",
    "Ki",
    "m",
    "n",
    "e",
    "E",
    "\u{0}",
    "\u{7f}",
    "\u{fffd}",
    "é",
];

/// A small generator: the same seed, the same bytes.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below the bound; 0 if the bound is.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from((self.next() >> 11) % bound).unwrap_or(0)
    }

    fn byte(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }
}

/// One of the texts after a few changes.
pub(super) fn mutated(random: &mut Random, texts: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = texts[random.below(texts.len())].clone();
    for _ in 0..=random.below(6) {
        change(random, &mut bytes, texts);
        // Growth without end would only make it slow.
        bytes.truncate(1 << 16);
    }
    bytes
}

fn change(random: &mut Random, bytes: &mut Vec<u8>, texts: &[Vec<u8>]) {
    let at = random.below(bytes.len() + 1);
    let end = at + random.below((bytes.len() - at).min(32) + 1);
    match random.below(9) {
        0 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << random.below(8);
            }
        }
        1 => {
            let byte = random.byte();
            if let Some(old) = bytes.get_mut(at) {
                *old = byte;
            }
        }
        2 => drop(bytes.drain(at..end)),
        3 => {
            let part = bytes[at..end].to_vec();
            let times = 1 + random.below(4);
            bytes.splice(end..end, part.repeat(times));
        }
        4 | 5 => {
            let word = WORDS[random.below(WORDS.len())].bytes();
            bytes.splice(at..end.min(at + random.below(4)), word);
        }
        6 => {
            // A long run of one thing nests deep, or counts far.
            let word = WORDS[random.below(WORDS.len())];
            let times = 1 << random.below(10);
            bytes.splice(at..at, word.repeat(times).into_bytes());
        }
        7 => bytes.truncate(at),
        _ => {
            let other = &texts[random.below(texts.len())];
            let from = random.below(other.len() + 1);
            bytes.splice(at.., other[from..].iter().copied());
        }
    }
}
