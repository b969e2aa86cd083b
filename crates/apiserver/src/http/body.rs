//! How much of a request is read.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{EXPECT, HeaderName, HeaderValue};
use http::request::Parts;
use http::{StatusCode, Version};
use http_body::{Frame, SizeHint};
use http_body_util::BodyExt as _;

use crate::refusal::Refusal;

pub(super) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The longest headers of a request that is served, together with its path.
pub(crate) const HEADERS_LIMIT: usize = 1 << 20;

/// The longest body that is read.
const BODY_LIMIT: usize = 3 << 20;
/// How much of a longer one is thrown away: some clients don't look at an answer before they have
/// sent all of their body.
const DRAINED: usize = 32 << 20;

/// How long a request is without its body.
pub(super) fn headers_length(parts: &Parts) -> usize {
    let path = parts.uri.path_and_query();
    let path = path.map_or(0, |path| path.as_str().len());
    let line = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len();
    path + parts.headers.iter().map(line).sum::<usize>()
}

/// Reads a body, unless it is too long.
pub(super) async fn read_body<B>(body: B) -> Result<Bytes, Refusal>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut body = std::pin::pin!(body);
    let mut length = 0;
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            let error: BoxError = error.into();
            Refusal::bad_request(format!("the body could not be read: {error}"))
        })?;
        let Ok(piece) = frame.into_data() else {
            continue;
        };
        length += piece.len();
        if length <= BODY_LIMIT {
            whole.push(piece);
        } else if length <= DRAINED {
            whole.clear();
        } else {
            break;
        }
    }
    match (length, whole.len()) {
        (length, _) if length > BODY_LIMIT => {
            Err(Refusal::too_large(format_args!("limit is {BODY_LIMIT}")))
        }
        // One alone is taken as it is.
        (_, 1) => Ok(whole.swap_remove(0)),
        _ => Ok(whole.concat().into()),
    }
}

/// How much of a body that nobody read is thrown away, and for how long: enough for the next
/// request to find the connection open, too little to be kept busy with.
const UNREAD: usize = 256 << 10;
const PATIENCE: Duration = Duration::from_secs(2);

type Unread<B> = Arc<Mutex<Option<Pin<Box<B>>>>>;

/// A body that comes back if it isn't read to its end.
pub(super) struct Lent<B> {
    body: Option<Pin<Box<B>>>,
    home: Unread<B>,
}

/// Where a body comes back to.
pub(super) struct Home<B>(Unread<B>);

/// Lends a body to whoever answers.
pub(super) fn lend<B>(body: B) -> (Lent<B>, Home<B>) {
    let home = Unread::default();
    let lent = Lent {
        body: Some(Box::pin(body)),
        home: Arc::clone(&home),
    };
    (lent, Home(home))
}

impl<B> Drop for Lent<B> {
    fn drop(&mut self) {
        *self.home.lock().unwrap_or_else(PoisonError::into_inner) = self.body.take();
    }
}

impl<B: http_body::Body> http_body::Body for Lent<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match &mut self.body {
            Some(body) => body.as_mut().poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body
            .as_ref()
            .is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.body.as_ref();
        body.map_or_else(|| SizeHint::with_exact(0), http_body::Body::size_hint)
    }
}

impl<B> Home<B>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
{
    /// Whether another request may follow on the connection. Over HTTP/1.1 it begins where this
    /// one's body ends, so what is left of that is thrown away, if it is little and comes in time:
    /// nobody waits for more of a body whose request ran out of time.
    pub(super) async fn cleared(self, parts: &Parts, answer: StatusCode) -> bool {
        let unread = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut body) = unread.filter(|body| !body.is_end_stream()) else {
            return true;
        };
        if parts.version > Version::HTTP_11 {
            return true;
        }
        if answer == StatusCode::GATEWAY_TIMEOUT {
            return false;
        }
        // Who asks first is not to send it.
        if parts.headers.contains_key(EXPECT) || body.size_hint().lower() > UNREAD as u64 {
            return false;
        }
        let drained = async {
            let mut length = 0;
            while let Some(frame) = body.frame().await {
                let piece = frame.ok().map(Frame::into_data);
                length += match piece {
                    Some(Ok(piece)) => piece.len(),
                    Some(Err(_)) => 0,
                    None => return false,
                };
                if length > UNREAD {
                    return false;
                }
            }
            true
        };
        let drained = tokio::time::timeout(PATIENCE, drained).await;
        drained.unwrap_or(false)
    }
}
