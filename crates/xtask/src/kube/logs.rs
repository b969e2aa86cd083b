//! Reading the ends of logs.

use std::{fs, path::Path};

/// The last lines of a log, or a word about why there are none.
pub(crate) fn end(path: &Path, lines: usize) -> String {
    match fs::read(path) {
        Ok(bytes) => last(&String::from_utf8_lossy(&bytes), lines).to_owned(),
        Err(error) => format!("(no log at {}: {error})\n", path.display()),
    }
}

fn last(text: &str, lines: usize) -> &str {
    let text_end = text.trim_end_matches('\n').len();
    let begin = text[..text_end]
        .rmatch_indices('\n')
        .nth(lines.saturating_sub(1))
        .map_or(0, |(at, _)| at + 1);
    &text[begin..]
}

#[cfg(test)]
mod tests {
    use super::last;

    #[test]
    fn the_end_of_a_log_is_its_last_lines() {
        for (text, lines, end) in [
            ("a\nb\nc\n", 2, "b\nc\n"),
            ("a\nb\nc", 2, "b\nc"),
            ("a\n", 5, "a\n"),
            ("", 5, ""),
        ] {
            assert_eq!(last(text, lines), end);
        }
    }
}
