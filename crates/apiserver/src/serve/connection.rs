//! One connection: TLS, HTTP/1.1 or HTTP/2, who the client is, and when it has to go.

use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustix::net::sockopt;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::Service as _;

use super::activity::{Activity, Over, Watched};
use crate::access::{self, Caller};
use crate::http::ApiService;
use crate::limits::Limits;

/// How long a client whose connection is idle may take to notice.
const GOODBYE: Duration = Duration::from_secs(1);
/// Streams of one HTTP/2 connection at once. Go's clients open another one beyond them.
const STREAMS: u32 = 100;
/// Streams that a client may have taken back before the server got to them; a client that
/// opens and cancels faster than this is cut off.
const RESET_STREAMS: usize = 100;
/// The longest headers that are read at all: twice what is taken, so that most of what is too
/// long gets an answer that says so.
const HEADERS: u32 = 2 * crate::http::HEADERS_LIMIT as u32;
/// The most lines of headers. Whoever speaks for somebody with many groups sends a line for each.
const HEADER_LINES: usize = 500;
/// What is kept of one stream for a client that doesn't read.
const STREAM_BUFFER: usize = 256 << 10;
/// When to ask a silent HTTP/2 client whether it is there, and for how long to wait.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(20);
/// How much the kernel keeps for a client that hasn't read it (the kernel doubles it for its own
/// needs). Left to itself it would keep megabytes.
const SEND_BUFFER: usize = 256 << 10;
/// When the kernel asks a silent client whether it is there, how often, and how many times.
const SILENCE: (Duration, Duration, u32) = (Duration::from_secs(30), Duration::from_secs(10), 3);

/// Serves a connection until it ends.
pub(super) async fn serve(
    service: ApiService,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    limits: Limits,
    stopping: CancellationToken,
) {
    prepare(&stream);
    let activity = Activity::begin();
    let socket = Watched {
        socket: stream,
        activity: activity.clone(),
    };
    // Both in memory of their own: a task keeps room for all that it ever holds, and one that waits
    // for events would keep that of its handshake besides.
    let handshake = Box::pin(tokio::time::timeout(
        limits.handshake,
        acceptor.accept(socket),
    ));
    let stream = match handshake.await {
        Ok(Ok(stream)) => Box::new(stream),
        Ok(Err(error)) => return tracing::debug!(%error, "a TLS handshake failed"),
        Err(_) => return tracing::debug!("a TLS handshake took too long"),
    };
    // The handshake has checked that the authority signed it.
    let session = stream.get_ref().1;
    let user = session
        .peer_certificates()
        .and_then(|chain| access::subject(chain.first()?));
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    let service = service.called_by(user.map_or(Caller::Unknown, Caller::Known));
    let requests = activity.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let busy = requests.request();
        let answered = service.clone().call(request);
        async move {
            let (parts, body) = answered.await?.into_parts();
            Ok::<_, std::convert::Infallible>(Response::from_parts(parts, busy.until_sent(body)))
        }
    });
    let builder = builder(&limits, is_http2);
    let mut connection = Box::pin(builder.serve_connection(TokioIo::new(stream), service));
    let mut over = std::pin::pin!(activity.over(limits.idle, limits.unread));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        over = &mut over => match over {
            Over::Idle => {
                connection.as_mut().graceful_shutdown();
                let ended = tokio::time::timeout(GOODBYE, connection).await;
                return tracing::debug!(?ended, "an idle connection was closed");
            }
            Over::Unread => return tracing::debug!("a client that doesn't read was let go"),
        },
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// What the socket itself must see to.
fn prepare(stream: &TcpStream) {
    let (after, every, times) = SILENCE;
    // Watch events are small and must not wait for more; a client that is gone without a
    // word is noticed by asking; one that doesn't read fills a buffer soon, and costs no more
    // work from then on.
    let set = stream
        .set_nodelay(true)
        .and_then(|()| Ok(sockopt::set_socket_send_buffer_size(stream, SEND_BUFFER)?))
        .and_then(|()| Ok(sockopt::set_socket_keepalive(stream, true)?))
        .and_then(|()| Ok(sockopt::set_tcp_keepidle(stream, after)?))
        .and_then(|()| Ok(sockopt::set_tcp_keepintvl(stream, every)?))
        .and_then(|()| Ok(sockopt::set_tcp_keepcnt(stream, times)?));
    if let Err(error) = set {
        tracing::debug!(%error, "could not set the options of a socket");
    }
}

/// The protocol is the one that was agreed on during the handshake: guessing it from the
/// first bytes would wait for them without end.
fn builder(limits: &Limits, is_http2: bool) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.headers)
        .max_headers(HEADER_LINES)
        .max_buf_size(HEADERS as usize);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_pending_accept_reset_streams(RESET_STREAMS)
        .max_header_list_size(HEADERS)
        .max_send_buf_size(STREAM_BUFFER)
        .keep_alive_interval(PING)
        .keep_alive_timeout(PONG);
    if is_http2 {
        builder.http2_only()
    } else {
        builder.http1_only()
    }
}
