//! The objects that a user finds on the first start: the driver's traits and its default classes.

use std::time::Duration;

use anyhow::{Context, Result};
use orlop_csi::{
    DriverInfo,
    client::{ControllerCapability, GroupCapability, NodeCapability},
};
use orlop_drivers::{local, nfs};
use orlop_model::{
    CsiDriver, Key, Kind, StorageClass, VolumeGroupSnapshotClass, VolumeSnapshotClass, well_known,
};
use orlop_runtime::{ApiError, Backoff, Cluster, Refusal};
use serde_json::{Value, json};
use tracing::warn;

/// How soon an object is tried again that there was no room for.
const AGAIN: Backoff = Backoff {
    first: Duration::from_secs(1),
    most: Duration::from_secs(30),
};

/// Writes what isn't there yet; what a user has changed stays as it is. What there is no room for is
/// written as soon as there is: only who can reach the API server can make some.
pub(crate) async fn objects(cluster: &Cluster, class: &str, driver: &DriverInfo) -> Result<()> {
    make::<CsiDriver>(cluster, traits(driver)).await?;
    if has_class(driver) {
        make::<StorageClass>(cluster, default_class(class, driver)).await?;
    }
    if driver.can(ControllerCapability::CreateDeleteSnapshot) {
        let class = cutting(class, driver, well_known::IS_DEFAULT_SNAPSHOT_CLASS);
        make::<VolumeSnapshotClass>(cluster, class).await?;
    }
    let groups = GroupCapability::CreateDeleteGetVolumeGroupSnapshot;
    if driver.group.contains(&groups) {
        let class = cutting(class, driver, well_known::IS_DEFAULT_GROUP_SNAPSHOT_CLASS);
        make::<VolumeGroupSnapshotClass>(cluster, class).await?;
    }
    Ok(())
}

/// Makes an object that is the cluster's own, unless it is there.
async fn make<K: Kind>(cluster: &Cluster, object: Value) -> Result<()> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let name = name.to_owned();
    match try_make::<K>(cluster, &name, &object).await {
        Ok(()) => Ok(()),
        Err(error) if is_full(&error) => {
            let (kind, error) = (K::KIND, error.chain());
            warn!(kind, name, error, "there is no room for it yet");
            let cluster = cluster.clone();
            tokio::spawn(async move {
                let mut failures = 1;
                loop {
                    tokio::time::sleep(AGAIN.after(failures)).await;
                    match try_make::<K>(&cluster, &name, &object).await {
                        Ok(()) => return,
                        Err(error) if is_full(&error) => failures += 1,
                        Err(error) => {
                            let error = error.chain();
                            warn!(kind, name, error, "it could not be written");
                            return;
                        }
                    }
                }
            });
            Ok(())
        }
        Err(error) => Err(error).with_context(|| format!("could not write {} {name}", K::KIND)),
    }
}

async fn try_make<K: Kind>(cluster: &Cluster, name: &str, object: &Value) -> Result<(), ApiError> {
    // What is there isn't written: a full store refuses that before it looks.
    if cluster.get::<K>(&Key::cluster(name)).await?.is_some() {
        return Ok(());
    }
    match cluster.create_json::<K>(object).await {
        Ok(_) => Ok(()),
        Err(error) if error.is_already_exists() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether the API server has no room for a write.
pub(crate) fn is_full(error: &ApiError) -> bool {
    matches!(error.refusal, Refusal::Refused { code: 507, .. })
}

/// Whether a class without parameters can be of any use: of other people's drivers nobody knows.
fn has_class(driver: &DriverInfo) -> bool {
    driver.name != nfs::DRIVER_NAME
}

/// The class that claims find, in words.
pub(crate) fn storage(class: &str, driver: &DriverInfo) -> String {
    match has_class(driver) {
        true => format!("{class} (default), made by {}", driver.name),
        false => format!(
            "none: {} needs parameters; make a class that names server and share",
            driver.name
        ),
    }
}

/// What can be snapshotted, in words.
pub(crate) fn snapshots(class: &str, driver: &DriverInfo) -> String {
    let single = driver.can(ControllerCapability::CreateDeleteSnapshot);
    let groups = GroupCapability::CreateDeleteGetVolumeGroupSnapshot;
    match (single, driver.group.contains(&groups)) {
        (true, true) => {
            format!("VolumeSnapshots and VolumeGroupSnapshots of class {class} (default)")
        }
        (true, false) => format!("VolumeSnapshots of class {class} (default)"),
        (false, _) => format!("none: {} takes no snapshots", driver.name),
    }
}

/// A class of snapshots, or of groups of them, that is the driver's default.
fn cutting(name: &str, driver: &DriverInfo, is_default: &str) -> Value {
    json!({
        "metadata": {"name": name, "annotations": {is_default: "true"}},
        "driver": driver.name,
        "deletionPolicy": "Delete",
    })
}

fn traits(driver: &DriverInfo) -> Value {
    // No driver tells whether it has volumes that live with a pod, or files that can be given to
    // a group whatever the volume's type; of our own ones it is known. Those of NFS that live with a
    // pod name any server: who means that says so.
    let (lifetimes, group, pods): (&[&str], _, _) = match driver.name.as_str() {
        local::DRIVER_NAME => (&["Persistent", "Ephemeral"], "File", true),
        nfs::DRIVER_NAME => (&["Persistent"], "File", false),
        _ => (&["Persistent"], "ReadWriteOnceWithFSType", true),
    };
    json!({
        "metadata": {"name": driver.name},
        "spec": {
            "attachRequired": driver.can(ControllerCapability::PublishUnpublishVolume),
            "podInfoOnMount": pods,
            "fsGroupPolicy": group,
            "volumeLifecycleModes": lifetimes,
        },
    })
}

fn default_class(name: &str, driver: &DriverInfo) -> Value {
    json!({
        "metadata": {
            "name": name,
            "annotations": {well_known::IS_DEFAULT_CLASS: "true"},
        },
        "provisioner": driver.name,
        "reclaimPolicy": "Delete",
        // Local volumes are made where the pod is; for others it does no harm.
        "volumeBindingMode": "WaitForFirstConsumer",
        // A driver that can't grow volumes: let the API server say so at once.
        "allowVolumeExpansion": driver.can(ControllerCapability::ExpandVolume)
            || driver.node_can(NodeCapability::ExpandVolume),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use http::{Method, StatusCode};
    use orlop_apiserver::{ApiServer, Config, Storage};

    use super::*;

    /// An API server that may have no room, and how often that was told.
    struct Full {
        cluster: Cluster,
        is: Arc<AtomicBool>,
        told: Arc<AtomicUsize>,
    }

    async fn full() -> Full {
        let server = ApiServer::open(Config::new(Storage::Memory)).await;
        let service = server.expect("it opens").service();
        let (is, told) = (
            Arc::new(AtomicBool::new(true)),
            Arc::new(AtomicUsize::new(0)),
        );
        let (asked, count) = (is.clone(), told.clone());
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let refused = request.method() == Method::POST && asked.load(Ordering::SeqCst);
            let (mut service, count) = (service.clone(), count.clone());
            async move {
                if !refused {
                    return tower::Service::call(&mut service, request).await;
                }
                count.fetch_add(1, Ordering::SeqCst);
                let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "code": 507, "reason": "InsufficientStorage", "message": "no room"});
                let answer = http::Response::builder().status(StatusCode::INSUFFICIENT_STORAGE);
                let body = status.to_string().into_bytes().into();
                Ok(answer.body(body).expect("an answer"))
            }
        });
        Full {
            cluster: Cluster::new(kube::Client::new(service, "default")),
            is,
            told,
        }
    }

    #[tokio::test]
    async fn the_nfs_driver_has_the_traits_of_its_manifest_and_no_class() {
        let driver = DriverInfo {
            name: nfs::DRIVER_NAME.into(),
            ..DriverInfo::default()
        };
        let manifest = include_str!("../../../../deploy/nfs/driver.yaml");
        let manifest: Vec<Value> = serde_saphyr::from_multiple(manifest).expect("it is YAML");
        assert_eq!(traits(&driver)["spec"], manifest[0]["spec"]);
        let server = ApiServer::open(Config::new(Storage::Memory)).await;
        let server = server.expect("it opens");
        let cluster = Cluster::new(kube::Client::new(server.service(), "default"));
        let made = objects(&cluster, &driver.name, &driver).await;
        made.expect("there is room");
        let classes = cluster.list::<StorageClass>(None).await;
        assert!(classes.is_ok_and(|all| all.is_empty()));
        assert!(storage(&driver.name, &driver).starts_with("none"));
    }

    #[tokio::test]
    async fn what_is_there_is_not_written_and_what_has_no_room_is_written_later() {
        let server = full().await;
        let driver = DriverInfo {
            name: "d.example.org".into(),
            ..DriverInfo::default()
        };
        let start = async || objects(&server.cluster, "usual", &driver).await;
        start().await.expect("it goes on");
        assert_eq!(server.told.load(Ordering::SeqCst), 2);
        server.is.store(false, Ordering::SeqCst);
        let class = async || {
            let key = Key::cluster("usual");
            server
                .cluster
                .get::<StorageClass>(&key)
                .await
                .expect("an answer")
        };
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while class().await.is_none() {
            assert!(std::time::Instant::now() < until, "it is not tried again");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        server.is.store(true, Ordering::SeqCst);
        server.told.store(0, Ordering::SeqCst);
        start().await.expect("all is there");
        assert_eq!(server.told.load(Ordering::SeqCst), 0, "nothing was written");
    }
}
