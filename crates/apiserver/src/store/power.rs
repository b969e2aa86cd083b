//! The store's files on a folder that loses power at every call in turn.
//!
//! The folder keeps what was flushed. Of what wasn't, each sector and each length may be of
//! any moment since, and each new name may be there or not: worse than any real disk.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::batch::{Batch, Change, Expect, Write};
use super::fresh::write_new;
use super::log::Log;
use super::medium::{Appended, Folder};
use super::object::Draft;
use super::state::State;
use super::{Key, OpenError, Storage, Store};

const SECTOR: usize = 64;

/// A small source of numbers, the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        // Xorshift, since all that matters is that it is spread and repeats.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap_or(0) % sides.max(1)
    }
}

#[derive(Debug, Clone, Default)]
struct Inode {
    /// Every content since the last flush; the first is on the medium, the last is seen.
    versions: Vec<Vec<u8>>,
}

impl Inode {
    fn now(&self) -> &[u8] {
        self.versions.last().map_or(&[], Vec::as_slice)
    }

    /// What is found after a cut.
    fn survivor(&self, dice: &mut Dice) -> Vec<u8> {
        let length = self.versions[dice.roll(self.versions.len())].len();
        let mut found = Vec::with_capacity(length);
        while found.len() < length {
            let version = &self.versions[dice.roll(self.versions.len())];
            let end = (found.len() + SECTOR).min(length);
            for at in found.len()..end {
                found.push(version.get(at).copied().unwrap_or(0));
            }
        }
        found
    }
}

#[derive(Debug, Clone)]
enum Naming {
    Link(String, usize),
    /// From which name, to which, and which file: a file system moves files, not names.
    Rename(String, String, usize),
    Unlink(String),
}

impl Naming {
    fn apply(&self, names: &mut BTreeMap<String, usize>) {
        match self {
            Self::Link(name, inode) => drop(names.insert(name.clone(), *inode)),
            Self::Rename(from, to, inode) => {
                names.remove(from);
                names.insert(to.clone(), *inode);
            }
            Self::Unlink(name) => drop(names.remove(name)),
        }
    }
}

#[derive(Debug, Default)]
struct Disk {
    inodes: Vec<Inode>,
    names: BTreeMap<String, usize>,
    flushed: BTreeMap<String, usize>,
    pending: Vec<Naming>,
    calls: usize,
    cut_at: Option<usize>,
}

impl Disk {
    fn call(&mut self) -> io::Result<()> {
        self.calls += 1;
        match self.cut_at {
            Some(cut) if self.calls >= cut => Err(io::Error::other("the power is gone")),
            _ => Ok(()),
        }
    }

    fn rename_all(&mut self, naming: Naming) {
        naming.apply(&mut self.names);
        self.pending.push(naming);
    }

    /// The folder as it is found when the power is back.
    fn after_the_cut(&self, dice: &mut Dice) -> Self {
        let mut names = self.flushed.clone();
        for naming in &self.pending {
            if dice.roll(2) == 0 {
                naming.apply(&mut names);
            }
        }
        let mut found = Self::default();
        for (name, inode) in names {
            let content = self.inodes[inode].survivor(dice);
            found.names.insert(name, found.inodes.len());
            found.inodes.push(Inode {
                versions: vec![content],
            });
        }
        found.flushed.clone_from(&found.names);
        found
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Cuttable(Arc<Mutex<Disk>>);

impl Cuttable {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn after_the_cut(&self, dice: &mut Dice) -> Self {
        Self(Arc::new(Mutex::new(self.disk().after_the_cut(dice))))
    }

    pub(super) fn shared(&self) -> Arc<dyn Folder> {
        Arc::new(self.clone())
    }
}

#[derive(Debug)]
struct Opened {
    disk: Cuttable,
    inode: usize,
    length: usize,
}

const SPARE: &str = "spare";

impl Folder for Cuttable {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut disk = self.disk();
        disk.call()?;
        Ok(disk.names.keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Box<dyn Read + '_>> {
        let mut disk = self.disk();
        disk.call()?;
        let inode = disk.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        let content = disk.inodes[*inode].now().to_vec();
        Ok(Box::new(io::Cursor::new(content)))
    }

    fn provide(&self, _bytes: u64) -> io::Result<()> {
        let mut disk = self.disk();
        disk.call()?;
        if !disk.names.contains_key(SPARE) {
            let inode = disk.inodes.len();
            // Enough for some of the files, not for all.
            let versions = vec![Vec::new(), vec![0; 8 * SECTOR]];
            disk.inodes.push(Inode { versions });
            disk.rename_all(Naming::Link(SPARE.to_owned(), inode));
        }
        Ok(())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn Appended>> {
        let mut disk = self.disk();
        disk.call()?;
        let inode = match disk.names.get(SPARE).copied() {
            Some(spare) => {
                disk.rename_all(Naming::Rename(SPARE.to_owned(), name.to_owned(), spare));
                spare
            }
            None => {
                let inode = disk.inodes.len();
                let versions = vec![Vec::new()];
                disk.inodes.push(Inode { versions });
                disk.rename_all(Naming::Link(name.to_owned(), inode));
                inode
            }
        };
        Ok(Box::new(Opened {
            disk: self.clone(),
            inode,
            length: 0,
        }))
    }

    fn append(&self, name: &str, length: u64, zeros: bool) -> io::Result<Box<dyn Appended>> {
        let inode = {
            let mut disk = self.disk();
            disk.call()?;
            *disk.names.get(name).ok_or(io::ErrorKind::NotFound)?
        };
        let mut opened = Opened {
            disk: self.clone(),
            inode,
            length: usize::try_from(length).unwrap(),
        };
        if !zeros {
            opened.truncate(length)?;
            opened.sync()?;
        }
        Ok(Box::new(opened))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut disk = self.disk();
        disk.call()?;
        let inode = *disk.names.get(from).ok_or(io::ErrorKind::NotFound)?;
        disk.rename_all(Naming::Rename(from.to_owned(), to.to_owned(), inode));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut disk = self.disk();
        disk.call()?;
        disk.rename_all(Naming::Unlink(name.to_owned()));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut disk = self.disk();
        disk.call()?;
        disk.flushed = disk.names.clone();
        disk.pending.clear();
        Ok(())
    }
}

impl Opened {
    /// A change that takes place even if the power goes while it does.
    fn change(&self, change: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        let mut disk = self.disk.disk();
        let gone = disk.calls + 1 > disk.cut_at.unwrap_or(usize::MAX);
        if !gone {
            let inode = &mut disk.inodes[self.inode];
            let mut content = inode.now().to_vec();
            change(&mut content);
            inode.versions.push(content);
        }
        disk.call()
    }
}

impl Appended for Opened {
    fn reserve(&mut self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (from, end) = (self.length, self.length + bytes.len());
        self.change(|content| {
            content.resize(content.len().max(end), 0);
            content[from..end].copy_from_slice(bytes);
        })?;
        self.length = end;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut disk = self.disk.disk();
        disk.call()?;
        let inode = &mut disk.inodes[self.inode];
        inode.versions = vec![inode.now().to_vec()];
        Ok(())
    }

    fn truncate(&mut self, length: u64) -> io::Result<()> {
        self.length = usize::try_from(length).unwrap();
        let length = self.length;
        self.change(|content| content.truncate(length))
    }

    fn touch(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn trim(&mut self) -> io::Result<()> {
        let end = self.length + SECTOR;
        self.change(|content| content.truncate(end))
    }
}

pub(super) type Picture = BTreeMap<String, (u64, Value)>;

pub(super) fn picture(state: &State) -> Picture {
    let (_, objects) = state.all();
    objects
        .into_iter()
        .map(|(key, object)| (key.name.to_string(), (object.revision, object.value())))
        .collect()
}

/// Some writes to a few objects, all of them sensible.
fn some_writes(state: &State, dice: &mut Dice) -> Batch {
    let mut batch = Batch::on(state);
    for _ in 0..=dice.roll(3) {
        let name = format!("o{}", dice.roll(6));
        let key = Key::new("pods", "default", &name);
        let found = state.get(&key).map(|object| object.revision);
        let note = "x".repeat(dice.roll(200));
        let object = json!({ "metadata": { "name": name }, "note": note });
        let change = match found {
            Some(_) if dice.roll(3) == 0 => Change::Delete,
            _ => Change::Put(Draft::new(&object)),
        };
        let expect = found.map_or(Expect::Absent, Expect::Revision);
        // A second write to the same object in one group expects another revision.
        drop(batch.stage(
            state,
            Write {
                key,
                change,
                expect,
                requires: None,
            },
        ));
    }
    batch
}

/// What happened until the power went: the pictures after each group, and how many groups
/// were acknowledged.
struct History {
    pictures: Vec<(u64, Picture)>,
    acknowledged: usize,
}

fn write_until_the_cut(folder: &Cuttable, dice: &mut Dice, groups: usize) -> History {
    let mut history = History {
        pictures: vec![(1, Picture::new())],
        acknowledged: 0,
    };
    let Ok((mut log, mut state)) = Log::open(&folder.shared()) else {
        return history;
    };
    history.pictures[0] = (state.revision(), picture(&state));
    for _ in 0..groups {
        let batch = some_writes(&state, dice);
        if batch.events().is_empty() {
            continue;
        }
        log.keep_spare(state.weight());
        let committed = log.commit(&batch);
        drop(state.apply(&batch));
        history.pictures.push((state.revision(), picture(&state)));
        if committed.is_err() {
            return history;
        }
        history.acknowledged = history.pictures.len() - 1;
        if dice.roll(5) == 0 {
            let (revision, objects) = state.all();
            let Ok(fresh) = write_new(&folder.shared(), revision, &objects) else {
                return history;
            };
            // A group that the new file gets only when it takes over.
            let late = some_writes(&state, dice);
            let mut since = Vec::new();
            if !late.events().is_empty() {
                let committed = log.commit(&late);
                drop(state.apply(&late));
                history.pictures.push((state.revision(), picture(&state)));
                if committed.is_err() {
                    return history;
                }
                history.acknowledged = history.pictures.len() - 1;
                since.push(log.last_group().to_vec());
            }
            let whole = fresh.complete(folder, &since);
            if whole.and_then(|whole| log.replace(whole)).is_err() {
                return history;
            }
        }
    }
    history
}

#[test]
fn no_cut_loses_what_was_acknowledged_or_shows_half_a_write() {
    let rounds = std::env::var("ORLOP_POWER_CUT")
        .ok()
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(5);
    for seed in 1..=rounds {
        let whole = Cuttable::default();
        drop(write_until_the_cut(&whole, &mut Dice(seed), 25));
        let calls = whole.disk().calls;
        for cut in 1..=calls {
            let folder = Cuttable::default();
            folder.disk().cut_at = Some(cut);
            let history = write_until_the_cut(&folder, &mut Dice(seed), 25);
            let mut dice = Dice(seed << 32 | cut as u64);
            for _ in 0..3 {
                let found = folder.after_the_cut(&mut dice);
                // The power goes once more while the files are read, then stays.
                found.disk().cut_at = Some(1 + dice.roll(8));
                let _ = Log::open(&found.shared());
                let found = found.after_the_cut(&mut dice);
                check(&found, &history, (seed, cut));
            }
        }
    }
}

fn check(found: &Cuttable, history: &History, at: (u64, usize)) {
    let (mut log, mut state) = Log::open(&found.shared())
        .unwrap_or_else(|error| panic!("{at:?}: the store doesn't open: {error:?}"));
    let seen = (state.revision(), picture(&state));
    let possible = &history.pictures[history.acknowledged..];
    assert!(
        possible.contains(&seen),
        "{at:?}: found revision {}, acknowledged was {}",
        seen.0,
        possible[0].0
    );
    // And it goes on from there.
    let mut batch = Batch::on(&state);
    let object = json!({ "metadata": { "name": "after" } });
    let write = Write {
        key: Key::new("pods", "default", "after"),
        change: Change::Put(Draft::new(&object)),
        expect: Expect::Absent,
        requires: None,
    };
    batch.stage(&state, write).unwrap();
    log.commit(&batch).unwrap();
    drop(state.apply(&batch));
    drop(log);
    let (_, again) = Log::open(&found.shared()).unwrap();
    assert_eq!(picture(&again), picture(&state));
}

#[test]
fn a_changed_byte_is_found_or_stands_where_nothing_was_acknowledged() {
    let folder = Cuttable::default();
    let history = write_until_the_cut(&folder, &mut Dice(7), 10);
    let (name, inode) = {
        let disk = folder.disk();
        let mut names = disk.names.iter();
        let (name, inode) = names.find(|(name, _)| *name != SPARE).unwrap();
        (name.clone(), *inode)
    };
    let whole = folder.disk().inodes[inode].now().to_vec();
    for at in 0..whole.len() {
        let mut wrong = whole.clone();
        wrong[at] ^= 1;
        folder.disk().inodes[inode].versions = vec![wrong];
        // The last group can't be told from one that a crash cut short.
        if let Ok((_, state)) = Log::open(&folder.shared()) {
            let seen = (state.revision(), picture(&state));
            let before_last = history.pictures.len() - 2;
            assert_eq!(seen, history.pictures[before_last], "byte {at} of {name}");
        }
        folder.disk().inodes[inode].versions = vec![whole.clone()];
    }
}

#[test]
fn a_first_start_that_was_cut_short_is_no_hindrance() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Storage::Disk(folder.path().to_owned());
    for left in [
        "00000000000000000001.log.new",
        "00000000000000000007.log.new",
    ] {
        std::fs::write(folder.path().join(left), "half").unwrap();
    }
    drop(Store::open(&storage).unwrap());
    let left = std::fs::read_dir(folder.path()).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().ends_with(".new")),
        "{left:?}"
    );
}

#[test]
fn a_newer_format_is_refused_and_nothing_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let storage = Storage::Disk(folder.path().to_owned());
    drop(Store::open(&storage).unwrap());
    let name = "00000000000000000001.log";
    let path = folder.path().join(name);
    let mut newer = Vec::new();
    super::frame::write(&mut newer, |buffer| {
        buffer.push(1);
        buffer.extend_from_slice(&9_u32.to_le_bytes());
        buffer.extend_from_slice(b"orlop-store, and more");
    });
    std::fs::write(&path, &newer).unwrap();
    let Err(OpenError::Log { source, .. }) = Store::open(&storage) else {
        panic!("a newer format was opened")
    };
    assert!(source.to_string().contains("has format 9"), "{source}");
    assert_eq!(std::fs::read(&path).unwrap(), newer);
}
