//! I15: a write says for which object, or which version of it, it is meant. Pure.

use http::{Method, request::Parts};
use serde_json::Value;

use crate::backend::Breach;
use crate::faults::Member;

/// What only its owner writes: who comes late overwrites nobody.
const OWNED: [&str; 3] = ["/nodes/", "/csinodes/", "/leases/"];

/// The breach that a write is, if it could hit another object of the same name.
pub(super) fn unguarded(member: Member, head: &Parts, body: &[u8]) -> Option<Breach> {
    let path = head.uri.path();
    if !member.is_elected() || OWNED.iter().any(|owned| path.contains(owned)) {
        return None;
    }
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let named = |within: &Value| {
        let says = |field: &str| within[field].as_str().is_some_and(|text| !text.is_empty());
        says("uid") || says("resourceVersion")
    };
    let guarded = match head.method {
        Method::PATCH | Method::PUT => {
            let mut steps = body.as_array().into_iter().flatten();
            named(&body["metadata"]) || steps.any(|step| step["op"] == "test")
        }
        Method::DELETE => named(&body["preconditions"]),
        _ => true,
    };
    (!guarded).then(|| Breach {
        rule: "I15",
        what: format!(
            "{member} sends {} {path} without a precondition",
            head.method
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(method: &str, path: &str, body: &str) -> bool {
        let request = http::Request::builder().method(method).uri(path).body(());
        let (head, ()) = request.expect("a request").into_parts();
        unguarded(Member::Attacher, &head, body.as_bytes()).is_none()
    }

    #[test]
    fn a_write_names_its_object_or_its_version() {
        let at = "/api/v1/persistentvolumes/v";
        assert!(judged("POST", at, "{}"));
        assert!(!judged("PATCH", at, r#"{"metadata":{"labels":{}}}"#));
        assert!(judged("PATCH", at, r#"{"metadata":{"uid":"u"}}"#));
        assert!(judged("PATCH", at, r#"[{"op":"test"},{"op":"remove"}]"#));
        assert!(!judged("PATCH", at, r#"[{"op":"remove"}]"#));
        assert!(!judged("DELETE", at, "{}"));
        assert!(judged("DELETE", at, r#"{"preconditions":{"uid":"u"}}"#));
        assert!(judged("PATCH", "/api/v1/nodes/n/status", "{}"));
    }
}
