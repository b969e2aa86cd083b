//! Stands between a process and somebody whom it talks to, and can end the process when something
//! comes or goes.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    sync::{Arc, Mutex},
    thread,
};

#[derive(Default)]
struct Seen {
    process: Option<rustix::process::Pid>,
    /// Pieces that came or went so far.
    count: usize,
    /// The piece that ends the process.
    strike: Option<usize>,
}

impl Seen {
    /// Whether a piece goes on its way.
    fn passes(&mut self) -> bool {
        let strikes = self.strike == Some(self.count);
        self.count += 1;
        if strikes {
            self.strike = None;
            if let Some(process) = self.process.take() {
                let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
            }
        }
        !strikes
    }
}

/// Somebody in between, for as long as the test runs.
pub struct Proxy {
    seen: Arc<Mutex<Seen>>,
    /// Where it listens, if that is a port.
    pub port: u16,
}

impl Proxy {
    /// At a port of its own, before another.
    pub fn ports(to: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::<Mutex<Seen>>::default();
        let all = seen.clone();
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(("127.0.0.1", to)) else {
                    continue;
                };
                let _ = (near.set_nodelay(true), far.set_nodelay(true));
                join(&all, Arc::new(near), Arc::new(far), |stream| {
                    let _ = stream.shutdown(Shutdown::Both);
                });
            }
        });
        Self { seen, port }
    }

    /// At a socket of its own, before another.
    pub fn sockets(at: &Path, to: &Path) -> Self {
        let listener = UnixListener::bind(at).unwrap();
        let seen = Arc::<Mutex<Seen>>::default();
        let (all, to) = (seen.clone(), to.to_owned());
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = UnixStream::connect(&to) else {
                    continue;
                };
                join(&all, Arc::new(near), Arc::new(far), |stream| {
                    let _ = stream.shutdown(Shutdown::Both);
                });
            }
        });
        Self { seen, port: 0 }
    }

    /// Counts from here on, and ends this process at the piece with this number, if any.
    pub fn begin(&self, process: u32, strike: Option<usize>) {
        let process = i32::try_from(process).ok();
        *self.seen.lock().unwrap() = Seen {
            process: process.and_then(rustix::process::Pid::from_raw),
            count: 0,
            strike,
        };
    }
}

fn join<S>(seen: &Arc<Mutex<Seen>>, near: Arc<S>, far: Arc<S>, close: fn(&S))
where
    S: Send + Sync + 'static,
    for<'a> &'a S: Read + Write,
{
    for (from, to) in [(near.clone(), far.clone()), (far, near)] {
        let seen = seen.clone();
        thread::spawn(move || {
            let mut piece = vec![0; 64 << 10];
            while let Ok(length @ 1..) = (&*from).read(&mut piece) {
                let passes = seen.lock().unwrap().passes();
                if !passes || (&*to).write_all(&piece[..length]).is_err() {
                    break;
                }
            }
            close(&from);
            close(&to);
        });
    }
}
