//! What a driver is told, and how often.

use std::time::{Duration, Instant};

use orlop_csi::proto;
use orlop_model::{CsiNode, Key, Pod, Secret};
use proto::node_service_capability::rpc::Type as Can;
use serde_json::json;
use tonic::Code;

use super::cases::{event, is_running, with_claim};
use super::mock::{self, Mock};
use super::world::{NODE, World, mounts_under};

const TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";

/// Asks drivers again and again, as fast as a test wants.
async fn hasty() -> World {
    World::tuned(|config| config.republish = Duration::from_millis(100)).await
}

pub(crate) async fn a_driver_gets_what_it_asks_for_and_is_asked_again() {
    let world = hasty().await;
    let spec = json!({"attachRequired": false, "podInfoOnMount": true, "requiresRepublish": true,
        "tokenRequests": [{"audience": "vault", "expirationSeconds": 600}, {"audience": ""}]});
    let mock = Mock::start(&world, spec, &[]).await;
    let secret = json!({"metadata": {"name": "key", "namespace": "default"},
        "data": {"password": "aHVudGVyMg=="}});
    let made = world.cluster.create_json::<Secret>(&secret).await;
    made.expect("a secret");
    let reference = json!({"nodePublishSecretRef": {"name": "key", "namespace": "default"}});
    mock.claim_with(&world, "data", reference).await;
    world.pod("web", with_claim("sleep 600", "data")).await;
    let pod = world.pod_until("web", is_running).await;
    mock.until(|memory| memory.published.len() >= 3).await;
    let asked = mock.memory().published.clone();
    let context = &asked[0].volume_context;
    for (name, value) in [
        ("own", "attribute"),
        ("csi.storage.k8s.io/pod.name", "web"),
        ("csi.storage.k8s.io/pod.namespace", "default"),
        ("csi.storage.k8s.io/pod.uid", &pod.metadata.uid),
        ("csi.storage.k8s.io/serviceAccount.name", "default"),
        ("csi.storage.k8s.io/ephemeral", "false"),
    ] {
        assert_eq!(context.get(name).map(String::as_str), Some(value), "{name}");
    }
    assert_eq!(asked[0].secrets["password"], "hunter2");
    assert!(!asked[0].secrets.contains_key(TOKENS));
    let tokens: serde_json::Value = serde_json::from_str(&context[TOKENS]).expect("json");
    for audience in ["vault", ""] {
        let token = tokens[audience]["token"].as_str().expect("a token");
        assert_eq!(token.split('.').count(), 3, "a signed token");
        assert!(tokens[audience]["expirationTimestamp"].is_string());
    }
    // A token that is good is not asked for again.
    assert_eq!(asked[1].volume_context[TOKENS], context[TOKENS]);
    assert_eq!(asked[1].target_path, asked[0].target_path);
    world.delete("web").await;
    world.expect_clean().await;
}

pub(crate) async fn a_failed_repetition_takes_nothing_from_a_running_pod() {
    let world = hasty().await;
    let spec = json!({"attachRequired": false, "requiresRepublish": true,
        "serviceAccountTokenInSecrets": true, "tokenRequests": [{"audience": "vault"}]});
    let mock = Mock::start(&world, spec, &[]).await;
    mock.claim(&world, "data").await;
    let script = "while :; do date +%N > /data/tick; sleep 0.02; done";
    world.pod("web", with_claim(script, "data")).await;
    let pod = world.pod_until("web", is_running).await;
    let first = mock.memory().published[0].clone();
    assert!(!first.volume_context.contains_key(TOKENS));
    assert!(first.secrets.contains_key(TOKENS));
    // A final answer: a first publication would be undone now.
    mock.memory().refuses = Some(Code::InvalidArgument);
    event(&world, "FailedMount", "as the test wants").await;
    let mounts = mounts_under(world.root.path());
    assert!(
        mounts.iter().any(|path| path.ends_with("mount")),
        "{mounts:?}"
    );
    let tick = || std::fs::read(format!("{}/tick", first.target_path)).unwrap_or_default();
    let before = tick();
    let until = std::time::Instant::now() + Duration::from_secs(20);
    while tick() == before {
        assert!(std::time::Instant::now() < until, "the pod lost its volume");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    mock.memory().refuses = None;
    let count = mock.memory().published.len();
    mock.until(|memory| memory.published.len() > count + 1)
        .await;
    let now = world.pod_until("web", is_running).await;
    assert_eq!(now.status.container_statuses, pod.status.container_statuses);
    world.delete("web").await;
    world.expect_clean().await;
}

pub(crate) async fn a_driver_that_sets_the_group_is_told_it() {
    let world = World::new(false).await;
    let spec = json!({"attachRequired": false, "fsGroupPolicy": "File"});
    let mock = Mock::start(&world, spec, &[Can::VolumeMountGroup]).await;
    mock.claim(&world, "data").await;
    let mut spec = with_claim("sleep 600", "data");
    spec["securityContext"] = json!({"fsGroup": 4711});
    world.pod("web", spec).await;
    world.pod_until("web", is_running).await;
    let asked = mock.memory().published[0].clone();
    let capability = asked.volume_capability.and_then(|c| c.access_type);
    let Some(proto::volume_capability::AccessType::Mount(mount)) = capability else {
        panic!("{capability:?}")
    };
    assert_eq!(
        (&*mount.volume_mount_group, &*mount.fs_type),
        ("4711", "ext4")
    );
    let found = std::fs::metadata(&asked.target_path).expect("the volume");
    let group = std::os::unix::fs::MetadataExt::gid(&found);
    assert_eq!(group, 0, "the node leaves it to the driver");
    world.delete("web").await;
    world.expect_clean().await;
}

pub(crate) async fn a_driver_that_is_upgraded_and_rolled_back_is_called_where_it_is() {
    let world = World::new(false).await;
    let old = Mock::start(&world, json!({"attachRequired": false}), &[]).await;
    let new = Mock::default();
    new.memory().limit = 7;
    new.serve(&world, "upgraded");
    let key = Key::cluster(NODE);
    let limit = |csi: &CsiNode| {
        let driver = csi.driver(mock::NAME)?;
        driver.allocatable.as_ref()?.count
    };
    let upgraded = |csi: Option<&CsiNode>| csi.and_then(limit) == Some(7);
    world.until::<CsiNode>(&key, upgraded).await;
    for (name, called, other) in [("one", &new, &old), ("two", &old, &new)] {
        let before = other.memory().published.len();
        called.claim(&world, name).await;
        world.pod(name, with_claim("sleep 600", name)).await;
        world.pod_until(name, is_running).await;
        assert_eq!(called.memory().published.len(), 1, "{name}");
        assert_eq!(other.memory().published.len(), before, "{name}");
        if name == "one" {
            let socket = world.node_root().join("plugins_registry/upgraded-reg.sock");
            std::fs::remove_file(socket).expect("it leaves");
            let back = |csi: Option<&CsiNode>| {
                csi.is_some_and(|csi| csi.driver(mock::NAME).is_some() && limit(csi).is_none())
            };
            world.until::<CsiNode>(&key, back).await;
        }
    }
    world.delete("one").await;
    world.delete("two").await;
    world.expect_clean().await;
}

pub(crate) async fn volumes_tell_how_full_and_how_well_they_are() {
    let world = World::new(false).await;
    let can = [Can::GetVolumeStats, Can::VolumeCondition];
    let mock = Mock::start(&world, json!({"attachRequired": false}), &can).await;
    mock.memory().condition = Some(proto::VolumeCondition {
        abnormal: true,
        message: "the disk is on fire".into(),
    });
    mock.claim(&world, "data").await;
    let mut spec = with_claim("sleep 600", "data");
    let volumes = spec["volumes"].as_array_mut().expect("volumes");
    volumes.push(json!({"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}));
    let mounts = spec["containers"][0]["volumeMounts"].as_array_mut();
    let mounts = mounts.expect("mounts");
    mounts.push(json!({"name": "scratch", "mountPath": "/scratch"}));
    world.pod("web", spec).await;
    world.pod_until("web", is_running).await;
    let summary = world.stats().summary().await;
    assert_eq!(summary["node"]["nodeName"], NODE);
    assert_eq!(summary["pods"][0]["podRef"]["name"], "web");
    let volumes = summary["pods"][0]["volume"].as_array().expect("volumes");
    let named = |name: &str| {
        let found = volumes.iter().find(|volume| volume["name"] == name);
        found
            .unwrap_or_else(|| panic!("no {name} in {summary:#}"))
            .clone()
    };
    let data = named("data");
    assert_eq!(
        data["pvcRef"],
        json!({"name": "data", "namespace": "default"})
    );
    let told = [
        "capacityBytes",
        "usedBytes",
        "availableBytes",
        "inodes",
        "inodesUsed",
    ];
    assert_eq!(
        told.map(|key| data[key].clone()),
        [1000, 7, 993, 100, 7].map(|n| json!(n))
    );
    assert_eq!(data["volumeHealthStats"]["abnormal"], true);
    assert_eq!(named("scratch")["capacityBytes"], 1 << 20);
    let metrics = world.stats().metrics().await;
    let labels = "{namespace=\"default\",persistentvolumeclaim=\"data\"}";
    for line in [
        format!("kubelet_volume_stats_capacity_bytes{labels} 1000\n"),
        format!("kubelet_volume_stats_inodes_free{labels} 93\n"),
        format!("kubelet_volume_stats_health_status_abnormal{labels} 1\n"),
    ] {
        assert!(metrics.contains(&line), "{metrics}");
    }
    event(
        &world,
        "VolumeConditionAbnormal",
        "Volume data: the disk is on fire",
    )
    .await;
    world.delete("web").await;
    world.expect_clean().await;
}

pub(crate) async fn a_driver_whose_socket_was_away_is_asked_as_soon_as_it_is_back() {
    let world = World::new(false).await;
    let mock = Mock::start(&world, json!({"attachRequired": false}), &[]).await;
    mock.claim(&world, "data").await;
    world.pod("web", with_claim("exec sleep 600", "data")).await;
    world.pod_until("web", is_running).await;

    // The socket of its registrar stays.
    mock.memory().stop.clear();
    let socket = world.node_root().join("plugins/mock/csi.sock");
    let until = Instant::now() + Duration::from_secs(20);
    while std::os::unix::net::UnixStream::connect(&socket).is_ok() {
        assert!(Instant::now() < until, "it goes on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let key = Key::namespaced("default", "web");
    let asked = world.cluster.delete::<Pod>(&key, &Default::default()).await;
    asked.expect("asked for");
    // Who looks at the pod learns what it waits for; the next try is seconds away by now.
    event(
        &world,
        "FailedUnMount",
        "Unable to unmount volumes: mounted volumes=[data]: volume \"data\": ",
    )
    .await;
    let back = Instant::now();
    mock.serve_driver(&world, "mock");
    world.until::<Pod>(&key, |pod| pod.is_none()).await;
    let took = back.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?}");
    world.expect_clean().await;
}
