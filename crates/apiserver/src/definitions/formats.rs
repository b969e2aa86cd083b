//! The formats that texts of a defined kind may be asked to have.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use jiff::civil::Date;
use regex::Regex;
use serde_json::Value;

use super::duration;
use crate::registry::{DNS_LABEL, DNS_SUBDOMAIN};

/// What the original knows; of others it tells when a definition is written.
const KNOWN: [&str; 26] = [
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "password",
    "date",
    "duration",
    "datetime",
    "k8s-short-name",
    "k8s-long-name",
];

/// A warning for every format in a schema that means nothing.
pub(super) fn warnings(schema: &Value) -> Vec<String> {
    let mut found = Vec::new();
    collect(schema, &mut found);
    found.sort();
    found.dedup();
    found
}

fn collect(schema: &Value, found: &mut Vec<String>) {
    if let (Some(format), true) = (schema["format"].as_str(), schema["type"] == "string")
        && !format.is_empty()
        && !KNOWN.contains(&format.replace("date-time", "datetime").as_str())
    {
        found.push(format!("unrecognized format {format:?}"));
    }
    for inner in schema["properties"].as_object().into_iter().flatten() {
        collect(inner.1, found);
    }
    for name in ["items", "additionalProperties"] {
        if schema[name].is_object() {
            collect(&schema[name], found);
        }
    }
}

/// Whether a text is in a format; one that isn't known takes every text.
pub(super) fn fits(format: &str, text: &str) -> bool {
    match format {
        "date-time" | "datetime" => text.parse::<Timestamp>().is_ok(),
        "date" => text.len() == 10 && text.parse::<Date>().is_ok(),
        "duration" => duration::parse(text).is_some(),
        "byte" => STANDARD.decode(text).is_ok(),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr(text),
        "uuid" => UUID.is_match(text),
        "mac" => MAC.is_match(text),
        "hexcolor" => COLOUR.is_match(text),
        "hostname" => is_hostname(text),
        "email" => is_address(text),
        "uri" => is_uri(text),
        "k8s-short-name" => DNS_LABEL.fault(text).is_none(),
        "k8s-long-name" => DNS_SUBDOMAIN.fault(text).is_none(),
        _ => true,
    }
}

fn known_regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the pattern is part of the program and is tested")
}

static UUID: LazyLock<Regex> =
    LazyLock::new(|| known_regex("(?i)^[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}$"));
static MAC: LazyLock<Regex> = LazyLock::new(|| {
    known_regex("(?i)^[0-9a-f]{2}(?:[:-][0-9a-f]{2}){5}(?:(?:[:-][0-9a-f]{2}){2})?$")
});
static COLOUR: LazyLock<Regex> =
    LazyLock::new(|| known_regex("^#?(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"));

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let plain = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
    let bits: u32 = match bits.parse() {
        Ok(bits) if plain => bits,
        _ => return false,
    };
    address.parse::<Ipv4Addr>().is_ok() && bits <= 32
        || address.parse::<Ipv6Addr>().is_ok() && bits <= 128
}

fn is_hostname(text: &str) -> bool {
    let label = |label: &str| {
        let inner = |c: char| c.is_alphanumeric();
        (1..=63).contains(&label.len())
            && label.starts_with(inner)
            && label.ends_with(inner)
            && label.chars().all(|c| inner(c) || c == '-')
    };
    text.len() <= 255 && text.split('.').all(label)
}

fn is_address(text: &str) -> bool {
    let inner = match (text.find('<'), text.strip_suffix('>')) {
        (Some(open), Some(closed)) => &closed[open + 1..],
        _ => text,
    };
    let atom = |c: char| c.is_alphanumeric() || "!#$%&'*+-/=?^_`{|}~.".contains(c);
    inner.rsplit_once('@').is_some_and(|(local, domain)| {
        !local.is_empty()
            && !domain.is_empty()
            && local.chars().all(atom)
            && domain.chars().all(|c| atom(c) || "[]:".contains(c))
    })
}

/// An address that begins with its scheme, or a path from the root.
pub(super) fn is_uri(text: &str) -> bool {
    let plain = text.chars().all(|c| !c.is_control() && c != ' ');
    let scheme = text.split_once(':').is_some_and(|(scheme, rest)| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b))
            && !rest.is_empty()
    });
    plain && (text.starts_with('/') || scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_in_their_formats_or_not() {
        for (format, good, bad) in [
            ("date-time", "2020-01-01T00:00:00Z", "2020-01-01"),
            ("date", "2020-01-01", "2020-1-1"),
            ("duration", "1h30m", "1q"),
            ("byte", "aGk=", "*"),
            ("ipv4", "1.2.3.4", "::1"),
            ("ipv6", "::1", "1.2.3.4"),
            ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
            ("uuid", "123E4567-e89b-12d3-a456-426614174000", "123"),
            ("mac", "00:00:5e:00:53:01", "00:00"),
            ("hexcolor", "#fff", "red"),
            ("hostname", "a.example", "-"),
            ("email", "A <a@b.c>", "a"),
            ("uri", "https://a/b", "a b"),
        ] {
            assert!(fits(format, good), "{format} {good}");
            assert!(!fits(format, bad), "{format} {bad}");
        }
        assert!(fits("odd", "anything"));
    }
}
