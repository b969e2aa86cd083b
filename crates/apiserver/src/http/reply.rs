//! How answers are put into HTTP.

use std::convert::Infallible;
use std::io::Write as _;

use axum::body::Body;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, VARY, WARNING};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde_json::Value;

use super::negotiate::Encoding;
use super::pieces::{PIECE, Pieces, Zipped};
use crate::protobuf;
use crate::refusal::Refusal;

/// Bodies below this size aren't worth compressing.
const COMPRESS_FROM: usize = 128 << 10;

pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROTOBUF: HeaderValue = HeaderValue::from_static(protobuf::MEDIA_TYPE);

impl Encoding {
    /// The content type of an object.
    pub(super) fn content_type(self) -> HeaderValue {
        match self {
            Self::Json => JSON,
            Self::Protobuf => PROTOBUF,
        }
    }
}

pub(super) fn text(code: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    with_type(
        code,
        HeaderValue::from_static("text/plain; charset=utf-8"),
        text,
    )
}

pub(super) fn value(code: StatusCode, value: &Value) -> Response<Body> {
    with_type(code, JSON, value.to_string())
}

/// An object of a kind that may have a protobuf encoding.
pub(super) fn object(code: StatusCode, encoding: Encoding, object: &Value) -> Response<Body> {
    let encoded = match encoding {
        Encoding::Json => None,
        Encoding::Protobuf => protobuf::object(object),
    };
    match encoded {
        Some(encoded) => with_type(code, PROTOBUF, encoded),
        None => value(code, object),
    }
}

pub(super) fn refusal(refusal: &Refusal, encoding: Encoding) -> Response<Body> {
    let mut response = object(refusal.code, encoding, &refusal.status());
    if refusal.details.get("retryAfterSeconds").is_some() {
        response
            .headers_mut()
            .insert("retry-after", HeaderValue::from_static("1"));
    }
    response
}

pub(super) fn with_type(
    code: StatusCode,
    content_type: HeaderValue,
    body: impl Into<Bytes>,
) -> Response<Body> {
    let mut response = Response::new(Body::from(body.into()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

/// A response with warnings, which clients show to people.
pub(super) fn warned(mut response: Response<Body>, warnings: &[String]) -> Response<Body> {
    for warning in warnings {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        // Names that no header can carry are left out; the field is dropped all the same.
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(WARNING, value);
        }
    }
    response
}

/// A list, made as it is sent; compressed if the client takes it.
pub(super) fn pieces(
    headers: &HeaderMap,
    content_type: HeaderValue,
    list: Pieces,
) -> Response<Body> {
    // A short one may as well be whole, with its length.
    if list.size() < PIECE {
        let whole: Vec<Bytes> = list.collect();
        return with_type(StatusCode::OK, content_type, whole.concat());
    }
    let zip = list.size() >= COMPRESS_FROM && takes_gzip(headers);
    let body = if zip {
        streamed(Zipped::new(list))
    } else {
        streamed(list)
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    if zip {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

fn streamed(pieces: impl Iterator<Item = Bytes> + Send + 'static) -> Body {
    Body::from_stream(futures::stream::iter(pieces.map(Ok::<_, Infallible>)))
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers
        .get(ACCEPT_ENCODING)
        .and_then(|value| value.to_str().ok());
    accepted.is_some_and(|all| all.split(',').any(|one| one.trim() == "gzip"))
}

/// A large answer, compressed if the client takes it.
pub(super) fn large(
    headers: &HeaderMap,
    content_type: HeaderValue,
    body: Vec<u8>,
) -> Response<Body> {
    if body.len() < COMPRESS_FROM || !takes_gzip(headers) {
        return with_type(StatusCode::OK, content_type, body);
    }
    let mut encoder = GzEncoder::new(Vec::with_capacity(body.len() / 8), Compression::fast());
    let compressed = encoder.write_all(&body).and_then(|()| encoder.finish());
    match compressed {
        Ok(compressed) => {
            let mut response = with_type(StatusCode::OK, content_type, compressed);
            let headers = response.headers_mut();
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
            response
        }
        Err(_) => with_type(StatusCode::OK, content_type, body),
    }
}
