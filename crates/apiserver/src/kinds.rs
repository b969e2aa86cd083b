//! The table of kinds this server serves: the one place that says which
//! resources exist, how they are spelled and what may be done to them.
//!
//! Routing, discovery, OpenAPI, tables and patches all read it; none of them
//! may name a kind that is not here.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::definitions::Custom;

/// One served resource.
#[derive(Debug, PartialEq, Eq)]
pub struct KindInfo {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// API version within the group.
    pub version: &'static str,
    /// Kind, as in an object's `kind`.
    pub kind: &'static str,
    /// Resource name, as in a URL.
    pub plural: &'static str,
    /// What `kubectl` calls one of them.
    pub singular: &'static str,
    /// Abbreviations `kubectl` accepts.
    pub short_names: &'static [&'static str],
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// What may be done to the resource, in discovery's order.
    pub verbs: &'static [&'static str],
    /// Whether there is a `status` subresource.
    pub status: bool,
    /// Kind of a list of them.
    pub list_kind: &'static str,
    /// Groups of resources such as `all`.
    pub categories: &'static [&'static str],
    /// Subresources other than `status`.
    pub subresources: &'static [Subresource],
    /// What a kind that users defined has besides; none for those of the table.
    pub custom: Option<&'static Custom>,
}

/// A subresource with a body of another kind than its parent.
#[derive(Debug, PartialEq, Eq)]
pub struct Subresource {
    /// Last path segment.
    pub name: &'static str,
    /// Group of the body's kind.
    pub group: &'static str,
    /// Version of the body's kind.
    pub version: &'static str,
    /// Kind of the body.
    pub kind: &'static str,
    /// What may be done to it.
    pub verbs: &'static [&'static str],
}

impl KindInfo {
    /// The `apiVersion` objects of this kind carry.
    pub fn api_version(&self) -> String {
        group_version(self.group, self.version)
    }

    /// Whether there are objects of it, or it is only a question.
    pub fn is_stored(&self) -> bool {
        self.verbs.contains(&"get")
    }

    /// `plural` or `plural.group`, as error messages name the resource.
    pub fn resource(&self) -> String {
        if self.group.is_empty() {
            self.plural.to_owned()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }
}

/// `v1` for the core group, `group/version` otherwise.
pub fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() {
        version.to_owned()
    } else {
        format!("{group}/{version}")
    }
}

/// Every served kind, in discovery's order: by group, then by plural.
pub fn all() -> &'static [KindInfo] {
    KINDS
}

/// The kind served at `/apis/<group>/<version>/<plural>`.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static KindInfo> {
    KINDS
        .iter()
        .find(|k| k.group == group && k.version == version && k.plural == plural)
}

/// The kind an object with this `apiVersion` and `kind` is of.
pub fn by_kind(api_version: &str, kind: &str) -> Option<&'static KindInfo> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    KINDS
        .iter()
        .find(|k| k.group == group && k.version == version && k.kind == kind)
}

/// All kinds of a server: those of the table, and those that its users defined.
#[derive(Debug, Clone, Default)]
pub struct Kinds {
    custom: Arc<[&'static KindInfo]>,
}

impl Kinds {
    /// The table and these kinds.
    pub fn with(custom: Vec<&'static KindInfo>) -> Self {
        let custom = custom.into();
        Self { custom }
    }

    /// Every kind: those of the table first.
    pub fn all(&self) -> impl Iterator<Item = &'static KindInfo> {
        KINDS.iter().chain(self.custom.iter().copied())
    }

    /// The kind served at `/apis/<group>/<version>/<plural>`.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&'static KindInfo> {
        self.all()
            .find(|k| k.group == group && k.version == version && k.plural == plural)
    }

    /// The kind an object with this `apiVersion` and `kind` is of.
    pub fn by_kind(&self, api_version: &str, kind: &str) -> Option<&'static KindInfo> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.all()
            .find(|k| k.group == group && k.version == version && k.kind == kind)
    }

    /// The groups and their versions, core first, the preferred version first.
    pub fn groups(&self) -> Vec<(&'static str, Vec<&'static str>)> {
        let mut groups: Vec<(&'static str, Vec<&'static str>)> = Vec::new();
        for kind in self.all() {
            match groups.iter_mut().find(|(group, _)| *group == kind.group) {
                Some((_, versions)) if versions.contains(&kind.version) => {}
                Some((_, versions)) => versions.push(kind.version),
                None => groups.push((kind.group, vec![kind.version])),
            }
        }
        for (_, versions) in &mut groups {
            versions.sort_by_key(|version| preference(version));
        }
        groups
    }

    /// Every group with each of its versions.
    pub fn group_versions(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let groups = self.groups().into_iter();
        groups.flat_map(|(group, versions)| versions.into_iter().map(move |one| (group, one)))
    }
}

/// Stable before beta before alpha, newer before older, anything else last.
fn preference(version: &str) -> (u8, Reverse<u32>, Reverse<u32>, String) {
    let parse = || {
        let rest = version.strip_prefix('v')?;
        let end = rest.find(|c: char| !c.is_ascii_digit());
        let (major, rest) = rest.split_at(end.unwrap_or(rest.len()));
        let (rank, minor) = match rest {
            "" => (0, "0"),
            rest => match rest.strip_prefix("beta") {
                Some(minor) => (1, minor),
                None => (2, rest.strip_prefix("alpha")?),
            },
        };
        let (major, minor) = (major.parse().ok()?, minor.parse().ok()?);
        Some((rank, Reverse(major), Reverse(minor), String::new()))
    };
    parse().unwrap_or_else(|| (3, Reverse(0), Reverse(0), version.to_owned()))
}

pub(crate) const ALL_VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
/// Namespaces are emptied one at a time, so there is no collection to delete.
const NAMESPACE_VERBS: &[&str] = &[
    "create", "delete", "get", "list", "patch", "update", "watch",
];

const PLAIN: KindInfo = KindInfo {
    group: "",
    version: "v1",
    kind: "",
    plural: "",
    singular: "",
    short_names: &[],
    namespaced: true,
    verbs: ALL_VERBS,
    status: false,
    list_kind: "",
    categories: &[],
    subresources: &[],
    custom: None,
};
const STORAGE: KindInfo = KindInfo {
    group: "storage.k8s.io",
    namespaced: false,
    ..PLAIN
};

const RBAC: KindInfo = KindInfo {
    group: "rbac.authorization.k8s.io",
    ..PLAIN
};
/// Questions: asked by creating them, and never kept.
const AUTHENTICATION: KindInfo = KindInfo {
    group: "authentication.k8s.io",
    namespaced: false,
    verbs: &["create"],
    ..PLAIN
};
const AUTHORIZATION: KindInfo = KindInfo {
    group: "authorization.k8s.io",
    ..AUTHENTICATION
};

static KINDS: &[KindInfo] = &[
    KindInfo {
        kind: "ConfigMap",
        plural: "configmaps",
        singular: "configmap",
        short_names: &["cm"],
        list_kind: "ConfigMapList",
        ..PLAIN
    },
    KindInfo {
        kind: "Endpoints",
        plural: "endpoints",
        singular: "endpoints",
        short_names: &["ep"],
        list_kind: "EndpointsList",
        ..PLAIN
    },
    KindInfo {
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        list_kind: "EventList",
        ..PLAIN
    },
    KindInfo {
        kind: "Namespace",
        plural: "namespaces",
        singular: "namespace",
        short_names: &["ns"],
        namespaced: false,
        verbs: NAMESPACE_VERBS,
        status: true,
        list_kind: "NamespaceList",
        subresources: &[Subresource {
            name: "finalize",
            group: "",
            version: "v1",
            kind: "Namespace",
            verbs: &["update"],
        }],
        ..PLAIN
    },
    KindInfo {
        kind: "Node",
        plural: "nodes",
        singular: "node",
        short_names: &["no"],
        namespaced: false,
        status: true,
        list_kind: "NodeList",
        ..PLAIN
    },
    KindInfo {
        kind: "PersistentVolumeClaim",
        plural: "persistentvolumeclaims",
        singular: "persistentvolumeclaim",
        short_names: &["pvc"],
        status: true,
        list_kind: "PersistentVolumeClaimList",
        ..PLAIN
    },
    KindInfo {
        kind: "PersistentVolume",
        plural: "persistentvolumes",
        singular: "persistentvolume",
        short_names: &["pv"],
        namespaced: false,
        status: true,
        list_kind: "PersistentVolumeList",
        ..PLAIN
    },
    KindInfo {
        kind: "Pod",
        plural: "pods",
        singular: "pod",
        short_names: &["po"],
        status: true,
        list_kind: "PodList",
        categories: &["all"],
        subresources: &[
            Subresource {
                name: "binding",
                group: "",
                version: "v1",
                kind: "Binding",
                verbs: &["create"],
            },
            Subresource {
                name: "eviction",
                group: "policy",
                version: "v1",
                kind: "Eviction",
                verbs: &["create"],
            },
            Subresource {
                name: "log",
                group: "",
                version: "v1",
                kind: "Pod",
                verbs: &["get"],
            },
        ],
        ..PLAIN
    },
    KindInfo {
        kind: "Secret",
        plural: "secrets",
        singular: "secret",
        list_kind: "SecretList",
        ..PLAIN
    },
    KindInfo {
        kind: "ServiceAccount",
        plural: "serviceaccounts",
        singular: "serviceaccount",
        short_names: &["sa"],
        list_kind: "ServiceAccountList",
        subresources: &[Subresource {
            name: "token",
            group: "authentication.k8s.io",
            version: "v1",
            kind: "TokenRequest",
            verbs: &["create"],
        }],
        ..PLAIN
    },
    KindInfo {
        kind: "Service",
        plural: "services",
        singular: "service",
        short_names: &["svc"],
        status: true,
        list_kind: "ServiceList",
        categories: &["all"],
        ..PLAIN
    },
    KindInfo {
        group: "apiextensions.k8s.io",
        kind: "CustomResourceDefinition",
        plural: "customresourcedefinitions",
        singular: "customresourcedefinition",
        short_names: &["crd", "crds"],
        namespaced: false,
        status: true,
        list_kind: "CustomResourceDefinitionList",
        categories: &["api-extensions"],
        ..PLAIN
    },
    KindInfo {
        kind: "SelfSubjectReview",
        plural: "selfsubjectreviews",
        singular: "selfsubjectreview",
        list_kind: "SelfSubjectReviewList",
        ..AUTHENTICATION
    },
    KindInfo {
        kind: "TokenReview",
        plural: "tokenreviews",
        singular: "tokenreview",
        list_kind: "TokenReviewList",
        ..AUTHENTICATION
    },
    KindInfo {
        kind: "LocalSubjectAccessReview",
        plural: "localsubjectaccessreviews",
        singular: "localsubjectaccessreview",
        list_kind: "LocalSubjectAccessReviewList",
        namespaced: true,
        ..AUTHORIZATION
    },
    KindInfo {
        kind: "SelfSubjectAccessReview",
        plural: "selfsubjectaccessreviews",
        singular: "selfsubjectaccessreview",
        list_kind: "SelfSubjectAccessReviewList",
        ..AUTHORIZATION
    },
    KindInfo {
        kind: "SelfSubjectRulesReview",
        plural: "selfsubjectrulesreviews",
        singular: "selfsubjectrulesreview",
        list_kind: "SelfSubjectRulesReviewList",
        ..AUTHORIZATION
    },
    KindInfo {
        kind: "SubjectAccessReview",
        plural: "subjectaccessreviews",
        singular: "subjectaccessreview",
        list_kind: "SubjectAccessReviewList",
        ..AUTHORIZATION
    },
    KindInfo {
        group: "coordination.k8s.io",
        kind: "Lease",
        plural: "leases",
        singular: "lease",
        list_kind: "LeaseList",
        ..PLAIN
    },
    KindInfo {
        group: "events.k8s.io",
        kind: "Event",
        plural: "events",
        singular: "event",
        short_names: &["ev"],
        list_kind: "EventList",
        ..PLAIN
    },
    KindInfo {
        kind: "ClusterRoleBinding",
        plural: "clusterrolebindings",
        singular: "clusterrolebinding",
        list_kind: "ClusterRoleBindingList",
        namespaced: false,
        ..RBAC
    },
    KindInfo {
        kind: "ClusterRole",
        plural: "clusterroles",
        singular: "clusterrole",
        list_kind: "ClusterRoleList",
        namespaced: false,
        ..RBAC
    },
    KindInfo {
        kind: "RoleBinding",
        plural: "rolebindings",
        singular: "rolebinding",
        list_kind: "RoleBindingList",
        ..RBAC
    },
    KindInfo {
        kind: "Role",
        plural: "roles",
        singular: "role",
        list_kind: "RoleList",
        ..RBAC
    },
    KindInfo {
        kind: "CSIDriver",
        plural: "csidrivers",
        singular: "csidriver",
        list_kind: "CSIDriverList",
        ..STORAGE
    },
    KindInfo {
        kind: "CSINode",
        plural: "csinodes",
        singular: "csinode",
        list_kind: "CSINodeList",
        ..STORAGE
    },
    KindInfo {
        kind: "CSIStorageCapacity",
        plural: "csistoragecapacities",
        singular: "csistoragecapacity",
        namespaced: true,
        list_kind: "CSIStorageCapacityList",
        ..STORAGE
    },
    KindInfo {
        kind: "StorageClass",
        plural: "storageclasses",
        singular: "storageclass",
        short_names: &["sc"],
        list_kind: "StorageClassList",
        ..STORAGE
    },
    KindInfo {
        kind: "VolumeAttachment",
        plural: "volumeattachments",
        singular: "volumeattachment",
        status: true,
        list_kind: "VolumeAttachmentList",
        ..STORAGE
    },
    KindInfo {
        kind: "VolumeAttributesClass",
        plural: "volumeattributesclasses",
        singular: "volumeattributesclass",
        short_names: &["vac"],
        list_kind: "VolumeAttributesClassList",
        ..STORAGE
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_its_path_and_by_its_name() {
        for kind in all() {
            assert_eq!(find(kind.group, kind.version, kind.plural), Some(kind));
            assert_eq!(by_kind(&kind.api_version(), kind.kind), Some(kind));
            assert_eq!(kind.list_kind, format!("{}List", kind.kind));
            assert_eq!(kind.singular, kind.kind.to_lowercase());
        }
    }

    #[test]
    fn the_core_group_comes_first_and_each_group_once() {
        let groups: Vec<_> = Kinds::default()
            .group_versions()
            .map(|(group, _)| group)
            .collect();
        assert_eq!(
            groups,
            [
                "",
                "apiextensions.k8s.io",
                "authentication.k8s.io",
                "authorization.k8s.io",
                "coordination.k8s.io",
                "events.k8s.io",
                "rbac.authorization.k8s.io",
                "storage.k8s.io",
            ]
        );
    }

    #[test]
    fn an_unserved_version_is_not_found() {
        assert!(find("storage.k8s.io", "v1beta1", "storageclasses").is_none());
        assert!(by_kind("v1", "StorageClass").is_none());
    }
}
