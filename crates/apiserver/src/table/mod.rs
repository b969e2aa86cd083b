//! `meta.k8s.io/v1` Tables: what `kubectl get` prints.

use crate::kinds::KindInfo;
use serde_json::{Value, json};

/// How much of each object a row carries besides its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Include {
    /// Nothing.
    None,
    /// `PartialObjectMetadata`; what clients get unless they ask.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

/// Renders objects of one kind as a Table; the caller sets list metadata.
pub fn render(
    kind: &KindInfo,
    objects: &[&Value],
    now: jiff::Timestamp,
    include: Include,
) -> Value {
    let _ = (kind, objects, now, include);
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {}, "columnDefinitions": [], "rows": []})
}
