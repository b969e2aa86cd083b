//! The role dies, or can't reach the API server; pods and their volumes go on.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use orlop_csi::client::{CallSite, Passage};
use orlop_csi::{Gate, Method};
use orlop_host::mount::{self, Depth};
use orlop_host::{Place, Restrictions};
use orlop_model::{Key, Pod, PodPhase};
use tokio::sync::mpsc;
use tonic::Code;

use super::cases::{first, is_running, with_claim};
use super::world::{World, mounts_under};

const TICKING: &str = "while :; do date +%N >> /data/ticks; sleep 0.02; done";

fn ticks(world: &World) -> PathBuf {
    let mounts = mounts_under(world.root.path());
    let mount = mounts.iter().find(|path| path.ends_with("mount"));
    mount.expect("published").join("ticks")
}

async fn expect_ticking(path: &std::path::Path) {
    let size = || std::fs::metadata(path).map_or(0, |file| file.len());
    let (before, until) = (size(), Instant::now() + Duration::from_secs(20));
    while size() <= before {
        assert!(
            Instant::now() < until,
            "the pod's process has stopped, or lost its volume"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn delete(world: &World, name: &str) {
    let key = Key::namespaced("default", name);
    let asked = world.cluster.delete::<Pod>(&key, &Default::default()).await;
    asked.expect("asked for");
}

pub(crate) async fn nothing_is_unmounted_while_the_api_server_cannot_be_reached() {
    let mut world = World::new(false).await;
    world.claim("data", "Filesystem").await;
    world.claim("other", "Filesystem").await;
    world.pod("web", with_claim(TICKING, "data")).await;
    let before = world.pod_until("web", is_running).await;
    let (mounts, ticks) = (mounts_under(world.root.path()), ticks(&world));
    // Another one is gone for good when the server is back.
    world.pod("lost", with_claim("sleep 600", "other")).await;
    world.pod_until("lost", is_running).await;
    world.kill_node();
    let force = orlop_runtime::Preconditions {
        grace_period_seconds: Some(0),
        ..Default::default()
    };
    let lost = Key::namespaced("default", "lost");
    let deleted = world.cluster.delete::<Pod>(&lost, &force).await;
    deleted.expect("deleted");
    let all = mounts_under(world.root.path());
    world.online.store(false, Ordering::SeqCst);
    world.start_node();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(mounts_under(world.root.path()), all);
    expect_ticking(&ticks).await;
    world.online.store(true, Ordering::SeqCst);
    let until = Instant::now() + Duration::from_secs(60);
    while mounts_under(world.root.path()) != mounts {
        assert!(
            Instant::now() < until,
            "{:?}",
            mounts_under(world.root.path())
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    expect_ticking(&ticks).await;
    let after = world.pod_until("web", is_running).await;
    assert_eq!(first(&after), first(&before));
    world.delete("web").await;
    world.expect_clean().await;
}

pub(crate) async fn a_pod_that_is_ending_keeps_its_volume_until_its_processes_are_gone() {
    let mut world = World::new(false).await;
    world.claim("data", "Filesystem").await;
    let farewell = "trap 'sleep 2; echo bye > /data/bye; exit 0' TERM";
    let mut spec = with_claim(&format!("{farewell}; {TICKING}"), "data");
    spec["terminationGracePeriodSeconds"] = 30.into();
    world.pod("web", spec).await;
    world.pod_until("web", is_running).await;
    // By now it hears the signal that it is to end by.
    expect_ticking(&ticks(&world)).await;
    delete(&world, "web").await;
    world
        .pod_until("web", |pod| pod.metadata.is_deleting())
        .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    world.kill_node();
    world.start_node();
    let key = Key::namespaced("default", "web");
    world.until::<Pod>(&key, |pod| pod.is_none()).await;
    world.expect_clean().await;
    let mut spec = with_claim("cat /data/bye", "data");
    spec["restartPolicy"] = "Never".into();
    world.pod("reader", spec).await;
    let pod = world.pod_until("reader", Pod::is_finished).await;
    let said = (pod.phase(), world.log(&pod, "main"));
    assert_eq!(said, (PodPhase::Succeeded, "bye\n".to_owned()));
    world.delete("reader").await;
    world.expect_clean().await;
}

/// Stops one call for ever, before it leaves or after it was answered, and tells so.
struct Strike {
    /// Which of the moments from now on; two for each call.
    left: Mutex<Option<usize>>,
    struck: mpsc::UnboundedSender<Method>,
}

impl Strike {
    fn meets(&self, method: Method) -> bool {
        let mut left = self.left.lock().expect("a count");
        match *left {
            Some(0) => {
                *left = None;
                self.struck.send(method).expect("the test lives");
                true
            }
            Some(more) => {
                *left = Some(more - 1);
                false
            }
            None => false,
        }
    }

    fn pass(&self, method: Method) -> Passage<'_> {
        let meets = matches!(
            method,
            Method::NodeStageVolume
                | Method::NodePublishVolume
                | Method::NodeUnpublishVolume
                | Method::NodeUnstageVolume
        ) && self.meets(method);
        Box::pin(async move {
            if meets {
                std::future::pending::<()>().await;
            }
            Ok(())
        })
    }
}

impl Gate for Strike {
    fn before<'a>(&'a self, call: &'a CallSite) -> Passage<'a> {
        self.pass(call.method)
    }

    fn after<'a>(&'a self, call: &'a CallSite, _: Code) -> Passage<'a> {
        self.pass(call.method)
    }
}

/// Waits for something, and kills the role and starts it again whenever it was struck.
async fn through(
    world: &mut World,
    struck: &mut mpsc::UnboundedReceiver<Method>,
    wait: impl AsyncFn(&World),
) {
    loop {
        tokio::select! {
            () = wait(world) => return,
            _ = struck.recv() => {}
        }
        world.kill_node();
        world.start_node();
    }
}

pub(crate) async fn the_role_may_be_killed_at_every_call_to_the_driver() {
    let mut world = World::new(false).await;
    world.kill_node();
    let (sender, mut struck) = mpsc::unbounded_channel();
    let strike = Arc::new(Strike {
        left: Mutex::new(None),
        struck: sender,
    });
    world.gate = Some(strike.clone());
    world.start_node();
    world.claim("data", "Filesystem").await;
    let mut moment = 0;
    loop {
        *strike.left.lock().expect("a count") = Some(moment);
        let name = format!("web-{moment}");
        world.pod(&name, with_claim(TICKING, "data")).await;
        through(&mut world, &mut struck, async |world| {
            world.pod_until(&name, is_running).await;
        })
        .await;
        let pod = world.pod_until(&name, is_running).await;
        assert_eq!(first(&pod).restart_count, 0);
        expect_ticking(&ticks(&world)).await;
        delete(&world, &name).await;
        let key = Key::namespaced("default", &name);
        through(&mut world, &mut struck, async |world| {
            world.until::<Pod>(&key, |pod| pod.is_none()).await;
        })
        .await;
        through(&mut world, &mut struck, async |world| {
            world.expect_clean().await
        })
        .await;
        if strike.left.lock().expect("a count").take().is_some() {
            break;
        }
        moment += 1;
    }
    assert_eq!(moment, 8, "four calls, before and after");
}

pub(crate) async fn what_dead_pods_left_is_cleared_and_nothing_behind_a_mount_is_touched() {
    let mut world = World::new(false).await;
    world.kill_node();
    let outside = world.root.path().join("outside");
    std::fs::create_dir_all(&outside).expect("a folder");
    std::fs::write(outside.join("precious"), "kept").expect("a file");
    let pod = world.node_root().join("pods/0dead0");
    // A mount whose checkpoint was lost, and a subPath whose volumes are gone.
    let points = [
        pod.join("volumes/kubernetes.io~csi/pv-lost/mount"),
        pod.join("volume-subpaths/data/main/0"),
        pod.join("somewhere/else"),
    ];
    for point in &points {
        std::fs::create_dir_all(point).expect("a folder");
        let source = Place::at(&outside).and_then(|place| place.open());
        let target = Place::at(point).and_then(|place| place.open());
        let (source, target) = (source.expect("open"), target.expect("open"));
        mount::bind(source, target, Depth::One, Restrictions::default()).expect("bound");
    }
    // One of them is in use: it stays, and so does what is behind it.
    let busy = std::fs::File::open(points[2].join("precious")).expect("a file");
    world.start_node();
    let until = Instant::now() + Duration::from_secs(30);
    while mounts_under(&pod) != [&*points[2]] {
        assert!(Instant::now() < until, "{:?}", mounts_under(&pod));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(points[2].join("precious").exists());
    drop(busy);
    while pod.exists() {
        assert!(Instant::now() < until, "{:?}", mounts_under(&pod));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let kept = std::fs::read_to_string(outside.join("precious"));
    assert_eq!(kept.expect("it was outside"), "kept");
    world.expect_clean().await;
}
