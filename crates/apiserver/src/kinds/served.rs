//! All kinds of one server, and the order in which clients are told of them.

use std::cmp::Reverse;
use std::sync::Arc;

use super::KindInfo;
use super::table::KINDS;

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
pub(crate) fn preference(version: &str) -> (u8, Reverse<u32>, Reverse<u32>, String) {
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

#[cfg(test)]
mod tests {
    use super::*;

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
                "apps",
                "authentication.k8s.io",
                "authorization.k8s.io",
                "batch",
                "coordination.k8s.io",
                "events.k8s.io",
                "rbac.authorization.k8s.io",
                "scheduling.k8s.io",
                "storage.k8s.io",
            ]
        );
    }

    #[test]
    fn stable_versions_are_preferred_and_newer_ones_among_them() {
        let mut versions = ["v1alpha1", "v2beta1", "edge", "v1", "v10", "v2", "v2beta3"];
        versions.sort_by_key(|version| preference(version));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v2beta3", "v2beta1", "v1alpha1", "edge"]
        );
    }
}
