//! Runs every call of a driver in a task of its own, measures and names it.
//!
//! tonic drops a handler when its caller hangs up or its deadline passes, in
//! the middle of whatever it does; a mount that goes on in a blocking thread
//! would then race with the repetition of the call. Here a call that has begun
//! runs to its end, as in Go, unless the whole server is killed.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};
use tracing::Instrument as _;

use super::caller::Caller;
use crate::code_name;
use crate::metrics::{Measured, Metrics};

/// What all calls of a server share.
#[derive(Clone)]
pub(super) struct Watch {
    pub(super) observer: Option<Arc<Observer>>,
    pub(super) running: TaskTracker,
    pub(super) kill: CancellationToken,
}

/// Who counts the calls, and under which driver's name.
pub(super) struct Observer {
    pub(super) driver: String,
    pub(super) metrics: Metrics,
}

impl<S> Layer<S> for Watch {
    type Service = Watched<S>;

    fn layer(&self, inner: S) -> Watched<S> {
        Watched {
            inner,
            watch: self.clone(),
        }
    }
}

/// The routes of a server, watched.
#[derive(Clone)]
pub(super) struct Watched<S> {
    inner: S,
    watch: Watch,
}

impl<S> Service<Request<Body>> for Watched<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S: Clone + Send + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let clone = self.inner.clone();
        // The instance that was made ready is the one to call.
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let watch = self.watch.clone();
        let path = request.uri().path().to_owned();
        let span = tracing::debug_span!("csi_server", method = path.rsplit('/').next());
        let caller = Caller::arriving(request.headers());
        let leaving = caller.leaving();
        request.extensions_mut().insert(caller);

        let work = async move {
            let started = Instant::now();
            let reply = tokio::select! {
                biased;
                () = watch.kill.cancelled() => {
                    Status::unavailable("the driver was stopped during the call").into_http()
                }
                Ok(reply) = inner.call(request) => reply,
            };
            watch.note(&path, code_of(&reply), started);
            reply
        };
        let task = self.watch.running.spawn(work.instrument(span));
        Box::pin(async move {
            // Dropped with this future, if the caller does not wait for its end.
            let _leaving = leaving;
            Ok(task.await.unwrap_or_else(|_| panicked().into_http()))
        })
    }
}

impl Watch {
    fn note(&self, path: &str, code: Code, started: Instant) {
        let took = started.elapsed();
        tracing::debug!(code = code_name(code), ?took, "CSI call served");
        if let Some(observer) = &self.observer {
            observer.metrics.observe(&Measured {
                driver: &observer.driver,
                path,
                code,
                took,
                migrated: false,
            });
        }
    }
}

fn panicked() -> Status {
    tracing::error!("a CSI call ended in a panic");
    Status::internal("the driver failed in an unforeseen way; see its log")
}

/// tonic puts a refusal's code into the headers; a reply without one goes on
/// to its body, and for a stream this is the code of its opening.
fn code_of(reply: &Response<Body>) -> Code {
    Status::from_header_map(reply.headers()).map_or(Code::Ok, |status| status.code())
}
