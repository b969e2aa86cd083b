//! OpenAPI documents generated from the schema table.

use serde_json::{Value, json};

/// `/openapi/v2` as JSON.
pub fn v2() -> Value {
    json!({"swagger": "2.0"})
}

/// `/openapi/v3`: where the document of each group version is.
pub fn v3_index() -> Value {
    json!({"paths": {}})
}

/// `/openapi/v3/<group_version>`, such as `api/v1` or `apis/storage.k8s.io/v1`.
pub fn v3(group_version: &str) -> Option<Value> {
    let _ = group_version;
    None
}
