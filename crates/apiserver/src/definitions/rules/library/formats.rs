//! Formats by their names: `format.dns1123Label().validate('a')`.

use super::{Made, no_overload};
use crate::admission::{LABEL_VALUE, key_fault};
use crate::definitions::formats;
use crate::definitions::rules::value::Value;
use crate::registry::{DNS_1035_LABEL, DNS_LABEL, DNS_SUBDOMAIN};

/// A format that texts are checked against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::definitions::rules) struct NamedFormat(&'static str);

const NAMES: [&str; 13] = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];

impl NamedFormat {
    fn named(name: &str) -> Option<Self> {
        NAMES.into_iter().find(|known| *known == name).map(Self)
    }

    fn fault(self, text: &str) -> Option<String> {
        // A prefix may end as no name may.
        let prefix = || {
            let kept = text.trim_end_matches(['-', '.']);
            if kept.is_empty() { text } else { kept }.to_owned()
        };
        let plain =
            |format: &str, why: &str| (!formats::fits(format, text)).then(|| why.to_owned());
        match self.0 {
            "dns1123Label" => DNS_LABEL.fault(text),
            "dns1123Subdomain" => DNS_SUBDOMAIN.fault(text),
            "dns1035Label" => DNS_1035_LABEL.fault(text),
            "dns1123LabelPrefix" => DNS_LABEL.fault(&prefix()),
            "dns1123SubdomainPrefix" => DNS_SUBDOMAIN.fault(&prefix()),
            "dns1035LabelPrefix" => DNS_1035_LABEL.fault(&prefix()),
            "qualifiedName" => key_fault(text),
            "labelValue" => (!is_label_value(text)).then(|| LABEL_VALUE.to_owned()),
            "uri" => plain("uri", "invalid URI for request"),
            "uuid" => plain("uuid", "does not match the UUID format"),
            "byte" => plain("byte", "invalid base64"),
            "date" => plain("date", "invalid date"),
            _ => plain("datetime", "invalid datetime"),
        }
    }
}

fn is_label_value(text: &str) -> bool {
    let ends = |c: char| c.is_ascii_alphanumeric();
    let inner = |c: char| ends(c) || "-_.".contains(c);
    text.is_empty()
        || text.len() <= 63
            && text.starts_with(ends)
            && text.ends_with(ends)
            && text.chars().all(inner)
}

pub(super) fn call(name: &str, arguments: &[Value]) -> Option<Made> {
    let made = match (name, arguments) {
        ("format.named", [Value::Text(name)]) => Ok(match NamedFormat::named(name) {
            Some(format) => Value::some(Value::Format(format)),
            None => Value::Optional(None),
        }),
        ("validate", [Value::Format(format), Value::Text(text)]) => Ok(match format.fault(text) {
            Some(fault) => Value::some(Value::list(vec![Value::text(fault)])),
            None => Value::Optional(None),
        }),
        ("validate", _) => Err(no_overload()),
        (name, []) => {
            let name = name.strip_prefix("format.")?;
            Ok(Value::Format(NamedFormat::named(name)?))
        }
        _ => return None,
    };
    Some(made)
}
