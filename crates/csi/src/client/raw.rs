//! Calls as they are, for whoever tests a driver instead of using it: nothing is
//! checked, nothing remembered, the driver's words come back untouched, and the
//! body may be any bytes under any name.

use std::str::FromStr as _;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use tonic::{Code, Status};

use super::call_error::{Origin, connection_trouble};
use super::deadlines::{timed, within};
use super::{Driver, reply};
use crate::method::{Streams, Unary};

/// A refusal, word for word. Unlike [`super::CallError`] its message is not
/// scrubbed: it may hold a secret, and must not be shown unseen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The code that came over the wire, or the one that says why none came.
    pub code: Code,
    /// The driver's own text; may be empty.
    pub message: String,
    /// The status's details, which the specification wants empty.
    pub details: Bytes,
    /// Who made it.
    pub origin: Origin,
}

impl Refusal {
    fn of(status: &Status) -> Self {
        let origin = Origin::of(status);
        let (code, message) = match origin {
            Origin::Driver => (status.code(), status.message().to_owned()),
            Origin::Timer => (Code::DeadlineExceeded, "no answer in time".to_owned()),
            Origin::Connection => (Code::Unavailable, connection_trouble(status)),
            Origin::Reply => (Code::Internal, status.message().to_owned()),
        };
        Self {
            code,
            message,
            details: Bytes::copy_from_slice(status.details()),
            origin,
        }
    }
}

impl Driver {
    /// Makes a call without measuring, gating or judging it. Dropping the
    /// future cancels the call.
    pub async fn call_raw<R: Unary>(
        &self,
        request: &R,
        deadline: Duration,
    ) -> Result<R::Reply, Refusal> {
        let body = request.encode_to_vec().into();
        let exchange = self.unary(R::METHOD.path(), body, deadline);
        let outcome = within(deadline, exchange).await;
        outcome
            .and_then(reply::decode)
            .map_err(|status| Refusal::of(&status))
    }

    /// Sends any bytes under any name, such as `/csi.v1.Node/NodeGetInfo`.
    pub async fn send_raw(
        &self,
        path: &str,
        body: Bytes,
        deadline: Duration,
    ) -> Result<Bytes, Refusal> {
        within(deadline, self.unary(path, body, deadline))
            .await
            .map_err(|status| Refusal::of(&status))
    }

    /// Reads a whole stream: the replies that came, and how it ended.
    pub async fn stream_raw<R: Streams>(
        &self,
        request: &R,
        deadline: Duration,
    ) -> (Vec<R::Reply>, Result<(), Refusal>) {
        let mut replies = Vec::new();
        let body = Bytes::from(request.encode_to_vec());
        let reading = async {
            let path = PathAndQuery::from_static(R::METHOD.path());
            let mut grpc = self.grpc().await?;
            let request = timed(body, deadline);
            let opened = grpc.server_streaming(request, path, reply::BytesCodec);
            let mut stream = opened.await?.into_inner();
            while let Some(next) = stream.message().await? {
                replies.push(reply::decode(next)?);
            }
            Ok(())
        };
        let end = within(deadline, reading).await;
        (replies, end.map_err(|status| Refusal::of(&status)))
    }

    async fn unary(&self, path: &str, body: Bytes, deadline: Duration) -> Result<Bytes, Status> {
        let path = PathAndQuery::from_str(path)
            .map_err(|error| Status::invalid_argument(format!("{path} is no path: {error}")))?;
        let mut grpc = self.grpc().await?;
        let request = timed(body, deadline);
        grpc.unary(request, path, reply::BytesCodec)
            .await
            .map(tonic::Response::into_inner)
    }
}
