//! Sockets in memory: a driver and its callers in one process, without a file,
//! a descriptor or a clock, so that simulation can own all three.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Channel;

use crate::client::connection::Line;
use crate::server::{ServeError, Services};

/// As much as a unix socket buffers.
const BUFFER: usize = 208 * 1024;

/// The place where a driver listens, as a path is for a unix socket. Clones
/// are the same place; it outlives the drivers that come and go at it.
#[derive(Debug, Clone, Default)]
pub struct Socket {
    listener: Arc<Mutex<Option<mpsc::UnboundedSender<DuplexStream>>>>,
}

/// Somebody listens at the socket already.
#[derive(Debug, thiserror::Error)]
#[error("another server listens at this socket in memory")]
pub struct InUse;

impl Socket {
    /// A place where nobody listens yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Listens at the socket; connections are accepted from now on and served
    /// once [`Listener::serve`] runs.
    pub fn bind(&self) -> Result<Listener, InUse> {
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        if listener
            .as_ref()
            .is_some_and(|listener| !listener.is_closed())
        {
            return Err(InUse);
        }
        let (sender, incoming) = mpsc::unbounded_channel();
        *listener = Some(sender);
        Ok(Listener { incoming })
    }

    /// A channel to it, for other services than CSI's, such as registration.
    pub fn channel(&self) -> Channel {
        Line::to_memory(self.clone()).channel
    }

    pub(crate) fn dial(&self) -> io::Result<DuplexStream> {
        let (ours, theirs) = tokio::io::duplex(BUFFER);
        let listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        listener
            .as_ref()
            .and_then(|listener| listener.send(theirs).ok())
            .map(|()| ours)
            .ok_or_else(|| io::Error::new(io::ErrorKind::ConnectionRefused, "nobody listens"))
    }
}

/// The driver's end of a [`Socket`]. Dropping it refuses further connections.
#[derive(Debug)]
pub struct Listener {
    incoming: mpsc::UnboundedReceiver<DuplexStream>,
}

impl Listener {
    /// Serves until `shutdown`, then lets running calls end.
    pub async fn serve(
        self,
        services: Services,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let incoming = UnboundedReceiverStream::new(self.incoming).map(io::Result::Ok);
        services.run(incoming, shutdown).await
    }
}
