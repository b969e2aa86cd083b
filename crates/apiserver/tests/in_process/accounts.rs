//! What every namespace has, and what pods get from their account.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use orlop_apiserver::{ApiServer, Config, Storage};
use serde_json::json;

use crate::fixtures::*;

/// The object once it is there and as wanted.
async fn eventually<K>(api: &Api<K>, name: &str, wanted: impl Fn(&K) -> bool) -> K
where
    K: kube::Resource<Scope = NamespaceResourceScope> + Clone + std::fmt::Debug,
    K: serde::de::DeserializeOwned,
{
    let look = async {
        loop {
            if let Some(found) = api.get_opt(name).await.unwrap()
                && wanted(&found)
            {
                return found;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    let look = tokio::time::timeout(std::time::Duration::from_secs(30), look);
    look.await.expect("it never came")
}

#[tokio::test]
async fn every_namespace_has_an_account_and_the_certificate_and_gets_them_back() {
    let cluster = certified_cluster().await;
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    create(&namespaces, &of(json!({ "metadata": { "name": "team" } }))).await;
    for namespace in ["default", "kube-system", "team"] {
        let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), namespace);
        let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), namespace);
        let right = |map: &ConfigMap| {
            let data = map.data.as_ref();
            data.and_then(|data| data.get("ca.crt"))
                .is_some_and(|text| text == CERTIFICATE)
        };
        eventually(&accounts, "default", |_| true).await;
        eventually(&maps, "kube-root-ca.crt", right).await;

        let first = accounts.get("default").await.unwrap().metadata.uid;
        let now = DeleteParams::default();
        accounts.delete("default", &now).await.unwrap();
        maps.delete("kube-root-ca.crt", &now).await.unwrap();
        eventually(&accounts, "default", |new| new.metadata.uid != first).await;
        eventually(&maps, "kube-root-ca.crt", right).await;

        let wrong = Patch::Merge(json!({ "data": { "ca.crt": "mine", "more": "x" } }));
        let params = PatchParams::default();
        maps.patch("kube-root-ca.crt", &params, &wrong)
            .await
            .unwrap();
        let whole = |map: &ConfigMap| right(map) && map.data.as_ref().is_some_and(|d| d.len() == 1);
        eventually(&maps, "kube-root-ca.crt", whole).await;
    }
}

#[tokio::test]
async fn a_pod_of_a_namespace_that_was_just_made_gets_its_account() {
    let cluster = cluster().await;
    let namespaces: Api<Namespace> = Api::all(cluster.client.clone());
    for number in 0..20 {
        let name = format!("fresh-{number}");
        create(&namespaces, &of(json!({ "metadata": { "name": name } }))).await;
        let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), &name);
        let made = value(&create(&pods, &pod("p")).await);
        assert_eq!(made["spec"]["serviceAccountName"], "default");
        let volume = made["spec"]["volumes"][0]["name"].as_str().unwrap();
        assert!(volume.starts_with("kube-api-access-"), "{made}");
    }
}

#[tokio::test]
async fn a_pod_whose_account_is_absent_is_refused() {
    let cluster = cluster().await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client.clone());
    let mut nobody = pod("p");
    nobody.spec.as_mut().unwrap().service_account_name = Some("nobody".to_owned());
    let refused = pods.create(&PostParams::default(), &nobody).await;
    let (code, _, text) = refusal(refused.unwrap_err());
    assert_eq!(code, 403);
    assert_eq!(
        text,
        "pods \"p\" is forbidden: error looking up service account default/nobody: \
         serviceaccount \"nobody\" not found"
    );
}

#[tokio::test]
async fn without_the_admission_a_pod_stays_as_it_was_written() {
    let server = ApiServer::open(Config::new(Storage::Memory)).await.unwrap();
    let client = kube::Client::new(server.service(), "default");
    let pods: Api<Pod> = Api::default_namespaced(client);
    let made = value(&create(&pods, &pod("p")).await);
    assert_eq!(made["spec"].get("serviceAccountName"), None);
    assert_eq!(made["spec"].get("volumes"), None);
}
