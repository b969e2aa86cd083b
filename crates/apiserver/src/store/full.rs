//! The store on a folder that has no room left.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use super::appended::Reach;
use super::batch::{Change, Expect, Write};
use super::direct::BLOCK;
use super::fresh::write_new;
use super::log::Log;
use super::medium::{Folder, Medium};
use super::object::Draft;
use super::power::{Cuttable, picture};
use super::{Health, Key, Store, WriteError};

/// A disk that may have no room left.
#[derive(Debug)]
struct Full(Cuttable, Arc<AtomicBool>);

#[derive(Debug)]
struct FullFile(Box<dyn Medium>, Arc<AtomicBool>);

impl FullFile {
    /// How many of so many bytes at a place find room.
    fn room(&self, at: u64, bytes: usize) -> io::Result<usize> {
        if !self.1.load(Ordering::SeqCst) {
            return Ok(bytes);
        }
        let room = self.0.length()?.saturating_sub(at);
        Ok(bytes.min(usize::try_from(room).unwrap()))
    }
}

impl Medium for FullFile {
    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }
    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_length(length)
    }
    fn allocate(&self, from: u64, end: u64) -> io::Result<()> {
        if self.1.load(Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.allocate(from, end)
    }
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.0.read_at(bytes, at)
    }
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        let room = self.room(at, bytes.len())?;
        self.0.write_at(&bytes[..room], at)?;
        match room == bytes.len() {
            true => Ok(()),
            false => Err(io::ErrorKind::StorageFull.into()),
        }
    }
    fn write_past_cache(&self, blocks: &[u8], at: u64) -> io::Result<()> {
        // The last block of a file is its own to the end.
        let room = self.room(at, blocks.len())?.next_multiple_of(BLOCK);
        self.0.write_past_cache(&blocks[..room], at)?;
        match room == blocks.len() {
            true => Ok(()),
            false => Err(io::ErrorKind::StorageFull.into()),
        }
    }
    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

impl Folder for Full {
    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }
    fn read(&self, name: &str) -> io::Result<Box<dyn Read + '_>> {
        self.0.read(name)
    }
    fn open(&self, name: &str, new: bool) -> io::Result<Box<dyn Medium>> {
        let file = self.0.open(name, new)?;
        Ok(Box::new(FullFile(file, Arc::clone(&self.1))))
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
    fn reach(&self) -> Reach {
        self.0.reach()
    }
}

#[tokio::test]
async fn a_full_disk_refuses_writes_until_there_is_room_again() {
    let disk = Cuttable::default();
    let full = Arc::new(AtomicBool::new(false));
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
    full.store(true, Ordering::SeqCst);
    // First goes what the file reaches ahead.
    let mut fillers = 0;
    let refused = loop {
        match store.write(create(&format!("filler-{fillers}"))).await {
            Ok(_) => fillers += 1,
            Err(error) => break error,
        }
    };
    assert!((1..1000).contains(&fillers), "{fillers}");
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
    let long = "x".repeat(10_000);
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
    let long = "x".repeat(3 << 20);
    let long = Arc::new(Draft::new(&json!({ "x": long })).at(5));
    assert!(write_new(&folder, 5, &[(create("b").key, long)]).is_err());
    let names = disk.list().unwrap();
    assert!(
        !names.iter().any(|name| name.ends_with(".new")),
        "{names:?}"
    );
    full.store(false, Ordering::SeqCst);
    assert_eq!(
        store.look().await,
        Health::Well,
        "it is seen without a write"
    );
    store.write(create("b")).await.unwrap();
    store.close().await;
    let (_, found) = Log::open(&disk.shared()).unwrap();
    let names: Vec<String> = picture(&found).into_keys().collect();
    let (fill, others): (Vec<_>, Vec<_>) = names
        .into_iter()
        .partition(|name| name.starts_with("filler"));
    assert_eq!(
        (fill.len(), others),
        (fillers, vec!["b".to_owned(), "kept".to_owned()])
    );
}
