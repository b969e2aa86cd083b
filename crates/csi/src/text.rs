//! Text that crosses the wire in a gRPC status: bounded and never empty.

use std::error::Error;

/// The most that a status message may take. It travels in a header; peers
/// refuse or hang on header lists beyond 16 KiB, and percent-encoding can
/// triple it.
pub(crate) const LONGEST_MESSAGE: usize = 4096;

const CUT_MARK: &str = " [cut]";

/// The text, cut at a character's border to [`LONGEST_MESSAGE`] bytes.
pub(crate) fn cut(mut text: String) -> String {
    if text.len() > LONGEST_MESSAGE {
        let end = text.floor_char_boundary(LONGEST_MESSAGE - CUT_MARK.len());
        text.truncate(end);
        text.push_str(CUT_MARK);
    }
    text
}

/// An error and everything below it, as one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(source) = below {
        let part = source.to_string();
        // Foreign errors often repeat their source in their own words.
        if !text.ends_with(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        below = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("could not mount")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn a_chain_names_every_cause_once() {
        let error = Outer(std::io::Error::other("device is busy"));
        assert_eq!(chain(&error), "could not mount: device is busy");
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let text = cut("ü".repeat(LONGEST_MESSAGE));
        assert!(text.len() <= LONGEST_MESSAGE, "{}", text.len());
        assert!(text.ends_with("ü [cut]"), "{}", &text[text.len() - 20..]);
        assert_eq!(cut("short".to_owned()), "short");
    }
}
