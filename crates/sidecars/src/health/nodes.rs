//! Tells claims whose pods are on a node that failed, and again when it is back.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use orlop_model::{Claim, Key, Node, Pod, Volume, VolumePhase};
use orlop_runtime::{
    Backoff, Cache, Change, EventType, Index, Outcome, Process, Queue, Recorder, work,
};
use tokio::time::Instant;

/// How long a node may be unready before it counts as failed, as with the original.
const PATIENCE: Duration = Duration::from_secs(300);

/// How a node was when it was last looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Was {
    Ready,
    UnreadySince(Instant),
    Failed,
}

/// What is to be said of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    Failed,
    Recovered,
}

/// How a node is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Is {
    Ready,
    Unready,
    Gone,
}

/// What to say, how the node is remembered (if at all), and when to look again.
fn decide(was: Was, is: Is, now: Instant) -> (Option<News>, Option<Was>, Outcome) {
    match (is, was) {
        (Is::Ready, Was::Failed) => (Some(News::Recovered), None, Outcome::Done),
        (Is::Ready, Was::Ready | Was::UnreadySince(_)) | (Is::Gone, Was::Failed) => {
            (None, None, Outcome::Done)
        }
        (Is::Gone, Was::Ready | Was::UnreadySince(_)) => (Some(News::Failed), None, Outcome::Done),
        (Is::Unready, Was::Failed) => (None, Some(Was::Failed), Outcome::Done),
        (Is::Unready, Was::Ready) => {
            let unready = Some(Was::UnreadySince(now));
            (None, unready, Outcome::After(PATIENCE))
        }
        (Is::Unready, Was::UnreadySince(since)) => {
            let left = PATIENCE.saturating_sub(now.duration_since(since));
            if left.is_zero() {
                (Some(News::Failed), Some(Was::Failed), Outcome::Done)
            } else {
                (None, Some(was), Outcome::After(left))
            }
        }
    }
}

struct Nodes {
    driver: String,
    nodes: Cache<Node>,
    claims: Cache<Claim>,
    volumes: Cache<Volume>,
    pods: Index<Pod>,
    recorder: Recorder,
    known: Mutex<BTreeMap<String, Was>>,
}

/// Starts to watch nodes.
pub(super) fn start(process: &Process, driver: &str, recorder: Recorder) {
    let queue = Queue::new(Backoff::default());
    let wake = queue.clone();
    process.cache::<Node>().subscribe(move |change| {
        let stirs = match change {
            Change::Applied { old, new } => old.is_none_or(|old| old.is_ready() != new.is_ready()),
            Change::Deleted(_) => true,
        };
        if stirs {
            wake.add(change.object().metadata.name.clone());
        }
    });
    let pods = process.cache::<Pod>();
    let nodes = Nodes {
        driver: driver.to_owned(),
        nodes: process.cache(),
        claims: process.cache(),
        volumes: process.cache(),
        pods: pods.index("health.node", |pod| vec![pod.spec.node_name.clone()]),
        recorder,
        known: Mutex::default(),
    };
    process.spawn("node-watcher", async move {
        nodes.nodes.synced().await;
        nodes.claims.synced().await;
        nodes.volumes.synced().await;
        pods.synced().await;
        work(queue, 1, |name| std::future::ready(nodes.turn(&name))).await;
    });
}

impl Nodes {
    fn turn(&self, name: &str) -> Outcome {
        let is = match self.nodes.named(name) {
            None => Is::Gone,
            Some(node) if node.is_ready() => Is::Ready,
            Some(_) => Is::Unready,
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let was = known.remove(name).unwrap_or(Was::Ready);
        let (news, remembered, outcome) = decide(was, is, Instant::now());
        if let Some(was) = remembered {
            known.insert(name.to_owned(), was);
        }
        if let Some(news) = news {
            self.tell(name, news);
        }
        outcome
    }

    fn tell(&self, node: &str, news: News) {
        for (claim, pods) in self.users(node) {
            let (reason, message) = match news {
                News::Failed => (
                    "NodeFailed",
                    format!(
                        "Pods: [ {} ] consuming PVC: {} in namespace: {} are now on a failed node: {node}",
                        pods.join(" "),
                        claim.metadata.name,
                        claim.metadata.namespace,
                    ),
                ),
                News::Recovered => ("NodeRecovered", format!("Node: {node} recovered")),
            };
            self.recorder
                .say(&*claim, EventType::Warning, reason, message);
        }
    }

    /// The claims of the driver's volumes that pods of a node use, with those pods.
    fn users(&self, node: &str) -> Vec<(Arc<Claim>, Vec<String>)> {
        let mut users: BTreeMap<Key, Vec<String>> = BTreeMap::new();
        for pod in self.pods.get(node) {
            for (_, claim) in pod.claims() {
                users
                    .entry(claim)
                    .or_default()
                    .push(pod.metadata.name.clone());
            }
        }
        let ours = users.into_iter().filter_map(|(key, pods)| {
            let claim = self.claims.get(&key)?;
            let volume = self.volumes.named(&claim.spec.volume_name)?;
            let csi = volume.spec.csi.as_ref()?;
            (csi.driver == self.driver && volume.phase() == VolumePhase::Bound)
                .then_some((claim, pods))
        });
        ours.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_failed_when_it_was_unready_for_long_or_is_gone() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let since = Was::UnreadySince(start);
        for (was, is, now, expected) in [
            (Was::Ready, Is::Ready, 0, (None, None, Outcome::Done)),
            (
                Was::Ready,
                Is::Unready,
                0,
                (None, Some(since), Outcome::After(PATIENCE)),
            ),
            (
                since,
                Is::Unready,
                100,
                (None, Some(since), Outcome::After(Duration::from_secs(200))),
            ),
            (since, Is::Ready, 100, (None, None, Outcome::Done)),
            (
                since,
                Is::Unready,
                300,
                (Some(News::Failed), Some(Was::Failed), Outcome::Done),
            ),
            (
                Was::Failed,
                Is::Unready,
                900,
                (None, Some(Was::Failed), Outcome::Done),
            ),
            (
                Was::Failed,
                Is::Ready,
                900,
                (Some(News::Recovered), None, Outcome::Done),
            ),
            (
                Was::Ready,
                Is::Gone,
                0,
                (Some(News::Failed), None, Outcome::Done),
            ),
            (
                since,
                Is::Gone,
                0,
                (Some(News::Failed), None, Outcome::Done),
            ),
            (Was::Failed, Is::Gone, 0, (None, None, Outcome::Done)),
        ] {
            assert_eq!(decide(was, is, at(now)), expected, "{was:?} {is:?} {now}");
        }
    }
}
