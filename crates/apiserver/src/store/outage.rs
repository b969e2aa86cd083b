//! The whole store on a disk that loses power at every call in turn: those who write alone, on their
//! own thread, those who come together and share flushes, and those who watch.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::{Value, json};

use super::batch::{Change, Expect, Write};
use super::log::Log;
use super::power::{Cuttable, Dice, picture};
use super::turn::{Tried, Turn};
use super::writer::{Answer, Last};
use super::{Backend, Draft, Feed, Key, Scope, Store};

/// How many rounds of writes there are until the power goes, at the latest.
const ROUNDS: usize = 12;

fn object(name: &str, note: &str) -> Value {
    json!({ "metadata": { "name": name }, "note": note })
}

fn put(name: &str, note: &str, expect: Expect) -> Write {
    Write {
        key: Key::new("pods", "default", name),
        change: Change::Put(Draft::new(&object(name, note))),
        expect,
        requires: None,
    }
}

fn turn(store: &Store) -> &Turn {
    match &*store.backend {
        Backend::Disk { turn, .. } => turn,
        Backend::Memory => unreachable!("it is on a disk"),
    }
}

/// Writes alone: on this thread, unless the writer's own is at something.
async fn write_alone(store: &Store, write: Write, seen: &mut Seen) -> Answer {
    if let Some(mut writer) = turn(store).take() {
        writer.last = Some(Last {
            writes: 1,
            took: Duration::ZERO,
            ended: Instant::now() - Duration::from_secs(1),
        });
    }
    match turn(store).at_once(write) {
        Tried::Done { answer, .. } => {
            seen.at_once += 1;
            answer
        }
        Tried::Queue(write) => store.write(write).await,
    }
}

/// What callers and watchers know of when the power goes.
#[derive(Default)]
struct Seen {
    /// What each object was to be, whether or not that was acknowledged, oldest first.
    tried: BTreeMap<String, Vec<String>>,
    /// At which revision, and as which of these, it was acknowledged last.
    acknowledged: BTreeMap<String, (u64, usize)>,
    /// How far watchers were told.
    told: u64,
    /// How many were written by those who came.
    at_once: usize,
}

impl Seen {
    fn tries(&mut self, name: &str, note: &str) {
        let tried = self.tried.entry(name.to_owned()).or_default();
        tried.push(note.to_owned());
    }

    /// Takes an answer down; says whether the store goes on.
    fn takes(&mut self, name: &str, answer: &Answer) -> bool {
        let Ok(object) = answer else {
            return false;
        };
        let which = self.tried[name].len() - 1;
        let known = (object.revision, which);
        self.acknowledged.insert(name.to_owned(), known);
        true
    }

    fn hears(&mut self, feed: &mut Feed) {
        for event in feed.take().unwrap() {
            assert!(event.revision() > self.told, "revisions only grow");
            self.told = event.revision();
        }
    }
}

async fn write_until_the_cut(disk: &Cuttable, dice: &mut Dice) -> Seen {
    let mut seen = Seen::default();
    let Ok((log, state)) = Log::open(&disk.shared()) else {
        return seen;
    };
    seen.told = state.revision();
    let store = Store::on(log, state, None).unwrap();
    let mut feed = store.feed("pods", Scope::All, seen.told).unwrap();
    let mut on = true;
    let mut expect = Expect::Absent;
    for round in 0..ROUNDS {
        // One object that changes again and again, and a new one.
        let note = format!("{round} {}", "x".repeat(dice.roll(3000)));
        seen.tries("again", &note);
        let answer = write_alone(&store, put("again", &note, expect), &mut seen).await;
        on &= seen.takes("again", &answer);
        if let Ok(object) = &answer {
            expect = Expect::Revision(object.revision);
        }
        seen.hears(&mut feed);
        if round % 3 == 2 {
            let names: Vec<String> = (0..5).map(|n| format!("together-{round}-{n}")).collect();
            let note = "y".repeat(dice.roll(900));
            names.iter().for_each(|name| seen.tries(name, &note));
            let writes = names.iter().map(|name| put(name, &note, Expect::Absent));
            let answers = join_all(writes.map(|write| store.write(write))).await;
            for (name, answer) in names.iter().zip(&answers) {
                on &= seen.takes(name, answer);
            }
            seen.hears(&mut feed);
        }
        if !on {
            break;
        }
    }
    store.close().await;
    seen
}

fn check(disk: &Cuttable, seen: &Seen, at: (u64, usize)) {
    let (_, state) = Log::open(&disk.shared())
        .unwrap_or_else(|error| panic!("{at:?}: the store doesn't open: {error:?}"));
    let revision = state.revision();
    assert!(
        revision >= seen.told,
        "{at:?}: a watcher was told of what is gone"
    );
    let found = picture(&state);
    for (name, (acknowledged, which)) in &seen.acknowledged {
        let (found_at, value) = found
            .get(name)
            .unwrap_or_else(|| panic!("{at:?}: {name} is gone"));
        let note = value["note"].as_str().unwrap();
        let now = seen.tried[name].iter().rposition(|tried| tried == note);
        assert!(now >= Some(*which), "{at:?}: {name} went back");
        assert!(
            found_at >= acknowledged && *found_at <= revision,
            "{at:?}: {name}"
        );
    }
    for (name, (found_at, value)) in &found {
        let note = value["note"].as_str().unwrap();
        let whole = seen.tried[name].iter().any(|tried| tried == note);
        assert!(whole && *found_at <= revision, "{at:?}: half of {name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_cut_takes_back_what_a_caller_or_a_watcher_was_told() {
    let mut at_once = 0;
    for seed in 1..=3 {
        let whole = Cuttable::of(seed);
        let seen = write_until_the_cut(&whole, &mut Dice(seed)).await;
        assert_eq!(
            seen.acknowledged.len(),
            1 + ROUNDS / 3 * 5,
            "nothing fails by itself"
        );
        let calls = whole.calls();
        for cut in 1..=calls {
            let disk = Cuttable::of(seed);
            disk.cut_at(cut);
            let seen = write_until_the_cut(&disk, &mut Dice(seed)).await;
            at_once += seen.at_once;
            let mut dice = Dice(seed << 32 | cut as u64);
            for _ in 0..4 {
                check(&disk.after_the_cut(&mut dice), &seen, (seed, cut));
            }
        }
    }
    assert!(at_once > 100, "only {at_once} wrote on their own thread");
}
