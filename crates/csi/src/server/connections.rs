//! Accepts connections and speaks HTTP/2 on them.
//!
//! tonic's own server is not used: it answers a call whose deadline has passed
//! with `CANCELLED`, racing with the caller's timer, where gRPC says
//! `DEADLINE_EXCEEDED`; and its connections outlive it when it is dropped. Here
//! the deadline is the caller's business, and what is dropped is gone.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::time::Duration;

use http::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use rustix::io::Errno;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio_stream::{Stream, StreamExt as _};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tower::{Service, ServiceExt as _};

use super::mended::Mended;

/// Calls that one connection may have under way.
const CALLS_PER_CONNECTION: u32 = 256;

/// Nothing tells when the system has descriptors or memory again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves connections until `stop`, then waits for them to end their calls.
/// Dropping it closes them. Fails only if nothing can be accepted any more.
pub(super) async fn serve<I, C, S>(
    incoming: I,
    service: S,
    stop: CancellationToken,
) -> io::Result<()>
where
    I: Stream<Item = io::Result<C>>,
    C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    let mut connections = JoinSet::new();
    let outcome = {
        // Closed before the wait below, so that nobody new is left hanging.
        let mut incoming = pin!(incoming);
        loop {
            let accepted = tokio::select! {
                biased;
                () = stop.cancelled() => break Ok(()),
                Some(_) = connections.join_next() => continue,
                accepted = incoming.next() => accepted,
            };
            match accepted {
                None => break Ok(()),
                Some(Ok(stream)) => {
                    connections.spawn(speak(stream, service.clone(), stop.clone()));
                }
                Some(Err(error)) if is_passing(&error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
                Some(Err(error)) => break Err(error),
            }
        }
    };
    while connections.join_next().await.is_some() {}
    outcome
}

fn is_passing(error: &io::Error) -> bool {
    let passing = [
        Errno::CONNABORTED,
        Errno::INTR,
        Errno::AGAIN,
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOBUFS,
        Errno::NOMEM,
    ];
    Errno::from_io_error(error).is_some_and(|errno| passing.contains(&errno))
}

fn speak<C, S>(
    stream: C,
    service: S,
    stop: CancellationToken,
) -> impl Future<Output = ()> + Send + 'static
where
    C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    let mut http = auto::Builder::new(TokioExecutor::new()).http2_only();
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(CALLS_PER_CONNECTION);
    let service = service.map_request(|request: Request<_>| request.map(Body::new));
    let connection = http
        .serve_connection(
            TokioIo::new(Mended::new(stream)),
            TowerToHyperService::new(service),
        )
        .into_owned();
    async move {
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(error, "a connection broke");
        }
    }
}
