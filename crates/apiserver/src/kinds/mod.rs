//! The table of kinds this server serves: the one place that says which
//! resources exist, how they are spelled and what may be done to them.
//!
//! Routing, discovery, OpenAPI, tables and patches all read it; none of them
//! may name a kind that is not here.

mod served;
mod table;

use crate::definitions::Custom;

pub use served::Kinds;
pub(crate) use served::preference;
use table::KINDS;
pub(crate) use table::{ALL_VERBS, SCALE};

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
    fn an_unserved_version_is_not_found() {
        assert!(find("storage.k8s.io", "v1beta1", "storageclasses").is_none());
        assert!(by_kind("v1", "StorageClass").is_none());
    }
}
