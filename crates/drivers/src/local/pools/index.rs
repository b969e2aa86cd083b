//! What is known of all volumes, without a look at the disk.
//!
//! Pure: a mirror of the records, and the sums that follow from them.

use std::collections::{BTreeMap, BTreeSet};

use super::Volume;
use crate::local::home::Home;
use crate::local::ids::PoolTag;
use crate::local::pool::Found;
use crate::local::room::{Allocation, Promised};
use crate::local::volume::VolumeId;

/// All volumes of all pools.
#[derive(Debug, Default)]
pub(super) struct Index {
    volumes: BTreeMap<Key, Entry>,
    order: BTreeMap<u64, Key>,
    last_serial: u64,
    /// The pools whose volumes were read, whether or not they are here now.
    read: BTreeSet<Home>,
    promised: BTreeMap<Home, Promised>,
}

/// The id that a volume has in any pool, so that a name finds it, and the pool that it is in: a disk
/// that comes back may hold a volume of a name that was made elsewhere meanwhile.
type Key = (VolumeId, Option<PoolTag>);

fn key(id: &VolumeId) -> Key {
    (id.anywhere(), id.pool())
}

/// A volume, as far as it can be read.
#[derive(Debug)]
pub(super) enum Entry {
    /// All of it.
    Sound(Volume),
    /// Only that it is there, and how much its image may take.
    Broken {
        id: VolumeId,
        home: Home,
        image_bytes: u64,
    },
}

impl Entry {
    fn home(&self) -> &Home {
        match self {
            Self::Sound(volume) => &volume.home,
            Self::Broken { home, .. } => home,
        }
    }
}

impl Index {
    pub(super) fn get(&self, id: &VolumeId) -> Option<&Entry> {
        let (name, pool) = key(id);
        if pool.is_some() {
            return self.volumes.get(&(name, pool));
        }
        let (found, entry) = self.volumes.range((name, None)..).next()?;
        (found.0 == *id).then_some(entry)
    }

    pub(super) fn learn_all(&mut self, home: &Home, found: Vec<Found>) {
        self.read.insert(home.clone());
        for found in found {
            match found {
                Found::Sound(record) => self.learn(Volume {
                    home: home.clone(),
                    record,
                }),
                Found::Broken { id, image_bytes } => {
                    self.promise(home, Allocation::Thin, image_bytes);
                    let home = home.clone();
                    let entry = Entry::Broken {
                        id: id.clone(),
                        home,
                        image_bytes,
                    };
                    self.volumes.insert(key(&id), entry);
                }
            }
        }
    }

    pub(super) fn learn(&mut self, mut volume: Volume) {
        // A pool that was not here when the place was given away may have it, too.
        let taken = self.order.get(&volume.record.serial);
        if taken.is_some_and(|other| *other != key(&volume.record.id)) {
            volume.record.serial = self.next_serial();
        }
        let record = &volume.record;
        self.promise(&volume.home, record.allocation, record.capacity_bytes);
        self.last_serial = self.last_serial.max(record.serial);
        let key = key(&record.id);
        self.order.insert(record.serial, key.clone());
        self.volumes.insert(key, Entry::Sound(volume));
    }

    pub(super) fn forget(&mut self, id: &VolumeId) {
        self.forget_key(&key(id));
    }

    fn forget_key(&mut self, key: &Key) {
        match self.volumes.remove(key) {
            Some(Entry::Sound(Volume { home, record })) => {
                self.order.remove(&record.serial);
                self.unpromise(&home, record.allocation, record.capacity_bytes);
            }
            Some(Entry::Broken {
                home, image_bytes, ..
            }) => {
                self.unpromise(&home, Allocation::Thin, image_bytes);
            }
            None => {}
        }
    }

    pub(super) fn forget_home(&mut self, home: &Home) {
        let there: Vec<_> = self
            .volumes
            .iter()
            .filter(|(_, entry)| entry.home() == home)
            .map(|(key, _)| key.clone())
            .collect();
        for key in there {
            self.forget_key(&key);
        }
    }

    /// Whether a pool's volumes were read.
    pub(super) fn is_read(&self, home: &Home) -> bool {
        self.read.contains(home)
    }

    /// Whether no volume is known in a pool.
    pub(super) fn is_vacant(&self, home: &Home) -> bool {
        !self.volumes.values().any(|entry| entry.home() == home)
    }

    pub(super) fn promise(&mut self, home: &Home, allocation: Allocation, bytes: u64) {
        let promised = self.promised.entry(home.clone()).or_default();
        promised.add(allocation, bytes);
    }

    pub(super) fn unpromise(&mut self, home: &Home, allocation: Allocation, bytes: u64) {
        if let Some(promised) = self.promised.get_mut(home) {
            promised.take(allocation, bytes);
        }
    }

    pub(super) fn promised(&self, home: &Home) -> Promised {
        self.promised.get(home).copied().unwrap_or_default()
    }

    pub(super) fn next_serial(&mut self) -> u64 {
        self.last_serial += 1;
        self.last_serial
    }

    /// The volumes whose records can be read.
    pub(super) fn sound(&self) -> impl Iterator<Item = &Volume> {
        self.volumes.values().filter_map(|entry| match entry {
            Entry::Sound(volume) => Some(volume),
            Entry::Broken { .. } => None,
        })
    }

    /// Those in one pool.
    pub(super) fn sound_at<'a>(&'a self, home: &'a Home) -> impl Iterator<Item = &'a Volume> {
        self.sound().filter(move |volume| volume.home == *home)
    }

    /// Those after a place in the order of creation, in that order.
    pub(super) fn after(&self, serial: u64) -> impl Iterator<Item = &Volume> {
        self.order
            .range(serial.saturating_add(1)..)
            .filter_map(|(_, key)| match self.volumes.get(key) {
                Some(Entry::Sound(volume)) => Some(volume),
                Some(Entry::Broken { .. }) | None => None,
            })
    }
}
