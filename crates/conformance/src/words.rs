//! Requests and answers in words that a driver's author can act on.

use std::fmt::Debug;

use orlop_csi::client::Refusal;
use orlop_csi::code_name;

/// More than this of a request or a reply helps nobody.
const LONGEST: usize = 700;

/// A driver's own words are what its author can act on; only floods are cut.
const LONGEST_WORDS: usize = 4000;

/// A message without its empty fields. Secrets are hidden by its `Debug`.
pub(crate) fn message(message: &impl Debug) -> String {
    cut(&without_empty(&format!("{message:?}")), LONGEST)
}

/// A refusal in words; `hide` are values that must not be shown.
pub(crate) fn refusal(refusal: &Refusal) -> String {
    let code = code_name(refusal.code);
    match refusal.message.as_str() {
        "" => format!("{code} without a message"),
        message => format!("{code} ({})", cut(message, LONGEST_WORDS)),
    }
}

/// Drops `field: nothing` from a `Debug` output; a cosmetic, never a parser.
fn without_empty(text: &str) -> String {
    const NOTHINGS: [&str; 7] = ["None", "\"\"", "[]", "{}", "0", "false", "Nothing"];
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find([' ', '(']) {
        let (before, after) = rest.split_at(at + 1);
        kept.push_str(before);
        rest = after;
        // A field begins after "{ " or ", ".
        while kept.ends_with("{ ") || kept.ends_with(", ") {
            let name = rest
                .find(|letter: char| {
                    !letter.is_ascii_lowercase() && letter != '_' && !letter.is_ascii_digit()
                })
                .unwrap_or(0);
            let Some(value) = rest[name..].strip_prefix(": ").filter(|_| name > 0) else {
                break;
            };
            let Some(after) = NOTHINGS
                .iter()
                .find_map(|nothing| value.strip_prefix(nothing))
            else {
                break;
            };
            if let Some(next) = after.strip_prefix(", ") {
                rest = next;
            } else if let Some(end) = after.strip_prefix(" }") {
                let open = kept.trim_end_matches([',', ' ']).len();
                kept.truncate(open);
                rest = end;
                kept.push_str(" }");
                break;
            } else {
                break;
            }
        }
    }
    kept.push_str(rest);
    kept.replace("{ }", "{}")
}

fn cut(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    let mut end = longest;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}… ({} bytes in all)", &text[..end], text.len())
}

/// A string shortened for a title or a sentence.
pub(crate) fn short(text: &str) -> String {
    if text.chars().count() <= 60 {
        return format!("{text:?}");
    }
    let start: String = text.chars().take(40).collect();
    format!("{start:?}… ({} bytes)", text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_csi::proto;

    #[test]
    fn empty_fields_are_left_out() {
        let request = proto::CreateVolumeRequest {
            name: "x".into(),
            capacity_range: Some(proto::CapacityRange {
                required_bytes: 10,
                limit_bytes: 0,
            }),
            ..Default::default()
        };
        assert_eq!(
            message(&request),
            "CreateVolumeRequest { name: \"x\", capacity_range: Some(CapacityRange { required_bytes: 10 }) }"
        );
        let none = proto::DeleteVolumeRequest::default();
        assert_eq!(message(&none), "DeleteVolumeRequest {}");
    }

    #[test]
    fn secrets_are_not_shown() {
        let request = proto::DeleteVolumeRequest {
            volume_id: "v".into(),
            secrets: [("key".to_owned(), "hunter2".to_owned())].into(),
        };
        assert!(!message(&request).contains("hunter2"));
    }

    #[test]
    fn long_messages_are_cut_at_a_letter() {
        let long = "é".repeat(2000);
        assert!(message(&long).len() < 800);
    }
}
