//! What an API server takes as a label: asked when the configuration is read, since it would refuse
//! every volume.

/// The longest name or value.
const LONGEST: usize = 63;
/// The longest domain before a key's name.
const LONGEST_DOMAIN: usize = 253;

/// Why a label is none.
pub(super) fn fault(key: &str, value: &str) -> Option<String> {
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    let good = domain.is_none_or(is_domain) && is_word(name, "-_.");
    if !good {
        return Some(format!(
            "labelsForPV: {key:?} is no label key: write it like zone or example.com/zone, with a name \
             of at most {LONGEST} letters, digits, '-', '_' and '.'"
        ));
    }
    (!value.is_empty() && !is_word(value, "-_.")).then(|| {
        format!(
            "labelsForPV: {key}: {value:?} is no label value: use at most {LONGEST} letters, digits, \
             '-', '_' and '.'"
        )
    })
}

fn is_domain(text: &str) -> bool {
    let lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
    text.len() <= LONGEST_DOMAIN && lower && text.split('.').all(|part| is_word(part, "-"))
}

/// Letters and digits, at the ends no others.
fn is_word(text: &str, inside: &str) -> bool {
    let alphanumeric = |letter: char| letter.is_ascii_alphanumeric();
    text.len() <= LONGEST
        && text.starts_with(alphanumeric)
        && text.ends_with(alphanumeric)
        && text.chars().all(|c| alphanumeric(c) || inside.contains(c))
}
