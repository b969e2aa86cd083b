//! What a connection does: whether anybody asks for anything, and whether anybody reads.
//!
//! A connection is over when neither is the case for too long. A timer is set for the moment
//! at which that may first be so, and set anew when that changes.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Why a connection is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// Nothing was asked for.
    Idle,
    /// What was sent isn't read.
    Unread,
}

/// What a connection is at.
#[derive(Debug, Clone, Copy)]
struct Doing {
    /// Requests whose answer isn't through.
    requests: usize,
    /// When the last one was, or when the connection began.
    last: Instant,
    /// Since when the socket takes no more.
    blocked: Option<Instant>,
}

impl Doing {
    /// Whether it is over, or when it may be unless something changes.
    fn verdict(
        &self,
        idle: Duration,
        unread: Duration,
        now: Instant,
    ) -> Result<Over, Option<Instant>> {
        let unread = self.blocked.map(|since| since + unread);
        let idle = (self.requests == 0).then(|| self.last + idle);
        match (unread, idle) {
            (Some(end), _) if end <= now => Ok(Over::Unread),
            (_, Some(end)) if end <= now => Ok(Over::Idle),
            (unread, idle) => Err(unread.into_iter().chain(idle).min()),
        }
    }
}

/// What a connection is at, shared by its parts.
#[derive(Debug, Clone)]
pub(super) struct Activity(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    doing: Mutex<Doing>,
    /// Told when a timer may have to be set.
    changed: Notify,
}

impl Activity {
    pub(super) fn begin() -> Self {
        Self(Arc::new(Shared {
            doing: Mutex::new(Doing {
                requests: 0,
                last: Instant::now(),
                blocked: None,
            }),
            changed: Notify::new(),
        }))
    }

    /// Changes what the connection is at; says whether that sets a timer.
    fn change(&self, change: impl FnOnce(&mut Doing) -> bool) {
        let doing = self.0.doing.lock();
        if change(&mut doing.unwrap_or_else(PoisonError::into_inner)) {
            self.0.changed.notify_one();
        }
    }

    /// A request that is being answered, until it is dropped.
    pub(super) fn request(&self) -> Request {
        self.change(|doing| {
            doing.requests += 1;
            false
        });
        Request(self.clone())
    }

    /// Resolves when the connection is over.
    pub(super) async fn over(&self, idle: Duration, unread: Duration) -> Over {
        loop {
            let doing = *self.0.doing.lock().unwrap_or_else(PoisonError::into_inner);
            let next = match doing.verdict(idle, unread, Instant::now()) {
                Ok(over) => return over,
                Err(next) => next,
            };
            let timer = async {
                match next {
                    Some(next) => tokio::time::sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = timer => {}
                () = self.0.changed.notified() => {}
            }
        }
    }
}

/// A request that is being answered.
#[derive(Debug)]
pub(super) struct Request(Activity);

impl Request {
    /// The answer's body, which is part of the request.
    pub(super) fn until_sent(self, body: Body) -> Body {
        Body::new(Answer {
            body,
            _request: self,
        })
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.0.change(|doing| {
            doing.requests -= 1;
            doing.last = Instant::now();
            doing.requests == 0
        });
    }
}

struct Answer {
    body: Body,
    _request: Request,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A socket that notices when nobody reads.
#[derive(Debug)]
pub(super) struct Watched<S> {
    pub(super) socket: S,
    pub(super) activity: Activity,
}

impl<S> Watched<S> {
    fn wrote<T>(&self, result: Poll<T>) -> Poll<T> {
        self.activity
            .change(|doing| match (&result, doing.blocked) {
                (Poll::Ready(_), _) => {
                    doing.blocked = None;
                    false
                }
                (Poll::Pending, Some(_)) => false,
                (Poll::Pending, None) => {
                    doing.blocked = Some(Instant::now());
                    true
                }
            });
        result
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write(context, bytes);
        self.wrote(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.socket).poll_write_vectored(context, slices);
        self.wrote(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = ready!(Pin::new(&mut self.socket).poll_shutdown(context));
        Poll::Ready(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_over_when_nothing_is_asked_or_nothing_is_read() {
        let (idle, unread) = (Duration::from_secs(90), Duration::from_secs(60));
        let now = Instant::now();
        let doing = |requests, last: u64, blocked: Option<u64>| Doing {
            requests,
            last: now + Duration::from_secs(last),
            blocked: blocked.map(|at| now + Duration::from_secs(at)),
        };
        let at = |seconds| now + Duration::from_secs(seconds);
        let verdict = |doing: Doing, when| doing.verdict(idle, unread, at(when));
        assert_eq!(verdict(doing(0, 0, None), 89), Err(Some(at(90))));
        assert_eq!(verdict(doing(0, 0, None), 90), Ok(Over::Idle));
        assert_eq!(verdict(doing(1, 0, None), 9000), Err(None));
        assert_eq!(verdict(doing(1, 0, Some(100)), 130), Err(Some(at(160))));
        assert_eq!(verdict(doing(1, 0, Some(100)), 160), Ok(Over::Unread));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_keeps_its_connection_until_its_answer_is_through() {
        let activity = Activity::begin();
        let (idle, unread) = (Duration::from_secs(90), Duration::from_secs(60));
        let body = activity.request().until_sent(Body::from("answer"));
        let over = activity.over(idle, unread);
        assert!(
            tokio::time::timeout(Duration::from_secs(900), over)
                .await
                .is_err()
        );
        drop(body);
        let since = Instant::now();
        assert_eq!(activity.over(idle, unread).await, Over::Idle);
        assert_eq!(since.elapsed(), idle);
    }
}
