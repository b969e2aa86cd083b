//! OpenAPI documents, generated from the table of kinds and the schema table.
//!
//! Clients use them to find merge keys (`kubectl apply`), to learn that the
//! server validates fields (`fieldValidation`) and to explain kinds. They are
//! made anew for each request: clients cache them by the index's hash.

mod components;
mod descriptions;
mod paths;
mod protobuf;
#[cfg(test)]
mod tests;

use crate::kinds::Kinds;
use crate::schema::schema;
use components::Dialect;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// Content type of [`v2_protobuf`].
pub const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Whether a client asks for [`v2_protobuf`]; Go clients ask for nothing else.
///
/// They spell the type with an `@`, which is no valid media type, and cannot
/// read an answer that is spelled so.
pub fn wants_v2_protobuf(accept: &str) -> bool {
    accept.contains(V2_PROTOBUF)
        || accept.contains("application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
}

/// `/openapi/v2` as JSON.
pub fn v2(kinds: &Kinds) -> Value {
    json!({
        "swagger": "2.0",
        "info": info(),
        "paths": {},
        "definitions": components::all(kinds, Dialect::V2),
    })
}

/// `/openapi/v2` as protobuf.
pub fn v2_protobuf(kinds: &Kinds) -> Vec<u8> {
    protobuf::document(&v2(kinds))
}

/// `/openapi/v3`: where the document of each group version is.
pub fn v3_index(kinds: &Kinds) -> Value {
    let hash = hash(kinds);
    let paths: Map<String, Value> = kinds
        .group_versions()
        .map(|(group, version)| {
            let path = path(group, version);
            let url = format!("/openapi/v3/{path}?hash={hash}");
            (path, json!({"serverRelativeURL": url}))
        })
        .collect();
    json!({"paths": paths})
}

/// `/openapi/v3/<group_version>`, such as `api/v1` or `apis/storage.k8s.io/v1`.
pub fn v3(kinds: &Kinds, group_version: &str) -> Option<Value> {
    let (group, version) = kinds
        .group_versions()
        .find(|(group, version)| path(group, version) == group_version.trim_matches('/'))?;
    Some(json!({
        "openapi": "3.0.0",
        "info": info(),
        "paths": paths::of(kinds, group, version),
        "components": {"schemas": components::reachable(kinds, group, version)},
    }))
}

fn path(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("api/{version}")
    } else {
        format!("apis/{group}/{version}")
    }
}

fn info() -> Value {
    json!({"title": "orlop", "version": env!("CARGO_PKG_VERSION")})
}

/// Changes whenever a document could: they are functions of the tables, of the
/// kinds that users defined and of this program's version.
fn hash(kinds: &Kinds) -> String {
    let mut hasher = Sha256::new();
    hasher.update(env!("CARGO_PKG_VERSION"));
    hasher.update(descriptions::TEXT);
    hasher.update(format!(
        "{:?}{:?}",
        kinds.all().collect::<Vec<_>>(),
        schema()
    ));
    let digest = hasher.finalize();
    digest
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02X}"))
        .collect()
}
