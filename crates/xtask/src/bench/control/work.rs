//! The client's part: pods and claims that come and go, an attacher that says yes to everything, and
//! the time until nodes and claims are told.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use bytes::{Bytes, BytesMut};
use clap::ValueEnum;
use futures::future::try_join_all;
use http::Method;
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{sync::mpsc, task::JoinSet};

use crate::bench::{
    client::{Server, Watch},
    figures::Figures,
    lives::DRIVER,
    objects::{NAMESPACE, collection},
};

mod floor;

/// From how many connections requests are sent.
const CLIENTS: usize = 16;
/// How many connections the attacher has.
const ATTACHERS: usize = 8;

const VOLUMES: &str = "/api/v1/persistentvolumes";
const NODES: &str = "/api/v1/nodes";
const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";

/// A phase of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::bench) enum Phase {
    /// Claims for volumes that are there are created, until they are Bound.
    Bind,
    /// Pods with the claims are placed on nodes, until the nodes are told of their volumes.
    Attach,
    /// The pods go, and others come on other nodes, until those are told.
    Move,
    /// Volumes are created that nobody claims, until they are Available.
    Stock,
}

impl Phase {
    /// The name on the client's command line.
    pub(in crate::bench) fn word(self) -> &'static str {
        match self {
            Self::Bind => "bind",
            Self::Attach => "attach",
            Self::Move => "move",
            Self::Stock => "stock",
        }
    }
}

/// The name of the n-th node, unlike those that `orlop up` has of its own.
pub(in crate::bench) fn node(number: usize) -> String {
    format!("berth-{number}")
}

/// How much is to be led through a phase.
#[derive(Debug, Clone, Copy)]
pub(in crate::bench) struct Extent<'e> {
    pub(in crate::bench) prefix: &'e str,
    pub(in crate::bench) count: usize,
    pub(in crate::bench) nodes: usize,
    /// Whether the client attaches by itself, by as few requests as can be.
    pub(in crate::bench) floor: bool,
}

type Request = (Method, String, Bytes);

fn post(path: String, body: &Value) -> Request {
    (Method::POST, path, body.to_string().into())
}

fn volume(name: &str) -> Request {
    let body = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain",
            "csi": {"driver": DRIVER, "volumeHandle": name},
        },
    });
    post(VOLUMES.to_owned(), &body)
}

fn claim(name: &str) -> Request {
    let body = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    });
    post(collection("persistentvolumeclaims", NAMESPACE), &body)
}

fn pod(name: &str, claim: &str, node: &str) -> Request {
    let body = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "nodeName": node, "containers": [{"name": "c", "image": "none"}],
            "automountServiceAccountToken": false,
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}],
        },
    });
    post(collection("pods", NAMESPACE), &body)
}

fn no_pod(name: &str) -> Request {
    let path = format!("{}/{name}", collection("pods", NAMESPACE));
    let now = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
    (Method::DELETE, path, now.to_string().into())
}

/// Leads `PREFIX-0` to `PREFIX-(COUNT - 1)` through a phase: their rate, and how long each took.
pub(in crate::bench) async fn lead(
    server: &Server,
    phase: Phase,
    extent: Extent<'_>,
) -> Result<Figures> {
    let Extent {
        prefix,
        count,
        nodes,
        floor,
    } = extent;
    let names: Vec<String> = (0..count).map(|n| format!("{prefix}-{n}")).collect();
    if phase == Phase::Bind {
        send(
            server,
            names.iter().map(|name| vec![volume(name)]).collect(),
            None,
        )
        .await?;
    }
    let claims = collection("persistentvolumeclaims", NAMESPACE);
    let watched = match phase {
        Phase::Bind => claims.as_str(),
        Phase::Stock => VOLUMES,
        Phase::Attach | Phase::Move => NODES,
    };
    let mut watch = Lines::open(server, watched).await?;
    let attacher = match phase {
        Phase::Bind | Phase::Stock => JoinSet::new(),
        Phase::Attach | Phase::Move => attacher(server).await?,
    };
    let asks = names.iter().enumerate().map(|(n, name)| {
        let (here, there) = (node(n % nodes), node((n + 1) % nodes));
        match phase {
            Phase::Bind => vec![claim(name)],
            Phase::Stock => vec![volume(name)],
            Phase::Attach => vec![pod(&format!("{name}-a"), name, &here)],
            Phase::Move => vec![
                no_pod(&format!("{name}-a")),
                pod(&format!("{name}-b"), name, &there),
            ],
        }
    });
    // Bound volumes are claimed by whoever is first: which is whose is told by the claims.
    let owned = match phase {
        Phase::Bind | Phase::Stock => HashMap::new(),
        Phase::Attach | Phase::Move => owned(server, &claims).await?,
    };
    let places: HashMap<String, (String, usize)> = names
        .iter()
        .enumerate()
        .filter_map(|(n, name)| Some((owned.get(name)?.clone(), (name.clone(), n))))
        .collect();
    let begun = Arc::new(Mutex::new(HashMap::new()));
    let mut asks: Vec<Vec<Request>> = asks.collect();
    let lists = match floor {
        true => floor::add(&mut asks, phase, &places, nodes),
        false => Vec::new(),
    };
    let begin = Instant::now();
    let sending = tokio::spawn({
        let (server, begun) = (server.clone(), Arc::clone(&begun));
        let names = names.clone();
        async move {
            send(&server, asks, Some((names, begun))).await?;
            send(&server, lists, None).await
        }
    });
    let mut sample: Vec<Duration> = Vec::new();
    while sample.len() < count {
        let event = watch.next().await?;
        let ended: Vec<String> = match phase {
            Phase::Bind => in_phase(&event, "Bound").into_iter().collect(),
            Phase::Stock => in_phase(&event, "Available").into_iter().collect(),
            Phase::Attach => told(&event, &places, |n| node(n % nodes)),
            Phase::Move => told(&event, &places, |n| node((n + 1) % nodes)),
        };
        for name in ended {
            let since = begun
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(&name);
            sample.extend(since.map(|since: Instant| since.elapsed()));
        }
    }
    let took = begin.elapsed();
    sending.await??;
    drop(attacher);
    let mut figures = Figures::default();
    figures.set("rate", count as f64 / took.as_secs_f64());
    figures.sample("time", sample);
    Ok(figures)
}

/// What is read of an event: little, as the client's processor time is taken from whoever is measured.
#[derive(Debug, Deserialize)]
struct Event {
    #[serde(rename = "type")]
    sort: String,
    object: Object,
}

#[derive(Debug, Deserialize)]
struct Object {
    metadata: Metadata,
    #[serde(default)]
    status: Status,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    #[serde(default)]
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    /// Of claims and volumes.
    phase: String,
    /// Of attachments.
    attached: bool,
    /// Of nodes.
    volumes_attached: Vec<Metadata>,
}

/// The claim or volume that an event shows in a phase.
fn in_phase(event: &Event, phase: &str) -> Option<String> {
    let object = &event.object;
    (object.status.phase == phase).then(|| object.metadata.name.clone())
}

type Places = HashMap<String, (String, usize)>;

/// The claims whose volumes a node is told to have, where they shall be.
fn told(event: &Event, places: &Places, place: impl Fn(usize) -> String) -> Vec<String> {
    let node = &event.object.metadata.name;
    let all = event.object.status.volumes_attached.iter();
    let handles = all.filter_map(|volume| Some(volume.name.split_once('^')?.1));
    let ours = handles.filter_map(|volume| places.get(volume));
    let here = ours.filter(|(_, n)| place(*n) == *node);
    here.map(|(name, _)| name.clone()).collect()
}

/// The claims' volumes.
async fn owned(server: &Server, claims: &str) -> Result<HashMap<String, String>> {
    let mut connection = server.connect().await?;
    let list = connection.ask(Method::GET, claims, Bytes::new()).await?;
    let list: Value = serde_json::from_slice(&list)?;
    let items = list["items"].as_array().into_iter().flatten();
    let pair = |claim: &Value| {
        let name = claim["metadata"]["name"].as_str()?.to_owned();
        Some((name, claim["spec"]["volumeName"].as_str()?.to_owned()))
    };
    Ok(items.filter_map(pair).collect())
}

type Begun = Arc<Mutex<HashMap<String, Instant>>>;

/// Sends requests from several connections, those of one entry one after the other.
async fn send(
    server: &Server,
    asks: Vec<Vec<Request>>,
    timed: Option<(Vec<String>, Begun)>,
) -> Result<()> {
    let connections = try_join_all((0..CLIENTS).map(|_| server.connect())).await?;
    let next = AtomicUsize::new(0);
    let senders = connections.into_iter().map(async |mut connection| {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(all) = asks.get(at) else {
                return anyhow::Ok(());
            };
            if let Some((names, begun)) = &timed {
                let mut begun = begun.lock().unwrap_or_else(PoisonError::into_inner);
                begun.insert(names[at].clone(), Instant::now());
            }
            for (method, path, body) in all {
                connection.ask(method.clone(), path, body.clone()).await?;
            }
        }
    });
    try_join_all(senders).await.map(|_| ())
}

/// Says of every attachment that it is attached, as soon as it is asked for.
async fn attacher(server: &Server) -> Result<JoinSet<Result<()>>> {
    let mut watch = Lines::open(server, ATTACHMENTS).await?;
    let mut tasks = JoinSet::new();
    let mut lanes = Vec::new();
    for _ in 0..ATTACHERS {
        let (lane, mut names) = mpsc::unbounded_channel::<String>();
        let mut connection = server.connect().await?;
        tasks.spawn(async move {
            while let Some(name) = names.recv().await {
                let path = format!("{ATTACHMENTS}/{name}/status");
                let done: Bytes = json!({"status": {"attached": true}}).to_string().into();
                // It may be gone again.
                let answer = connection.send(Method::PATCH, &path, done).await?;
                answer.into_body().collect().await?;
            }
            Ok(())
        });
        lanes.push(lane);
    }
    tasks.spawn(async move {
        for turn in 0.. {
            let event = watch.next().await?;
            if event.sort == "ADDED" && !event.object.status.attached {
                lanes[turn % ATTACHERS].send(event.object.metadata.name)?;
            }
        }
        Ok(())
    });
    Ok(tasks)
}

/// A watch from now on, event by event.
struct Lines {
    watch: Watch,
    /// What was received and not read yet.
    rest: BytesMut,
}

impl Lines {
    async fn open(server: &Server, path: &str) -> Result<Self> {
        let mut connection = server.connect().await?;
        let page = format!("{path}?limit=1");
        let page = connection.ask(Method::GET, &page, Bytes::new()).await?;
        let page: Value = serde_json::from_slice(&page)?;
        let version = page["metadata"]["resourceVersion"].as_str();
        let version = version.context("a list without a version")?;
        let path = format!("{path}?watch=1&resourceVersion={version}");
        Ok(Self {
            watch: server.connect().await?.watch(&path).await?,
            rest: BytesMut::new(),
        })
    }

    async fn next(&mut self) -> Result<Event> {
        loop {
            if let Some(length) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line = self.rest.split_to(length + 1);
                return Ok(serde_json::from_slice(&line)?);
            }
            let bytes = self.watch.bytes().await?;
            self.rest.extend_from_slice(&bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(node: &str, volumes: &[&str]) -> Event {
        let all = volumes.iter();
        let all =
            all.map(|v| json!({"name": format!("kubernetes.io/csi/d^{v}"), "devicePath": ""}));
        let all: Vec<Value> = all.collect();
        let event = json!({"type": "MODIFIED", "object": {
            "metadata": {"name": node}, "status": {"volumesAttached": all},
        }});
        serde_json::from_value(event).unwrap()
    }

    #[test]
    fn a_volume_has_arrived_when_the_right_node_is_told_of_it() {
        let places = HashMap::from([("v0".to_owned(), ("c0".to_owned(), 0))]);
        let here = |n: usize| node(n % 2);
        assert_eq!(told(&event("berth-0", &["v0", "x"]), &places, here), ["c0"]);
        assert!(told(&event("berth-1", &["v0"]), &places, here).is_empty());
        assert!(told(&event("berth-0", &[]), &places, here).is_empty());
    }
}
