//! A server of one test, and small objects to put in it.

use std::time::Duration;

use futures::{Stream, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::api::{Api, PostParams, WatchEvent};
use kube::{Client, Resource};
use orlop_apiserver::{ApiServer, Config, Policy, Storage};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Stands for the certificate that clients know the server by.
pub(crate) const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

pub(crate) struct Cluster {
    _server: ApiServer,
    pub(crate) client: Client,
}

/// A cluster whose pods run as accounts.
pub(crate) async fn cluster() -> Cluster {
    open(None).await
}

/// One whose namespaces also have the certificate.
pub(crate) async fn certified_cluster() -> Cluster {
    open(Some(CERTIFICATE.to_owned())).await
}

async fn open(root_certificate: Option<String>) -> Cluster {
    let mut config = Config::new(Storage::Memory);
    config.policy = Policy {
        service_accounts: true,
        root_certificate,
    };
    let server = ApiServer::open(config).await.unwrap();
    let client = Client::new(server.service(), "default");
    Cluster {
        _server: server,
        client,
    }
}

pub(crate) fn of<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(crate) fn claim(name: &str) -> PersistentVolumeClaim {
    of(json!({
        "metadata": { "name": name },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } },
        },
    }))
}

pub(crate) fn pod(name: &str) -> Pod {
    of(json!({
        "metadata": { "name": name, "labels": { "app": name } },
        "spec": { "containers": [{ "name": "main", "image": "busybox" }] },
    }))
}

pub(crate) fn config_map(name: &str) -> ConfigMap {
    of(json!({ "metadata": { "name": name }, "data": { "k": "v" } }))
}

pub(crate) fn class(name: &str, default: bool) -> StorageClass {
    of(json!({
        "metadata": {
            "name": name,
            "annotations": { "storageclass.kubernetes.io/is-default-class": default.to_string() },
        },
        "provisioner": "x.example.com",
        "allowVolumeExpansion": true,
    }))
}

pub(crate) async fn create<K>(api: &Api<K>, object: &K) -> K
where
    K: Resource + Clone + DeserializeOwned + serde::Serialize + std::fmt::Debug,
    K::DynamicType: Default,
{
    api.create(&PostParams::default(), object).await.unwrap()
}

pub(crate) fn refusal(error: kube::Error) -> (u16, String, String) {
    match error {
        kube::Error::Api(status) => (status.code, status.reason.clone(), status.message.clone()),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

pub(crate) fn value<K: serde::Serialize>(object: &K) -> Value {
    serde_json::to_value(object).unwrap()
}

/// Waits until a condition holds of the objects of a kind; event-driven and bounded.
pub(crate) async fn until<K, S>(events: S, mut holds: impl FnMut(&WatchEvent<K>) -> bool)
where
    S: Stream<Item = Result<WatchEvent<K>, kube::Error>>,
{
    let mut events = Box::pin(events);
    let wait = async {
        while let Some(event) = events.try_next().await.unwrap() {
            if holds(&event) {
                return;
            }
        }
        panic!("the watch ended first");
    };
    tokio::time::timeout(Duration::from_secs(10), wait)
        .await
        .unwrap();
}
