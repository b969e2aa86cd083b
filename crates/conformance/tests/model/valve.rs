//! A socket before another one, which can be shut: then it takes everything and gives nothing, as a
//! driver does that was stopped.

use std::path::{Path, PathBuf};

use orlop_csi::Driver;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

/// The way to a driver.
pub(crate) struct Valve {
    socket: PathBuf,
    shut: watch::Sender<bool>,
}

impl Valve {
    /// A new socket at a path; what comes there goes to `to`.
    pub(crate) fn before(to: &Path, socket: PathBuf) -> Self {
        let listener = UnixListener::bind(&socket).expect("the socket is free");
        let (shut, is_shut) = watch::channel(false);
        let to = to.to_owned();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, to.clone(), is_shut.clone()));
            }
        });
        Self { socket, shut }
    }

    pub(crate) fn shut(&self) {
        self.shut.send_replace(true);
    }

    pub(crate) fn driver(&self) -> Driver {
        Driver::connect(&format!("unix://{}", self.socket.display())).expect("an endpoint")
    }
}

/// Passes everything on until the valve is shut, and then holds the connection for ever.
async fn pass(mut client: UnixStream, to: PathBuf, mut is_shut: watch::Receiver<bool>) {
    let Ok(mut server) = UnixStream::connect(to).await else {
        return;
    };
    let shut = async {
        let _ = is_shut.wait_for(|shut| *shut).await;
    };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
        () = shut => {
            std::future::pending::<()>().await;
            drop((client, server));
        }
    }
}
