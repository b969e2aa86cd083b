//! The API over HTTPS.
//!
//! It owns connections: how many there are, what each may take, and an end that doesn't wait
//! for watchers. It must never let a request pass for somebody's whose certificate the
//! cluster's authority didn't sign.

mod activity;
mod connection;

use std::future::Future;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::http::ApiService;
use crate::limits::Limits;
use crate::pki::Tls;
use crate::poise::Poised;

/// How long requests may take to end once the server stops; watches are cut then.
const FAREWELL: Duration = Duration::from_millis(500);
/// How long to wait when the system has no descriptors left.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// Serves until `shutdown` resolves, then ends all connections.
pub(crate) async fn run(
    service: ApiService,
    listener: TcpListener,
    tls: Tls,
    limits: Limits,
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
            // Closed unanswered: whoever comes next shall not wait behind it.
            Ok((_, peer)) if connections.len() >= limits.connections => {
                tracing::warn!(%peer, limit = limits.connections, "too many connections");
            }
            Ok((stream, _)) => {
                let connection = connection::serve(
                    service.clone(),
                    acceptor.clone(),
                    stream,
                    limits.clone(),
                    stopping.clone(),
                );
                let cut = cut.clone();
                let connection = async move { cut.run_until_cancelled(connection).await };
                connections.spawn(Poised::new(connection));
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
