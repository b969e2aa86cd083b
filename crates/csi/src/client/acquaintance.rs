//! Knows a driver again.
//!
//! A driver is whoever gave its name first. Should another one listen at the same socket later, by a
//! mistake in an upgrade or a path that two share, no connection to it is made: ids of volumes mean
//! something else to it, and what it says of them is no answer.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::Status;
use tower::service_fn;

use super::connection::endpoint;
use crate::{Method, proto, text};

/// How long a driver that came back may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(10);

/// The driver that was met; clones know the same.
#[derive(Clone, Default)]
pub(super) struct Acquaintance(Arc<Known>);

#[derive(Default)]
struct Known {
    name: OnceLock<Arc<str>>,
    /// The last stranger that was told of.
    told: Mutex<Option<String>>,
}

/// Another driver than the one that was met.
#[derive(Debug, thiserror::Error)]
#[error(
    "the driver at this socket is {found:?} now, and was {met:?}: nothing is asked of it; \
     start {met:?} there again, or restart this process to work with {found:?}"
)]
struct Stranger {
    met: Arc<str>,
    found: String,
}

/// A driver that does not say its name.
#[derive(Debug, thiserror::Error)]
#[error("the driver that came back does not say who it is")]
struct Nameless(#[source] Status);

impl Acquaintance {
    /// The name that the driver gave first.
    pub(super) fn name(&self) -> Option<Arc<str>> {
        self.0.name.get().cloned()
    }

    /// The driver has told its name.
    pub(super) fn met(&self, name: &str) {
        self.0.name.get_or_init(|| name.into());
    }

    /// Asks who is there, unless nobody has been met yet.
    pub(super) async fn recognize<F, S>(&self, dial: impl Fn() -> F) -> io::Result<()>
    where
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let Some(met) = self.name() else {
            return Ok(());
        };
        let asked = tokio::time::timeout(PATIENCE, name_at(dial()));
        let late = |_| Status::deadline_exceeded("it did not answer in time");
        let found = match asked.await.map_err(late).flatten() {
            Ok(found) => found,
            Err(status) => return Err(io::Error::other(Nameless(status))),
        };
        let mut told = self.0.told.lock().unwrap_or_else(PoisonError::into_inner);
        if *found == *met {
            *told = None;
            return Ok(());
        }
        let stranger = Stranger { met, found };
        if told.as_ref() != Some(&stranger.found) {
            tracing::error!("{stranger}");
            *told = Some(stranger.found.clone());
        }
        Err(io::Error::other(stranger))
    }
}

/// The name of the driver at the other end of a connection.
async fn name_at<F, S>(connecting: F) -> Result<String, Status>
where
    F: Future<Output = io::Result<S>> + Send + 'static,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let lost = |error: &dyn std::error::Error| Status::unavailable(text::chain(error));
    let stream = connecting.await.map_err(|error| lost(&error))?;
    let mut once = Some(TokioIo::new(stream));
    let connector = service_fn(move |_| {
        let stream = once.take();
        let gone = || io::Error::from(io::ErrorKind::NotConnected);
        async move { stream.ok_or_else(gone) }
    });
    let channel = endpoint().connect_with_connector(connector).await;
    let channel = channel.map_err(|error| lost(&error))?;
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.map_err(|error| lost(&error))?;
    let path = PathAndQuery::from_static(Method::GetPluginInfo.path());
    let codec = tonic_prost::ProstCodec::default();
    let request = tonic::Request::new(proto::GetPluginInfoRequest {});
    let reply = grpc.unary(request, path, codec).await?;
    let info: proto::GetPluginInfoResponse = reply.into_inner();
    Ok(info.name)
}
