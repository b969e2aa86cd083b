//! The client that roles call drivers with.
//!
//! [`Driver`] owns one lazily made, self-renewing connection. Every call has a
//! deadline, a span, a measurement and, when it fails, a [`CallError`] that
//! says what the caller may conclude. It never repeats a call by itself, and
//! never shows a request's body.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};
use tracing::Instrument;

use crate::method::{CsiRequest, Streams, Unary};
use crate::metrics::{Measured, Metrics};
use crate::secrets::Sensitive;
use crate::{Method, code_name, memory, proto};

mod absences;
mod acquaintance;
mod call_error;
mod calls;
pub(crate) mod connection;
mod deadlines;
mod gate;
mod info;
mod raw;
mod reply;
mod turns;

pub use absences::Absences;
pub use call_error::{CallError, Origin, Retry};
pub use connection::{EndpointError, socket_path};
pub use deadlines::Deadlines;
use deadlines::{timed, within};
pub use gate::{CallSite, Gate, Passage};
pub use info::{
    ControllerCapability, DriverInfo, GroupCapability, NodeCapability, PluginService,
    VolumeExpansion,
};
pub use raw::Refusal;
pub use turns::Turns;

/// Room for a list of some hundred thousand volumes; tonic's own 4 MiB is not.
const LARGEST_REPLY: usize = 64 * 1024 * 1024;

/// The driver's name in metrics until it has told its own; the Go sidecars'.
const NAMELESS: &str = "unknown-driver";

/// Waits between probes of a driver that is not ready, first and longest. The
/// socket of a driver that starts cannot be waited for in a better way: it may
/// appear before the driver serves.
const FIRST_PROBE_WAIT: Duration = Duration::from_millis(50);
const LONGEST_PROBE_WAIT: Duration = Duration::from_secs(1);

/// A driver that can be called. Clones share the connection and what is known
/// about the driver.
#[derive(Clone)]
pub struct Driver {
    line: connection::Line,
    deadlines: Deadlines,
    metrics: Option<Metrics>,
    /// Calls are for a volume of a plugin whose place the driver took.
    migrated: bool,
    /// What the driver has said to be called, before it is known for good.
    called: Option<Arc<str>>,
    gate: Option<Arc<dyn Gate>>,
    turns: Option<Turns>,
    known: Arc<Known>,
}

/// A channel to a unix socket, for other services than CSI's, such as
/// registration; lazy and self-renewing as a [`Driver`]'s, without its deadlines.
pub fn channel(endpoint: &str) -> Result<Channel, EndpointError> {
    Ok(connection::Line::to_socket(socket_path(endpoint)?).channel)
}

/// What the driver said about itself.
#[derive(Default)]
struct Known {
    /// With the connection that it was said over. Held while asking, so that
    /// many callers ask once.
    info: tokio::sync::Mutex<Option<(u64, Arc<DriverInfo>)>>,
    /// How many calls found nobody there.
    lost: watch::Sender<u64>,
    /// Held by who looks out for the driver: one is enough.
    lookout: tokio::sync::Mutex<()>,
}

impl Driver {
    /// The driver at a unix socket: `unix:///path` or `/path`. Nothing is sent
    /// yet; the connection is made by the first call, and made again by the
    /// next call after it broke. Must be called within a tokio runtime.
    pub fn connect(endpoint: &str) -> Result<Self, EndpointError> {
        Ok(Self::new(connection::Line::to_socket(socket_path(
            endpoint,
        )?)))
    }

    /// The driver at a socket in memory.
    pub fn in_memory(socket: &memory::Socket) -> Self {
        Self::new(connection::Line::to_memory(socket.clone()))
    }

    /// The driver behind a channel made elsewhere. Such a channel does not tell
    /// when it connects anew, so [`Driver::info`] is asked only once.
    pub fn from_channel(channel: Channel) -> Self {
        Self::new(connection::Line::over(channel))
    }

    /// How often a connection was made so far: more than before once another
    /// process may be at the other end. Always 0 for a channel made elsewhere.
    pub fn connections(&self) -> u64 {
        self.line.connections()
    }

    fn new(line: connection::Line) -> Self {
        Self {
            line,
            deadlines: Deadlines::default(),
            metrics: None,
            migrated: false,
            called: None,
            gate: None,
            turns: None,
            known: Arc::default(),
        }
    }

    /// With other deadlines.
    #[must_use]
    pub fn with_deadlines(self, deadlines: Deadlines) -> Self {
        Self { deadlines, ..self }
    }

    /// With a histogram that every call is counted in.
    #[must_use]
    pub fn with_metrics(self, metrics: Metrics) -> Self {
        Self {
            metrics: Some(metrics),
            ..self
        }
    }

    /// The same, whose calls are counted by this name as long as no other is known.
    fn called(&self, name: &str) -> Self {
        Self {
            called: Some(name.into()),
            ..self.clone()
        }
    }

    /// The same, for calls about a volume of a plugin whose place the driver took, or of its own.
    #[must_use]
    pub fn for_migrated(&self, migrated: bool) -> Self {
        Self {
            migrated,
            ..self.clone()
        }
    }

    /// With a gate that every call passes.
    #[must_use]
    pub fn with_gate(self, gate: Arc<dyn Gate>) -> Self {
        Self {
            gate: Some(gate),
            ..self
        }
    }

    /// With turns: calls about one volume wait for each other, here and wherever else these turns are.
    #[must_use]
    pub fn with_turns(self, turns: Turns) -> Self {
        Self {
            turns: Some(turns),
            ..self
        }
    }

    /// The driver's name, version and capabilities; asked once per connection.
    pub async fn info(&self) -> Result<Arc<DriverInfo>, CallError> {
        let mut known = self.known.info.lock().await;
        if let Some((connection, info)) = known.as_ref()
            && *connection == self.line.connections()
        {
            return Ok(Arc::clone(info));
        }
        loop {
            let before = self.line.connections();
            let info = Arc::new(info::ask(self).await?);
            self.line.acquaintance.met(&info.name);
            // Answers of two driver processes must not be mixed: all must have
            // come over one connection, be it the one that the first made.
            let after = self.line.connections();
            if after == before || (before, after) == (0, 1) {
                *known = Some((after, Arc::clone(&info)));
                return Ok(info);
            }
        }
    }

    /// Waits until the driver is there and says that it is ready. Ends early
    /// only for a driver that has no `Probe`.
    pub async fn probe_until_ready(&self) -> Result<(), CallError> {
        let mut wait = FIRST_PROBE_WAIT;
        let mut told = None;
        loop {
            let reason = match self.probe(proto::ProbeRequest {}).await {
                Ok(reply) if reply.ready.unwrap_or(true) => return Ok(()),
                Ok(_) => "it says that it is not ready".to_owned(),
                Err(error) if error.code == Code::Unimplemented => return Err(error),
                Err(error) => error.message,
            };
            if told.as_ref() != Some(&reason) {
                tracing::info!(%reason, "waiting for the CSI driver");
                told = Some(reason);
            }
            tokio::time::sleep(wait).await;
            wait = LONGEST_PROBE_WAIT.min(wait * 2);
        }
    }

    /// Tells of times in which the driver was away, from now on.
    pub fn absences(&self) -> Absences {
        Absences::of(self.clone(), self.known.lost.subscribe())
    }

    /// Makes a call that has one reply.
    ///
    /// Cancel-safe in the sense of the protocol only: dropping the future
    /// cancels the call, whose effect is then uncertain.
    pub async fn call<R: Unary>(&self, request: R) -> Result<R::Reply, CallError> {
        // The deadline is the driver's: it begins with the turn.
        let _turn = match &self.turns {
            Some(turns) => turns.take(R::METHOD, request.volume_id()).await,
            None => None,
        };
        let call = Outgoing::new(&request);
        let span = call.span();
        let exchange = async {
            let deadline = self.deadlines.of(R::METHOD);
            let request = request.encode_to_vec().into();
            let outcome = within(deadline, self.exchange(&call, request, deadline)).await;
            self.conclude(&call, outcome.and_then(reply::decode))
        };
        exchange.instrument(span).await
    }

    /// Makes a call that has a stream of replies. The deadline is that of the
    /// whole stream.
    pub async fn stream<R: Streams>(&self, request: R) -> Result<Replies<R>, CallError> {
        let call = Outgoing::new(&request);
        let span = call.span();
        let open = async {
            let allowed = self.deadlines.of(R::METHOD);
            let ends = call.started + allowed;
            let request = request.encode_to_vec().into();
            let outcome = within(allowed, self.open(&call, request, allowed)).await;
            let stream = match outcome {
                Ok(stream) => stream,
                Err(status) => return self.conclude(&call, Err(status)),
            };
            Ok(Replies {
                driver: self.clone(),
                call,
                ends,
                stream: Some(stream),
                of: PhantomData,
            })
        };
        open.instrument(span).await
    }

    async fn exchange(
        &self,
        call: &Outgoing,
        request: Bytes,
        deadline: Duration,
    ) -> Result<Bytes, Status> {
        self.pass_before(call).await?;
        let mut grpc = self.grpc().await?;
        let path = PathAndQuery::from_static(call.site.method.path());
        let request = timed(request, deadline);
        let outcome = grpc.unary(request, path, reply::BytesCodec).await;
        self.pass_after(call, outcome)
            .await
            .map(tonic::Response::into_inner)
    }

    async fn open(
        &self,
        call: &Outgoing,
        request: Bytes,
        deadline: Duration,
    ) -> Result<Streaming<Bytes>, Status> {
        self.pass_before(call).await?;
        let mut grpc = self.grpc().await?;
        let path = PathAndQuery::from_static(call.site.method.path());
        let request = timed(request, deadline);
        let outcome = grpc
            .server_streaming(request, path, reply::BytesCodec)
            .await;
        self.pass_after(call, outcome)
            .await
            .map(tonic::Response::into_inner)
    }

    async fn grpc(&self) -> Result<tonic::client::Grpc<Channel>, Status> {
        let mut grpc = tonic::client::Grpc::new(self.line.channel.clone())
            .max_decoding_message_size(LARGEST_REPLY);
        grpc.ready().await.map_err(|error| {
            let mut status = Status::unavailable("the channel is not ready");
            status.set_source(Arc::new(error));
            status
        })?;
        Ok(grpc)
    }

    async fn pass_before(&self, call: &Outgoing) -> Result<(), Status> {
        match &self.gate {
            Some(gate) => gate.before(&call.site).await,
            None => Ok(()),
        }
    }

    async fn pass_after<T>(
        &self,
        call: &Outgoing,
        outcome: Result<T, Status>,
    ) -> Result<T, Status> {
        if let Some(gate) = &self.gate {
            let code = outcome.as_ref().err().map_or(Code::Ok, Status::code);
            gate.after(&call.site, code).await?;
        }
        outcome
    }

    /// Measures and logs a finished call, and turns its status into its meaning.
    fn conclude<T>(&self, call: &Outgoing, outcome: Result<T, Status>) -> Result<T, CallError> {
        let method = call.site.method;
        let outcome = outcome.map_err(|status| {
            // A probe is how the driver is waited for.
            if Origin::of(&status) == Origin::Connection && method != Method::Probe {
                self.known.lost.send_modify(|lost| *lost += 1);
            }
            CallError::from_status(method, &status, &call.sensitive)
        });
        let code = outcome.as_ref().err().map_or(Code::Ok, |error| error.code);
        let took = call.started.elapsed();
        if let Some(metrics) = &self.metrics {
            let driver = self.line.acquaintance.name();
            let driver = driver.or_else(|| self.called.clone());
            metrics.observe(&Measured {
                driver: driver.as_deref().unwrap_or(NAMELESS),
                path: call.site.method.path(),
                code,
                took,
                migrated: self.migrated,
            });
        }
        match &outcome {
            Ok(_) => tracing::debug!(code = code_name(code), ?took, "CSI call"),
            Err(error) => {
                tracing::debug!(
                    code = code_name(code),
                    ?took,
                    message = error.message,
                    "CSI call"
                );
            }
        }
        outcome
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.line.acquaintance.name();
        f.debug_struct("Driver")
            .field("name", &name)
            .field("connections", &self.line.connections())
            .finish_non_exhaustive()
    }
}

/// A call under way: what remains of the request once it has been sent.
struct Outgoing {
    site: CallSite,
    volume_id: Option<String>,
    sensitive: Sensitive,
    started: Instant,
}

impl Outgoing {
    fn new<R: CsiRequest>(request: &R) -> Self {
        let mut sensitive = Sensitive::default();
        request.sensitive(&mut sensitive);
        Self {
            site: CallSite {
                method: R::METHOD,
                subject: request.subject().to_owned(),
            },
            volume_id: request.volume_id().map(str::to_owned),
            sensitive,
            started: Instant::now(),
        }
    }

    fn span(&self) -> tracing::Span {
        let method = self.site.method.name();
        match &self.volume_id {
            Some(volume_id) => tracing::debug_span!("csi", method, volume_id),
            None => tracing::debug_span!("csi", method, subject = self.site.subject),
        }
    }
}

/// A stream of replies.
pub struct Replies<R: Streams> {
    driver: Driver,
    call: Outgoing,
    ends: Instant,
    /// Taken away once the stream has ended or failed.
    stream: Option<Streaming<Bytes>>,
    of: PhantomData<fn() -> R>,
}

impl<R: Streams> Replies<R> {
    /// The next reply, or `None` after the last. After an error or the end
    /// there is nothing more.
    pub async fn next(&mut self) -> Result<Option<R::Reply>, CallError> {
        let Some(stream) = self.stream.as_mut() else {
            return Ok(None);
        };
        let left = self.ends.saturating_duration_since(Instant::now());
        let next = within(left, stream.message()).await;
        match next.and_then(|reply| reply.map(reply::decode).transpose()) {
            Ok(Some(reply)) => Ok(Some(reply)),
            last => {
                self.stream = None;
                self.driver.conclude(&self.call, last)
            }
        }
    }
}

#[cfg(test)]
mod tests;
