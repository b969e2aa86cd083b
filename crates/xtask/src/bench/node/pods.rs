//! Pods on one node, led up and down again, with the moments that count.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use futures::future::try_join_all;
use http::Method;
use serde_json::{Value, json};

use super::{attaching::Steps, mounts::Mounts};
use crate::{
    bench::{
        client::Server,
        figures::Figures,
        follow::{Follower, News},
        objects::collection,
    },
    kube::{BUSYBOX, NODE},
};

/// How many requests are under way at once.
const CLIENTS: usize = 8;
/// How long anything may take. A kubelet takes its time.
const BOUND: Duration = Duration::from_secs(240);
pub(super) const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";

/// Where pods are led.
pub(super) struct Ground<'g> {
    pub(super) server: &'g Server,
    pub(super) namespace: &'g str,
    pub(super) mounts: &'g Mounts,
    /// Whether volumes are attached before, and detached after.
    pub(super) attaches: bool,
}

/// A pod that is to be.
#[derive(Clone)]
pub(super) struct Wanted {
    pub(super) name: String,
    pub(super) claims: Vec<String>,
}

/// A pod that is.
pub(super) struct Raised {
    pub(super) wanted: Wanted,
    uid: String,
    sent: Instant,
    /// Known to the API server with its node.
    bound: Instant,
    ready: Instant,
}

#[derive(Default)]
struct Marks {
    uid: Option<String>,
    sent: Option<Instant>,
    bound: Option<Instant>,
    ready: Option<Instant>,
}

impl Raised {
    /// From its being bound to a node until its volumes were mounted.
    pub(super) fn mounted(&self, mounts: &Mounts) -> Result<Duration> {
        let at = mounts.all_came(&self.uid, self.wanted.claims.len());
        let at = at.with_context(|| format!("{} runs without its volumes", self.wanted.name))?;
        Ok(at.saturating_duration_since(self.bound))
    }
}

impl Ground<'_> {
    /// Creates pods, and waits until all are ready.
    pub(super) async fn raise(&self, wanted: &[Wanted]) -> Result<(Vec<Raised>, Figures)> {
        let path = collection("pods", self.namespace);
        let mut news = Follower::begin(self.server, path.clone()).await?;
        let mut steps = match self.attaches {
            true => Some(Steps::follow(self.server).await?),
            false => None,
        };
        let mut marks: BTreeMap<String, Marks> = BTreeMap::new();
        let begin = Instant::now();
        let requests = wanted.iter().map(|pod| {
            let body = manifest(pod).to_string().into();
            (pod.name.clone(), Method::POST, path.clone(), body)
        });
        let send = self.send(requests.collect());
        tokio::pin!(send);
        let mut sending = true;
        let deadline = tokio::time::sleep(BOUND);
        tokio::pin!(deadline);
        while sending || marks.values().filter(|m| m.ready.is_some()).count() < wanted.len() {
            tokio::select! {
                told = news.next() => for (pod, now) in objects(told?) {
                    let Some(name) = text(&pod, "/metadata/name") else { continue };
                    let marks = marks.entry(name).or_default();
                    marks.uid = text(&pod, "/metadata/uid");
                    marks.bound.get_or_insert(now);
                    if is_ready(&pod) {
                        marks.ready.get_or_insert(now);
                    }
                },
                noted = note(&mut steps) => noted?,
                sent = &mut send, if sending => {
                    sending = false;
                    for (name, Request { sent, answered }) in sent? {
                        let marks = marks.entry(name).or_default();
                        marks.sent = Some(sent);
                        marks.bound = Some(marks.bound.unwrap_or(answered).min(answered));
                    }
                }
                () = &mut deadline => {
                    let not: Vec<&String> = marks.iter().filter(|(_, m)| m.ready.is_none()).map(|(n, _)| n).collect();
                    bail!("not ready within {} s: {not:?}", BOUND.as_secs());
                }
            }
        }
        let mut raised = Vec::new();
        for pod in wanted {
            let marks = marks.remove(&pod.name).unwrap_or_default();
            let whole = (marks.uid, marks.sent, marks.bound, marks.ready);
            let (Some(uid), Some(sent), Some(bound), Some(ready)) = whole else {
                bail!("{} was never seen", pod.name);
            };
            raised.push(Raised {
                wanted: pod.clone(),
                uid,
                sent,
                bound,
                ready,
            });
        }
        let mut figures = Figures::default();
        let ready = raised.iter().map(|pod| pod.ready - pod.sent);
        figures.sample("ready", ready.collect());
        let last = raised.iter().map(|pod| pod.ready).max().unwrap_or(begin);
        figures.set("all ready", (last - begin).as_secs_f64());
        if wanted.iter().any(|pod| !pod.claims.is_empty()) {
            let mounted: Result<Vec<_>> =
                raised.iter().map(|pod| pod.mounted(self.mounts)).collect();
            figures.sample("mounted", mounted?);
            let all = raised.iter().filter_map(|pod| {
                let at = self.mounts.all_came(&pod.uid, pod.wanted.claims.len());
                Some(at? - begin)
            });
            let last = all.max().unwrap_or_default();
            figures.set("all mounted", last.as_secs_f64());
        }
        if let (Some(steps), [pod]) = (&steps, &raised[..]) {
            let mounted = self.mounts.all_came(&pod.uid, pod.wanted.claims.len());
            steps.tell(pod.sent, mounted, &mut figures);
        }
        Ok((raised, figures))
    }

    /// Deletes pods, and waits until nothing is left of them.
    pub(super) async fn take_down(&self, raised: &[Raised]) -> Result<Figures> {
        let path = collection("pods", self.namespace);
        let mut news = Follower::begin(self.server, path.clone()).await?;
        let mut attachments = match self.attaches {
            true => Some(Follower::begin(self.server, ATTACHMENTS.to_owned()).await?),
            false => None,
        };
        let requests = raised.iter().map(|pod| {
            let name = pod.wanted.name.clone();
            let one = format!("{path}/{name}");
            (name, Method::DELETE, one, Bytes::new())
        });
        let begin = Instant::now();
        let mut asked = BTreeMap::new();
        let mut gone: BTreeMap<String, Instant> = BTreeMap::new();
        let mut detached = None;
        let work = async {
            let send = self.send(requests.collect());
            tokio::pin!(send);
            let mut sending = true;
            while sending || gone.len() < raised.len() || (self.attaches && detached.is_none()) {
                tokio::select! {
                    told = news.next() => for event in deleted(told?) {
                        gone.insert(event, Instant::now());
                    },
                    told = next(&mut attachments) => if !deleted(told?).is_empty() {
                        detached = Some(Instant::now());
                    },
                    sent = &mut send, if sending => {
                        sending = false;
                        asked = sent?;
                    }
                }
            }
            anyhow::Ok(self.mounts.none_left().await)
        };
        let unstaged = tokio::time::timeout(BOUND, work)
            .await
            .with_context(|| format!("something is left after {} s", BOUND.as_secs()))??;
        let mut figures = Figures::default();
        let since = |pod: &Raised, at: Option<Instant>| {
            let asked = asked.get(&pod.wanted.name)?;
            Some(at?.saturating_duration_since(asked.sent))
        };
        let each = |at: &dyn Fn(&Raised) -> Option<Instant>| -> Vec<Duration> {
            raised
                .iter()
                .filter_map(|pod| since(pod, at(pod)))
                .collect()
        };
        figures.sample("gone", each(&|pod| gone.get(&pod.wanted.name).copied()));
        figures.sample("unmounted", each(&|pod| self.mounts.all_went(&pod.uid)));
        figures.sample("detached", each(&|_| detached));
        let last = gone.values().max().copied().unwrap_or(begin);
        figures.set("all gone", (last - begin).as_secs_f64());
        if let Some(unstaged) = unstaged {
            let unstaged = unstaged.saturating_duration_since(begin);
            figures.set("all unstaged", unstaged.as_secs_f64());
        }
        Ok(figures)
    }

    /// Sends requests, some at once; answers when each was sent and answered.
    async fn send(
        &self,
        requests: Vec<(String, Method, String, Bytes)>,
    ) -> Result<BTreeMap<String, Request>> {
        let share = requests.len().div_ceil(CLIENTS).max(1);
        let clients = requests.chunks(share).map(async |mine| {
            let mut connection = self.server.connect().await?;
            let mut done = Vec::new();
            for (name, method, path, body) in mine {
                let sent = Instant::now();
                connection
                    .ask(method.clone(), path, body.clone())
                    .await
                    .with_context(|| format!("{method} of {name}"))?;
                let answered = Instant::now();
                done.push((name.clone(), Request { sent, answered }));
            }
            anyhow::Ok(done)
        });
        Ok(try_join_all(clients).await?.into_iter().flatten().collect())
    }
}

/// When a request was sent and answered.
struct Request {
    sent: Instant,
    answered: Instant,
}

async fn next(follower: &mut Option<Follower>) -> Result<Vec<News>> {
    match follower {
        Some(follower) => follower.next().await,
        None => std::future::pending().await,
    }
}

async fn note(steps: &mut Option<Steps>) -> Result<()> {
    match steps {
        Some(steps) => steps.note().await,
        None => std::future::pending().await,
    }
}

/// The objects that were told of, and when.
pub(super) fn objects(news: Vec<News>) -> Vec<(Value, Instant)> {
    let now = Instant::now();
    let all = news.into_iter().flat_map(|news| match news {
        News::Event(mut event) => vec![event["object"].take()],
        News::Anew(all) => all,
    });
    all.map(|object| (object, now)).collect()
}

/// The names of what was told to be deleted.
fn deleted(news: Vec<News>) -> Vec<String> {
    let names = news.into_iter().filter_map(|news| match news {
        News::Event(event) if event["type"] == "DELETED" => {
            text(&event["object"], "/metadata/name")
        }
        _ => None,
    });
    names.collect()
}

fn text(object: &Value, pointer: &str) -> Option<String> {
    Some(object.pointer(pointer)?.as_str()?.to_owned())
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.is_some_and(|all| {
        all.iter()
            .any(|one| one["type"] == "Ready" && one["status"] == "True")
    })
}

/// A pod that is on its node already, runs until it is asked to end, and then ends at once.
fn manifest(pod: &Wanted) -> Value {
    let volume = |(n, claim): (usize, &String)| json!({"name": format!("v{n}"), "persistentVolumeClaim": {"claimName": claim}});
    let mount = |n: usize| json!({"name": format!("v{n}"), "mountPath": format!("/v{n}")});
    let volumes: Vec<Value> = pod.claims.iter().enumerate().map(volume).collect();
    let mounts: Vec<Value> = (0..pod.claims.len()).map(mount).collect();
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod.name},
        "spec": {
            "nodeName": NODE, "hostNetwork": true, "automountServiceAccountToken": false,
            "enableServiceLinks": false, "terminationGracePeriodSeconds": 5,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{
                "name": "main", "image": BUSYBOX, "imagePullPolicy": "Never",
                "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 1000000 & wait"],
                "volumeMounts": mounts,
            }],
            "volumes": volumes,
        },
    })
}
