//! Halves of characters in JSON texts. An escape such as `\ud800` is one half of a character
//! that two of them spell; alone it is none. The original's reader puts the replacement
//! character in its place where others refuse the whole text.

use bytes::Bytes;

/// As many bytes as any other escape, so that every place in the text stays what it is.
const REPLACEMENT: &[u8] = br"\ufffd";

/// The text with every lone half replaced.
pub(super) fn mended(text: &Bytes) -> Bytes {
    let lone = lone(text);
    if lone.is_empty() {
        return text.clone();
    }
    let mut mended = text.to_vec();
    for at in lone {
        mended[at..at + REPLACEMENT.len()].copy_from_slice(REPLACEMENT);
    }
    mended.into()
}

/// Where the escapes of lone halves begin.
fn lone(text: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(step) = text[at..].iter().position(|&byte| byte == b'\\') {
        at += step;
        at += match unit(text, at) {
            Some(0xd800..=0xdbff) => match unit(text, at + 6) {
                Some(0xdc00..=0xdfff) => 12,
                _ => {
                    found.push(at);
                    6
                }
            },
            Some(0xdc00..=0xdfff) => {
                found.push(at);
                6
            }
            Some(_) => 6,
            // Another escape, of which the next byte is a part.
            None => 2.min(text.len() - at),
        };
    }
    found
}

/// The number of an escape, `\u` and four hexadecimal digits, at a place.
fn unit(text: &[u8], at: usize) -> Option<u32> {
    let escape = text.get(at..at + 6)?;
    let digits = escape.strip_prefix(br"\u")?;
    let mut digits = digits.iter().map(|&digit| char::from(digit).to_digit(16));
    digits.try_fold(0, |sum, digit| Some(sum * 16 + digit?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lone_halves_are_replaced() {
        for (given, mended) in [
            (r#""a""#, r#""a""#),
            (r#""\ud83d\ude00""#, r#""\ud83d\ude00""#),
            (r#""\ud800""#, r#""\ufffd""#),
            (r#""\uDC00x""#, r#""\ufffdx""#),
            (r#""\ud800\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\\ud800""#, r#""\\ud800""#),
            (r#""\u00e4\n\"""#, r#""\u00e4\n\"""#),
            (r#""\ud8"#, r#""\ud8"#),
            ("\\", "\\"),
        ] {
            let got = super::mended(&Bytes::from_static(given.as_bytes()));
            assert_eq!(got, mended.as_bytes(), "{given}");
        }
    }
}
