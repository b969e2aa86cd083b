//! What is being made, beside its place, until it is whole.
//!
//! ```text
//! .orlop-csi/making/<kind>-<digest>-<unique>         the folder
//!                   <kind>-<digest>-<unique>.alive   touched while somebody works on it
//! ```
//!
//! Several controllers may make the same thing at once, none of which can tell how the others are. So
//! each has a name of its own for it, and only what has not been touched for long is taken from
//! whoever made it: out of its name first, so that nobody can put it in its place any more.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use orlop_host::{Folder, folder};
use uuid::Uuid;

use super::Pulse;
use super::house::House;
use super::remove::Removal;
use crate::nfs::record::digest;

/// How often somebody shows that he is still at work.
const BEAT: Duration = Duration::from_secs(15);

/// Seconds without a beat after which nobody is: many beats, and longer than a client believes in what it
/// heard about a file before.
const ABANDONED: i64 = 300;

/// The same for what has no such sign, because an older driver made it.
const FORGOTTEN: i64 = 24 * 60 * 60;

/// Permissions before the umask, as the original makes folders. Nobody else reaches them here.
const MODE: u32 = 0o777;

const ALIVE: &[u8] = b".alive";

/// What is made.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Volume,
    Snapshot,
}

/// One attempt to make a folder. What was not put in its place goes with it.
pub(super) struct Attempt<'a> {
    pulse: &'a Pulse<'a>,
    house: &'a House,
    making: Folder,
    name: String,
    folder: Folder,
    /// Whether it is in its place.
    settled: bool,
    /// Whether others may put it there.
    exposed: bool,
    /// Who shows that it is worked on, until it is told to end.
    beating: Option<(mpsc::Sender<()>, JoinHandle<()>)>,
}

impl<'a> Attempt<'a> {
    /// Begins one, when what nobody works on any more is out of the way.
    pub(super) fn begin(
        house: &'a House,
        pulse: &'a Pulse<'a>,
        kind: Kind,
        id: &str,
    ) -> io::Result<Self> {
        let making = house.making()?;
        // It takes room that may be missed, and is in nobody's way otherwise.
        let abandoned = throw_away_abandoned(house)
            .and_then(|names| remove(house, pulse, &house.trash()?, names));
        if let Err(error) = abandoned {
            eprintln!("what others left half made stays: {error}");
        }
        let name = format!("{}{}", prefix(kind, id), Uuid::new_v4().simple());
        let sign = making.create(alive(name.as_ref()), 0o600)?;
        let made = folder::touch(&sign).and_then(|_| making.make(&name, MODE));
        let folder = made.inspect_err(|_| {
            let _ = making.remove_file(alive(name.as_ref()));
        })?;
        let (working, over) = mpsc::channel();
        let beating = std::thread::spawn(move || beat(&sign, &over));
        Ok(Self {
            pulse,
            house,
            making,
            name,
            folder,
            settled: false,
            exposed: false,
            beating: Some((working, beating)),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Puts it in its place, which is free or an empty folder.
    pub(super) fn put(&mut self, parent: &Folder, name: &str) -> io::Result<()> {
        self.making.rename(&self.name, parent, name)?;
        self.settle();
        Ok(())
    }

    /// It is in its place.
    pub(super) fn settle(&mut self) {
        self.settled = true;
    }

    /// Others may put it in its place from here on, so that it leaves its name as a whole or stays.
    pub(super) fn expose(&mut self) {
        self.exposed = true;
    }

    fn remove(&self) -> io::Result<()> {
        let name = OsString::from(&self.name);
        let (parent, name) = match self.house.throw_away(&self.making, &name) {
            Ok(Some(name)) => (self.house.trash()?, name),
            // Somebody has taken it away.
            Ok(None) => return Ok(()),
            // A full share may have no room for a name.
            Err(_) if !self.exposed => (self.making.again()?, name),
            Err(error) => return Err(error),
        };
        remove(self.house, self.pulse, &parent, vec![name])
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.settled {
            self.pulse.doing("remove what could not be finished");
            if let Err(error) = self.remove() {
                // Its sign stays as well, and gets old: the next who looks takes both.
                eprintln!("{} stays half made: {error}", self.name);
                return;
            }
        }
        // A client keeps what is removed while it is open, under a name of its own.
        if let Some((working, beating)) = self.beating.take() {
            drop(working);
            let _ = beating.join();
        }
        if let Err(error) = self.making.remove_file(alive(self.name.as_ref())) {
            eprintln!("the sign of {} stays: {error}", self.name);
        }
    }
}

fn beat(sign: &File, over: &mpsc::Receiver<()>) {
    while over.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
        if let Err(error) = folder::touch(sign) {
            eprintln!("could not show that the work goes on: {error}");
        }
    }
}

/// Moves what was to become of an id to the trash, whoever works on it; the names there.
pub(super) fn throw_away(house: &House, kind: Kind, id: &str) -> io::Result<Vec<OsString>> {
    let making = house.making()?;
    let prefix = prefix(kind, id);
    let mut names = making.names()?;
    names.retain(|name| name.as_bytes().starts_with(prefix.as_bytes()));
    move_away(house, &making, names)
}

/// Moves what nobody works on any more to the trash; the names there.
pub(super) fn throw_away_abandoned(house: &House) -> io::Result<Vec<OsString>> {
    let making = house.making()?;
    let mut names = making.names()?;
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let now = now(&making)?;
    let age = |name: &OsStr| -> io::Result<Option<i64>> {
        let found = making.look(name)?;
        Ok(found.map(|entry| now.saturating_sub(entry.modified.0)))
    };
    let mut old = Vec::new();
    for name in names.drain(..) {
        let abandoned = match (name.as_bytes().ends_with(ALIVE), age(&alive(&name))?) {
            (false, Some(age)) => age > ABANDONED,
            // The sign itself goes with what it is the sign of, or alone if that is not there.
            (true, _) => age(&name)?.is_some_and(|age| age > ABANDONED),
            (false, None) => age(&name)?.is_some_and(|age| age > FORGOTTEN),
        };
        if abandoned {
            old.push(name);
        }
    }
    move_away(house, &making, old)
}

fn move_away(house: &House, making: &Folder, names: Vec<OsString>) -> io::Result<Vec<OsString>> {
    // In their order: a sign goes after what it is the sign of, in case that this ends in between.
    let mut thrown = Vec::new();
    for name in names {
        thrown.extend(house.throw_away(making, &name)?);
    }
    Ok(thrown)
}

/// Removes trees, however deep.
fn remove(
    house: &House,
    pulse: &Pulse<'_>,
    parent: &Folder,
    names: Vec<OsString>,
) -> io::Result<()> {
    let aside = |parent: &Folder, name: &OsStr| house.throw_away(parent, name);
    let removal = Removal::new(pulse, &aside, None);
    for name in names {
        removal.remove(parent, &name)?;
    }
    let mut deeper = removal.moved();
    while !deeper.is_empty() {
        let trash = house.trash()?;
        for name in deeper {
            removal.remove(&trash, &name)?;
        }
        deeper = removal.moved();
    }
    Ok(())
}

/// What time it is for the server: nodes' clocks may differ.
fn now(making: &Folder) -> io::Result<i64> {
    let name = format!("now-{}", Uuid::new_v4().simple());
    let file = making.create(&name, 0o600)?;
    let now = folder::touch(&file);
    drop(file);
    making.remove_file(&name)?;
    now
}

fn alive(name: &OsStr) -> OsString {
    let mut alive = name.to_owned();
    alive.push(OsStr::from_bytes(ALIVE));
    alive
}

fn prefix(kind: Kind, id: &str) -> String {
    let kind = match kind {
        Kind::Volume => "volume",
        Kind::Snapshot => "snapshot",
    };
    format!("{kind}-{}-", digest(id))
}
