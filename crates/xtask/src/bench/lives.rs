//! Many objects led through a step of their lives at once, each timed from its request to the end that
//! somebody watches for.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use clap::ValueEnum;
use futures::future::try_join_all;
use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::{
    client::Server,
    figures::Figures,
    objects::{NAMESPACE, collection},
};

/// The driver's name, which is also what its mock calls its node; and that of its classes.
pub(super) const DRIVER: &str = "bench.csi.orlop.dev";
pub(super) const CLASS: &str = "bench";
/// The node that volumes are attached to.
pub(super) const NODE: &str = "node-1";
/// Where snapshots stand.
pub(super) const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1";

/// From how many connections requests are sent.
const CLIENTS: usize = 16;

/// A step of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Step {
    /// Claims are created, until they are Bound.
    Bind,
    /// Claims are deleted, until their volumes are gone.
    Reclaim,
    /// Attachments of claims' volumes are created, until they are attached.
    Attach,
    /// Attachments are deleted, until they are gone.
    Detach,
    /// Snapshots of claims are created, until they are ready to use.
    Cut,
    /// Snapshots are deleted, until their contents are gone.
    Drop,
}

impl Step {
    /// The name on the client's command line.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Bind => "bind",
            Self::Reclaim => "reclaim",
            Self::Attach => "attach",
            Self::Detach => "detach",
            Self::Cut => "cut",
            Self::Drop => "drop",
        }
    }

    /// Whose deletions or changes tell of the end.
    fn watched(self) -> String {
        match self {
            Self::Bind => claims(),
            Self::Reclaim => VOLUMES.to_owned(),
            Self::Attach | Self::Detach => ATTACHMENTS.to_owned(),
            Self::Cut => snapshots(),
            Self::Drop => format!("{SNAPSHOTS}/volumesnapshotcontents"),
        }
    }

    /// The name of the one whose step an event ends, if it ends one.
    fn ended(self, event: &Value) -> Option<&str> {
        let object = &event["object"];
        let gone = event["type"] == "DELETED";
        let (ended, name) = match self {
            Self::Bind => (object["status"]["phase"] == "Bound", "/metadata/name"),
            Self::Reclaim => (gone, "/spec/claimRef/name"),
            Self::Attach => (object["status"]["attached"] == true, "/metadata/name"),
            Self::Detach => (gone, "/metadata/name"),
            Self::Cut => (object["status"]["readyToUse"] == true, "/metadata/name"),
            Self::Drop => (gone, "/spec/volumeSnapshotRef/name"),
        };
        object.pointer(name)?.as_str().filter(|_| ended)
    }

    /// The request that begins it for one; `volume` is the claim's, where that matters.
    fn begin(self, name: &str, volume: &str) -> (Method, String, Bytes) {
        let (path, body) = match self {
            Self::Bind => (claims(), Some(claim(name))),
            Self::Reclaim => (claims(), None),
            Self::Attach => (ATTACHMENTS.to_owned(), Some(attachment(name, volume))),
            Self::Detach => (ATTACHMENTS.to_owned(), None),
            Self::Cut => (snapshots(), Some(snapshot(name))),
            Self::Drop => (snapshots(), None),
        };
        match body {
            Some(body) => (Method::POST, path, body.to_string().into()),
            None => (Method::DELETE, format!("{path}/{name}"), Bytes::new()),
        }
    }
}

const VOLUMES: &str = "/api/v1/persistentvolumes";
const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";

fn claims() -> String {
    collection("persistentvolumeclaims", NAMESPACE)
}

fn snapshots() -> String {
    format!("{SNAPSHOTS}/namespaces/{NAMESPACE}/volumesnapshots")
}

fn claim(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": CLASS,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    })
}

fn attachment(name: &str, volume: &str) -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": name},
        "spec": {"attacher": DRIVER, "nodeName": NODE, "source": {"persistentVolumeName": volume}},
    })
}

fn snapshot(claim: &str) -> Value {
    json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {"name": claim},
        "spec": {
            "volumeSnapshotClassName": CLASS, "source": {"persistentVolumeClaimName": claim},
        },
    })
}

/// Leads `PREFIX-0` to `PREFIX-(COUNT - 1)` through a step: their rate, and how long each took.
pub(super) async fn lead(
    server: &Server,
    step: Step,
    prefix: &str,
    count: usize,
) -> Result<Figures> {
    let volumes = match step {
        Step::Attach => volumes(server).await?,
        _ => HashMap::new(),
    };
    let mut asks = Vec::with_capacity(count);
    for n in 0..count {
        let name = format!("{prefix}-{n}");
        let volume = volumes.get(&name).map_or("", String::as_str);
        asks.push((step.begin(&name, volume), name));
    }
    let watched = step.watched();
    let version = version(server, &watched).await?;
    let watch = format!("{watched}?watch=1&resourceVersion={version}");
    let mut watch = server.connect().await?.watch(&watch).await?;
    let connections = try_join_all((0..CLIENTS).map(|_| server.connect())).await?;

    let (asks, next) = (Arc::new(asks), Arc::new(AtomicUsize::new(0)));
    let begun = Arc::new(Mutex::new(HashMap::with_capacity(count)));
    let begin = Instant::now();
    let senders = connections.into_iter().map(|mut connection| {
        let (asks, next, begun) = (Arc::clone(&asks), Arc::clone(&next), Arc::clone(&begun));
        tokio::spawn(async move {
            while let Some(((method, path, body), name)) =
                asks.get(next.fetch_add(1, Ordering::Relaxed))
            {
                lock(&begun).insert(name.clone(), Instant::now());
                connection.ask(method.clone(), path, body.clone()).await?;
            }
            anyhow::Ok(())
        })
    });
    let mut senders: Vec<_> = senders.collect();
    let (mut sample, mut rest): (Vec<Duration>, Vec<u8>) = (Vec::new(), Vec::new());
    while sample.len() < count {
        rest.extend_from_slice(&watch.bytes().await?);
        let mut read = 0;
        while let Some(length) = rest[read..].iter().position(|byte| *byte == b'\n') {
            let event: Value = serde_json::from_slice(&rest[read..read + length])?;
            let ended = step.ended(&event);
            if let Some(begun) = ended.and_then(|name| lock(&begun).remove(name)) {
                sample.push(begun.elapsed());
            }
            read += length + 1;
        }
        rest.drain(..read);
        // A request that was refused is told at once, not when the wait is over.
        if let Some(at) = senders.iter().position(JoinHandle::is_finished) {
            senders.swap_remove(at).await??;
        }
    }
    let took = begin.elapsed();
    for sender in senders {
        sender.await??;
    }
    let mut figures = Figures::default();
    figures.set("rate", count as f64 / took.as_secs_f64());
    figures.sample("time", sample);
    Ok(figures)
}

/// The version that a watch may begin after.
async fn version(server: &Server, path: &str) -> Result<String> {
    let mut connection = server.connect().await?;
    let path = format!("{path}?limit=1");
    let page = connection.ask(Method::GET, &path, Bytes::new()).await?;
    let page: Value = serde_json::from_slice(&page)?;
    let version = page["metadata"]["resourceVersion"].as_str();
    Ok(version.context("a list without a version")?.to_owned())
}

/// The volumes' names by those of their claims.
async fn volumes(server: &Server) -> Result<HashMap<String, String>> {
    let mut connection = server.connect().await?;
    let list = connection.ask(Method::GET, VOLUMES, Bytes::new()).await?;
    let list: Value = serde_json::from_slice(&list)?;
    let text = |volume: &Value, pointer| Some(volume.pointer(pointer)?.as_str()?.to_owned());
    let items = list["items"].as_array().into_iter().flatten();
    Ok(items
        .filter_map(|volume| {
            Some((
                text(volume, "/spec/claimRef/name")?,
                text(volume, "/metadata/name")?,
            ))
        })
        .collect())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_ends_the_step_of_the_one_that_it_tells_of() {
        let event = |kind: &str, object: Value| json!({"type": kind, "object": object});
        let bound = json!({"metadata": {"name": "a"}, "status": {"phase": "Bound"}});
        let volume = json!({"metadata": {"name": "v"}, "spec": {"claimRef": {"name": "a"}}});
        for (step, kind, object, ended) in [
            (Step::Bind, "MODIFIED", bound.clone(), Some("a")),
            (
                Step::Bind,
                "ADDED",
                json!({"metadata": {"name": "a"}}),
                None,
            ),
            (Step::Reclaim, "DELETED", volume.clone(), Some("a")),
            (Step::Reclaim, "MODIFIED", volume, None),
            (Step::Detach, "DELETED", bound, Some("a")),
        ] {
            let event = event(kind, object);
            assert_eq!(step.ended(&event), ended, "{step:?} {event}");
        }
    }
}
