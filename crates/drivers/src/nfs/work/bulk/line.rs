//! A connection to a server, and what is said on it: compounds of version 4.1, as RFC 8881 has them.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::xdr::{Reader, Writer, nonsense};

/// How long a server may take for an answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// No answer is longer: what was asked for is not.
const LONGEST: u32 = 2 << 20;

/// What can be asked for, by the protocol's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Op {
    GetAttr = 9,
    GetHandle = 10,
    LookUp = 15,
    PutHandle = 22,
    PutRoot = 24,
    ReadFolder = 26,
    Remove = 28,
    ExchangeId = 42,
    CreateSession = 43,
    DestroySession = 44,
    Sequence = 53,
    DestroyClient = 57,
    ReclaimComplete = 58,
}

/// Several requests that are sent as one.
#[derive(Debug, Default)]
pub(super) struct Compound {
    count: u32,
    said: Writer,
}

impl Compound {
    /// One more; what it is about follows.
    pub(super) fn op(&mut self, op: Op) -> &mut Writer {
        self.count += 1;
        self.said.number(op as u32)
    }
}

/// The answer to a compound.
pub(super) struct Answer(Reader);

/// Why the server did not do something, by the protocol's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Status(pub(super) u32);

impl Status {
    pub(super) const NO_ENTRY: Self = Self(2);
    /// It will, but not yet.
    pub(super) const DELAY: Self = Self(10008);
}

impl From<Status> for io::Error {
    fn from(status: Status) -> Self {
        match status.0 {
            // They have the numbers of Unix.
            number @ 1..=70 => Self::from_raw_os_error(i32::try_from(number).unwrap_or_default()),
            number => Self::other(format!("the server says {number}")),
        }
    }
}

impl Answer {
    /// How the next request went; what it answers follows, if it went well.
    pub(super) fn outcome(&mut self, op: Op) -> io::Result<Result<&mut Reader, Status>> {
        if self.0.number()? != op as u32 {
            return Err(nonsense("it answers something else"));
        }
        match self.0.number()? {
            0 => Ok(Ok(&mut self.0)),
            status => Ok(Err(Status(status))),
        }
    }

    /// The same, where anything but success is an error.
    pub(super) fn ok(&mut self, op: Op) -> io::Result<&mut Reader> {
        Ok(self.outcome(op)??)
    }
}

/// Where requests of one session are sent, one after the other.
#[derive(Debug)]
pub(super) struct Line {
    stream: TcpStream,
    exchange: u32,
    session: [u8; 16],
    slot: u32,
    /// The last slot that the session has.
    last: u32,
    sequence: u32,
}

impl Line {
    pub(super) fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = orlop_host::reserved_port::connect(address, PATIENCE)?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            exchange: 0,
            session: [0; 16],
            slot: 0,
            last: 0,
            sequence: 0,
        })
    }

    /// Takes one of a session's slots, in which there was no request yet.
    pub(super) fn join(mut self, session: [u8; 16], slot: u32, last: u32) -> Self {
        (self.session, self.slot, self.last) = (session, slot, last);
        self
    }

    /// Asks within the session.
    pub(super) fn ask(&mut self, compound: &Compound) -> io::Result<Answer> {
        self.sequence += 1;
        let mut whole = Compound::default();
        whole
            .op(Op::Sequence)
            .fixed(&self.session)
            .number(self.sequence)
            .number(self.slot)
            .number(self.last)
            .number(0);
        whole.count += compound.count;
        whole.said.0.extend(&compound.said.0);
        let mut answer = self.ask_alone(&whole)?;
        answer.ok(Op::Sequence)?.skip(16 + 5 * 4)?;
        Ok(answer)
    }

    /// Asks outside of any session.
    pub(super) fn ask_alone(&mut self, compound: &Compound) -> io::Result<Answer> {
        self.exchange += 1;
        let mut call = Writer::default();
        // A call of program 100003, version 4, procedure 1.
        for word in [self.exchange, 0, 2, 100_003, 4, 1] {
            call.number(word);
        }
        // Root, by its number: time stamp, name, user, group, no other groups.
        let mut who = Writer::default();
        who.number(0).opaque(b"orlop").number(0).number(0).number(0);
        call.number(1).opaque(&who.0).number(0).number(0);
        // No tag, the minor version, and the requests.
        call.number(0).number(1).number(compound.count);
        call.0.extend(&compound.said.0);
        let length = u32::try_from(call.0.len()).map_err(io::Error::other)?;
        let mut message = (length | 1 << 31).to_be_bytes().to_vec();
        message.extend(call.0);
        self.stream.write_all(&message)?;
        self.hear()
    }

    fn hear(&mut self) -> io::Result<Answer> {
        let mut whole = Vec::new();
        loop {
            let mut head = [0; 4];
            self.stream.read_exact(&mut head)?;
            let head = u32::from_be_bytes(head);
            let length = head & !(1 << 31);
            if length > LONGEST || whole.len() > LONGEST as usize {
                return Err(nonsense("it is too long"));
            }
            let from = whole.len();
            whole.resize(from + length as usize, 0);
            self.stream.read_exact(&mut whole[from..])?;
            if head != length {
                break;
            }
        }
        let mut answer = Reader::new(whole);
        let answers = [answer.number()?, answer.number()?, answer.number()?];
        if answers != [self.exchange, 1, 0] {
            return Err(nonsense("it is no answer, or denies who asks"));
        }
        // Nothing is proved by it.
        answer.number()?;
        answer.opaque()?;
        if answer.number()? != 0 {
            return Err(nonsense("it does not know what it was asked for"));
        }
        // How the last request went, which is told with that, too; the tag; how many there are.
        let status = answer.number()?;
        answer.opaque()?;
        if answer.number()? == 0 {
            return Err(Status(status).into());
        }
        Ok(Answer(answer))
    }
}
