use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;

const PODS: &str = "pods";

fn key(name: &str) -> Key {
    Key::new(PODS, "default", name)
}

fn object(name: &str, note: &str) -> Value {
    json!({ "kind": "Pod", "metadata": { "name": name, "uid": name }, "note": note })
}

fn create(name: &str) -> Write {
    let change = Change::Put(Draft::new(&object(name, "new")));
    Write {
        key: key(name),
        change,
        expect: Expect::Absent,
        requires: None,
    }
}

fn update(name: &str, revision: u64, note: &str) -> Write {
    let change = Change::Put(Draft::new(&object(name, note)));
    Write {
        key: key(name),
        change,
        expect: Expect::Revision(revision),
        requires: None,
    }
}

fn delete(name: &str, revision: u64) -> Write {
    let expect = Expect::Revision(revision);
    Write {
        key: key(name),
        change: Change::Delete,
        expect,
        requires: None,
    }
}

fn contents(store: &Store) -> BTreeMap<String, (u64, Value)> {
    let state = store.read();
    let all = state.list(PODS, None);
    all.map(|(_, name, object)| (name.to_string(), (object.revision, object.value())))
        .collect()
}

struct Fixture {
    directory: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn storage(&self) -> Storage {
        Storage::Disk(self.directory.path().join("store"))
    }

    fn open(&self) -> Store {
        Store::open(&self.storage()).unwrap()
    }
}

#[tokio::test]
async fn an_object_carries_its_revision_in_its_text() {
    let store = Store::open(&Storage::Memory).unwrap();
    let stored = store.write(create("a")).await.unwrap();
    assert_eq!(
        stored.value()["metadata"]["resourceVersion"],
        stored.revision.to_string()
    );
    assert_eq!(stored.value()["note"], "new");
    let gone = store.write(delete("a", stored.revision)).await.unwrap();
    assert_eq!(
        gone.value()["metadata"]["resourceVersion"],
        (stored.revision + 1).to_string()
    );
    assert!(store.get(&key("a")).is_none());
}

#[tokio::test]
async fn a_write_that_expects_something_else_changes_nothing() {
    let store = Store::open(&Storage::Memory).unwrap();
    let first = store.write(create("a")).await.unwrap();
    let before = contents(&store);
    let revision = store.read().revision();
    let stale = first.revision - 1;
    assert!(matches!(
        store.write(create("a")).await,
        Err(WriteError::Exists(_))
    ));
    assert!(matches!(
        store.write(update("a", stale, "x")).await,
        Err(WriteError::Changed(_))
    ));
    assert!(matches!(
        store.write(delete("a", stale)).await,
        Err(WriteError::Changed(_))
    ));
    assert!(matches!(
        store.write(update("b", stale, "x")).await,
        Err(WriteError::Gone(_))
    ));
    assert_eq!(contents(&store), before);
    assert_eq!(store.read().revision(), revision);
}

#[tokio::test]
async fn a_required_object_must_be_there_and_stay() {
    let store = Store::open(&Storage::Memory).unwrap();
    let needy = || Write {
        requires: Some(key("owner")),
        ..create("needy")
    };
    assert!(matches!(
        store.write(needy()).await,
        Err(WriteError::Required(_))
    ));
    let mut owner = object("owner", "");
    owner["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let leaving = Write {
        change: Change::Put(Draft::new(&owner)),
        ..create("owner")
    };
    let leaving = store.write(leaving).await.unwrap();
    assert!(matches!(
        store.write(needy()).await,
        Err(WriteError::Required(_))
    ));
    store
        .write(update("owner", leaving.revision, "stays"))
        .await
        .unwrap();
    store.write(needy()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_a_crash_and_the_revision_never_falls() {
    let fixture = Fixture::new();
    let mut revision = 0;
    let mut expected = BTreeMap::new();
    for round in 0..5 {
        let store = fixture.open();
        assert_eq!(contents(&store), expected);
        assert!(store.read().revision() >= revision);
        let writes = (0..40).map(|at| {
            let store = store.clone();
            tokio::spawn(async move {
                let name = format!("p{round}-{at}");
                let made = store.write(create(&name)).await.unwrap();
                if at % 3 == 0 {
                    store.write(delete(&name, made.revision)).await.unwrap();
                } else {
                    store
                        .write(update(&name, made.revision, "changed"))
                        .await
                        .unwrap();
                }
            })
        });
        for write in writes.collect::<Vec<_>>() {
            write.await.unwrap();
        }
        expected = contents(&store);
        assert_eq!(expected.len(), (round + 1) * 26);
        revision = store.read().revision();
        // Dropped without being closed.
    }
    let store = fixture.open();
    assert_eq!(contents(&store), expected);
    assert_eq!(store.read().revision(), revision);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_writers_of_one_object_each_revision_is_taken_by_one() {
    let fixture = Fixture::new();
    let store = fixture.open();
    let first = store.write(create("a")).await.unwrap().revision;
    let attempts: Vec<_> = (0..50)
        .map(|at| {
            let store = store.clone();
            tokio::spawn(async move {
                store
                    .write(update("a", first, &at.to_string()))
                    .await
                    .is_ok()
            })
        })
        .collect();
    let mut won = 0;
    for attempt in attempts {
        won += usize::from(attempt.await.unwrap());
    }
    assert_eq!(won, 1);
    assert_eq!(store.read().revision(), first + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_is_ordered_and_complete_from_any_revision() {
    let fixture = Fixture::new();
    let store = fixture.open();
    let start = store.read().revision();
    let mut live = store.feed(PODS, Scope::All, start).unwrap();
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                for at in 0..50 {
                    let name = format!("w{writer}-{at}");
                    let made = store.write(create(&name)).await.unwrap();
                    store.write(delete(&name, made.revision)).await.unwrap();
                }
            })
        })
        .collect();
    let mut seen = Vec::new();
    while seen.len() < 800 {
        let events = tokio::time::timeout(Duration::from_secs(20), live.next())
            .await
            .unwrap();
        seen.extend(events.unwrap().iter().map(|event| event.revision()));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let all: Vec<u64> = (start + 1..=start + 800).collect();
    assert_eq!(seen, all);
    for from in [0, 1, 399, 799] {
        let mut feed = store.feed(PODS, Scope::All, start + from).unwrap();
        let mut resumed = Vec::new();
        loop {
            let events = feed.take().unwrap();
            if events.is_empty() {
                break;
            }
            resumed.extend(events.iter().map(|event| event.revision()));
        }
        assert_eq!(resumed, all[usize::try_from(from).unwrap()..]);
    }
}

#[tokio::test]
async fn a_reader_behind_the_window_learns_that_it_lost_its_place() {
    let store = Store::open(&Storage::Memory).unwrap();
    let start = store.read().revision();
    let mut slow = store.feed(PODS, Scope::All, start).unwrap();
    let mut revision = store.write(create("a")).await.unwrap().revision;
    for at in 0..10_000 {
        revision = store
            .write(update("a", revision, &at.to_string()))
            .await
            .unwrap()
            .revision;
    }
    assert!(slow.take().is_err());
    assert!(store.feed(PODS, Scope::All, start).is_err());
    assert!(store.feed(PODS, Scope::All, start + 1).is_ok());
    // Another resource has a window of its own.
    assert!(store.feed("nodes", Scope::All, start).is_ok());
}

#[tokio::test]
async fn events_from_before_the_start_are_unknown() {
    let fixture = Fixture::new();
    let store = fixture.open();
    let made = store.write(create("a")).await.unwrap();
    drop(store);
    let store = fixture.open();
    assert!(store.feed(PODS, Scope::All, made.revision - 1).is_err());
    assert!(store.feed(PODS, Scope::All, made.revision).is_ok());
    assert!(store.feed("nodes", Scope::All, made.revision - 1).is_err());
}

#[tokio::test]
async fn the_past_can_be_listed_within_the_window() {
    let store = Store::open(&Storage::Memory).unwrap();
    let a = store.write(create("a")).await.unwrap();
    let b = store.write(create("b")).await.unwrap();
    let then = contents(&store);
    store.write(update("a", a.revision, "later")).await.unwrap();
    store.write(delete("b", b.revision)).await.unwrap();
    store.write(create("c")).await.unwrap();
    let page = |after, limit| {
        let wanted = Wanted {
            namespace: None,
            revision: b.revision,
            after,
            limit,
        };
        store.read().page(PODS, &wanted).unwrap()
    };
    let past = page(None, usize::MAX).objects.into_iter();
    let past: BTreeMap<_, _> = past
        .map(|((_, name), object)| (name.to_string(), (object.revision, object.value())))
        .collect();
    assert_eq!(past, then);
    let first = page(None, 1);
    assert_eq!((&*first.objects[0].0.1, first.remaining), ("a", 1));
    let second = page(Some(("default", "a")), 1);
    assert_eq!((&*second.objects[0].0.1, second.remaining), ("b", 0));
    assert!(page(Some(("default", "b")), 1).objects.is_empty());
}

#[tokio::test]
async fn pages_put_together_are_the_whole_however_it_changed_meanwhile() {
    let store = Store::open(&Storage::Memory).unwrap();
    let put = |namespace: &str, name: &str, expect| Write {
        key: Key::new(PODS, namespace, name),
        change: Change::Put(Draft::new(&object(name, "x"))),
        expect,
        requires: None,
    };
    for n in 0..40 {
        let (namespace, name) = (format!("n{}", n % 3), format!("p{n}"));
        let write = put(&namespace, &name, Expect::Absent);
        store.write(write).await.unwrap();
    }
    let revision = store.read().revision();
    let everything = |namespace, limit| {
        let mut all = Vec::new();
        let mut after: Option<(String, String)> = None;
        loop {
            let wanted = Wanted {
                namespace,
                revision,
                after: after
                    .as_ref()
                    .map(|(at, name)| (at.as_str(), name.as_str())),
                limit,
            };
            let page = store.read().page(PODS, &wanted).unwrap();
            for ((at, name), object) in page.objects {
                after = Some((at.to_string(), name.to_string()));
                all.push((at, name, object.revision));
            }
            if page.remaining == 0 {
                return all;
            }
        }
    };
    let (whole, part) = (
        everything(None, usize::MAX),
        everything(Some("n1"), usize::MAX),
    );
    assert_eq!((whole.len(), part.len()), (40, 13));
    assert!(whole.is_sorted() && part.iter().all(|(at, ..)| &**at == "n1"));
    for n in 0..30 {
        let (namespace, name) = (format!("n{}", n % 4), format!("p{n}"));
        let key = Key::new(PODS, &namespace, &name);
        let write = match store.get(&key).map(|found| found.revision) {
            Some(found) if n % 2 == 0 => put(&namespace, &name, Expect::Revision(found)),
            Some(found) => Write {
                key,
                change: Change::Delete,
                expect: Expect::Revision(found),
                requires: None,
            },
            None => put(&namespace, &name, Expect::Absent),
        };
        store.write(write).await.unwrap();
        for limit in [1, 7, 100] {
            assert_eq!(everything(None, limit), whole);
            assert_eq!(everything(Some("n1"), limit), part);
        }
    }
}

#[tokio::test]
async fn all_watchers_and_readers_share_one_text() {
    let store = Store::open(&Storage::Memory).unwrap();
    let made = store.write(create("a")).await.unwrap();
    let line = made.line(Sort::Added);
    assert!(std::ptr::eq(
        &raw const line[0],
        &raw const made.line(Sort::Added)[0]
    ));
    assert!(line.as_ptr_range().contains(&made.json().as_ptr()));
    let told: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(
        told,
        serde_json::json!({ "type": "ADDED", "object": made.value() })
    );
    let told: Value = serde_json::from_slice(&made.line(Sort::Deleted)).unwrap();
    assert_eq!(
        told["type"], "DELETED",
        "one that wasn't written so is made"
    );
    let changed = store.write(update("a", made.revision, "b")).await.unwrap();
    assert!(
        changed
            .line(Sort::Modified)
            .starts_with(br#"{"type":"MODIFIED","object":{"#)
    );
    store.write(delete("a", changed.revision)).await.unwrap();
    let mut feed = store.feed(PODS, Scope::All, changed.revision).unwrap();
    let gone = feed.take().unwrap();
    assert_eq!(gone[0].sort(), Sort::Deleted);
    let line = gone[0].object.line(Sort::Deleted);
    let told: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(told["object"], gone[0].object.value());
}

#[tokio::test]
async fn a_feed_of_one_namespace_sees_no_other() {
    let store = Store::open(&Storage::Memory).unwrap();
    let mut feed = store
        .feed(PODS, Scope::Namespace("default".into()), 1)
        .unwrap();
    let elsewhere = Write {
        key: Key::new(PODS, "other", "x"),
        ..create("x")
    };
    store.write(elsewhere).await.unwrap();
    assert!(feed.take().unwrap().is_empty());
    store.write(create("here")).await.unwrap();
    assert_eq!(feed.take().unwrap().len(), 1);
    assert_eq!(feed.seen(), store.read().revision());
}

#[tokio::test]
async fn a_closed_store_reads_but_does_not_write() {
    let fixture = Fixture::new();
    let store = fixture.open();
    store.write(create("a")).await.unwrap();
    store.close().await;
    assert!(matches!(
        store.write(create("b")).await,
        Err(WriteError::Closed)
    ));
    assert!(store.get(&key("a")).is_some());
    // The file is free again although a handle is left.
    assert_eq!(contents(&fixture.open()).len(), 1);
}

#[test]
fn a_store_in_use_is_refused_and_only_its_owner_reads_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let fixture = Fixture::new();
    let store = fixture.open();
    let path = fixture.directory.path().join("store");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o700);
    for entry in std::fs::read_dir(&path).unwrap() {
        assert_eq!(mode(&entry.unwrap().path()), 0o600);
    }
    assert!(matches!(
        Store::open(&fixture.storage()),
        Err(OpenError::InUse { .. })
    ));
    drop(store);
    drop(fixture.open());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_file_is_written_anew_while_writes_go_on() {
    let fixture = Fixture::new();
    let store = fixture.open();
    let size = || {
        let entries = std::fs::read_dir(fixture.directory.path().join("store")).unwrap();
        let sizes = entries.map(|entry| entry.unwrap().metadata().unwrap().len());
        sizes.sum::<u64>()
    };
    let big = "x".repeat(100_000);
    let mut revision = store.write(create("a")).await.unwrap().revision;
    let mut most = 0;
    for _ in 0..400 {
        let written = store.write(update("a", revision, &big)).await.unwrap();
        revision = written.revision;
        most = most.max(size());
    }
    assert!(most < 30 << 20, "the files grew to {most} bytes");
    let expected = contents(&store);
    store.close().await;
    assert_eq!(contents(&fixture.open()), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_a_store_in_use_makes_a_store_that_is_ahead() {
    let fixture = Fixture::new();
    let store = fixture.open();
    for name in ["a", "b", "c"] {
        store.write(create(name)).await.unwrap();
    }
    let folder = fixture.directory.path();
    let file = folder.join("backup");
    let summary = backup(&folder.join("store"), &file).unwrap();
    assert_eq!(
        (summary.revision, summary.objects),
        (store.read().revision(), 3)
    );
    store.write(create("d")).await.unwrap();
    // Nothing is written over, neither a backup nor a store.
    assert!(matches!(
        backup(&folder.join("store"), &file),
        Err(BackupError::File { .. })
    ));
    assert!(matches!(
        restore(&file, &folder.join("store")),
        Err(BackupError::Occupied { .. })
    ));
    assert!(matches!(
        backup(&folder.join("nothing"), &folder.join("x")),
        Err(BackupError::NoStore { .. })
    ));
    let elsewhere = folder.join("elsewhere");
    restore(&file, &elsewhere).unwrap();
    let restored = Store::open(&Storage::Disk(elsewhere)).unwrap();
    assert_eq!(contents(&restored).len(), 3);
    assert!(restored.read().revision() > store.read().revision());
    // A backup with something behind it is none, nor one that was cut short.
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, [&whole[..], b"more"].concat()).unwrap();
    let longer = restore(&file, &folder.join("second"));
    assert!(
        matches!(longer, Err(BackupError::Read { .. })),
        "{longer:?}"
    );
    std::fs::write(&file, &whole[..whole.len() - 1]).unwrap();
    let damaged = restore(&file, &folder.join("third"));
    assert!(
        matches!(damaged, Err(BackupError::Read { .. })),
        "{damaged:?}"
    );
}

#[tokio::test]
async fn owners_know_their_dependents() {
    let store = Store::open(&Storage::Memory).unwrap();
    let mut owned = object("a", "");
    owned["metadata"]["ownerReferences"] = json!([{ "uid": "boss" }]);
    let write = Write {
        change: Change::Put(Draft::new(&owned)),
        ..create("a")
    };
    let stored = store.write(write).await.unwrap();
    assert_eq!(
        store.read().dependents("boss").collect::<Vec<_>>(),
        [&key("a")]
    );
    store
        .write(update("a", stored.revision, "free"))
        .await
        .unwrap();
    assert_eq!(store.read().dependents("boss").count(), 0);
}

/// The name under which the test below starts itself as the process that is killed.
const VICTIM: &str = "ORLOP_STORE_VICTIM";

#[test]
fn acknowledged_writes_survive_kill_nine() {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};

    if let Ok(path) = std::env::var(VICTIM) {
        return write_until_killed(path.into());
    }
    let fixture = Fixture::new();
    let Storage::Disk(path) = fixture.storage() else {
        unreachable!()
    };
    let mut acknowledged = BTreeMap::new();
    for acknowledgements in [1, 7, 50] {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "store::tests::acknowledged_writes_survive_kill_nine",
                "--nocapture",
            ])
            .env(VICTIM, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        let mut seen = 0;
        while seen < acknowledgements {
            let line = lines.next().expect("the victim ended by itself").unwrap();
            if let Some((name, revision)) = line
                .strip_prefix("ack ")
                .and_then(|ack| ack.split_once(' '))
            {
                acknowledged.insert(name.to_owned(), revision.parse::<u64>().unwrap());
                seen += 1;
            }
        }
        victim.kill().unwrap();
        victim.wait().unwrap();
        // What was acknowledged between the last line read and the kill counts too.
        for line in lines.map_while(Result::ok) {
            if let Some((name, revision)) = line
                .strip_prefix("ack ")
                .and_then(|ack| ack.split_once(' '))
                && let Ok(revision) = revision.parse()
            {
                acknowledged.insert(name.to_owned(), revision);
            }
        }
        let store = fixture.open();
        let found = contents(&store);
        for (name, revision) in &acknowledged {
            assert_eq!(
                found.get(name).map(|(found, _)| found),
                Some(revision),
                "{name}"
            );
        }
        assert!(store.read().revision() >= acknowledged.values().copied().max().unwrap());
    }
}

/// Writes with several tasks and says what was acknowledged, until the parent kills it.
fn write_until_killed(path: PathBuf) {
    use std::io::Write as _;

    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = Store::open(&Storage::Disk(path)).unwrap();
        let writers = (0..4).map(|writer| {
            let store = store.clone();
            tokio::spawn(async move {
                // Bounded, in case the parent dies first.
                for at in 0..100_000 {
                    let name = format!("{}-{writer}-{at}", std::process::id());
                    let made = store.write(create(&name)).await.unwrap();
                    let line = format!("ack {name} {}\n", made.revision);
                    std::io::stdout().write_all(line.as_bytes()).unwrap();
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
    });
}
