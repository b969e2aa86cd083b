//! How much of a request is read.

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
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
