//! The way to a driver: its address, and a channel that makes the connection
//! when it is needed and again when it broke.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};
use tower::service_fn;

use super::acquaintance::Acquaintance;
use crate::memory;

/// Every peer accepts it; grpc-go and tonic refuse a path as `:authority`.
const ORIGIN: &str = "http://localhost";

/// A driver that writes long errors shall not hang us: hyper stops at 16 KiB.
const LARGEST_HEADERS: u32 = 256 * 1024;

/// The longest path that fits a unix socket address, without the closing NUL.
const LONGEST_SOCKET_PATH: usize = 107;

/// An endpoint that cannot be one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndpointError {
    /// Another kind of address, or a relative path.
    #[error(
        "{endpoint:?} is not a driver's address; give unix:///path/to/csi.sock or an absolute path"
    )]
    NotUnix {
        /// What was given.
        endpoint: String,
    },
    /// The kernel has no room for it.
    #[error(
        "the socket path {} is {length} bytes long; a unix socket's path may have at most 107",
        path.display()
    )]
    TooLong {
        /// What was given.
        path: PathBuf,
        /// Its length.
        length: usize,
    },
}

/// The socket's path in an endpoint: `unix:///run/csi.sock`, `unix:/run/csi.sock`
/// or `/run/csi.sock`.
pub fn socket_path(endpoint: &str) -> Result<PathBuf, EndpointError> {
    let path = endpoint
        .strip_prefix("unix://")
        .or_else(|| endpoint.strip_prefix("unix:"))
        .unwrap_or(endpoint);
    if !path.starts_with('/') {
        return Err(EndpointError::NotUnix {
            endpoint: endpoint.to_owned(),
        });
    }
    let length = path.len();
    if length > LONGEST_SOCKET_PATH {
        return Err(EndpointError::TooLong {
            path: path.into(),
            length,
        });
    }
    Ok(path.into())
}

/// A channel, the number of connections that it has made so far, and whom it leads to.
#[derive(Clone)]
pub(crate) struct Line {
    pub(crate) channel: Channel,
    made: Arc<AtomicU64>,
    pub(super) acquaintance: Acquaintance,
}

impl Line {
    pub(super) fn to_socket(path: PathBuf) -> Self {
        Self::dialing(move || {
            let path = path.clone();
            async move { UnixStream::connect(path).await }
        })
    }

    pub(crate) fn to_memory(socket: memory::Socket) -> Self {
        Self::dialing(move || {
            let stream = socket.dial();
            async move { stream }
        })
    }

    pub(super) fn over(channel: Channel) -> Self {
        Self {
            channel,
            made: Arc::default(),
            acquaintance: Acquaintance::default(),
        }
    }

    /// How often the connection was made; a change means another driver
    /// process may be at the other end.
    pub(super) fn connections(&self) -> u64 {
        self.made.load(Ordering::Acquire)
    }

    fn dialing<D, F, S>(dial: D) -> Self
    where
        D: Fn() -> F + Send + Sync + 'static,
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let (made, dial) = (Arc::new(AtomicU64::new(0)), Arc::new(dial));
        let acquaintance = Acquaintance::default();
        let (counted, met) = (Arc::clone(&made), acquaintance.clone());
        let channel = endpoint().connect_with_connector_lazy(service_fn(move |_| {
            let (dial, counted, met) = (Arc::clone(&dial), Arc::clone(&counted), met.clone());
            async move {
                let stream = dial().await?;
                // Asked over a connection that was made later: whoever answers there has
                // taken the place of whoever is at the end of ours, or is the same.
                met.recognize(&*dial).await?;
                counted.fetch_add(1, Ordering::AcqRel);
                Ok::<_, io::Error>(TokioIo::new(stream))
            }
        }));
        Self {
            channel,
            made,
            acquaintance,
        }
    }
}

/// What every connection has in common.
///
/// No HTTP/2 keepalive: grpc-go answers eager pings with GOAWAY, and a unix
/// socket says by itself when the peer is gone.
pub(super) fn endpoint() -> Endpoint {
    Endpoint::from_static(ORIGIN).http2_max_header_list_size(LARGEST_HEADERS)
}
