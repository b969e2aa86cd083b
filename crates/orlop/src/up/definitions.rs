//! The kinds that the API server does not know by itself: snapshots, and groups of them.

use anyhow::{Context, Result};
use serde_json::Value;
use tracing::warn;

/// Who the API server records as the author.
const MANAGER: &str = "orlop-up";
const MANIFESTS: [&str; 2] = [
    include_str!("../../../../deploy/crds/snapshots.yaml"),
    include_str!("../../../../deploy/crds/group-snapshots.yaml"),
];

/// Makes the kinds known. One that somebody else has defined otherwise stays as it is.
pub(crate) async fn define(administrator: &kube::Client) -> Result<()> {
    for manifest in MANIFESTS {
        let definitions: Vec<Value> =
            serde_saphyr::from_multiple(manifest).context("a definition is not YAML")?;
        for definition in &definitions {
            apply(administrator, definition).await?;
        }
    }
    Ok(())
}

async fn apply(administrator: &kube::Client, definition: &Value) -> Result<()> {
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    let context = || format!("could not define {name}");
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let request = http::Request::patch(format!("{path}/{name}?fieldManager={MANAGER}"))
        .header("content-type", "application/apply-patch+yaml")
        .body(definition.to_string().into_bytes())
        .with_context(context)?;
    match administrator.request_text(request).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(refusal)) if refusal.code == 409 => {
            warn!(name, "somebody else has defined it; it is used as it is");
            Ok(())
        }
        Err(error) => Err(error).with_context(context),
    }
}

#[cfg(test)]
mod tests {
    use orlop_apiserver::{ApiServer, Config, Storage};
    use orlop_model::{
        Kind, VolumeGroupSnapshot, VolumeGroupSnapshotClass, VolumeGroupSnapshotContent,
        VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent,
    };
    use orlop_runtime::Cluster;
    use serde_json::json;

    use super::*;

    async fn is_known<K: Kind>(cluster: &Cluster) {
        let listed = cluster.list::<K>(None).await;
        assert!(listed.is_ok_and(|all| all.is_empty()), "{}", K::KIND);
    }

    #[tokio::test]
    async fn the_kinds_of_snapshots_are_known_and_checked() {
        let server = ApiServer::open(Config::new(Storage::Memory)).await;
        let server = server.expect("it opens");
        let client = kube::Client::new(server.service(), "default");
        define(&client).await.expect("they are valid");
        define(&client).await.expect("twice is once");
        let cluster = Cluster::new(client);
        is_known::<VolumeSnapshot>(&cluster).await;
        is_known::<VolumeSnapshotContent>(&cluster).await;
        is_known::<VolumeSnapshotClass>(&cluster).await;
        is_known::<VolumeGroupSnapshot>(&cluster).await;
        is_known::<VolumeGroupSnapshotContent>(&cluster).await;
        is_known::<VolumeGroupSnapshotClass>(&cluster).await;
        let unclear = json!({
            "metadata": {"name": "cut", "namespace": "default"},
            "spec": {"source": {}},
        });
        let error = cluster.create_json::<VolumeSnapshot>(&unclear).await;
        let error = error.expect_err("it has no source").chain();
        assert!(error.contains("exactly one of"), "{error}");
    }
}
