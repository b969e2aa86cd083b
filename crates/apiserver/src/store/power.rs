//! The store's files on a folder that loses power at every call in turn.
//!
//! The folder keeps what was flushed. Of what wasn't, each sector and each length may be of
//! any moment since, and each new name may be there or not: worse than any real disk. Everything
//! above the few calls that the kernel is asked for is what runs in earnest.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use super::appended::{Reach, SPARE};
use super::batch::{Batch, Change, Expect, Write};
use super::direct::BLOCK;
use super::fresh::write_new;
use super::log::Log;
use super::medium::{Folder, Medium};
use super::object::Draft;
use super::state::{Event, State};
use super::{Key, OpenError, Storage, Store};

const SECTOR: usize = 64;

/// A small source of numbers, the same for the same seed.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn roll(&mut self, sides: usize) -> usize {
        // Xorshift, since all that matters is that it is spread and repeats.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap_or(0) % sides.max(1)
    }
}

/// A change to a file that wasn't flushed.
#[derive(Debug, Clone)]
enum Op {
    Write(usize, Vec<u8>),
    Length(usize),
}

impl Op {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write(at, bytes) => {
                let end = at + bytes.len();
                content.resize(content.len().max(end), 0);
                content[*at..end].copy_from_slice(bytes);
            }
            Self::Length(length) => content.resize(*length, 0),
        }
    }

    /// What it does to one sector.
    fn apply_to_sector(&self, number: usize, sector: &mut [u8; SECTOR]) {
        let begin = number * SECTOR;
        for (inside, byte) in sector.iter_mut().enumerate() {
            let place = begin + inside;
            match self {
                Self::Write(at, bytes) if (*at..at + bytes.len()).contains(&place) => {
                    *byte = bytes[place - at];
                }
                Self::Length(length) if place >= *length => *byte = 0,
                Self::Write(..) | Self::Length(_) => {}
            }
        }
    }
}

/// How many bytes there are up to the last that isn't zero. Most of a spare file are, so they are
/// compared by the block.
fn used(bytes: &[u8]) -> usize {
    let mut end = bytes.len();
    while end > 0 {
        let begin = end.saturating_sub(BLOCK);
        if bytes[begin..end] != [0; BLOCK][..end - begin] {
            let last = bytes[begin..end].iter().rposition(|byte| *byte != 0);
            return last.map_or(0, |last| begin + last + 1);
        }
        end = begin;
    }
    0
}

#[derive(Debug, Clone, Default)]
struct Inode {
    /// What is on the medium for sure.
    flushed: Vec<u8>,
    /// What is seen.
    now: Vec<u8>,
    pending: Vec<Op>,
}

impl Inode {
    fn of(content: Vec<u8>) -> Self {
        Self {
            flushed: content.clone(),
            now: content,
            pending: Vec::new(),
        }
    }

    fn change(&mut self, op: Op) {
        op.apply(&mut self.now);
        self.pending.push(op);
    }

    fn flush(&mut self) {
        for op in self.pending.drain(..) {
            op.apply(&mut self.flushed);
        }
    }

    /// What is found after a cut: the length of any moment since the last flush, and each sector
    /// of any.
    fn survivor(&self, dice: &mut Dice) -> Vec<u8> {
        let mut lengths = vec![self.flushed.len()];
        let mut touched = BTreeSet::new();
        let mut last = used(&self.flushed);
        for op in &self.pending {
            let length = lengths[lengths.len() - 1];
            let (from, end, length) = match op {
                Op::Write(at, bytes) => {
                    last = last.max(at + used(bytes));
                    (*at, at + bytes.len(), length.max(at + bytes.len()))
                }
                Op::Length(length) => (*length, last, *length),
            };
            touched.extend(from / SECTOR..end.max(from).div_ceil(SECTOR));
            lengths.push(length);
        }
        let mut found = self.flushed.clone();
        found.resize(self.now.len().max(*lengths.iter().max().unwrap_or(&0)), 0);
        for number in touched {
            let begin = number * SECTOR;
            let mut sector = [0; SECTOR];
            let flushed = self.flushed.get(begin..).unwrap_or(&[]);
            let flushed = &flushed[..flushed.len().min(SECTOR)];
            sector[..flushed.len()].copy_from_slice(flushed);
            let moment = dice.roll(self.pending.len() + 1);
            for op in &self.pending[..moment] {
                op.apply_to_sector(number, &mut sector);
            }
            let room = found.len().saturating_sub(begin).min(SECTOR);
            found[begin..begin + room].copy_from_slice(&sector[..room]);
        }
        found.resize(lengths[dice.roll(lengths.len())], 0);
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
    past_cache: PastCache,
}

/// Whether this disk can be written past the cache.
#[derive(Debug, Clone, Copy, Default)]
enum PastCache {
    #[default]
    Always,
    Sometimes,
    Never,
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
            found.inodes.push(Inode::of(content));
        }
        found.flushed.clone_from(&found.names);
        found.past_cache = self.past_cache;
        found
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Cuttable(Arc<Mutex<Disk>>);

impl Cuttable {
    /// One of the kinds that there are.
    pub(super) fn of(seed: u64) -> Self {
        let disk = Self::default();
        disk.disk().past_cache = match seed % 3 {
            0 => PastCache::Never,
            1 => PastCache::Always,
            _ => PastCache::Sometimes,
        };
        disk
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn after_the_cut(&self, dice: &mut Dice) -> Self {
        Self(Arc::new(Mutex::new(self.disk().after_the_cut(dice))))
    }

    /// How often it was asked for anything.
    pub(super) fn calls(&self) -> usize {
        self.disk().calls
    }

    /// The power goes at this call.
    pub(super) fn cut_at(&self, call: usize) {
        self.disk().cut_at = Some(call);
    }

    pub(super) fn shared(&self) -> Arc<dyn Folder> {
        Arc::new(self.clone())
    }
}

#[derive(Debug)]
struct Opened {
    disk: Cuttable,
    inode: usize,
}

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
        let content = disk.inodes[*inode].now.clone();
        Ok(Box::new(io::Cursor::new(content)))
    }

    fn open(&self, name: &str, new: bool) -> io::Result<Box<dyn Medium>> {
        let mut disk = self.disk();
        disk.call()?;
        let inode = match (disk.names.get(name), new) {
            (Some(_), true) => return Err(io::ErrorKind::AlreadyExists.into()),
            (None, false) => return Err(io::ErrorKind::NotFound.into()),
            (Some(inode), false) => *inode,
            (None, true) => {
                let inode = disk.inodes.len();
                disk.inodes.push(Inode::default());
                disk.rename_all(Naming::Link(name.to_owned(), inode));
                inode
            }
        };
        let disk = self.clone();
        Ok(Box::new(Opened { disk, inode }))
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
        if !disk.names.contains_key(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
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

    fn reach(&self) -> Reach {
        // Little, so that files reach their end often and are read again quickly.
        Reach {
            ahead: 5000,
            kept: 1500,
        }
    }
}

impl Opened {
    /// A change that takes place even if the power goes while it does.
    fn change(&self, op: Op) -> io::Result<()> {
        let mut disk = self.disk.disk();
        let gone = disk.calls + 1 > disk.cut_at.unwrap_or(usize::MAX);
        if !gone {
            disk.inodes[self.inode].change(op);
        }
        disk.call()
    }
}

impl Medium for Opened {
    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.disk().inodes[self.inode].now.len() as u64)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.change(Op::Length(usize::try_from(length).unwrap()))
    }

    fn allocate(&self, _from: u64, end: u64) -> io::Result<()> {
        let end = usize::try_from(end).unwrap();
        let length = self.disk.disk().inodes[self.inode].now.len();
        self.change(Op::Length(length.max(end)))
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        let at = usize::try_from(at).unwrap();
        let disk = self.disk.disk();
        let found = disk.inodes[self.inode].now.get(at..at + bytes.len());
        bytes.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.change(Op::Write(usize::try_from(at).unwrap(), bytes.to_vec()))
    }

    fn write_past_cache(&self, blocks: &[u8], at: u64) -> io::Result<()> {
        let at = usize::try_from(at).unwrap();
        for place in [at, blocks.len(), blocks.as_ptr().addr()] {
            assert_eq!(place % BLOCK, 0, "the kernel would refuse it");
        }
        let disk = self.disk.disk();
        let refused = match disk.past_cache {
            PastCache::Always => false,
            PastCache::Sometimes => disk.calls.is_multiple_of(3),
            PastCache::Never => true,
        };
        drop(disk);
        if refused {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.change(Op::Write(at, blocks.to_vec()))
    }

    fn sync(&self) -> io::Result<()> {
        let mut disk = self.disk.disk();
        disk.call()?;
        disk.inodes[self.inode].flush();
        Ok(())
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

/// About how long a group is in the file.
fn batch_length(batch: &Batch) -> u64 {
    let length = |event: &Arc<Event>| event.object.json().len() as u64 + 64;
    batch.events().iter().map(length).sum()
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
        // What can't be reserved can't be written either.
        drop(log.reserve(batch_length(&batch)));
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
        .unwrap_or(3);
    for seed in 1..=rounds {
        let whole = Cuttable::of(seed);
        drop(write_until_the_cut(&whole, &mut Dice(seed), 18));
        let calls = whole.disk().calls;
        for cut in 1..=calls {
            let folder = Cuttable::of(seed);
            folder.disk().cut_at = Some(cut);
            let history = write_until_the_cut(&folder, &mut Dice(seed), 18);
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
    let whole = folder.disk().inodes[inode].now.clone();
    for at in 0..used(&whole) {
        let mut wrong = whole.clone();
        wrong[at] ^= 1;
        folder.disk().inodes[inode] = Inode::of(wrong);
        // The last group can't be told from one that a crash cut short.
        if let Ok((_, state)) = Log::open(&folder.shared()) {
            let seen = (state.revision(), picture(&state));
            let before_last = history.pictures.len() - 2;
            assert_eq!(seen, history.pictures[before_last], "byte {at} of {name}");
        }
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
