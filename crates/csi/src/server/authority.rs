//! Makes a request's `:authority` one that HTTP/2 below us takes.
//!
//! Nothing here looks at an authority, but the library refuses a request whose authority is
//! no host name before any code of ours runs, and the kubelet's plugin watcher sends the
//! socket's path, percent-encoded: grpc-go makes it up from whatever was dialled. gRPC's C
//! core does the same. So a path's characters are replaced in the header block, in place.
//!
//! A header block is compressed (HPACK, RFC 7541) against a table that both ends build up.
//! What is replaced keeps its length, both as it is sent and as it is read, so that the two
//! tables stay equal, and no table need be kept here: a value that is sent once and referred
//! to afterwards was replaced when it was sent.

use std::ops::Range;

/// The codes of RFC 7541, appendix B, up to 15 bits: all of ASCII that a path is likely to
/// have. In each row the codes are consecutive, and the last member is what may stand in an
/// authority in the place of what may not.
const ROWS: [Row; 10] = [
    Row::new(5, 0x0, b"012aceiost", None),
    Row::new(6, 0x14, b" %-./3456789=A_bdfghlmnpru", Some(0x16)),
    Row::new(7, 0x5c, b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz", Some(0x79)),
    Row::new(8, 0xf8, b"&*,;XZ", Some(0xfc)),
    Row::new(10, 0x3f8, b"!\"()?", None),
    Row::new(11, 0x7fa, b"'+|", None),
    Row::new(12, 0xffa, b"#>", None),
    Row::new(13, 0x1ff8, b"\0$@[]~", None),
    Row::new(14, 0x3ffc, b"^}", None),
    Row::new(15, 0x7ffc, b"<`{", None),
];

/// The number of `:authority` in the table that every connection starts with.
const AUTHORITY: usize = 1;
const AUTHORITY_NAME: &[u8] = b":authority";

struct Row {
    bits: usize,
    first: u32,
    symbols: &'static [u8],
    stand_in: Option<u32>,
}

impl Row {
    const fn new(bits: usize, first: u32, symbols: &'static [u8], stand_in: Option<u32>) -> Self {
        Self {
            bits,
            first,
            symbols,
            stand_in,
        }
    }
}

/// Replaces the characters of a path in the `:authority` of a header block, or of its
/// beginning. What is no header block is left as it is, for HTTP/2 to refuse.
pub(super) fn mend(block: &mut [u8]) {
    if let Some(value) = find(block) {
        let bytes = &mut block[value.at];
        if value.coded {
            mend_coded(bytes);
        } else {
            mend_plain(bytes);
        }
    }
}

/// A string in a header block.
struct Text {
    at: Range<usize>,
    /// Whether it is in Huffman's code.
    coded: bool,
}

/// The value of `:authority`, if it is spelt out.
fn find(block: &[u8]) -> Option<Text> {
    let mut reader = Reader { block, at: 0 };
    while let Some(&first) = block.get(reader.at) {
        let prefix = match first {
            // A whole field by its number, or a new size for the table.
            0x80.. => reader.number(7).map(|_| None)?,
            0x20..0x40 => reader.number(5).map(|_| None)?,
            // A field that is spelt out: to be remembered, or not.
            0x40.. => Some(6),
            0x00..0x20 => Some(4),
        };
        let Some(prefix) = prefix else { continue };
        let named = match reader.number(prefix)? {
            0 => {
                let name = reader.text()?;
                spells(&block[name.at.clone()], name.coded, AUTHORITY_NAME)
            }
            number => number == AUTHORITY,
        };
        let value = reader.text()?;
        if named {
            return Some(value);
        }
    }
    None
}

struct Reader<'a> {
    block: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    /// A number that begins in the low bits of a byte.
    fn number(&mut self, bits: u32) -> Option<usize> {
        let most = (1 << bits) - 1;
        let mut number = usize::from(self.byte()?) & most;
        if number < most {
            return Some(number);
        }
        // Four more bytes are more than any frame holds.
        for shift in [0, 7, 14, 21] {
            let byte = usize::from(self.byte()?);
            number += (byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn text(&mut self) -> Option<Text> {
        let coded = self.block.get(self.at)? & 0x80 != 0;
        let length = self.number(7)?;
        let at = self.at..self.at + length;
        self.block.get(at.clone())?;
        self.at = at.end;
        Some(Text { at, coded })
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.block.get(self.at)?;
        self.at += 1;
        Some(byte)
    }
}

fn is_path(symbol: u8) -> bool {
    matches!(symbol, b'/' | b'%')
}

fn may_stay(symbol: u8) -> bool {
    symbol.is_ascii_alphanumeric() || b"-._~+=".contains(&symbol)
}

fn mend_plain(text: &mut [u8]) {
    if text.iter().copied().any(is_path) {
        for symbol in text.iter_mut().filter(|symbol| !may_stay(**symbol)) {
            *symbol = b'-';
        }
    }
}

fn mend_coded(text: &mut [u8]) {
    let Some(symbols) = decode(text) else { return };
    if !symbols.iter().any(|found| is_path(found.symbol)) {
        return;
    }
    for found in symbols.iter().filter(|found| !may_stay(found.symbol)) {
        if let Some(code) = found.row.stand_in {
            put(text, found.at, found.row.bits, code);
        }
    }
}

fn spells(text: &[u8], coded: bool, word: &[u8]) -> bool {
    if coded {
        decode(text).is_some_and(|symbols| symbols.iter().map(|s| &s.symbol).eq(word))
    } else {
        text == word
    }
}

/// A symbol in coded text.
struct Found {
    symbol: u8,
    /// Its first bit.
    at: usize,
    row: &'static Row,
}

/// What is coded; `None` if it has symbols that no path is likely to have.
fn decode(text: &[u8]) -> Option<Vec<Found>> {
    let mut symbols = Vec::new();
    let (mut code, mut bits) = (0, 0);
    for at in 0..text.len() * 8 {
        code = code << 1 | u32::from(text[at / 8] >> (7 - at % 8) & 1);
        bits += 1;
        let row = ROWS.iter().find(|row| row.bits == bits);
        let symbol = row.and_then(|row| {
            let place = usize::try_from(code.checked_sub(row.first)?).ok()?;
            Some((row, *row.symbols.get(place)?))
        });
        if let Some((row, symbol)) = symbol {
            symbols.push(Found {
                symbol,
                at: at + 1 - bits,
                row,
            });
            (code, bits) = (0, 0);
        }
        if bits > 15 {
            return None;
        }
    }
    // What is left over is filled up with ones.
    let filled = bits < 8 && code == (1 << bits) - 1;
    filled.then_some(symbols)
}

fn put(text: &mut [u8], at: usize, bits: usize, code: u32) {
    for bit in 0..bits {
        let (byte, mask) = ((at + bit) / 8, 0x80 >> ((at + bit) % 8));
        if code >> (bits - 1 - bit) & 1 == 1 {
            text[byte] |= mask;
        } else {
            text[byte] &= !mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &[u8]) -> String {
        let symbols = decode(text).unwrap();
        String::from_utf8(symbols.iter().map(|found| found.symbol).collect()).unwrap()
    }

    fn code(text: &str) -> Vec<u8> {
        let mut bytes = vec![0xff; text.len() * 2];
        let mut end = 0;
        for symbol in text.bytes() {
            let place = |row: &Row| row.symbols.iter().position(|s| *s == symbol);
            let (row, place) = ROWS.iter().find_map(|r| Some((r, place(r)?))).unwrap();
            put(&mut bytes, end, row.bits, row.first + place as u32);
            end += row.bits;
        }
        bytes.truncate(end.div_ceil(8));
        bytes
    }

    /// A request's block as grpc-go writes it: method and scheme by number, path and
    /// authority spelt out.
    fn block(authority: &[u8], coded: bool) -> Vec<u8> {
        let mut block = vec![0x83, 0x86, 0x44, 0x02, b'/', b'x', 0x41];
        block.push(authority.len() as u8 | if coded { 0x80 } else { 0 });
        block.extend_from_slice(authority);
        // A field without a number, and one by number.
        block.extend_from_slice(b"\x40\x02te\x08trailers\xbe");
        block
    }

    #[test]
    fn the_code_is_that_of_the_specification() {
        // RFC 7541, C.4.1 and C.4.3.
        let host = [
            0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff,
        ];
        assert_eq!(decoded(&host), "www.example.com");
        assert_eq!(code("www.example.com"), host);
        let key = [0x25, 0xa8, 0x49, 0xe9, 0x5b, 0xa9, 0x7d, 0x7f];
        assert_eq!(decoded(&key), "custom-key");
        for row in &ROWS {
            let last = row.first + row.symbols.len() as u32 - 1;
            assert!(last < 1 << row.bits, "{} bits", row.bits);
        }
    }

    #[test]
    fn a_path_becomes_a_name_of_the_same_length() {
        let cases = [
            (
                "%2Fvar%2Flib%2Fkubelet%2Freg.sock",
                "-2Fvar-2Flib-2Fkubelet-2Freg.sock",
            ),
            ("/csi/csi.sock", "-csi-csi.sock"),
            ("unix:///csi/a_b.sock", "unixx---csi-a_b.sock"),
        ];
        for (path, name) in cases {
            let coded = code(path);
            let mut found = block(&coded, true);
            mend(&mut found);
            assert_eq!(found, block(&code(name), true), "{path} in code");
            let mut found = block(path.as_bytes(), false);
            mend(&mut found);
            let plain = name.replace('x', "-").replacen("uni-", "unix", 1);
            assert_eq!(found, block(plain.as_bytes(), false), "{path} as it is");
        }
    }

    #[test]
    fn a_name_that_is_spelt_out_is_found_too() {
        for (name, bit) in [(code(":authority"), 0x80), (b":authority".to_vec(), 0)] {
            let mut block = vec![0x83, 0x40, name.len() as u8 | bit];
            block.extend_from_slice(&name);
            block.extend_from_slice(b"\x02/a");
            mend(&mut block);
            assert!(block.ends_with(b"\x02-a"), "{block:x?}");
        }
    }

    #[test]
    fn host_names_and_other_fields_stay_as_they_are() {
        for host in ["localhost", "a:1", "[::1]:80", "user@host"] {
            for (text, coded) in [(code(host), true), (host.as_bytes().to_vec(), false)] {
                let before = block(&text, coded);
                let mut after = before.clone();
                mend(&mut after);
                assert_eq!(after, before, "{host}");
            }
        }
    }

    #[test]
    fn what_is_no_header_block_does_no_harm() {
        let whole = block(&code("%2Fcsi%2Fcsi.sock"), true);
        for end in 0..whole.len() {
            mend(&mut whole[..end].to_vec());
        }
        for seed in 0..2000_u32 {
            let mut bytes: Vec<u8> = (0..24_u32)
                .map(|n| (seed.wrapping_mul(2_654_435_761).rotate_left(n) >> 7) as u8)
                .collect();
            mend(&mut bytes);
        }
    }
}
