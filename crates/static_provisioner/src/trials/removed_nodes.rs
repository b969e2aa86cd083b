//! Cleaning up after removed nodes, struck at every call.

use std::{sync::Arc, time::Duration};

use orlop_apiserver::{ApiServer, Config, Storage};
use orlop_model::{Claim, Event, Key, Kind, Node, Volume, well_known};
use orlop_runtime::{Clock, Preconditions, Process};
use orlop_trials::{Fault, Reach, Strikes};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::node_cleanup::{self, Settings};

const PATIENCE: Duration = Duration::from_mins(3);

struct World {
    server: ApiServer,
    strikes: Arc<Strikes>,
    others: Process,
}

/// What a volume is made of.
struct Made<'a> {
    name: &'a str,
    class: &'a str,
    node: &'a str,
    uid: Option<&'a str>,
    policy: &'a str,
}

impl World {
    async fn open(strikes: Arc<Strikes>) -> Self {
        let server = ApiServer::open(Config::new(Storage::Memory)).await.unwrap();
        let client = kube::Client::new(server.service(), "default");
        let others = Process::new(client, Clock::system());
        orlop_control::binder::start(&others);
        orlop_control::protection::start(&others);
        Self {
            server,
            strikes,
            others,
        }
    }

    fn start(&self, delay: Duration) -> Process {
        let client = self.strikes.client(self.server.service());
        let process = Process::new(client, Clock::system());
        let settings = Settings {
            classes: ["disks".to_owned()].into(),
            delay,
            workers: 10,
        };
        node_cleanup::start(&process, settings);
        process
    }

    async fn node(&self, name: &str) -> Node {
        let node = json!({"metadata": {
            "name": name, "labels": {"kubernetes.io/hostname": name},
        }});
        self.others.cluster.create_json(&node).await.unwrap()
    }

    async fn volume(&self, made: Made<'_>) {
        let Made {
            name,
            class,
            node,
            uid,
            policy,
        } = made;
        let is = |key: &str, value: &str| json!({"key": key, "operator": "In", "values": [value]});
        let mut here = vec![is(well_known::HOSTNAME, node)];
        here.extend(uid.map(|uid| is(well_known::LOCAL_NODE_UID, uid)));
        let volume = json!({
            "metadata": {"name": name, "finalizers": [well_known::LOCAL_UNCLEAN]},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": class,
                "capacity": {"storage": "1Gi"}, "local": {"path": format!("/mnt/{name}")},
                "persistentVolumeReclaimPolicy": policy,
                "nodeAffinity": {"required": {"nodeSelectorTerms": [
                    {"matchExpressions": here}]}},
            },
        });
        let made = self.others.cluster.create_json::<Volume>(&volume).await;
        made.unwrap();
    }

    /// A claim for a volume; waits until they have each other.
    async fn claim(&self, name: &str, class: &str) {
        let claim = json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": class,
                     "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}},
        });
        let made = self.others.cluster.create_json::<Claim>(&claim).await;
        made.unwrap();
        self.until(&format!("{name} is bound"), None, async || {
            let volume = self.others.cluster.get::<Volume>(&Key::cluster(name)).await;
            let volume = volume.unwrap().unwrap();
            volume.phase() == orlop_model::VolumePhase::Bound
        })
        .await;
    }

    async fn delete<K: Kind>(&self, key: &Key) {
        let any = Preconditions::default();
        self.others.cluster.delete::<K>(key, &any).await.unwrap();
    }

    async fn names<K: Kind>(&self) -> Vec<String> {
        let all = self.others.cluster.list::<K>(None).await.unwrap();
        let mut names: Vec<String> = all.iter().map(|one| one.meta().name.clone()).collect();
        names.sort();
        names
    }

    async fn until(
        &self,
        what: &str,
        mut role: Option<(&mut Process, Duration)>,
        holds: impl AsyncFn() -> bool,
    ) {
        let started = Instant::now();
        while !holds().await {
            assert!(
                started.elapsed() < PATIENCE,
                "waited in vain: {what}: {:?} {:?}",
                self.names::<Volume>().await,
                self.names::<Claim>().await
            );
            tokio::select! {
                () = self.strikes.end() => {
                    if let Some((role, delay)) = &mut role {
                        role.kill();
                        **role = self.start(*delay);
                    }
                }
                () = sleep(Duration::from_millis(20)) => {}
            }
        }
    }
}

/// Of two nodes one goes; another class's volumes are on it, too.
async fn story(strikes: Arc<Strikes>, instances: usize) {
    let delay = Duration::from_millis(100);
    let world = World::open(strikes).await;
    let gone = world.node("gone").await.metadata.uid;
    world.node("stays").await;
    for (name, class, node, policy) in [
        ("bound", "disks", "gone", "Delete"),
        ("free", "disks", "gone", "Delete"),
        ("given-back", "disks", "gone", "Delete"),
        ("kept", "disks", "gone", "Retain"),
        ("others", "unnamed", "gone", "Delete"),
        ("here", "disks", "stays", "Delete"),
    ] {
        let uid = (node == "gone").then_some(gone.as_str());
        world
            .volume(Made {
                name,
                class,
                node,
                uid,
                policy,
            })
            .await;
    }
    for name in ["bound", "given-back", "kept", "here"] {
        world.claim(name, "disks").await;
    }
    world.claim("others", "unnamed").await;
    for name in ["given-back", "kept"] {
        world
            .delete::<Claim>(&Key::namespaced("default", name))
            .await;
    }
    let _second = (instances > 1).then(|| world.start(delay));
    let mut role = world.start(delay);
    sleep(delay * 2).await;
    assert_eq!(world.names::<Volume>().await.len(), 6, "its node is there");
    world.delete::<Node>(&Key::cluster("gone")).await;
    let struck = Some((&mut role, delay));
    world
        .until("what was on the node is gone", struck, async || {
            world.names::<Volume>().await == ["here", "kept", "others"]
                && world.names::<Claim>().await == ["here", "others"]
        })
        .await;
    // Nobody is left who could clean it: whoever deletes it is rid of it.
    world.delete::<Volume>(&Key::cluster("kept")).await;
    let struck = Some((&mut role, delay));
    world
        .until("what a person deleted is gone", struck, async || {
            world.names::<Volume>().await == ["here", "others"]
        })
        .await;
    role.kill();
    world.others.kill();
}

#[tokio::test]
async fn what_a_removed_node_leaves_is_cleaned_up_through_a_crash_at_every_call() {
    orlop_trials::at_every_call(Fault::Die, Reach::Calls, async |strikes| {
        story(strikes, 1).await;
    })
    .await;
}

#[tokio::test]
async fn what_a_removed_node_leaves_is_cleaned_up_though_every_answer_is_lost() {
    orlop_trials::at_every_call(Fault::LoseAnswer, Reach::Calls, async |strikes| {
        story(strikes, 1).await;
    })
    .await;
}

#[tokio::test]
async fn two_that_clean_up_do_no_harm() {
    story(Strikes::none(Reach::Calls), 2).await;
}

#[tokio::test]
async fn a_node_that_is_back_in_time_keeps_what_is_its_own() {
    let delay = Duration::from_millis(1500);
    let world = World::open(Strikes::none(Reach::Calls)).await;
    let first = world.node("n").await.metadata.uid;
    let on = |name, uid| Made {
        name,
        class: "disks",
        node: "n",
        uid,
        policy: "Delete",
    };
    world.volume(on("by-name", None)).await;
    world.volume(on("by-uid", Some(&first))).await;
    world.volume(on("free", Some(&first))).await;
    for name in ["by-name", "by-uid"] {
        world.claim(name, "disks").await;
    }
    let role = world.start(delay);
    world.delete::<Node>(&Key::cluster("n")).await;
    world
        .until("claims are told", None, async || {
            let events = world.others.cluster.list::<Event>(None).await.unwrap();
            let told = events.iter().filter(|event| {
                event.reason == "ReferencedNodeDeleted"
                    && event.message
                        == "PVC is tied to a deleted Node. PVC will be cleaned up in 1s if the \
                            Node doesn't come back"
            });
            told.count() == 2
        })
        .await;
    let again = world.node("n").await;
    assert_ne!(again.metadata.uid, first);
    // It is another one for the volumes that are of that very node. Whether their disks are
    // still there, and what is on them, its own provisioner knows.
    world
        .until("the other node's claim is gone", None, async || {
            world.names::<Claim>().await == ["by-name"]
        })
        .await;
    sleep(delay).await;
    assert_eq!(
        world.names::<Volume>().await,
        ["by-name", "by-uid", "free"],
        "nothing is taken for clean"
    );
    role.kill();
    world.others.kill();
}
