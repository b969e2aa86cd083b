//! What every cluster has from its first moment: its namespaces.

use serde_json::json;

use crate::kinds;
use crate::refusal::Refusal;
use crate::registry::{Registry, WriteOptions};
use crate::schema::FieldValidation;

const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// Creates what is missing.
pub(crate) async fn write(registry: &Registry) -> Result<(), Refusal> {
    let kind = kinds::find("", "v1", "namespaces").ok_or_else(Refusal::no_such_path)?;
    let options = WriteOptions {
        dry_run: false,
        validation: FieldValidation::Ignore,
        manager: "orlop".to_owned(),
    };
    for name in NAMESPACES {
        let namespace = json!({ "metadata": { "name": name } });
        match registry.create(kind, "", namespace, &options).await {
            Err(refusal) if refusal.reason != "AlreadyExists" => return Err(refusal),
            _ => {}
        }
    }
    Ok(())
}
