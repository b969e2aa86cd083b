//! What fields are for, read from `descriptions.txt` when somebody asks.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::schema::Type;

/// The text that it is read from.
pub(super) const TEXT: &str = include_str!("descriptions.txt");

type Fields = HashMap<&'static str, &'static str>;

static TABLE: LazyLock<HashMap<String, Fields>> = LazyLock::new(|| {
    let mut table: HashMap<String, Fields> = HashMap::new();
    let (mut package, mut open) = ("", String::new());
    for line in TEXT.lines() {
        if let Some(field) = line.strip_prefix("  ") {
            if let Some((name, text)) = field.split_once(": ") {
                table.entry(open.clone()).or_default().insert(name, text);
            }
        } else if let Some(name) = line.strip_prefix("package ") {
            package = name;
        } else if !line.is_empty() && !line.starts_with('#') {
            open = format!("{package}.{line}");
        }
    }
    table
});

/// What a field of a type is for; none if nobody wrote it down.
pub(super) fn of(ty: &Type, field: &str) -> Option<&'static str> {
    let own = TABLE.get(&ty.name).and_then(|fields| fields.get(field));
    own.copied()
        .or_else(|| common(field).filter(|_| ty.is_kind))
}

/// What a field of every object is for.
pub(super) fn common(field: &str) -> Option<&'static str> {
    Some(match field {
        "apiVersion" => "The group and version of the object's kind.",
        "kind" => "The object's kind.",
        "metadata" => "The object's name, labels, owners and what else every object has.",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::schema;

    #[test]
    fn what_is_described_is_there() {
        for (name, fields) in &*TABLE {
            let ty = schema().named(name).unwrap_or_else(|| panic!("no {name}"));
            for field in fields.keys() {
                assert!(ty.fields.contains_key(field), "{name} has no {field}");
            }
        }
    }

    #[test]
    fn claims_classes_and_attachments_are_described_to_the_last_field() {
        for name in [
            "io.k8s.api.core.v1.PersistentVolumeClaimSpec",
            "io.k8s.api.core.v1.PersistentVolumeClaimStatus",
            "io.k8s.api.core.v1.PersistentVolumeStatus",
            "io.k8s.api.storage.v1.StorageClass",
            "io.k8s.api.storage.v1.VolumeAttachmentSpec",
            "io.k8s.api.storage.v1.VolumeAttachmentStatus",
            "io.k8s.api.storage.v1.CSIStorageCapacity",
            "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
        ] {
            let ty = schema().named(name).expect(name);
            for field in ty.fields.keys() {
                assert!(of(ty, field).is_some(), "{name}.{field}");
            }
        }
    }
}
