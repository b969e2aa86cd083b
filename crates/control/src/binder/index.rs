//! What the binder finds objects under, so that no event costs a look at all of them.

use orlop_model::{Claim, StorageClass};

/// Stands for "said nothing about a class", which no class can be called.
pub(super) const UNSAID: &str = "/unsaid";

/// An unbound claim that names no volume, by the class whose changes it waits for.
pub(super) fn waiting_class(claim: &Claim) -> Vec<String> {
    if claim.bind_completed() || !claim.spec.volume_name.is_empty() {
        return Vec::new();
    }
    match claim.class() {
        // It may bind to a volume without class, or take the default class.
        None => vec![UNSAID.to_owned(), String::new()],
        Some(class) => vec![class.to_owned()],
    }
}

/// A claim, by the volume that it names.
pub(super) fn named_volume(claim: &Claim) -> Vec<String> {
    match claim.spec.volume_name.as_str() {
        "" => Vec::new(),
        name => vec![name.to_owned()],
    }
}

/// The default classes, all under one key.
pub(super) fn default_mark(class: &StorageClass) -> Vec<String> {
    if class.is_default() {
        vec![String::new()]
    } else {
        Vec::new()
    }
}
