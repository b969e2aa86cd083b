//! The health monitor over the embedded API server, with a driver that lists in pages.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use orlop_apiserver::{ApiServer, Storage};
use orlop_csi::{
    Driver, memory,
    proto::{
        controller_server::Controller,
        identity_server::Identity,
        list_volumes_response::{Entry, VolumeStatus},
        *,
    },
    server::Services,
};
use orlop_model::{Claim, Event, Key, Node, Pod, Volume};
use orlop_runtime::{Clock, Cluster, Patch, Process};
use orlop_sidecars::{health, listing};
use serde_json::json;
use tokio::time::{Instant, sleep};
use tonic::{Request, Response, Status, async_trait};

const NAME: &str = "fake.example.com";

type Conditions = Arc<Mutex<BTreeMap<String, Option<String>>>>;

/// A driver whose volumes are ill or well, one to a page.
#[derive(Clone)]
struct Fake {
    conditions: Conditions,
    lists: bool,
}

impl Fake {
    fn condition(&self, id: &str) -> Option<VolumeCondition> {
        let conditions = self.conditions.lock().expect("nobody panicked");
        conditions.get(id).map(|ill| VolumeCondition {
            abnormal: ill.is_some(),
            message: ill.clone().unwrap_or_default(),
        })
    }

    fn driver(&self) -> Driver {
        let socket = memory::Socket::new();
        let listener = socket.bind().expect("nobody else is there");
        let services = Services::new()
            .identity(self.clone())
            .controller(self.clone());
        tokio::spawn(listener.serve(services, std::future::pending()));
        Driver::in_memory(&socket)
    }
}

#[async_trait]
impl Identity for Fake {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse {
            name: NAME.to_owned(),
            ..GetPluginInfoResponse::default()
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        use plugin_capability::{Service, Type, service};
        let capability = PluginCapability {
            r#type: Some(Type::Service(Service {
                r#type: service::Type::ControllerService.into(),
            })),
        };
        Ok(Response::new(GetPluginCapabilitiesResponse {
            capabilities: vec![capability],
        }))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        Ok(Response::new(ProbeResponse { ready: Some(true) }))
    }
}

#[async_trait]
impl Controller for Fake {
    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        use controller_service_capability::{Rpc, Type, rpc};
        let way = if self.lists {
            rpc::Type::ListVolumes
        } else {
            rpc::Type::GetVolume
        };
        let capabilities =
            [way, rpc::Type::VolumeCondition].map(|it| ControllerServiceCapability {
                r#type: Some(Type::Rpc(Rpc { r#type: it.into() })),
            });
        Ok(Response::new(ControllerGetCapabilitiesResponse {
            capabilities: capabilities.to_vec(),
        }))
    }

    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Result<Response<ListVolumesResponse>, Status> {
        let at: usize = request.into_inner().starting_token.parse().unwrap_or(0);
        let ids: Vec<String> = {
            let conditions = self.conditions.lock().expect("nobody panicked");
            conditions.keys().cloned().collect()
        };
        let entries = ids.get(at).map(|id| Entry {
            volume: Some(orlop_csi::proto::Volume {
                volume_id: id.clone(),
                ..orlop_csi::proto::Volume::default()
            }),
            status: Some(VolumeStatus {
                volume_condition: self.condition(id),
                ..VolumeStatus::default()
            }),
        });
        let next = if at + 1 < ids.len() {
            (at + 1).to_string()
        } else {
            String::new()
        };
        Ok(Response::new(ListVolumesResponse {
            entries: entries.into_iter().collect(),
            next_token: next,
        }))
    }

    async fn controller_get_volume(
        &self,
        request: Request<ControllerGetVolumeRequest>,
    ) -> Result<Response<ControllerGetVolumeResponse>, Status> {
        use controller_get_volume_response::VolumeStatus;
        let id = request.into_inner().volume_id;
        Ok(Response::new(ControllerGetVolumeResponse {
            status: Some(VolumeStatus {
                volume_condition: self.condition(&id),
                ..VolumeStatus::default()
            }),
            ..ControllerGetVolumeResponse::default()
        }))
    }
}

struct World {
    client: kube::Client,
    cluster: Cluster,
    clock: Clock,
    fake: Fake,
}

impl World {
    /// Two claims with a volume each, the second one's ill.
    async fn new(lists: bool) -> Self {
        let config = orlop_apiserver::Config::new(Storage::Memory);
        let server = ApiServer::open(config).await.expect("memory opens");
        let client = kube::Client::new(server.service(), "default");
        let cluster = Cluster::new(client.clone());
        for name in ["a", "b"] {
            let claim = json!({
                "metadata": {"name": name, "namespace": "default"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "volumeName": name, "storageClassName": "",
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            });
            let claim: Claim = cluster.create_json(&claim).await.expect("a claim");
            let volume = json!({
                "metadata": {"name": name},
                "spec": {
                    "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                    "claimRef": {"kind": "PersistentVolumeClaim", "namespace": "default", "name": name, "uid": claim.metadata.uid},
                    "csi": {"driver": NAME, "volumeHandle": format!("vol-{name}")},
                },
            });
            cluster
                .create_json::<Volume>(&volume)
                .await
                .expect("a volume");
            let bound = Patch::Merge(json!({"status": {"phase": "Bound"}}));
            let key = Key::cluster(name);
            cluster
                .patch_status::<Volume>(&key, &bound)
                .await
                .expect("bound");
        }
        let conditions = BTreeMap::from([
            ("vol-a".to_owned(), None),
            ("vol-b".to_owned(), Some("disk is on fire".to_owned())),
        ]);
        Self {
            client,
            cluster,
            clock: Clock::simulated("2026-01-01T00:00:00Z".parse().expect("a time")),
            fake: Fake {
                conditions: Arc::new(Mutex::new(conditions)),
                lists,
            },
        }
    }

    fn monitor(&self) -> Process {
        let process = Process::new(self.client.clone(), self.clock);
        let config = health::Config {
            nodes: true,
            ..health::Config::default()
        };
        health::start(&process, self.fake.driver(), config);
        process
    }

    /// What was said of claims: name, reason, message.
    async fn said(&self) -> Vec<(String, String, String)> {
        let events = self.cluster.list::<Event>(None).await.expect("events");
        let said = events
            .into_iter()
            .map(|event| (event.involved_object.name, event.reason, event.message));
        let mut said: Vec<_> = said.collect();
        said.sort();
        said
    }

    async fn until_said(&self, reason: &str, count: usize) {
        let begun = Instant::now();
        while self
            .said()
            .await
            .iter()
            .filter(|(_, said, _)| said == reason)
            .count()
            < count
        {
            assert!(
                begun.elapsed() < Duration::from_secs(3600),
                "{reason} is never said"
            );
            sleep(Duration::from_secs(1)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_ill_volume_is_told_to_its_claim_and_its_recovery_once_even_by_another_monitor() {
    for lists in [true, false] {
        let world = World::new(lists).await;
        let first = world.monitor();
        world.until_said("VolumeConditionAbnormal", 1).await;
        let said = world.said().await;
        let ill = ("b", "VolumeConditionAbnormal", "disk is on fire");
        let ill = (ill.0.to_owned(), ill.1.to_owned(), ill.2.to_owned());
        assert_eq!(said, [ill], "lists: {lists}");
        first.kill();

        world
            .fake
            .conditions
            .lock()
            .expect("fine")
            .insert("vol-b".into(), None);
        let second = world.monitor();
        world.until_said("VolumeConditionNormal", 1).await;
        sleep(Duration::from_secs(1200)).await;
        let said = world.said().await;
        let well = said
            .iter()
            .filter(|(_, reason, _)| reason == "VolumeConditionNormal");
        assert_eq!(well.count(), 1, "lists: {lists}: {said:?}");
        second.kill();
    }
}

#[tokio::test(start_paused = true)]
async fn claims_of_pods_on_a_failed_node_are_told_so() {
    let world = World::new(true).await;
    let condition =
        |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
    let node = json!({"metadata": {"name": "n1"}});
    world
        .cluster
        .create_json::<Node>(&node)
        .await
        .expect("a node");
    let key = Key::cluster("n1");
    let ready = Patch::Merge(condition("True"));
    world
        .cluster
        .patch_status::<Node>(&key, &ready)
        .await
        .expect("ready");
    let pod = json!({
        "metadata": {"name": "user", "namespace": "default"},
        "spec": {
            "nodeName": "n1", "containers": [{"name": "c", "image": "x"}],
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "a"}}],
        },
    });
    world.cluster.create_json::<Pod>(&pod).await.expect("a pod");
    let monitor = world.monitor();
    world.until_said("VolumeConditionAbnormal", 1).await;
    let begun = Instant::now();
    let unready = Patch::Merge(condition("Unknown"));
    world
        .cluster
        .patch_status::<Node>(&key, &unready)
        .await
        .expect("unready");
    world.until_said("NodeFailed", 1).await;
    assert!(
        begun.elapsed() >= Duration::from_secs(300),
        "{:?}",
        begun.elapsed()
    );
    let said = world.said().await;
    assert!(
        said.iter()
            .any(|(claim, _, message)| claim == "a" && message.contains("Pods: [ user ]"))
    );
    world
        .cluster
        .patch_status::<Node>(&key, &ready)
        .await
        .expect("ready again");
    world.until_said("NodeRecovered", 1).await;
    monitor.kill();
}

#[tokio::test(start_paused = true)]
async fn a_list_in_pages_is_read_to_its_end() {
    let world = World::new(true).await;
    let listed = listing::volumes(&world.fake.driver(), 0)
        .await
        .expect("a list");
    assert_eq!(listed.len(), 2);
}
