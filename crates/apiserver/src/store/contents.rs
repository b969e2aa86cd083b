//! What a file of the store holds, read up to its last whole group.

use std::collections::BTreeMap;
use std::io;

use super::Key;
use super::frame::{Frames, Next};
use super::log::LogError;
use super::medium::Folder;
use super::object::Stored;
use super::record::{self, FORMAT, Record};
use super::state::State;

const EXTENSION: &str = ".log";

/// What a file held.
pub(super) struct Contents {
    pub(super) revision: u64,
    pub(super) objects: BTreeMap<Key, Vec<u8>>,
    /// How many bytes of it are good, and how many of these are the base.
    pub(super) length: u64,
    pub(super) base: u64,
    /// How many bytes of something else follow.
    pub(super) dropped: u64,
}

/// The newest file of a folder.
pub(super) fn newest(folder: &dyn Folder) -> io::Result<Option<String>> {
    let names = folder.list()?;
    let newest = names.iter().filter_map(|name| revision_of(name)).max();
    Ok(newest.map(name_of))
}

/// Reads a file up to its last whole group.
pub(super) fn read(folder: &dyn Folder, name: &str) -> Result<Contents, LogError> {
    let failed = |source| LogError::File {
        name: name.to_owned(),
        source,
    };
    let reader = folder.read(name).map_err(failed)?;
    read_frames(reader, name)
}

/// Reads what a file holds, from wherever it comes.
pub(super) fn read_frames(reader: impl io::Read, name: &str) -> Result<Contents, LogError> {
    let mut frames = Frames::new(reader);
    let mut contents = Contents {
        revision: 0,
        objects: BTreeMap::new(),
        length: 0,
        base: 0,
        dropped: 0,
    };
    let mut begun = false;
    loop {
        let at = frames.good();
        let damaged = || LogError::Damaged {
            name: name.to_owned(),
            at,
        };
        let next = frames.next().map_err(|source| LogError::File {
            name: name.to_owned(),
            source,
        })?;
        let payload = match next {
            Next::Frame(payload) => payload,
            // A base is whole before its file gets its name.
            Next::End { unfinished } if contents.base > 0 => {
                contents.dropped = unfinished;
                break;
            }
            Next::End { .. } | Next::Damage => return Err(damaged()),
        };
        match (record::read(&payload).ok_or_else(damaged)?, begun) {
            (Record::Begin { format }, false) if format > FORMAT => {
                return Err(LogError::Format {
                    name: name.to_owned(),
                    found: format,
                });
            }
            (Record::Begin { .. }, false) => begun = true,
            (Record::Object { key, object }, true) if contents.base == 0 => {
                contents.objects.insert(key, object.to_vec());
            }
            (Record::Base { revision, objects }, true) if contents.base == 0 => {
                if objects != contents.objects.len() as u64 {
                    return Err(damaged());
                }
                contents.revision = revision;
                contents.base = frames.good();
            }
            (Record::Group { revision, changes }, true) if contents.base > 0 => {
                if revision <= contents.revision {
                    return Err(damaged());
                }
                contents.revision = revision;
                for (key, object) in changes {
                    match object {
                        Some(object) => contents.objects.insert(key, object.to_vec()),
                        None => contents.objects.remove(&key),
                    };
                }
            }
            _ => return Err(damaged()),
        }
        contents.length = frames.good();
    }
    Ok(contents)
}

impl Contents {
    /// The objects, read.
    pub(super) fn parsed(&self, name: &str) -> Result<Vec<(Key, Stored)>, LogError> {
        let parse = |(key, object): (&Key, &Vec<u8>)| match Stored::from_disk(object) {
            Ok(object) => Ok((key.clone(), object)),
            Err(source) => Err(LogError::Object {
                name: name.to_owned(),
                key: key.to_string(),
                source,
            }),
        };
        self.objects.iter().map(parse).collect()
    }

    pub(super) fn state(&self, name: &str) -> Result<State, LogError> {
        let mut state = State::new(self.revision);
        for (key, object) in self.parsed(name)? {
            state.load(&key, object);
        }
        Ok(state)
    }
}

/// What the file with a base of this revision is called.
pub(super) fn name_of(revision: u64) -> String {
    format!("{revision:020}{EXTENSION}")
}

/// The revision of the base of a file, by its name.
pub(super) fn revision_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(EXTENSION)?;
    digits.parse().ok().filter(|_| digits.len() == 20)
}
