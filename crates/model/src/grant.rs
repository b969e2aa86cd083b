//! ReferenceGrant: who may refer to a namespace's objects from another namespace.

use serde::{Deserialize, Serialize};

use crate::{
    kind::kind,
    meta::{Key, Meta},
};

/// Lets objects of other namespaces refer to objects of its own.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReferenceGrant {
    /// Metadata.
    pub metadata: Meta,
    /// Who may refer to what.
    pub spec: GrantSpec,
}
kind!(
    ReferenceGrant,
    "gateway.networking.k8s.io",
    "v1beta1",
    "ReferenceGrant",
    "referencegrants",
    Namespaced
);

/// Each of `from` may refer to each of `to`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GrantSpec {
    /// Who may refer.
    pub from: Vec<GrantFrom>,
    /// To what.
    pub to: Vec<GrantTo>,
}

/// The objects of a kind in a namespace.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GrantFrom {
    /// Empty for the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// The namespace.
    pub namespace: String,
}

/// The objects of a kind, or one of them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GrantTo {
    /// Empty for the core group.
    pub group: String,
    /// The kind.
    pub kind: String,
    /// Absent for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl ReferenceGrant {
    /// Whether claims of a namespace may refer to this object.
    pub fn lets_claims(&self, of: &str, group: &str, kind: &str, object: &Key) -> bool {
        let from = |from: &GrantFrom| {
            from.group.is_empty() && from.kind == "PersistentVolumeClaim" && from.namespace == of
        };
        let to = |to: &GrantTo| {
            let named = to.name.as_deref().filter(|name| !name.is_empty());
            to.group == group && to.kind == kind && named.is_none_or(|name| name == object.name)
        };
        self.metadata.namespace == object.namespace
            && self.spec.from.iter().any(from)
            && self.spec.to.iter().any(to)
    }
}

#[cfg(test)]
mod tests {
    use crate::Kind;

    use super::*;

    #[test]
    fn a_grant_names_who_may_refer_to_what() {
        let grant = ReferenceGrant::decode(
            br#"{"metadata":{"name":"g","namespace":"prod"},"spec":{
                "from":[{"group":"","kind":"PersistentVolumeClaim","namespace":"dev"}],
                "to":[{"group":"snapshot.storage.k8s.io","kind":"VolumeSnapshot","name":"s"}]}}"#,
        )
        .expect("it is one");
        let group = "snapshot.storage.k8s.io";
        let lets = |of: &str, kind: &str, namespace: &str, name: &str| {
            grant.lets_claims(of, group, kind, &Key::namespaced(namespace, name))
        };
        assert!(lets("dev", "VolumeSnapshot", "prod", "s"));
        assert!(
            !lets("test", "VolumeSnapshot", "prod", "s"),
            "another namespace"
        );
        assert!(
            !lets("dev", "VolumeSnapshot", "prod", "t"),
            "another snapshot"
        );
        assert!(
            !lets("dev", "VolumeSnapshot", "test", "s"),
            "not the grant's own namespace"
        );
        assert!(
            !lets("dev", "PersistentVolumeClaim", "prod", "s"),
            "another kind"
        );
    }
}
