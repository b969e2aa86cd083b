//! Connections from a port that only root can have: what NFS servers ask for before they believe who
//! somebody says to be.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// The ports that clients take, as the kernel's own does: below are those of well-known services.
const PORTS: std::ops::Range<u16> = 665..1024;

/// Connects; neither this nor a read or write takes longer than `patience`.
pub fn connect(to: SocketAddr, patience: Duration) -> io::Result<TcpStream> {
    let mut last = Errno::ADDRINUSE;
    for port in PORTS.rev() {
        match connect_from(port, to, patience) {
            Err(error @ (Errno::ADDRINUSE | Errno::ADDRNOTAVAIL)) => last = error,
            other => return Ok(other?),
        }
    }
    Err(last.into())
}

fn connect_from(port: u16, to: SocketAddr, patience: Duration) -> Result<TcpStream, Errno> {
    let (family, from) = match to {
        SocketAddr::V4(_) => (AddressFamily::INET, (Ipv4Addr::UNSPECIFIED, port).into()),
        SocketAddr::V6(_) => (AddressFamily::INET6, (Ipv6Addr::UNSPECIFIED, port).into()),
    };
    let from: SocketAddr = from;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    for direction in [Timeout::Send, Timeout::Recv] {
        sockopt::set_socket_timeout(&socket, direction, Some(patience))?;
    }
    rustix::net::bind(&socket, &from)?;
    // Bounded by the time for sending.
    match rustix::net::connect(&socket, &to) {
        Err(Errno::INPROGRESS) => Err(Errno::TIMEDOUT),
        done => done.map(|()| TcpStream::from(socket)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_listens_sees_a_port_of_root() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let both: Vec<_> = (0..2)
            .map(|_| connect(to, Duration::from_secs(5)).unwrap())
            .collect();
        for _ in both {
            let (_, from) = listener.accept().unwrap();
            assert!(PORTS.contains(&from.port()), "{from}");
        }
    }
}
