//! What becomes of an object whose owners go: pure decisions.

use serde_json::Value;

use crate::registry::text;

/// What is known of one owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Owner {
    /// It is there.
    Present,
    /// It is gone, or another object has its name.
    Absent,
    /// It waits for its dependents to go first.
    Waiting,
    /// Its kind isn't served here, so nobody can tell.
    Unknown,
}

/// What to do with an object that has owners.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It stays as it is.
    Keep,
    /// It stays for its other owners, without these references.
    Release {
        /// The uids of the owners that are gone.
        uids: Vec<String>,
    },
    /// Nobody holds it any more.
    Delete,
}

/// Decides by the state of each owner, in the order of the references.
pub(super) fn decide(owners: &[(&Value, Owner)]) -> Verdict {
    let is = |wanted: &Owner| owners.iter().any(|(_, owner)| owner == wanted);
    let held = is(&Owner::Present) || is(&Owner::Unknown);
    if !held && (is(&Owner::Absent) || is(&Owner::Waiting)) {
        return Verdict::Delete;
    }
    let gone = owners.iter().filter(|(_, owner)| *owner == Owner::Absent);
    let uids: Vec<String> = gone
        .map(|(reference, _)| text(reference, "/uid").to_owned())
        .collect();
    if uids.is_empty() {
        Verdict::Keep
    } else {
        Verdict::Release { uids }
    }
}

/// The object without its references to these owners.
pub(super) fn without_owners(object: &Value, uids: &[String]) -> Value {
    let mut released = object.clone();
    if let Some(owners) = released["metadata"]["ownerReferences"].as_array_mut() {
        owners.retain(|owner| !uids.iter().any(|uid| uid == text(owner, "/uid")));
    }
    released
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_goes_with_its_last_owner() {
        let (a, b) = (json!({ "uid": "a" }), json!({ "uid": "b" }));
        use Owner::{Absent, Present, Unknown, Waiting};
        assert_eq!(decide(&[(&a, Present)]), Verdict::Keep);
        assert_eq!(decide(&[(&a, Absent)]), Verdict::Delete);
        assert_eq!(decide(&[(&a, Waiting)]), Verdict::Delete);
        assert_eq!(decide(&[(&a, Absent), (&b, Waiting)]), Verdict::Delete);
        let release = Verdict::Release {
            uids: vec!["a".to_owned()],
        };
        assert_eq!(decide(&[(&a, Absent), (&b, Present)]), release);
        assert_eq!(decide(&[(&a, Absent), (&b, Unknown)]), release);
        assert_eq!(decide(&[(&a, Unknown)]), Verdict::Keep);
        assert_eq!(decide(&[]), Verdict::Keep);
    }
}
