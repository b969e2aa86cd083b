//! The API over HTTPS.
//!
//! It owns connections: TLS, HTTP/1.1 and HTTP/2, who the client is, and an end that
//! doesn't wait for watchers. It must never let a request pass for
//! somebody's whose certificate the cluster's authority didn't sign.

use std::future::Future;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service as _;

use crate::access::{self, Caller};
use crate::http::ApiService;
use crate::pki::Tls;

/// How long a client may take to say hello, or to send its headers.
const GREETING: Duration = Duration::from_secs(10);
const HEADERS: Duration = Duration::from_secs(32);
/// How long requests may take to end once the server stops; watches are cut then.
const FAREWELL: Duration = Duration::from_millis(500);
/// How long to wait when the system has no descriptors left.
const EXHAUSTED: Duration = Duration::from_millis(100);
const STREAMS_PER_CONNECTION: u32 = 250;

/// Serves until `shutdown` resolves, then ends all connections.
pub(crate) async fn run(
    service: ApiService,
    listener: TcpListener,
    tls: Tls,
    shutdown: impl Future<Output = ()>,
) {
    let acceptor = TlsAcceptor::from(tls.config);
    let connections = TaskTracker::new();
    let stopping = CancellationToken::new();
    let cut = CancellationToken::new();
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                let connection =
                    connection(service.clone(), acceptor.clone(), stream, stopping.clone());
                let cut = cut.clone();
                connections.spawn(async move { cut.run_until_cancelled(connection).await });
            }
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(EXHAUSTED).await;
            }
        }
    }
    drop(listener);
    stopping.cancel();
    connections.close();
    if tokio::time::timeout(FAREWELL, connections.wait())
        .await
        .is_err()
    {
        cut.cancel();
        connections.wait().await;
    }
}

async fn connection(
    service: ApiService,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    stopping: CancellationToken,
) {
    // Watch events are small and must not wait for more.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "could not set TCP_NODELAY");
    }
    let stream = match tokio::time::timeout(GREETING, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => return tracing::debug!("a TLS handshake took too long"),
    };
    // The handshake has checked that the authority signed it.
    let chain = stream.get_ref().1.peer_certificates();
    let user = chain.and_then(|chain| access::subject(chain.first()?));
    let service = service.called_by(user.map_or(Caller::Unknown, Caller::Known));
    let service = service_fn(move |request: Request<Incoming>| service.clone().call(request));
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_PER_CONNECTION);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
