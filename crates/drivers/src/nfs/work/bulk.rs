//! Removing many files by few requests.
//!
//! The kernel's client asks for one file at a time, and a folder's next one when the server has
//! answered. By version 4.1 a request can name dozens of files. So where a tree is large, and a server
//! lets us, we ask it ourselves, on connections of our own.
//!
//! This is for speed alone. It goes into the trash and nowhere else, never from one file system to
//! another, and removes nothing that needs to be thought about: whatever it meets that it does not
//! expect, it leaves, and the tree is removed by the kernel's client as if nobody had tried.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::Pulse;
use crate::nfs::HOUSE;
use crate::nfs::options::Transport;
use crate::nfs::order::Mounting;
use line::{Compound, Line, Op, Status};
use xdr::{Reader, nonsense};

mod line;
mod xdr;

/// How many connections there are at most.
const LINES: u32 = 16;
/// How many files a request names at most, and what else is in it. Not every server that agrees to more
/// than a hundred takes as many.
const FILES: u32 = 64;
const BESIDES: u32 = 2;
/// Bytes of a folder that are asked for at once.
const PIECE: u32 = 128 << 10;
/// As deep as a tree may be.
const DEEPEST: usize = 64;
/// How often a server may say that it needs a moment.
const MOMENTS: usize = 100;
const MOMENT: Duration = Duration::from_millis(100);

/// Attributes, by the protocol's numbers: what it is, its file system, its number there.
const TYPE: u32 = 1 << 1;
const FILE_SYSTEM: u32 = 1 << 8;
const NUMBER: u32 = 1 << 20;
const FOLDER: u32 = 2;

/// What the server calls something.
type Handle = Vec<u8>;

/// Whoever removes.
pub(super) struct Bulk<'a> {
    pulse: &'a Pulse<'a>,
    address: SocketAddr,
    client: u64,
    session: [u8; 16],
    /// Files of a request.
    files: usize,
    /// Connections that nobody uses, and how many more there can be.
    lines: Mutex<(Vec<Line>, std::ops::Range<u32>)>,
    trash: Handle,
    file_system: (u64, u64),
}

/// Something in a folder.
struct Found {
    name: Vec<u8>,
    is_folder: bool,
}

/// The beginning of a folder.
struct Piece {
    found: Vec<Found>,
    whole: bool,
}

/// What a handle stands for.
struct Seen {
    handle: Handle,
    is_folder: bool,
    file_system: (u64, u64),
    number: u64,
}

impl<'a> Bulk<'a> {
    /// Whether shares that are mounted so can be asked by us: only by root's number, and openly.
    pub(super) fn fits(on: &Mounting) -> bool {
        let plain =
            |key: &str, usual: &[&str]| on.plan.value(key).is_none_or(|it| usual.contains(&it));
        matches!(on.plan.version.as_deref(), None | Some("4" | "4.1" | "4.2"))
            && plain("sec", &["sys"])
            && plain("xprtsec", &["none"])
            && on.plan.transport() == Transport::Tcp
    }

    /// Gets to know the server, and finds the trash of a share.
    pub(super) fn open(
        pulse: &'a Pulse<'a>,
        on: &Mounting,
        address: SocketAddr,
    ) -> io::Result<Self> {
        let mut line = Line::open(address)?;
        let client = introduce(&mut line)?;
        let agreed = agree(&mut line, client)?;
        let mut line = line.join(agreed.session, 0, agreed.slots - 1);
        let mut settle = Compound::default();
        settle.op(Op::ReclaimComplete).number(0);
        let mut bulk = Self {
            pulse,
            address,
            client: client.0,
            session: agreed.session,
            files: agreed.files,
            lines: Mutex::new((Vec::new(), 1..agreed.slots)),
            trash: Handle::new(),
            file_system: (0, 0),
        };
        line.ask(&settle)?.ok(Op::ReclaimComplete)?;
        let path = on.export.path();
        let names = path.split('/').filter(|name| !name.is_empty());
        let names: Vec<&[u8]> = names.chain([HOUSE, "trash"]).map(str::as_bytes).collect();
        let trash = see(&mut line, None, &names)??;
        (bulk.trash, bulk.file_system) = (trash.handle, trash.file_system);
        bulk.give_back(line);
        Ok(bulk)
    }

    /// Removes a tree from the trash, whose top has this number.
    pub(super) fn remove(&self, name: &[u8], number: u64) -> io::Result<()> {
        let mut line = self.hire().ok_or(io::ErrorKind::NotConnected)?;
        let seen = see(&mut line, Some(&self.trash), &[name])??;
        if !seen.is_folder || seen.number != number || seen.file_system != self.file_system {
            return Err(nonsense("it is another tree"));
        }
        self.empty(&mut line, &seen.handle, 0)?;
        self.unlink(&mut line, &self.trash, &[name])?;
        self.give_back(line);
        Ok(())
    }

    fn empty(&self, line: &mut Line, folder: &Handle, depth: usize) -> io::Result<()> {
        if depth >= DEEPEST {
            return Err(io::Error::other("the tree is too deep"));
        }
        loop {
            let piece = read(line, folder)?;
            if piece.found.is_empty() && !piece.whole {
                return Err(nonsense("a folder has neither an entry nor an end"));
            }
            let names = |folders: bool| -> Vec<&[u8]> {
                let found = piece.found.iter().filter(|it| it.is_folder == folders);
                found.map(|it| it.name.as_slice()).collect()
            };
            let (files, folders) = (names(false), names(true));
            let some: Vec<&[&[u8]]> = files.chunks(self.files).collect();
            self.share_out(line, &some, &|line, some| self.unlink(line, folder, some))?;
            self.share_out(line, &folders, &|line, name| {
                let seen = match see(line, Some(folder), &[name])? {
                    Ok(seen) => seen,
                    Err(Status::NO_ENTRY) => return Ok(()),
                    Err(status) => return Err(status.into()),
                };
                if !seen.is_folder || seen.file_system != self.file_system {
                    return Err(io::ErrorKind::CrossesDevices.into());
                }
                self.empty(line, &seen.handle, depth + 1)
            })?;
            self.unlink(line, folder, &folders)?;
            if piece.whole {
                return Ok(());
            }
        }
    }

    /// Removes files and empty folders. What is gone already is fine.
    fn unlink(&self, line: &mut Line, folder: &Handle, mut names: &[&[u8]]) -> io::Result<()> {
        let mut moments = 0;
        while !names.is_empty() {
            let some = &names[..names.len().min(self.files)];
            let mut compound = Compound::default();
            compound.op(Op::PutHandle).opaque(folder);
            for name in some {
                compound.op(Op::Remove).opaque(name);
            }
            let mut answer = line.ask(&compound)?;
            answer.ok(Op::PutHandle)?;
            let mut gone = 0;
            for _ in some {
                match answer.outcome(Op::Remove)? {
                    // How the folder changed.
                    Ok(told) => told.skip(4 + 8 + 8)?,
                    Err(Status::NO_ENTRY) => {
                        gone += 1;
                        break;
                    }
                    Err(Status::DELAY) if moments < MOMENTS => {
                        moments += 1;
                        std::thread::sleep(MOMENT);
                        break;
                    }
                    Err(status) => return Err(status.into()),
                }
                gone += 1;
            }
            for _ in 0..gone {
                self.pulse.file();
            }
            names = &names[gone..];
        }
        Ok(())
    }

    /// Works on all of them, with as many connections as there are.
    fn share_out<T: Sync>(
        &self,
        line: &mut Line,
        items: &[T],
        work: &(dyn Fn(&mut Line, &T) -> io::Result<()> + Sync),
    ) -> io::Result<()> {
        let next = AtomicUsize::new(0);
        let some = |line: &mut Line| -> io::Result<()> {
            while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                work(line, item)?;
            }
            Ok(())
        };
        let some = &some;
        std::thread::scope(|scope| {
            let mut helpers = Vec::new();
            while helpers.len() + 1 < items.len()
                && let Some(mut own) = self.hire()
            {
                helpers.push(scope.spawn(move || {
                    some(&mut own)?;
                    self.give_back(own);
                    Ok(())
                }));
            }
            let mut done = some(line);
            for helper in helpers {
                let helped = helper.join();
                done = done.and(helped.unwrap_or_else(|_| Err(io::Error::other("it panicked"))));
            }
            done
        })
    }

    fn hire(&self) -> Option<Line> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.0.pop() {
            return Some(line);
        }
        let slot = lines.1.next()?;
        let line = Line::open(self.address).ok()?;
        Some(line.join(self.session, slot, lines.1.end - 1))
    }

    /// Of one that failed nobody knows what it will hear next: it is not given back.
    fn give_back(&self, line: Line) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.0.push(line);
    }
}

impl Drop for Bulk<'_> {
    /// The server need not wait for us to come back.
    fn drop(&mut self) {
        let Some(mut line) = self.hire() else { return };
        let (mut session, mut client) = (Compound::default(), Compound::default());
        session.op(Op::DestroySession).fixed(&self.session);
        client.op(Op::DestroyClient).long(self.client);
        // The other connections are the session's as well.
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .0
            .clear();
        let _ = line.ask_alone(&session);
        let _ = line.ask_alone(&client);
    }
}

/// Says who we are: a client as no other is. Its number, and that of its first session.
fn introduce(line: &mut Line) -> io::Result<(u64, u32)> {
    let name = uuid::Uuid::new_v4();
    let mut compound = Compound::default();
    compound
        .op(Op::ExchangeId)
        // Which run of ours it is; then who, without wishes, protection or further words.
        .fixed(&name.as_bytes()[..8])
        .opaque(format!("orlop {name}").as_bytes())
        .number(0)
        .number(0)
        .number(0);
    let mut answer = line.ask_alone(&compound)?;
    let told = answer.ok(Op::ExchangeId)?;
    Ok((told.long()?, told.number()?))
}

/// What a server allows.
struct Agreed {
    session: [u8; 16],
    /// Files of a request.
    files: usize,
    /// Requests at a time.
    slots: u32,
}

fn agree(line: &mut Line, (client, sequence): (u64, u32)) -> io::Result<Agreed> {
    let mut compound = Compound::default();
    let said = compound
        .op(Op::CreateSession)
        .long(client)
        .number(sequence)
        .number(0);
    // Room before messages, bytes of a request, of an answer and of one that is kept, requests of a
    // compound, compounds at a time, nothing for other networks: here, and for calls from the server.
    for word in [0, 256 << 10, PIECE * 2, 4096, FILES + BESIDES, LINES, 0] {
        said.number(word);
    }
    for word in [0, 4096, 4096, 0, 2, 1, 0] {
        said.number(word);
    }
    // Such calls would be of this program, and prove nothing.
    said.number(1 << 30).number(1).number(0);
    let mut answer = line.ask_alone(&compound)?;
    let told = answer.ok(Op::CreateSession)?;
    let session = told.array()?;
    // Sequence, wishes, room.
    told.skip(3 * 4)?;
    let (request, reply, _kept) = (told.number()?, told.number()?, told.number()?);
    let (requests, slots) = (told.number()?, told.number()?);
    // No name is longer than 255 bytes.
    let files = requests.min(request / 300).min(reply / 40);
    let files = files.saturating_sub(BESIDES).min(FILES);
    if files == 0 || reply < PIECE + 1024 {
        return Err(io::Error::other("the server takes only small requests"));
    }
    Ok(Agreed {
        session,
        files: usize::try_from(files).map_err(io::Error::other)?,
        slots: slots.clamp(1, LINES),
    })
}

/// Looks at what is reached by these names, from a folder or the server's root.
fn see(
    line: &mut Line,
    from: Option<&Handle>,
    names: &[&[u8]],
) -> io::Result<Result<Seen, Status>> {
    let mut compound = Compound::default();
    let first = match from {
        Some(handle) => {
            compound.op(Op::PutHandle).opaque(handle);
            Op::PutHandle
        }
        None => {
            compound.op(Op::PutRoot);
            Op::PutRoot
        }
    };
    for name in names {
        compound.op(Op::LookUp).opaque(name);
    }
    let wanted = TYPE | FILE_SYSTEM | NUMBER;
    compound.op(Op::GetAttr).number(1).number(wanted);
    compound.op(Op::GetHandle);
    let mut answer = line.ask(&compound)?;
    answer.ok(first)?;
    for _ in names {
        if let Err(status) = answer.outcome(Op::LookUp)? {
            return Ok(Err(status));
        }
    }
    let told = answer.ok(Op::GetAttr)?;
    if attributes(told)? != wanted {
        return Err(nonsense("attributes are missing"));
    }
    told.number()?;
    let is_folder = told.number()? == FOLDER;
    let file_system = (told.long()?, told.long()?);
    let number = told.long()?;
    let handle = answer.ok(Op::GetHandle)?.opaque()?;
    Ok(Ok(Seen {
        handle,
        is_folder,
        file_system,
        number,
    }))
}

/// Which attributes follow; others than those of the first word are not asked for.
fn attributes(told: &mut Reader) -> io::Result<u32> {
    let words = told.number()?;
    let first = if words > 0 { told.number()? } else { 0 };
    for _ in 1..words {
        if told.number()? != 0 {
            return Err(nonsense("attributes that nobody asked for"));
        }
    }
    Ok(first)
}

/// Reads a folder from its beginning.
fn read(line: &mut Line, folder: &Handle) -> io::Result<Piece> {
    let mut compound = Compound::default();
    compound.op(Op::PutHandle).opaque(folder);
    compound
        .op(Op::ReadFolder)
        .long(0)
        .long(0)
        .number(PIECE)
        .number(PIECE)
        .number(1)
        .number(TYPE);
    let mut answer = line.ask(&compound)?;
    answer.ok(Op::PutHandle)?;
    let told = answer.ok(Op::ReadFolder)?;
    // What proves where one goes on.
    told.long()?;
    let mut found = Vec::new();
    while told.flag()? {
        told.long()?;
        let name = told.opaque()?;
        if attributes(told)? != TYPE {
            return Err(nonsense("a name's type is missing"));
        }
        told.number()?;
        let is_folder = told.number()? == FOLDER;
        found.push(Found { name, is_folder });
    }
    let whole = told.flag()?;
    Ok(Piece { found, whole })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nfs::export::Export;
    use crate::nfs::options::MountPlan;

    #[test]
    fn only_what_is_mounted_openly_by_a_late_version_is_asked_by_us() {
        let fits = |options: &str| {
            Bulk::fits(&Mounting {
                export: Export::parse("server", "/share").unwrap(),
                plan: MountPlan::parse([options]).unwrap(),
            })
        };
        for options in ["", "nfsvers=4.1", "vers=4.2,sec=sys", "hard,proto=tcp"] {
            assert!(fits(options), "{options}");
        }
        for options in [
            "vers=3",
            "vers=4.0",
            "sec=krb5p",
            "xprtsec=mtls",
            "proto=rdma",
        ] {
            assert!(!fits(options), "{options}");
        }
    }
}
