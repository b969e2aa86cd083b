//! Many objects led through a step of their lives at once, each timed from its request to the end that
//! somebody watches for.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use bytes::Bytes;
use clap::ValueEnum;
use futures::future::try_join_all;
use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{
    client::Server,
    figures::Figures,
    follow::{Follower, News},
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

    /// Whose step an object of those watched tells of.
    fn name(self, object: &Value) -> Option<&str> {
        let name = match self {
            Self::Reclaim => "/spec/claimRef/name",
            Self::Drop => "/spec/volumeSnapshotRef/name",
            Self::Bind | Self::Attach | Self::Detach | Self::Cut => "/metadata/name",
        };
        object.pointer(name)?.as_str()
    }

    /// Whether it ends with the end of an object.
    fn ends_gone(self) -> bool {
        matches!(self, Self::Reclaim | Self::Detach | Self::Drop)
    }

    /// Whether an event ends it.
    fn ended(self, event: &Value) -> bool {
        let status = &event["object"]["status"];
        match self {
            Self::Bind => status["phase"] == "Bound",
            Self::Attach => status["attached"] == true,
            Self::Cut => status["readyToUse"] == true,
            Self::Reclaim | Self::Detach | Self::Drop => event["type"] == "DELETED",
        }
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
    let mut follower = Follower::begin(server, step.watched()).await?;
    let connections = try_join_all((0..CLIENTS).map(|_| server.connect())).await?;

    let (asks, next) = (Arc::new(asks), Arc::new(AtomicUsize::new(0)));
    let under_way = Arc::new(Mutex::new(UnderWay::default()));
    let begin = Instant::now();
    let mut senders = JoinSet::new();
    for mut connection in connections {
        let (asks, next) = (Arc::clone(&asks), Arc::clone(&next));
        let under_way = Arc::clone(&under_way);
        senders.spawn(async move {
            while let Some(((method, path, body), name)) =
                asks.get(next.fetch_add(1, Ordering::Relaxed))
            {
                lock(&under_way).begin(name);
                connection.ask(method.clone(), path, body.clone()).await?;
            }
            anyhow::Ok(())
        });
    }
    let patience = Duration::from_millis(120_000 + 100 * count as u64);
    let mut sample: Vec<Duration> = Vec::with_capacity(count);
    while sample.len() < count {
        tokio::select! {
            news = follower.next() => {
                let mut under_way = lock(&under_way);
                sample.extend(news?.iter().flat_map(|news| under_way.hear(step, news)));
            }
            // A request that was refused is told at once, not when the wait is over.
            Some(sent) = senders.join_next() => sent??,
            () = tokio::time::sleep_until((begin + patience).into()) => {
                let left = lock(&under_way).to_string();
                bail!("{} of {count} ended in {} s; {left}", sample.len(), patience.as_secs());
            }
        }
    }
    let took = begin.elapsed();
    while let Some(sent) = senders.join_next().await {
        sent??;
    }
    let mut figures = Figures::default();
    figures.set("rate", count as f64 / took.as_secs_f64());
    figures.sample("time", sample);
    Ok(figures)
}

/// Those whose step has begun: since when, and what was last seen of each.
#[derive(Default)]
struct UnderWay(BTreeMap<String, (Instant, Option<Value>)>);

/// So many are named when they have not ended in time.
const NAMED: usize = 5;

impl UnderWay {
    fn begin(&mut self, name: &str) {
        self.0.insert(name.to_owned(), (Instant::now(), None));
    }

    /// How long those took whose end is told.
    fn hear(&mut self, step: Step, news: &News) -> Vec<Duration> {
        let ended: Vec<String> = match news {
            News::Event(event) => {
                let ended = self.look(step, event);
                ended.into_iter().collect()
            }
            News::Anew(objects) if step.ends_gone() => {
                let names = objects.iter().filter_map(|object| step.name(object));
                let there: HashSet<&str> = names.collect();
                let gone = self.0.keys().filter(|name| !there.contains(name.as_str()));
                gone.cloned().collect()
            }
            News::Anew(objects) => {
                let events = objects
                    .iter()
                    .map(|object| json!({"type": "ADDED", "object": object}));
                events.filter_map(|event| self.look(step, &event)).collect()
            }
        };
        let ended = ended.into_iter().filter_map(|name| self.0.remove(&name));
        ended.map(|(begun, _)| begun.elapsed()).collect()
    }

    /// Remembers what an event shows; the name of the one whose step it ends.
    fn look(&mut self, step: Step, event: &Value) -> Option<String> {
        let object = &event["object"];
        let name = step.name(object)?;
        if step.ended(event) {
            return Some(name.to_owned());
        }
        if let Some((_, seen)) = self.0.get_mut(name) {
            let meta = &object["metadata"];
            *seen = Some(json!({
                "event": event["type"], "resourceVersion": meta["resourceVersion"],
                "deletionTimestamp": meta["deletionTimestamp"],
                "finalizers": meta["finalizers"], "status": object["status"],
            }));
        }
        None
    }
}

impl fmt::Display for UnderWay {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} have begun and not ended", self.0.len())?;
        for (name, (begun, seen)) in self.0.iter().take(NAMED) {
            let since = begun.elapsed().as_secs();
            match seen {
                Some(seen) => write!(out, "\n  {name}, for {since} s, last seen as {seen}")?,
                None => write!(out, "\n  {name}, for {since} s, of which nothing was seen")?,
            }
        }
        Ok(())
    }
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

    fn under_way(names: &[&str]) -> UnderWay {
        let mut under_way = UnderWay::default();
        names.iter().for_each(|name| under_way.begin(name));
        under_way
    }

    #[test]
    fn an_event_ends_the_step_of_the_one_that_it_tells_of() {
        let event =
            |kind: &str, object: Value| News::Event(json!({"type": kind, "object": object}));
        let bound = json!({"metadata": {"name": "a"}, "status": {"phase": "Bound"}});
        let volume = json!({"metadata": {"name": "v"}, "spec": {"claimRef": {"name": "a"}}});
        let begun = json!({"metadata": {"name": "a"}});
        for (step, news, ends) in [
            (Step::Bind, event("MODIFIED", bound.clone()), true),
            (Step::Bind, event("ADDED", begun), false),
            (Step::Reclaim, event("DELETED", volume.clone()), true),
            (Step::Reclaim, event("MODIFIED", volume), false),
            (Step::Detach, event("DELETED", bound), true),
        ] {
            let mut under_way = under_way(&["a", "b"]);
            let ended = under_way.hear(step, &news).len();
            assert_eq!(
                (ended, under_way.0.len()),
                (ends.into(), 2 - usize::from(ends))
            );
            assert!(under_way.0.contains_key("b"), "{step:?}");
        }
    }

    #[test]
    fn what_a_lost_watch_missed_is_learned_from_the_list() {
        let volume = |claim: &str| json!({"spec": {"claimRef": {"name": claim}}});
        let mut gone = under_way(&["a", "b", "c"]);
        let left = News::Anew(vec![volume("b"), volume("other")]);
        assert_eq!(gone.hear(Step::Reclaim, &left).len(), 2);
        assert!(gone.0.contains_key("b"));

        let claim =
            |name: &str, phase| json!({"metadata": {"name": name}, "status": {"phase": phase}});
        let mut bound = under_way(&["a", "b"]);
        let all = News::Anew(vec![claim("a", "Bound"), claim("b", "Pending")]);
        assert_eq!(bound.hear(Step::Bind, &all).len(), 1);
        let told = bound.to_string();
        assert!(
            told.contains("1 have begun") && told.contains("Pending"),
            "{told}"
        );
    }
}
