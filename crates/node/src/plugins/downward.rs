//! What a pod may learn of itself: its fields, and what its containers ask for.

use std::collections::BTreeMap;

use orlop_model::pod::{Container, ResourceFieldRef};
use orlop_model::{Pod, Quantity, Resources};

/// What a container is not told by its pod but by its node.
#[derive(Debug, Clone)]
pub(crate) struct NodeFacts {
    /// The node's address, which is that of its pods too.
    pub(crate) address: String,
    /// What a container without a limit is held to.
    pub(crate) allocatable: Resources,
}

/// The value of a pod's field, as the downward API names them.
pub(crate) fn field(pod: &Pod, path: &str, facts: &NodeFacts) -> Option<String> {
    let meta = &pod.metadata;
    let entry = |map: &BTreeMap<String, String>, rest: &str| {
        let key = rest.strip_prefix("['")?.strip_suffix("']")?;
        Some(map.get(key).cloned().unwrap_or_default())
    };
    Some(match path {
        "metadata.name" => meta.name.clone(),
        "metadata.namespace" => meta.namespace.clone(),
        "metadata.uid" => meta.uid.clone(),
        "metadata.labels" => listed(&meta.labels),
        "metadata.annotations" => listed(&meta.annotations),
        "spec.nodeName" => pod.spec.node_name.clone(),
        "spec.serviceAccountName" => pod.spec.service_account_name.clone(),
        "status.hostIP" | "status.podIP" | "status.hostIPs" | "status.podIPs" => {
            facts.address.clone()
        }
        path => match path.split_at_checked("metadata.labels".len()) {
            Some(("metadata.labels", rest)) => entry(&meta.labels, rest)?,
            _ => entry(
                &meta.annotations,
                path.strip_prefix("metadata.annotations")?,
            )?,
        },
    })
}

/// What a container asks for or is held to, in units of the divisor and rounded up. Without a
/// limit of its own a container is held to what the node has.
pub(crate) fn resource(
    container: &Container,
    wanted: &ResourceFieldRef,
    facts: &NodeFacts,
) -> Option<String> {
    let (kind, name) = wanted.resource.split_once('.')?;
    let known =
        matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    if !known {
        return None;
    }
    let own = |resources: &Resources| resources.get(name).cloned();
    let quantity = match kind {
        "limits" => own(&container.resources.limits).or_else(|| own(&facts.allocatable)),
        "requests" => own(&container.resources.requests),
        _ => return None,
    };
    let count = |quantity: &Quantity| {
        if name == "cpu" {
            quantity.milli()
        } else {
            quantity.value()
        }
    };
    let usual = if name == "cpu" { 1000 } else { 1 };
    let divisor = wanted.divisor.as_ref().map_or(0, count);
    let divisor = if divisor <= 0 { usual } else { divisor };
    let value = quantity.as_ref().map_or(0, count).max(0);
    Some((value / divisor + i64::from(value % divisor != 0)).to_string())
}

/// One `key="value"` per line, in the order of keys.
fn listed(map: &BTreeMap<String, String>) -> String {
    let lines = map
        .iter()
        .map(|(key, value)| format!("{key}={}", quoted(value)));
    lines.collect::<Vec<_>>().join("\n")
}

/// A text as Go quotes it: programs that read such files were written against that.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        let escape = match c {
            '"' => "\\\"",
            '\\' => "\\\\",
            '\u{7}' => "\\a",
            '\u{8}' => "\\b",
            '\u{c}' => "\\f",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\u{b}' => "\\v",
            c if c < ' ' || c == '\u{7f}' => {
                out.push_str(&format!("\\x{:02x}", u32::from(c)));
                continue;
            }
            c if prints(c) => {
                out.push(c);
                continue;
            }
            c if u32::from(c) < 0x10000 => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
                continue;
            }
            c => {
                out.push_str(&format!("\\U{:08x}", u32::from(c)));
                continue;
            }
        };
        out.push_str(escape);
    }
    out.push('"');
    out
}

/// Whether a character shows. Rust's own answer, but for the marks that combine with the letter
/// before them: those it writes as numbers, and Go does not.
fn prints(c: char) -> bool {
    c == '\'' || ('\u{300}'..='\u{36f}').contains(&c) || c.escape_debug().eq([c])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> NodeFacts {
        let mut allocatable = Resources::default();
        for (name, value) in [("cpu", "4"), ("memory", "8Gi")] {
            let value = value.parse().expect("a quantity");
            allocatable.0.insert(name.into(), value);
        }
        NodeFacts {
            address: "10.0.0.9".into(),
            allocatable,
        }
    }

    #[test]
    fn fields_are_the_downward_apis() {
        let mut pod = Pod::default();
        pod.metadata.name = "web".into();
        pod.metadata.labels.insert("app".into(), "x".into());
        pod.metadata.labels.insert("b".into(), "y".into());
        let cases = [
            ("metadata.name", Some("web")),
            ("metadata.labels['app']", Some("x")),
            ("metadata.labels['none']", Some("")),
            ("metadata.labels", Some("app=\"x\"\nb=\"y\"")),
            ("status.podIP", Some("10.0.0.9")),
            ("spec.containers", None),
        ];
        for (path, wanted) in cases {
            assert_eq!(field(&pod, path, &facts()).as_deref(), wanted, "{path}");
        }
    }

    #[test]
    fn values_are_quoted_as_go_does() {
        let cases = [
            ("it's", "\"it's\""),
            ("a\"b\\c", r#""a\"b\\c""#),
            ("a\nb\tc\u{7}\u{1}\u{7f}", r#""a\nb\tc\a\x01\x7f""#),
            ("ü 人 e\u{301}", "\"ü 人 e\u{301}\""),
            ("\u{200b}\u{feff}", r#""\u200b\ufeff""#),
            ("\u{e0001}", r#""\U000e0001""#),
        ];
        for (text, wanted) in cases {
            assert_eq!(quoted(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn resources_are_counted_in_their_divisor_and_rounded_up() {
        let mut container = Container::default();
        for (name, value) in [("cpu", "1500m"), ("memory", "64Mi")] {
            let value = value.parse().expect("a quantity");
            container.resources.limits.0.insert(name.into(), value);
        }
        let cases = [
            ("limits.cpu", None, Some("2")),
            ("limits.cpu", Some("1m"), Some("1500")),
            ("limits.cpu", Some("0"), Some("2")),
            ("limits.memory", None, Some("67108864")),
            ("limits.memory", Some("1Mi"), Some("64")),
            ("limits.memory", Some("60Mi"), Some("2")),
            ("requests.memory", Some("1Mi"), Some("0")),
            ("limits.ephemeral-storage", None, Some("0")),
            ("limits.pods", None, None),
            ("wishes.cpu", None, None),
        ];
        for (resource_name, divisor, wanted) in cases {
            let reference = ResourceFieldRef {
                container_name: String::new(),
                resource: resource_name.into(),
                divisor: divisor.map(|text| text.parse().expect("a quantity")),
            };
            let found = resource(&container, &reference, &facts());
            assert_eq!(found.as_deref(), wanted, "{resource_name} {divisor:?}");
        }
        let none = Container::default();
        let reference = ResourceFieldRef {
            resource: "limits.cpu".into(),
            ..ResourceFieldRef::default()
        };
        assert_eq!(resource(&none, &reference, &facts()).as_deref(), Some("4"));
    }
}
