//! Random histories of writes: every watcher sees exactly what happened to what it watches,
//! whenever it starts, however often it starts over.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};

use crate::fixtures::*;

/// One change as it was acknowledged: the object, its revision and its colour after it; none
/// for a deletion, whose revision the answer doesn't tell.
#[derive(Debug, Clone)]
struct Change {
    name: String,
    after: Option<(u64, &'static str)>,
}

/// A change as a watcher of one colour sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Added(u64, String),
    Modified(u64, String),
    Deleted(String),
}

const COLOURS: [&str; 2] = ["red", "blue"];

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) % sides
    }
}

fn revision(object: &ConfigMap) -> u64 {
    object.resource_version().unwrap().parse().unwrap()
}

/// Some creations, changes of colour and deletions of a few objects.
async fn write_history(api: &Api<ConfigMap>, dice: &mut Dice, writes: usize) -> Vec<Change> {
    let mut current: BTreeMap<String, ConfigMap> = BTreeMap::new();
    let mut history = Vec::new();
    for at in 0..writes {
        let name = format!("c{}", dice.roll(5));
        let colour = COLOURS[usize::try_from(dice.roll(2)).unwrap()];
        let after = match current.remove(&name) {
            Some(_) if dice.roll(3) == 0 => {
                drop(api.delete(&name, &DeleteParams::default()).await.unwrap());
                None
            }
            found => {
                let mut object = found.clone().unwrap_or_else(|| config_map(&name));
                object.labels_mut().insert("colour".into(), colour.into());
                // No write without a change.
                object.annotations_mut().insert("at".into(), at.to_string());
                let post = PostParams::default();
                let object = match found {
                    Some(_) => api.replace(&name, &post, &object).await.unwrap(),
                    None => api.create(&post, &object).await.unwrap(),
                };
                let written = revision(&object);
                current.insert(name.clone(), object);
                Some((written, colour))
            }
        };
        history.push(Change { name, after });
    }
    history
}

/// What a watcher of one colour must see of a history from one of its changes on.
fn expected(history: &[Change], colour: &str, from: usize) -> Vec<Seen> {
    let mut shown: BTreeMap<&str, bool> = BTreeMap::new();
    let mut all = Vec::new();
    for (at, change) in history.iter().enumerate() {
        let was = shown.get(change.name.as_str()).copied().unwrap_or(false);
        let now = change.after.filter(|(_, own)| *own == colour);
        shown.insert(&change.name, now.is_some());
        let name = change.name.clone();
        let seen = match (was, now) {
            (false, Some((revision, _))) => Seen::Added(revision, name),
            (true, Some((revision, _))) => Seen::Modified(revision, name),
            (true, None) => Seen::Deleted(name),
            (false, None) => continue,
        };
        if at >= from {
            all.push(seen);
        }
    }
    all
}

/// The object whose appearance tells a watcher of a colour that everything has come.
fn signal(colour: &str) -> String {
    format!("last-{colour}")
}

/// Watches one colour from a revision on, starting over at random from the last thing seen.
async fn watch(api: Api<ConfigMap>, colour: &str, mut after: u64, mut dice: Dice) -> Vec<Seen> {
    let mut all = Vec::new();
    let parameters = WatchParams::default().labels(&format!("colour={colour}"));
    loop {
        let stream = api.watch(&parameters, &after.to_string()).await.unwrap();
        let mut stream = Box::pin(stream);
        for _ in 0..=dice.roll(6) {
            let next = tokio::time::timeout(Duration::from_secs(60), stream.try_next()).await;
            let event = next.expect("the watch fell silent").unwrap().unwrap();
            let (object, seen): (_, fn(u64, String) -> Seen) = match event {
                WatchEvent::Added(object) => (object, Seen::Added),
                WatchEvent::Modified(object) => (object, Seen::Modified),
                WatchEvent::Deleted(object) => (object, |_, name| Seen::Deleted(name)),
                WatchEvent::Bookmark(bookmark) => {
                    after = bookmark.metadata.resource_version.parse().unwrap();
                    continue;
                }
                WatchEvent::Error(status) => panic!("{status:?}"),
            };
            assert!(revision(&object) > after, "a change came twice");
            after = revision(&object);
            if object.name_any() == signal(colour) {
                return all;
            }
            all.push(seen(after, object.name_any()));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_watcher_sees_exactly_the_history() {
    let rounds = std::env::var("ORLOP_HISTORIES").ok();
    let rounds: u64 = rounds.and_then(|rounds| rounds.parse().ok()).unwrap_or(4);
    for seed in 1..=rounds {
        let cluster = cluster().await;
        let api: Api<ConfigMap> = Api::default_namespaced(cluster.client.clone());
        let mut dice = Dice(seed);
        let list = api.list(&ListParams::default()).await.unwrap();
        let start: u64 = list.metadata.resource_version.unwrap().parse().unwrap();
        let watcher = |at: u64, after: u64| {
            let colour = COLOURS[usize::try_from(at % 2).unwrap()];
            let (api, dice) = (api.clone(), Dice(seed * 1000 + at));
            (colour, tokio::spawn(watch(api, colour, after, dice)))
        };
        // Some are there while the writes happen.
        let mut watchers: Vec<_> = (1..7).map(|at| (0, watcher(at, start))).collect();
        let history = write_history(&api, &mut dice, 120).await;
        // Others come later, from any moment of the past.
        let moments: Vec<(usize, u64)> = history
            .iter()
            .enumerate()
            .filter_map(|(at, change)| Some((at + 1, change.after?.0)))
            .collect();
        for at in 7..27 {
            let moment = dice.roll(moments.len() as u64);
            let (from, after) = moments[usize::try_from(moment).unwrap()];
            watchers.push((from, watcher(at, after)));
        }
        for colour in COLOURS {
            let mut last = config_map(&signal(colour));
            last.labels_mut().insert("colour".into(), colour.into());
            create(&api, &last).await;
        }
        for (from, (colour, watcher)) in watchers {
            let seen = watcher.await.unwrap();
            assert_eq!(
                seen,
                expected(&history, colour, from),
                "seed {seed}, from {from}"
            );
        }
    }
}
