//! Watching: how soon an event arrives, how many arrive, and what a crowd of others does to that.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::Method;
use tokio::{net::TcpStream, sync::Notify, task::JoinSet, time::timeout};
use tokio_rustls::client::TlsStream;

use super::{
    client::{Connection, Server},
    figures::Figures,
    load,
    objects::{Kind, NAMESPACE, collection, namespace},
};

/// How long events may take to arrive before the run is given up.
const PATIENCE: Duration = Duration::from_secs(60);
/// How many connections are made at once.
const AT_ONCE: usize = 32;
/// How many events are sent to watchers that don't read before anything is measured: more than
/// a server and the kernel keep for a connection, some megabytes.
const FILL: usize = 5000;
/// In how many namespaces the idle watchers sit.
const IDLE_NAMESPACES: usize = 10;

/// One writer and one watcher: from sending a create to its answer, and to its event.
pub(super) async fn latency(server: &Server, prefix: &str, count: usize) -> Result<Figures> {
    let mut watch = server
        .connect()
        .await?
        .watch(&from_now(server).await?)
        .await?;
    let mut writer = server.connect().await?;
    let (mut answers, mut events) = (Vec::new(), Vec::new());
    for n in 0..count {
        let object = Kind::Configmap.object(&format!("{prefix}-{n}"));
        let path = Kind::Configmap.collection();
        let begin = Instant::now();
        let answered = async {
            writer.ask(Method::POST, &path, object).await?;
            anyhow::Ok(begin.elapsed())
        };
        let seen = async {
            while watch.events().await? == 0 {}
            anyhow::Ok(begin.elapsed())
        };
        let both = futures::future::try_join(answered, seen);
        let (answer, event) = timeout(PATIENCE, both).await.context("no event came")??;
        answers.push(answer);
        events.push(event);
    }
    let mut figures = Figures::default();
    figures.sample("answer", answers);
    figures.sample("event", events);
    Ok(figures)
}

/// Many watchers of the same objects: single events until the last has them, then a burst.
pub(super) async fn fan_out(
    server: &Server,
    watchers: usize,
    (singles, burst): (usize, usize),
) -> Result<Figures> {
    let path = from_now(server).await?;
    let crowd = Crowd::watch(server, watchers, |_| path.clone()).await?;
    let mut writer = server.connect().await?;
    let mut last = Vec::new();
    for n in 0..singles {
        let begin = Instant::now();
        put(&mut writer, "single", n).await?;
        crowd.seen(watchers * (n + 1)).await?;
        last.push(begin.elapsed());
    }
    let begin = Instant::now();
    load::create(server, Kind::Configmap, "burst", (burst, 16)).await?;
    crowd.seen(watchers * (singles + burst)).await?;
    let took = begin.elapsed();
    let mut figures = Figures::default();
    figures.sample("last", last);
    figures.set("delivered", (watchers * burst) as f64 / took.as_secs_f64());
    Ok(figures)
}

/// How much slower others get by watchers that have nothing to see, and by ones that never read.
///
/// Rounds with and without the crowd take turns, so that whatever else the machine does
/// hits both alike.
pub(super) async fn crowd(
    server: &Server,
    (idle, stuck): (usize, usize),
    (rounds, count): (usize, usize),
) -> Result<Figures> {
    let mut figures = Figures::default();
    let mut writer = server.connect().await?;
    for n in 0..IDLE_NAMESPACES {
        let name = format!("idle-{n}");
        writer
            .ask(Method::POST, "/api/v1/namespaces", namespace(&name))
            .await?;
    }
    let (mut alone, mut crowded) = (Samples::default(), Samples::default());
    for round in 0..rounds {
        alone
            .measure(server, &format!("alone-{round}"), count)
            .await?;
        let path = from_now(server).await?;
        let idle = Crowd::watch(server, idle, |n| {
            let namespace = format!("idle-{}", n % IDLE_NAMESPACES);
            path.replace(NAMESPACE, &namespace)
        })
        .await?;
        let stuck: Vec<TlsStream<TcpStream>> =
            stream::iter((0..stuck).map(|_| server.stuck(&path)))
                .buffer_unordered(AT_ONCE)
                .try_collect()
                .await?;
        // More than their connections hold, so that they are stuck indeed.
        load::create(
            server,
            Kind::Configmap,
            &format!("fill-{round}"),
            (FILL, 16),
        )
        .await?;
        crowded
            .measure(server, &format!("crowd-{round}"), count)
            .await?;
        drop((idle, stuck));
    }
    alone.tell(&mut figures, "alone");
    crowded.tell(&mut figures, "crowd");
    Ok(figures)
}

/// What others see while there is a crowd, or none.
#[derive(Default)]
struct Samples {
    answers: Vec<f64>,
    events: Vec<f64>,
    rates: Vec<f64>,
}

impl Samples {
    async fn measure(&mut self, server: &Server, prefix: &str, count: usize) -> Result<()> {
        let one = latency(server, &format!("{prefix}-one"), count).await?;
        let many = format!("{prefix}-many");
        let many = load::create(server, Kind::Configmap, &many, (count, 16)).await?;
        self.answers.extend(one.get("answer p99"));
        self.events.extend(one.get("event p99"));
        self.rates.extend(many.get("rate"));
        Ok(())
    }

    /// The median of the rounds: one of them may have met something else on the machine.
    fn tell(mut self, figures: &mut Figures, name: &str) {
        let all = [
            ("answer p99", &mut self.answers),
            ("event p99", &mut self.events),
            ("rate", &mut self.rates),
        ];
        for (what, values) in all {
            values.sort_by(f64::total_cmp);
            if let Some(median) = values.get(values.len() / 2) {
                figures.set(&format!("{name} {what}"), *median);
            }
        }
    }
}

/// Watchers that count what they get.
struct Crowd {
    seen: Arc<AtomicUsize>,
    more: Arc<Notify>,
    _tasks: JoinSet<()>,
}

impl Crowd {
    async fn watch(server: &Server, count: usize, path: impl Fn(usize) -> String) -> Result<Self> {
        let (seen, more) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let begun = stream::iter((0..count).map(|n| {
            let path = path(n);
            async move { server.connect().await?.watch(&path).await }
        }));
        let watches: Vec<_> = begun.buffer_unordered(AT_ONCE).try_collect().await?;
        let mut tasks = JoinSet::new();
        for mut watch in watches {
            let (seen, more) = (Arc::clone(&seen), Arc::clone(&more));
            tasks.spawn(async move {
                // One that ended is missed by whoever counts.
                while let Ok(events) = watch.events().await {
                    seen.fetch_add(events, Ordering::Relaxed);
                    more.notify_one();
                }
            });
        }
        Ok(Self {
            seen,
            more,
            _tasks: tasks,
        })
    }

    /// Waits until so many events were seen, by all together.
    async fn seen(&self, wanted: usize) -> Result<()> {
        let all = async {
            while self.seen.load(Ordering::Relaxed) < wanted {
                self.more.notified().await;
            }
        };
        timeout(PATIENCE, all).await.with_context(|| {
            let seen = self.seen.load(Ordering::Relaxed);
            format!("of {wanted} events only {seen} came")
        })
    }
}

async fn put(writer: &mut Connection, prefix: &str, n: usize) -> Result<()> {
    let object = Kind::Configmap.object(&format!("{prefix}-{n}"));
    let path = Kind::Configmap.collection();
    writer.ask(Method::POST, &path, object).await.map(drop)
}

/// The path of a watch for what happens from now on.
async fn from_now(server: &Server) -> Result<String> {
    let path = collection("configmaps", NAMESPACE);
    let mut connection = server.connect().await?;
    let list = format!("{path}?limit=1");
    let list = connection.ask(Method::GET, &list, Bytes::new()).await?;
    let list: serde_json::Value = serde_json::from_slice(&list)?;
    let revision = list["metadata"]["resourceVersion"].as_str();
    let revision = revision.context("a list without a revision")?;
    Ok(format!("{path}?watch=1&resourceVersion={revision}"))
}
