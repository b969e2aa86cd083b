//! The store on a folder that has no room left.

use std::io::{self, Read};
use std::sync::Arc;

use serde_json::json;

use super::batch::{Change, Expect, Write};
use super::fresh::write_new;
use super::log::Log;
use super::medium::{Appended, Folder};
use super::object::Draft;
use super::power::{Cuttable, picture};
use super::{Health, Key, Store, WriteError};

#[tokio::test]
async fn a_full_disk_refuses_writes_until_there_is_room_again() {
    #[derive(Debug)]
    struct Full(Cuttable, Arc<std::sync::atomic::AtomicBool>);
    #[derive(Debug)]
    struct FullFile(Box<dyn Appended>, Arc<std::sync::atomic::AtomicBool>);
    impl FullFile {
        fn is_full(&self) -> bool {
            self.1.load(std::sync::atomic::Ordering::SeqCst)
        }
    }
    impl Appended for FullFile {
        fn reserve(&mut self, bytes: u64) -> io::Result<()> {
            if self.is_full() {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0.reserve(bytes)
        }
        fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
            // Of what is long, half still fits.
            if self.is_full() && bytes.len() > 1000 {
                self.0.append(&bytes[..bytes.len() / 2])?;
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.0.append(bytes)
        }
        fn sync(&mut self) -> io::Result<()> {
            self.0.sync()
        }
        fn truncate(&mut self, length: u64) -> io::Result<()> {
            self.0.truncate(length)
        }
        fn touch(&mut self) -> io::Result<()> {
            self.0.touch()
        }
        fn trim(&mut self) -> io::Result<()> {
            self.0.trim()
        }
    }
    impl Folder for Full {
        fn list(&self) -> io::Result<Vec<String>> {
            self.0.list()
        }
        fn read(&self, name: &str) -> io::Result<Box<dyn Read + '_>> {
            self.0.read(name)
        }
        fn provide(&self, bytes: u64) -> io::Result<()> {
            self.0.provide(bytes)
        }
        fn create(&self, name: &str) -> io::Result<Box<dyn Appended>> {
            Ok(Box::new(FullFile(
                self.0.create(name)?,
                Arc::clone(&self.1),
            )))
        }
        fn append(&self, name: &str, length: u64, zeros: bool) -> io::Result<Box<dyn Appended>> {
            Ok(Box::new(FullFile(
                self.0.append(name, length, zeros)?,
                Arc::clone(&self.1),
            )))
        }
        fn rename(&self, from: &str, to: &str) -> io::Result<()> {
            self.0.rename(from, to)
        }
        fn remove(&self, name: &str) -> io::Result<()> {
            self.0.remove(name)
        }
        fn sync(&self) -> io::Result<()> {
            self.0.sync()
        }
    }
    let disk = Cuttable::default();
    let full = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let folder = Full(disk.clone(), Arc::clone(&full));
    let folder: Arc<dyn Folder> = Arc::new(folder);
    let (log, state) = Log::open(&folder).unwrap();
    let store = Store::on(log, state, None).unwrap();
    let create = |name: &str| Write {
        key: Key::new("pods", "default", name),
        change: Change::Put(Draft::new(&json!({ "metadata": { "name": name } }))),
        expect: Expect::Absent,
        requires: None,
    };
    let made = store.write(create("a")).await.unwrap();
    let kept = store.write(create("kept")).await.unwrap();
    full.store(true, std::sync::atomic::Ordering::SeqCst);
    let refused = store.write(create("b")).await.unwrap_err();
    let is_full = |health: &Health| matches!(health, Health::Full(_));
    assert!(
        matches!(&refused, WriteError::Unwritten(health) if is_full(health)),
        "{refused}"
    );
    assert!(is_full(&store.look().await) && store.get(&create("b").key).is_none());
    // What makes less of it is taken, and what grows isn't.
    let delete = |name: &str, revision| Write {
        change: Change::Delete,
        expect: Expect::Revision(revision),
        ..create(name)
    };
    store.write(delete("a", made.revision)).await.unwrap();
    let long = "x".repeat(2000);
    let leaving = json!({ "metadata": { "name": "kept", "deletionTimestamp": "now" }, "x": long });
    let leaving = Write {
        change: Change::Put(Draft::new(&leaving)),
        expect: Expect::Revision(kept.revision),
        ..create("kept")
    };
    // It takes what is kept for it, until that is used up.
    store.write(leaving).await.unwrap_err();
    assert!(is_full(&store.look().await));
    // A file that could not be written anew doesn't keep the room it took.
    let long = Arc::new(Draft::new(&json!({ "x": long })).at(5));
    assert!(write_new(&folder, 5, &[(create("b").key, long)]).is_err());
    let names = disk.list().unwrap();
    assert!(
        !names.iter().any(|name| name.ends_with(".new")),
        "{names:?}"
    );
    full.store(false, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(
        store.look().await,
        Health::Well,
        "it is seen without a write"
    );
    store.write(create("b")).await.unwrap();
    store.close().await;
    let (_, found) = Log::open(&disk.shared()).unwrap();
    let names: Vec<String> = picture(&found).into_keys().collect();
    assert_eq!(names, ["b", "kept"]);
}
