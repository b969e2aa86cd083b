//! What names may look like.

use crate::kinds::KindInfo;

/// A format of names with the text that explains it.
#[derive(Debug, PartialEq, Eq)]
pub struct NameFormat {
    letters: Letters,
    longest: usize,
    explanation: &'static str,
}

#[derive(Debug, PartialEq, Eq)]
enum Letters {
    Label,
    /// A label that starts with a letter.
    OldLabel,
    Subdomain,
    Segment,
}

/// Lowercase letters, digits, `-` and `.`: the names of most objects.
pub static DNS_SUBDOMAIN: NameFormat = NameFormat {
    letters: Letters::Subdomain,
    longest: 253,
    explanation: "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
        characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
        'example.com', regex used for validation is \
        '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
};

/// Lowercase letters, digits and `-`: the names of namespaces, containers and volumes.
pub static DNS_LABEL: NameFormat = NameFormat {
    letters: Letters::Label,
    longest: 63,
    explanation: "a lowercase RFC 1123 label must consist of lower case alphanumeric \
        characters or '-', and must start and end with an alphanumeric character (e.g. \
        'my-name',  or '123-abc', regex used for validation is \
        '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
};

/// A label that starts with a letter: the names of what is defined.
pub static DNS_1035_LABEL: NameFormat = NameFormat {
    letters: Letters::OldLabel,
    longest: 63,
    explanation: "a DNS-1035 label must consist of lower case alphanumeric characters or '-', \
        start with an alphabetic character, and end with an alphanumeric character (e.g. \
        'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
};

/// Whatever can stand between two slashes of a path: the names of roles and bindings.
static PATH_SEGMENT: NameFormat = NameFormat {
    letters: Letters::Segment,
    longest: 253,
    explanation: "may not be '.' or '..', and may not contain '/' or '%'",
};

impl NameFormat {
    /// The format of a kind's names.
    pub fn of(kind: &KindInfo) -> &'static Self {
        match (kind.group, kind.kind) {
            // A StatefulSet's name becomes the host name of its pods.
            ("", "Namespace" | "Service") | ("apps", "StatefulSet") => &DNS_LABEL,
            ("rbac.authorization.k8s.io", _) => &PATH_SEGMENT,
            _ => &DNS_SUBDOMAIN,
        }
    }

    /// What is wrong with a name, if anything.
    pub fn fault(&self, name: &str) -> Option<String> {
        if name.len() > self.longest {
            return Some(format!("must be no more than {} characters", self.longest));
        }
        let label = |label: &str| {
            let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            let bytes = label.as_bytes();
            bytes.iter().all(|&byte| inner(byte) || byte == b'-')
                && bytes.first().copied().is_some_and(inner)
                && bytes.last().copied().is_some_and(inner)
        };
        let good = match self.letters {
            Letters::Label => label(name),
            Letters::OldLabel => {
                label(name) && name.starts_with(|first: char| first.is_ascii_lowercase())
            }
            Letters::Subdomain => name.split('.').all(label),
            Letters::Segment => {
                !matches!(name, "" | "." | "..") && !name.contains(['/', '%', '\0'])
            }
        };
        (!good).then(|| self.explanation.to_owned())
    }
}

impl NameFormat {
    /// What is wrong with what a name is to begin with, if anything: it may end with a dash.
    pub fn prefix_fault(&self, prefix: &str) -> Option<String> {
        match prefix.strip_suffix('-') {
            _ if prefix.is_empty() => None,
            Some(rest) if !rest.is_empty() => self.fault(&format!("{rest}a")),
            _ => self.fault(prefix),
        }
    }
}

/// The letters of generated suffixes: no vowels and nothing that looks like another.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX: usize = 5;
/// The longest prefix that leaves room for a suffix within a label.
const LONGEST_PREFIX: usize = 63 - SUFFIX;

/// A name from a prefix and random bits.
pub(super) fn generate(prefix: &str, mut random: u128) -> String {
    let end = prefix.floor_char_boundary(LONGEST_PREFIX);
    let mut name = prefix[..end].to_owned();
    for _ in 0..SUFFIX {
        let letters = ALPHABET.len() as u128;
        let letter = usize::try_from(random % letters).unwrap_or(0);
        name.push(char::from(ALPHABET[letter]));
        random /= letters;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_judged_as_the_original_does() {
        for good in ["a", "a-b", "a.b-c.d", "0", "pvc-7f"] {
            assert_eq!(DNS_SUBDOMAIN.fault(good), None, "{good}");
        }
        for bad in [
            "", "A", "-a", "a-", "a..b", "a_b", "a/b", ".", "..", "a\0b", "a.-b",
        ] {
            assert!(DNS_SUBDOMAIN.fault(bad).is_some(), "{bad:?}");
        }
        assert_eq!(PATH_SEGMENT.fault("system:basic-user"), None);
        for bad in ["", ".", "..", "a/b", "a%2fb"] {
            assert!(PATH_SEGMENT.fault(bad).is_some(), "{bad:?}");
        }
        assert!(DNS_LABEL.fault("a.b").is_some());
        assert!(DNS_LABEL.fault(&"a".repeat(64)).is_some());
        assert_eq!(DNS_SUBDOMAIN.prefix_fault("web-"), None);
        assert_eq!(DNS_SUBDOMAIN.prefix_fault(&"a".repeat(253)), None);
        let long = DNS_SUBDOMAIN.prefix_fault(&"a".repeat(254));
        assert_eq!(long.as_deref(), Some("must be no more than 253 characters"));
    }

    #[test]
    fn generated_names_keep_the_prefix_and_fit_into_a_label() {
        assert_eq!(generate("web-", 0), "web-bbbbb");
        assert_eq!(generate(&"x".repeat(100), u128::MAX).len(), 63);
    }
}
