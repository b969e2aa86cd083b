//! A snapshot class's parameters: which are the driver's, which are Kubernetes' own.

use std::collections::BTreeMap;

use orlop_model::{Key, volume::SecretRef, well_known::CSI_PARAMETER_PREFIX};

use crate::provisioner::{
    ParameterError,
    parameters::{check, fill, is_label, is_subdomain},
};

/// What a call on snapshots needs its own credentials for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Cutting and deleting one.
    Snapshot,
    /// Asking how one is.
    SnapshotList,
    /// Cutting and deleting a group.
    Group,
    /// Asking how a group is.
    GroupGet,
}

impl Purpose {
    const ALL: [Self; 4] = [
        Self::Snapshot,
        Self::SnapshotList,
        Self::Group,
        Self::GroupGet,
    ];

    fn keys(self) -> [String; 2] {
        let infix = match self {
            Self::Snapshot => "snapshotter",
            Self::SnapshotList => "snapshotter-list",
            Self::Group => "group-snapshotter",
            Self::GroupGet => "group-snapshotter-get",
        };
        ["name", "namespace"].map(|end| format!("{CSI_PARAMETER_PREFIX}{infix}-secret-{end}"))
    }

    /// How templates call the user's object.
    fn word(self) -> &'static str {
        match self {
            Self::Snapshot | Self::SnapshotList => "volumesnapshot",
            Self::Group | Self::GroupGet => "volumegroupsnapshot",
        }
    }
}

/// The parameters that the driver gets.
pub(crate) fn for_driver(
    given: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, ParameterError> {
    let mut driver = BTreeMap::new();
    for (key, value) in given {
        if !key.starts_with(CSI_PARAMETER_PREFIX) {
            driver.insert(key.clone(), value.clone());
        } else if !Purpose::ALL.iter().any(|one| one.keys().contains(key)) {
            return Err(ParameterError::Unknown(key.clone()));
        }
    }
    Ok(driver)
}

/// The secret for a purpose, its templates filled in with the content's name and, where it is
/// known, the user's object.
pub(crate) fn secret(
    given: &BTreeMap<String, String>,
    purpose: Purpose,
    content: &str,
    owner: Option<&Key>,
) -> Result<Option<SecretRef>, ParameterError> {
    let [name_key, namespace_key] = purpose.keys();
    let (name, namespace) = match (given.get(&name_key), given.get(&namespace_key)) {
        (None, None) => return Ok(None),
        (Some(name), Some(namespace)) => (name, namespace),
        (Some(_), None) => {
            return Err(ParameterError::HalfASecret {
                given: name_key,
                missing: namespace_key,
            });
        }
        (None, Some(_)) => {
            return Err(ParameterError::HalfASecret {
                given: namespace_key,
                missing: name_key,
            });
        }
    };
    let word = purpose.word();
    let in_namespaces = |token: &str| match token.strip_prefix(word)? {
        "content.name" => Some(content.to_owned()),
        ".namespace" => owner.map(|owner| owner.namespace.clone()),
        _ => None,
    };
    let in_names = |token: &str| match token.strip_prefix(word) {
        Some(".name") => owner.map(|owner| owner.name.clone()),
        _ => in_namespaces(token),
    };
    let known = format!("${{{word}content.name}} and ${{{word}.namespace}}");
    let namespace = fill((&namespace_key, namespace), &known, in_namespaces)?;
    let known = format!("{known}, and ${{{word}.name}}");
    let name = fill((&name_key, name), &known, in_names)?;
    check(&namespace_key, &namespace, is_label)?;
    check(&name_key, &name, is_subdomain)?;
    Ok(Some(SecretRef { name, namespace }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(own).collect()
    }

    const NAME: &str = "csi.storage.k8s.io/snapshotter-secret-name";
    const NAMESPACE: &str = "csi.storage.k8s.io/snapshotter-secret-namespace";

    #[test]
    fn templates_speak_of_the_snapshot_and_its_content() {
        let owner = Key::namespaced("team", "cut");
        let given = parameters(&[
            (NAME, "${volumesnapshot.name}.${volumesnapshotcontent.name}"),
            (NAMESPACE, "${volumesnapshot.namespace}"),
        ]);
        let secret = secret(&given, Purpose::Snapshot, "snapcontent-1", Some(&owner));
        let expected = SecretRef {
            name: "cut.snapcontent-1".into(),
            namespace: "team".into(),
        };
        assert_eq!(secret, Ok(Some(expected)));
    }

    #[test]
    fn what_is_unknown_half_or_no_name_is_refused() {
        let of = |pairs: &[(&str, &str)], owner: Option<&Key>| {
            secret(&parameters(pairs), Purpose::Snapshot, "c", owner)
        };
        let owner = Key::namespaced("team", "cut");
        assert!(matches!(
            of(&[(NAME, "s")], Some(&owner)),
            Err(ParameterError::HalfASecret { .. })
        ));
        for (name, namespace) in [
            ("${volumesnapshot.uid}", "a"),
            ("s", "${volumesnapshot.name}"),
            ("${volumegroupsnapshot.name}", "a"),
        ] {
            let result = of(&[(NAME, name), (NAMESPACE, namespace)], Some(&owner));
            assert!(
                matches!(result, Err(ParameterError::Token { .. })),
                "{name} {namespace}: {result:?}"
            );
        }
        assert!(matches!(
            of(&[(NAME, "${volumesnapshot.name}"), (NAMESPACE, "a")], None),
            Err(ParameterError::Token { .. })
        ));
        assert!(matches!(
            of(&[(NAME, "UPPER"), (NAMESPACE, "a")], None),
            Err(ParameterError::NotAName { .. })
        ));
        assert_eq!(of(&[("tier", "fast")], None), Ok(None));
    }

    #[test]
    fn the_driver_gets_its_own_parameters_alone() {
        let given = parameters(&[("tier", "fast"), (NAME, "s"), (NAMESPACE, "a")]);
        assert_eq!(for_driver(&given), Ok(parameters(&[("tier", "fast")])));
        let wrong = parameters(&[("csi.storage.k8s.io/snapshoter-secret-name", "s")]);
        assert!(matches!(
            for_driver(&wrong),
            Err(ParameterError::Unknown(_))
        ));
    }
}
