//! What must hold.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use orlop_apiserver::{Config, Storage};
use orlop_model::pod::ContainerStatus;
use orlop_model::{ConfigMap, CsiNode, Event, Key, Node, Pod, PodPhase};
use serde_json::json;

use super::crashes::{
    a_pod_that_is_ending_keeps_its_volume_until_its_processes_are_gone,
    nothing_is_unmounted_while_the_api_server_cannot_be_reached,
    the_role_may_be_killed_at_every_call_to_the_driver,
    what_dead_pods_left_is_cleared_and_nothing_behind_a_mount_is_touched,
};
use super::cri::{
    a_node_that_stops_leaves_no_sandbox_running,
    a_runtime_that_was_away_is_asked_again_to_stop_what_it_runs,
    pods_are_containers_of_a_container_runtime,
    volumes_of_pods_that_end_do_not_wait_for_their_sandboxes,
};
use super::csi::{
    a_driver_gets_what_it_asks_for_and_is_asked_again,
    a_driver_that_is_upgraded_and_rolled_back_is_called_where_it_is,
    a_driver_that_sets_the_group_is_told_it,
    a_driver_whose_socket_was_away_is_asked_as_soon_as_it_is_back,
    a_failed_repetition_takes_nothing_from_a_running_pod,
    volumes_tell_how_full_and_how_well_they_are,
};
use super::disks::{
    a_change_of_a_config_map_reaches_all_its_pods,
    a_local_disk_is_formatted_if_it_is_empty_and_mounted_once,
};
use super::files::{
    a_pod_starts_as_soon_as_its_config_map_comes, a_pod_whose_empty_dir_grows_too_large_is_evicted,
    files_follow_what_they_come_from, what_never_changes_is_not_watched,
};
use super::flex::{
    a_flexvolume_call_that_takes_long_is_told_of_and_counted,
    a_flexvolume_driver_that_is_not_executable_is_told_and_runs_once_it_is,
    a_flexvolume_driver_that_misbehaves_is_told_of_and_harms_nobody,
    a_flexvolume_driver_that_outlived_its_node_is_ended_by_the_next,
    a_flexvolume_is_made_larger_by_its_driver,
    a_flexvolume_is_mounted_by_its_driver_once_that_is_installed,
    an_attached_flexvolume_is_detached_after_its_last_pod,
    two_flexvolumes_of_one_name_are_not_taken_for_one,
    what_a_flexvolume_driver_undid_before_a_crash_is_not_asked_of_it_for_ever,
};
use super::groups::{
    a_pods_group_owns_its_volume_and_a_restart_does_not_walk_again,
    a_volume_that_hangs_is_left_alone_and_others_go_on,
    what_hangs_on_the_host_holds_up_its_own_pods_alone,
};
use super::history::{
    a_staging_that_nobody_knows_the_end_of_is_undone_with_its_pod,
    a_staging_that_was_refused_leaves_no_folder,
    a_volume_that_may_be_unstaged_is_staged_before_it_is_published_again,
    after_a_reboot_pods_start_again_with_all_their_volumes,
    what_was_left_is_cleared_when_its_driver_registers_late,
};
use super::hostile::{
    a_full_disk_holds_up_new_pods_until_there_is_room_and_costs_nobody_a_volume,
    whatever_a_pod_puts_into_its_volumes_nothing_outside_is_touched,
};
use super::inline::{
    an_inline_volume_is_mounted_as_soon_as_its_secret_comes,
    an_inline_volume_lives_and_dies_with_its_pod,
    an_inline_volume_waits_for_a_driver_that_has_such,
};
use super::world::{NODE, World, mounts_under};

type Case = fn() -> Pin<Box<dyn Future<Output = ()>>>;

macro_rules! cases {
    ($($name:ident),+ $(,)?) => {
        pub(crate) const ALL: &[(&str, Case)] = &[$((stringify!($name), || Box::pin($name()))),+];
    };
}

cases![
    a_driver_that_registers_is_written_on_the_node,
    a_node_that_is_deleted_comes_back_with_its_drivers,
    a_pod_writes_into_its_volume_and_leaves_nothing_behind,
    a_pod_outlives_the_node_role_and_is_taken_over,
    a_pod_that_is_deleted_while_the_role_is_dead_is_cleared_up,
    an_attachable_volume_waits_for_its_attachment,
    a_block_volume_is_a_device_in_the_container,
    a_pod_that_never_restarts_ends_as_its_exit_code_says,
    init_containers_run_first_and_a_crash_is_followed_by_a_wait,
    a_command_that_is_missing_is_told_in_the_status,
    all_pods_stop_and_their_objects_stay,
    a_pod_without_its_claim_says_so_and_starts_when_it_comes,
    two_pods_share_a_volume_and_the_last_one_unstages_it,
    a_token_is_renewed_under_a_running_pod,
    an_inline_volume_lives_and_dies_with_its_pod,
    an_inline_volume_waits_for_a_driver_that_has_such,
    an_inline_volume_is_mounted_as_soon_as_its_secret_comes,
    a_pods_group_owns_its_volume_and_a_restart_does_not_walk_again,
    a_volume_that_hangs_is_left_alone_and_others_go_on,
    what_hangs_on_the_host_holds_up_its_own_pods_alone,
    a_driver_gets_what_it_asks_for_and_is_asked_again,
    a_failed_repetition_takes_nothing_from_a_running_pod,
    a_driver_that_sets_the_group_is_told_it,
    a_driver_that_is_upgraded_and_rolled_back_is_called_where_it_is,
    a_driver_whose_socket_was_away_is_asked_as_soon_as_it_is_back,
    volumes_tell_how_full_and_how_well_they_are,
    what_dead_pods_left_is_cleared_and_nothing_behind_a_mount_is_touched,
    nothing_is_unmounted_while_the_api_server_cannot_be_reached,
    a_pod_that_is_ending_keeps_its_volume_until_its_processes_are_gone,
    the_role_may_be_killed_at_every_call_to_the_driver,
    a_staging_that_nobody_knows_the_end_of_is_undone_with_its_pod,
    a_staging_that_was_refused_leaves_no_folder,
    a_volume_that_may_be_unstaged_is_staged_before_it_is_published_again,
    what_was_left_is_cleared_when_its_driver_registers_late,
    after_a_reboot_pods_start_again_with_all_their_volumes,
    whatever_a_pod_puts_into_its_volumes_nothing_outside_is_touched,
    a_full_disk_holds_up_new_pods_until_there_is_room_and_costs_nobody_a_volume,
    files_follow_what_they_come_from,
    a_pod_starts_as_soon_as_its_config_map_comes,
    what_never_changes_is_not_watched,
    a_pod_whose_empty_dir_grows_too_large_is_evicted,
    a_flexvolume_is_mounted_by_its_driver_once_that_is_installed,
    an_attached_flexvolume_is_detached_after_its_last_pod,
    a_flexvolume_driver_that_misbehaves_is_told_of_and_harms_nobody,
    a_flexvolume_call_that_takes_long_is_told_of_and_counted,
    what_a_flexvolume_driver_undid_before_a_crash_is_not_asked_of_it_for_ever,
    a_flexvolume_driver_that_outlived_its_node_is_ended_by_the_next,
    a_flexvolume_driver_that_is_not_executable_is_told_and_runs_once_it_is,
    two_flexvolumes_of_one_name_are_not_taken_for_one,
    a_flexvolume_is_made_larger_by_its_driver,
    pods_are_containers_of_a_container_runtime,
    volumes_of_pods_that_end_do_not_wait_for_their_sandboxes,
    a_node_that_stops_leaves_no_sandbox_running,
    a_runtime_that_was_away_is_asked_again_to_stop_what_it_runs,
    a_local_disk_is_formatted_if_it_is_empty_and_mounted_once,
    a_change_of_a_config_map_reaches_all_its_pods,
];

fn shell(script: &str) -> serde_json::Value {
    json!({"name": "main", "command": ["sh", "-c", script]})
}

pub(crate) fn with_claim(script: &str, claim: &str) -> serde_json::Value {
    let mut container = shell(script);
    container["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    json!({
        "containers": [container],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}],
        "terminationGracePeriodSeconds": 5,
    })
}

pub(crate) fn first(pod: &Pod) -> &ContainerStatus {
    &pod.status.container_statuses[0]
}

pub(crate) fn is_running(pod: &Pod) -> bool {
    pod.phase() == PodPhase::Running && first(pod).state.running.is_some()
}

fn condition<'a>(pod: &'a Pod, type_: &str) -> &'a str {
    pod.status
        .conditions
        .iter()
        .find(|c| c.type_ == type_)
        .map_or("", |c| &c.status)
}

/// Waits for an event whose message holds some words.
pub(crate) async fn event(world: &World, reason: &str, words: &str) {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let events: Vec<Event> = world.cluster.list(Some("default")).await.expect("events");
        if events
            .iter()
            .any(|event| event.reason == reason && event.message.contains(words))
        {
            return;
        }
        assert!(Instant::now() < until, "no {reason} {words:?}: {events:#?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn a_driver_that_registers_is_written_on_the_node() {
    let world = World::new(false).await;
    let mut heard = world.registered.clone();
    let status = heard
        .wait_for(Option::is_some)
        .await
        .expect("told")
        .clone()
        .expect("a status");
    assert!(status.plugin_registered, "{}", status.error);
    let key = Key::cluster(NODE);
    let csi = world
        .until::<CsiNode>(&key, |csi| {
            csi.is_some_and(|csi| !csi.spec.drivers.is_empty())
        })
        .await
        .expect("a CSINode");
    assert_eq!(csi.spec.drivers[0].node_id, NODE);
    let node = world
        .until::<Node>(&key, |node| node.is_some_and(Node::is_ready))
        .await
        .expect("a node");
    let managed = orlop_model::well_known::CONTROLLER_MANAGED_ATTACH;
    assert_eq!(node.metadata.annotation(managed), Some("true"));
    for topology in &csi.spec.drivers[0].topology_keys {
        assert_eq!(
            node.metadata.labels.get(topology).map(String::as_str),
            Some(NODE)
        );
    }
    // The socket goes, and so does the driver's entry.
    std::fs::remove_file(world.node_root().join("plugins_registry/local-reg.sock"))
        .expect("removed");
    world
        .until::<CsiNode>(&key, |csi| {
            csi.is_some_and(|csi| csi.spec.drivers.is_empty())
        })
        .await;
}

async fn a_node_that_is_deleted_comes_back_with_its_drivers() {
    let world = World::new(false).await;
    let key = Key::cluster(NODE);
    let has_driver = |csi: Option<&CsiNode>| csi.is_some_and(|csi| !csi.spec.drivers.is_empty());
    let csi = world.until(&key, has_driver).await.expect("a CSINode");
    let ready = |node: Option<&Node>| node.is_some_and(Node::is_ready);
    let node = world.until(&key, ready).await.expect("a node");
    let at_once = orlop_runtime::Preconditions::default();
    // With the node goes what it owns: the collector is not part of this world.
    for result in [
        world.cluster.delete::<Node>(&key, &at_once).await.map(drop),
        world
            .cluster
            .delete::<CsiNode>(&key, &at_once)
            .await
            .map(drop),
    ] {
        result.expect("deleted");
    }
    let again = world
        .until::<CsiNode>(&key, |found| {
            has_driver(found) && found.is_some_and(|found| found.metadata.uid != csi.metadata.uid)
        })
        .await
        .expect("a CSINode");
    assert_eq!(again.spec.drivers, csi.spec.drivers);
    // The labels follow the node: a driver is told of once the node is there.
    let topology = &again.spec.drivers[0].topology_keys;
    assert!(!topology.is_empty());
    let is_back = |found: &Node| {
        let labels = &found.metadata.labels;
        found.metadata.uid != node.metadata.uid
            && found.is_ready()
            && topology.iter().all(|label| labels.contains_key(label))
    };
    world
        .until::<Node>(&key, |found| found.is_some_and(is_back))
        .await;
}

async fn a_pod_writes_into_its_volume_and_leaves_nothing_behind() {
    let world = World::new(false).await;
    world.claim("data", "Filesystem").await;
    let map = json!({"metadata": {"name": "conf", "namespace": "default"}, "data": {"greeting": "hello"}});
    world
        .cluster
        .create_json::<ConfigMap>(&map)
        .await
        .expect("a config map");
    let script = "echo kept > /data/f; cat /conf/greeting; echo; cat /one; echo; \
                  touch /conf/x 2>/dev/null || echo read-only; \
                  echo $NAME $(df /data | tail -1 | cut -d' ' -f1 | cut -c1-9); sleep 600";
    let mut spec = with_claim(script, "data");
    spec["containers"][0]["env"] =
        json!([{"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]);
    let mounts = spec["containers"][0]["volumeMounts"]
        .as_array_mut()
        .expect("mounts");
    mounts.push(json!({"name": "conf", "mountPath": "/conf"}));
    mounts.push(json!({"name": "conf", "mountPath": "/one", "subPath": "greeting"}));
    mounts.push(json!({"name": "scratch", "mountPath": "/scratch"}));
    let volumes = spec["volumes"].as_array_mut().expect("volumes");
    volumes.push(json!({"name": "conf", "configMap": {"name": "conf"}}));
    volumes.push(json!({"name": "scratch", "emptyDir": {"medium": "Memory"}}));
    let began = Instant::now();
    world.pod("web", spec.clone()).await;
    let pod = world.pod_until("web", is_running).await;
    println!("  pod placed to running: {:?}", began.elapsed());
    assert_eq!(condition(&pod, "Ready"), "True");
    while world.log(&pod, "main").lines().count() < 4 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(
        world.log(&pod, "main"),
        "hello\nhello\nread-only\nweb /dev/loop\n"
    );
    let began = Instant::now();
    world.delete("web").await;
    println!("  pod deleted: {:?}", began.elapsed());
    world.expect_clean().await;

    // The same claim in a new pod shows what was written.
    spec["containers"][0]["command"] = json!(["cat", "/data/f"]);
    spec["restartPolicy"] = json!("Never");
    world.pod("again", spec).await;
    let pod = world.pod_until("again", Pod::is_finished).await;
    assert_eq!(
        (pod.phase(), world.log(&pod, "main").as_str()),
        (PodPhase::Succeeded, "kept\n")
    );
    world.delete("again").await;
    world.expect_clean().await;
}

async fn a_pod_outlives_the_node_role_and_is_taken_over() {
    let mut world = World::new(false).await;
    world.claim("data", "Filesystem").await;
    world
        .pod(
            "web",
            with_claim(
                "while :; do date +%N >> /data/ticks; sleep 0.02; done",
                "data",
            ),
        )
        .await;
    let before = world.pod_until("web", is_running).await;
    let mounts = mounts_under(world.root.path());
    world.kill_node();
    let ticks = mounts
        .iter()
        .find(|m| m.ends_with("mount"))
        .expect("published")
        .join("ticks");
    let count = |path: &std::path::Path| {
        std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
    };
    let had = count(&ticks);
    while count(&ticks) < had + 5 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    world.start_node();
    let mut heard = world.registered.clone();
    heard.mark_unchanged();
    heard.changed().await.expect("registered again");
    assert_eq!(
        mounts_under(world.root.path()),
        mounts,
        "nothing was remounted or unmounted"
    );
    let after = world.pod_until("web", is_running).await;
    assert_eq!(first(&after), first(&before));
    world.delete("web").await;
    world.expect_clean().await;
}

async fn a_pod_that_is_deleted_while_the_role_is_dead_is_cleared_up() {
    let mut world = World::new(false).await;
    world.claim("data", "Filesystem").await;
    let pod = world.pod("web", with_claim("sleep 600", "data")).await;
    world.pod_until("web", is_running).await;
    world.kill_node();
    let force = orlop_runtime::Preconditions {
        grace_period_seconds: Some(0),
        ..Default::default()
    };
    let key = Key::namespaced("default", "web");
    world
        .cluster
        .delete::<Pod>(&key, &force)
        .await
        .expect("deleted");
    world.until::<Pod>(&key, |pod| pod.is_none()).await;
    assert!(!mounts_under(world.root.path()).is_empty());
    world.start_node();
    let folder = world.node_root().join("pods").join(&pod.metadata.uid);
    while folder.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    while !mounts_under(world.root.path()).is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    world.expect_clean().await;
}

async fn an_attachable_volume_waits_for_its_attachment() {
    let world = World::new(true).await;
    let handle = world.claim("data", "Filesystem").await;
    world.pod("web", with_claim("sleep 600", "data")).await;
    let waiting = world
        .pod_until("web", |pod| {
            let statuses = &pod.status.container_statuses;
            statuses.iter().any(|s| {
                s.state
                    .waiting
                    .as_ref()
                    .is_some_and(|w| w.message.contains("attached"))
            })
        })
        .await;
    assert_eq!(waiting.phase(), PodPhase::Pending);
    assert_eq!(mounts_under(world.root.path()).len(), 0);
    world.attach(&handle).await;
    world.pod_until("web", is_running).await;
    world.delete("web").await;
    world.expect_clean().await;
}

async fn a_block_volume_is_a_device_in_the_container() {
    let world = World::new(false).await;
    world.claim("disk", "Block").await;
    let mut container = shell(
        "test -b /dev/xvda && printf raw | dd of=/dev/xvda conv=fsync 2>/dev/null; head -c3 /dev/xvda; sleep 600",
    );
    container["volumeDevices"] = json!([{"name": "data", "devicePath": "/dev/xvda"}]);
    let spec = json!({
        "containers": [container],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}],
    });
    world.pod("web", spec).await;
    let pod = world.pod_until("web", is_running).await;
    let uid = &pod.metadata.uid;
    let link = world.node_root().join(format!(
        "pods/{uid}/volumeDevices/kubernetes.io~csi/pv-disk"
    ));
    let devices = world
        .node_root()
        .join("plugins/kubernetes.io/csi/volumeDevices");
    let published = devices.join("publish/pv-disk").join(uid);
    assert_eq!(std::fs::read_link(&link).expect("a link"), published);
    // Where the kubelet looks for it: the device itself, bound.
    let bound = devices.join("pv-disk/dev").join(uid);
    let number = |path: &std::path::Path| {
        use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
        let found = std::fs::symlink_metadata(path).expect("a device");
        assert!(found.file_type().is_block_device(), "{}", path.display());
        found.rdev()
    };
    assert_eq!(number(&bound), number(&published));
    assert!(mounts_under(&devices).contains(&bound));
    assert!(devices.join("pv-disk/data/vol_data.json").exists());
    // A kubelet that was here before has also taken a loop device of it.
    let file = std::fs::File::open(&bound).expect("a device");
    let (access, lifetime) = (
        orlop_host::loopdev::Access::ReadOnly,
        orlop_host::loopdev::Lifetime::UntilDetached,
    );
    let lock = orlop_host::LoopDevice::attach(&file, access, lifetime);
    drop((lock.expect("a loop device"), file));
    world.delete("web").await;
    world.expect_clean().await;
    assert!(!devices.join("pv-disk").exists());
}

async fn a_pod_that_never_restarts_ends_as_its_exit_code_says() {
    let world = World::new(false).await;
    let spec = |script: &str| json!({"containers": [shell(script)], "restartPolicy": "Never"});
    for (name, script, phase, code, reason) in [
        ("good", "echo done", PodPhase::Succeeded, 0, "Completed"),
        ("bad", "exit 3", PodPhase::Failed, 3, "Error"),
        ("hit", "kill -9 $$$$", PodPhase::Failed, 137, "Error"),
    ] {
        world.pod(name, spec(script)).await;
        let pod = world.pod_until(name, Pod::is_finished).await;
        let ended = first(&pod).state.terminated.clone().expect("terminated");
        assert_eq!(
            (pod.phase(), ended.exit_code, ended.reason.as_str()),
            (phase, code, reason),
            "{name}"
        );
        assert!(ended.started_at.is_some() && ended.finished_at.is_some());
        world.delete(name).await;
    }
    world.expect_clean().await;
}

async fn init_containers_run_first_and_a_crash_is_followed_by_a_wait() {
    let world = World::new(false).await;
    let mut init = shell("echo one > /s/f");
    init["name"] = json!("prepare");
    let mut main = shell("cat /s/f; exit 1");
    for container in [&mut init, &mut main] {
        container["volumeMounts"] = json!([{"name": "s", "mountPath": "/s"}]);
    }
    let spec = json!({
        "initContainers": [init], "containers": [main],
        "volumes": [{"name": "s", "emptyDir": {}}],
    });
    world.pod("web", spec).await;
    let pod = world
        .pod_until("web", |pod| {
            let statuses = &pod.status.container_statuses;
            statuses.iter().any(|s| {
                s.state
                    .waiting
                    .as_ref()
                    .is_some_and(|w| w.reason == "CrashLoopBackOff")
            })
        })
        .await;
    assert_eq!(
        first(&pod).restart_count,
        1,
        "the first restart is immediate"
    );
    assert_eq!(
        first(&pod)
            .last_state
            .terminated
            .as_ref()
            .map(|t| t.exit_code),
        Some(1)
    );
    let init = &pod.status.init_container_statuses[0];
    let code = init.state.terminated.as_ref().map(|t| t.exit_code);
    assert_eq!((code, init.ready), (Some(0), true));
    let back_off = format!(
        "Back-off restarting failed container main in pod web_default({})",
        pod.metadata.uid
    );
    for (reason, message) in [
        ("Created", "Created container: prepare"),
        ("Started", "Started container prepare"),
        ("Created", "Created container: main"),
        ("Started", "Started container main"),
        ("BackOff", &back_off),
    ] {
        event(&world, reason, message).await;
    }
    assert_eq!(world.log(&pod, "main"), "one\n");
    assert_eq!(condition(&pod, "Initialized"), "True");
    assert_eq!(condition(&pod, "Ready"), "False");
    world.delete("web").await;
    world.expect_clean().await;
}

async fn a_command_that_is_missing_is_told_in_the_status() {
    let world = World::new(false).await;
    let spec = json!({"containers": [{"name": "main", "command": ["no-such-program"]}], "restartPolicy": "Never"});
    world.pod("web", spec).await;
    let pod = world.pod_until("web", Pod::is_finished).await;
    let ended = first(&pod).state.terminated.clone().expect("terminated");
    assert_eq!(
        (ended.exit_code, ended.reason.as_str()),
        (128, "StartError")
    );
    assert_eq!(ended.started_at, Some(jiff::Timestamp::UNIX_EPOCH));
    assert!(ended.finished_at > ended.started_at);
    assert!(
        ended.message.contains("no-such-program"),
        "{}",
        ended.message
    );
    world.delete("web").await;
    world.expect_clean().await;
}

async fn all_pods_stop_and_their_objects_stay() {
    let mut world = World::new(false).await;
    world.claim("data", "Filesystem").await;
    world.pod("web", with_claim("sleep 600", "data")).await;
    let before = world.pod_until("web", is_running).await;
    let key = Key::namespaced("default", "web");
    let mut before = before;
    // What was stopped with all the rest did not crash: it never waits for its restart.
    for restarts in 1..=3 {
        world.stop_all_pods().await;
        assert_eq!(mounts_under(world.root.path()).len(), 0);
        let after = world
            .cluster
            .get::<Pod>(&key)
            .await
            .expect("readable")
            .expect("it is there");
        assert_eq!(after.status, before.status);
        world.kill_node();
        let began = Instant::now();
        world.start_node();
        let again = world
            .pod_until("web", |pod| {
                is_running(pod) && first(pod).restart_count == restarts
            })
            .await;
        assert_eq!(again.metadata.uid, before.metadata.uid);
        assert!(began.elapsed() < Duration::from_secs(8), "restarted late");
        before = again;
    }
    world.delete("web").await;
    world.expect_clean().await;
}

async fn a_pod_without_its_claim_says_so_and_starts_when_it_comes() {
    let world = World::new(false).await;
    world.pod("web", with_claim("sleep 600", "late")).await;
    event(&world, "FailedMount", "default/late").await;
    world.claim("late", "Filesystem").await;
    world.pod_until("web", is_running).await;
    world.delete("web").await;
    world.expect_clean().await;
}

async fn two_pods_share_a_volume_and_the_last_one_unstages_it() {
    let world = World::new(false).await;
    world.claim("data", "Filesystem").await;
    for name in ["one", "two"] {
        world.pod(name, with_claim("sleep 600", "data")).await;
    }
    for name in ["one", "two"] {
        world.pod_until(name, is_running).await;
    }
    let staged = || {
        mounts_under(world.root.path())
            .iter()
            .filter(|m| m.ends_with("globalmount"))
            .count()
    };
    world.delete("one").await;
    assert_eq!(staged(), 1);
    world.pod_until("two", is_running).await;
    world.delete("two").await;
    world.expect_clean().await;
}

async fn a_token_is_renewed_under_a_running_pod() {
    // To a node whose clock is ahead of the server's, a token of ten minutes lives two seconds.
    let mut config = Config::new(Storage::Memory);
    config.clock =
        orlop_apiserver::Clock::new(|| Timestamp::now() - SignedDuration::from_secs(598));
    let world = World::with(false, config).await;
    let script = "stat -L -c '%a %g' /t/deep/token; \
                  while :; do cat /t/deep/token; echo; sleep 0.05; done";
    let mut container = shell(script);
    container["volumeMounts"] = json!([{"name": "t", "mountPath": "/t"}]);
    let token = json!({"serviceAccountToken": {"path": "deep/token", "expirationSeconds": 600}});
    let spec = json!({
        "containers": [container],
        "securityContext": {"fsGroup": 4711},
        "volumes": [{"name": "t", "projected": {"sources": [token]}}],
    });
    world.pod("web", spec).await;
    let pod = world.pod_until("web", is_running).await;
    let tokens = loop {
        let log = world.log(&pod, "main");
        let mut lines = log.lines().map(str::to_owned);
        let traits = lines.next();
        let mut seen: Vec<String> = lines.collect();
        // The last line may be half written.
        seen.pop();
        seen.dedup();
        if seen.len() >= 3 {
            assert_eq!(traits.as_deref(), Some("640 4711"));
            break seen;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    // Each was whole whenever it was read, and is another one than the last.
    for token in &tokens {
        assert_eq!(token.split('.').count(), 3, "{token}");
    }
    world.delete("web").await;
    world.expect_clean().await;
}
