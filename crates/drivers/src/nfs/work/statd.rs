//! Whether locks by version 3 can be had on this node.
//!
//! The kernel asks rpc.statd before it asks a server for a lock, and finds it by the node's rpcbind. A
//! mount succeeds without either, and the first program that locks a file hangs.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use orlop_host::Mount;
use tonic::Code;

use crate::nfs::export::Export;
use crate::nfs::failure::Failure;

/// Where the kernel looks for it.
pub(super) const RPCBIND: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 111);

/// A neighbour answers at once, if at all.
const PATIENCE: Duration = Duration::from_secs(2);

const STATD: u32 = 100_024;
const UDP: u32 = 17;

/// Refuses a mount whose locks would hang. Only where that is sure: who cannot tell mounts.
pub(super) fn refuse_without(
    mount: &Mount,
    export: &Export,
    rpcbind: SocketAddr,
) -> Result<(), Failure> {
    if !locks_on_the_server(mount) || !is_missing(rpcbind) {
        return Ok(());
    }
    let told = format!(
        "share {export} is mounted by version 3 with locks, and rpc.statd does not run on this node, so \
         programs that lock files would hang: start it there, or add nolock to mountOptions, which \
         keeps locks on the node"
    );
    Err(Failure::new(Code::FailedPrecondition, told))
}

fn locks_on_the_server(mount: &Mount) -> bool {
    let has = |word: &str| mount.super_options.iter().any(|option| option == word);
    has("vers=3") && !has("nolock") && !has("local_lock=all")
}

/// Whether it is sure that nobody takes the kernel's questions.
fn is_missing(rpcbind: SocketAddr) -> bool {
    match port(rpcbind) {
        Ok(port) => port == 0,
        Err(error) => is_refusal(&error) && is_deaf(rpcbind),
    }
}

fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

/// Whether nobody is there by the kernel's own way to ask, either.
fn is_deaf(rpcbind: SocketAddr) -> bool {
    let asked = || -> io::Result<usize> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(rpcbind)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.send(&[0])?;
        socket.recv(&mut [0; 32])
    };
    asked().is_err_and(|error| is_refusal(&error))
}

/// Where rpcbind says that it is; 0 if nobody has told it.
fn port(rpcbind: SocketAddr) -> io::Result<u32> {
    const MARK: u32 = 0x6f72_6c6f;
    let mut stream = TcpStream::connect_timeout(&rpcbind, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    // A call of version 2 of portmap's third procedure, by nobody, about version 1 of rpc.statd.
    let call = [MARK, 0, 2, 100_000, 2, 3, 0, 0, 0, 0, STATD, 1, UDP, 0];
    let last = 0x8000_0000 | (call.len() as u32 * 4);
    let words = std::iter::once(last).chain(call);
    let bytes: Vec<u8> = words.flat_map(u32::to_be_bytes).collect();
    stream.write_all(&bytes)?;
    // Its length, then our mark, an answer, accepted, by nobody, with success, and the port.
    let mut answer = [0; 32];
    stream.read_exact(&mut answer)?;
    let word = |at: usize| {
        let bytes = answer[at * 4..].first_chunk();
        bytes.map_or(u32::MAX, |bytes| u32::from_be_bytes(*bytes))
    };
    let fits = [word(0), word(1), word(2), word(3), word(5), word(6)];
    match fits == [0x8000_001c, MARK, 1, 0, 0, 0] {
        true => Ok(word(7)),
        false => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use orlop_host::MountTable;

    use super::*;

    /// A rpcbind that answers so to one question, if at all.
    fn rpcbind(answer: Option<[u32; 8]>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut question = [0; 60];
            stream.read_exact(&mut question).unwrap();
            let Some(mut answer) = answer else { return };
            answer[1] = u32::from_be_bytes(*question[4..].first_chunk().unwrap());
            let bytes: Vec<u8> = answer.into_iter().flat_map(u32::to_be_bytes).collect();
            stream.write_all(&bytes).unwrap();
        });
        address
    }

    fn refused(options: &str, rpcbind: SocketAddr) -> bool {
        let line = format!("40 22 0:41 / /p rw - nfs s:/data {options}\n");
        let table = MountTable::parse(line.as_bytes()).unwrap();
        let export = Export::parse("s", "/data").unwrap();
        let outcome = refuse_without(table.iter().next().unwrap(), &export, rpcbind);
        let told = outcome.as_ref().err().map(ToString::to_string);
        assert!(told.is_none_or(|told| told.contains("rpc.statd")));
        outcome.is_err()
    }

    #[test]
    fn locks_that_would_hang_are_refused_and_only_if_that_is_sure() {
        const LOCKS: &str = "rw,vers=3,proto=tcp,local_lock=none,addr=10.0.0.1";
        let success = |port| Some([0x8000_001c, 0, 1, 0, 0, 0, 0, port]);
        let nobody = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        assert!(refused(LOCKS, nobody));
        assert!(refused(LOCKS, rpcbind(success(0))));
        assert!(!refused(LOCKS, rpcbind(success(662))));
        let by_udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        assert!(!refused(LOCKS, by_udp.local_addr().unwrap()));
        // One that doesn't know the procedure, and one that hangs up.
        assert!(!refused(
            LOCKS,
            rpcbind(Some([0x8000_001c, 0, 1, 0, 0, 0, 3, 0]))
        ));
        assert!(!refused(LOCKS, rpcbind(None)));
        for options in [
            "rw,vers=4.2,local_lock=none",
            "rw,vers=3,nolock,local_lock=all",
            "rw,vers=3,local_lock=all",
        ] {
            assert!(!refused(options, nobody), "{options}");
        }
    }
}
