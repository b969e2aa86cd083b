//! The API server as one process reaches it.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, BodyStream, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use orlop_apiserver::ApiService;
use tower::Service;

use super::{Nature, Wire, guard};
use crate::faults::{Answer as Error, Fault, Phase};
use crate::witness::Witness;

/// How long each of the first pieces of a watch takes to who is shown the past.
const SLOWLY: Duration = Duration::from_millis(300);
/// How many pieces that are.
const PIECES: usize = 12;

#[derive(Clone)]
pub(super) struct ApiWire {
    wire: Wire,
    api: ApiService,
    witness: Witness,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;
type Reply = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

impl Service<Request<Body>> for ApiWire {
    type Response = Answer;
    type Error = Infallible;
    type Future = Reply;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Reply {
        let wire = self.clone();
        Box::pin(async move { Ok(wire.send(request).await) })
    }
}

/// What a request is.
struct What {
    path: String,
    is_watch: bool,
    /// It begins a list of a whole kind.
    is_list: bool,
    nature: Nature,
}

impl What {
    fn of(request: &Request<Body>) -> Self {
        let path = request.uri().path().to_owned();
        let query = request.uri().query().unwrap_or_default();
        let is_watch = query.contains("watch=true");
        let is_read = request.method() == http::Method::GET;
        Self {
            is_watch,
            is_list: is_read
                && !is_watch
                && query.contains("limit=")
                && !query.contains("continue="),
            nature: if is_read || path.contains("/events") {
                Nature::Look
            } else {
                Nature::Effect
            },
            path,
        }
    }
}

impl ApiWire {
    pub(super) fn new(wire: Wire, api: ApiService, witness: Witness) -> Self {
        Self { wire, api, witness }
    }

    async fn send(self, request: Request<Body>) -> Answer {
        let what = What::of(&request);
        let verb = if what.is_watch {
            "WATCH"
        } else {
            request.method().as_str()
        };
        let words = format!("{verb} {}", what.path);
        let request = self.checked(request, what.nature).await;
        let (number, fault) = self.wire.begin(&words, what.nature).await;
        if let Some(Fault::Refused(Phase::Before, error)) = fault {
            return self.refuse(number, error);
        }
        if what.is_watch && locked(&self.wire.expired).remove(&what.path) {
            return self.answer(number, StatusCode::GONE, "Expired");
        }
        if let Some(old) = self.past(&what) {
            self.wire.finish(number, "200, as it once was");
            return Response::new(whole(old));
        }
        tokio::time::sleep(self.wire.ledger.way()).await;
        // Sent: from here on it is carried out, whether or not its sender lives.
        let (mut api, witness) = (self.api.clone(), self.witness.clone());
        let carried_out = tokio::spawn(async move {
            let Ok(reply) = api.call(request).await;
            witness.look();
            reply
        });
        let Ok(reply) = carried_out.await else {
            return self.refuse(number, Error::Error);
        };
        self.wire.pass(fault, Phase::After).await;
        if let Some(Fault::Refused(Phase::After, error)) = fault {
            return self.refuse(number, error);
        }
        tokio::time::sleep(self.wire.ledger.way()).await;
        self.wire.finish(number, reply.status().as_str());
        let reply = reply.map(|body| body.map_err(Into::into).boxed_unsync());
        if let (true, Some(Fault::Blind(time))) = (what.is_watch, fault) {
            locked(&self.wire.expired).insert(what.path);
            return reply.map(|_| blind(time));
        }
        if what.is_watch {
            return self.follow(reply, fault);
        }
        if what.is_list && reply.status() == StatusCode::OK {
            return self.remember(&what.path, reply).await;
        }
        reply
    }

    /// Holds every write to I15: it names the object or the version that it is meant for.
    async fn checked(&self, request: Request<Body>, nature: Nature) -> Request<Body> {
        if nature == Nature::Look {
            return request;
        }
        let (head, body) = request.into_parts();
        let Ok(body) = body.collect().await else {
            return Request::from_parts(head, Body::empty());
        };
        let body = body.to_bytes();
        let breach = guard::unguarded(self.wire.ledger.member, &head, &body);
        self.witness.blame(breach.into_iter().collect());
        Request::from_parts(head, Body::from(body))
    }

    /// The first list of a kind in a life that begins in the past.
    fn past(&self, what: &What) -> Option<Bytes> {
        if !self.wire.birth.in_the_past || !what.is_list {
            return None;
        }
        let first = locked(&self.wire.shown).insert(what.path.clone());
        let old = self.wire.ledger.counted().lists.get(&what.path).cloned();
        old.filter(|_| first)
    }

    async fn remember(&self, path: &str, reply: Answer) -> Answer {
        let (head, body) = reply.into_parts();
        let body = body.collect().await;
        let body = body
            .map(http_body_util::Collected::to_bytes)
            .unwrap_or_default();
        let mut counted = self.wire.ledger.counted();
        let lists = &mut counted.lists;
        lists.entry(path.to_owned()).or_insert_with(|| body.clone());
        drop(counted);
        Response::from_parts(head, whole(body))
    }

    /// What a watch tells, piece by piece.
    fn follow(&self, reply: Answer, fault: Option<Fault>) -> Answer {
        let pieces = match fault {
            Some(Fault::Cut(pieces)) => pieces,
            _ => usize::MAX,
        };
        let wait = match fault {
            Some(Fault::Late(wait)) => wait,
            _ => Duration::ZERO,
        };
        let wire = self.wire.clone();
        reply.map(|body| {
            let told = BodyStream::new(body).take(pieces).enumerate();
            let late = told.then(move |(number, piece)| {
                let mut way = wire.ledger.way() + wait;
                if wire.birth.in_the_past && number < PIECES {
                    way += SLOWLY;
                }
                let deaf = wire.deaf.clone();
                async move {
                    tokio::time::sleep(way).await;
                    if deaf.load(Ordering::Relaxed) {
                        std::future::pending::<()>().await;
                    }
                    piece
                }
            });
            StreamBody::new(late).boxed_unsync()
        })
    }

    fn refuse(&self, number: u64, error: Error) -> Answer {
        let (code, reason) = match error {
            Error::Error => (StatusCode::INTERNAL_SERVER_ERROR, "InternalError"),
            Error::Conflict => (StatusCode::CONFLICT, "Conflict"),
            Error::Busy => (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"),
        };
        self.answer(number, code, reason)
    }

    fn answer(&self, number: u64, code: StatusCode, reason: &str) -> Answer {
        self.wire.finish(number, &format!("{code}, by plan"));
        let status = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "status": "Failure",
            "message": "the simulation fails this call", "reason": reason,
            "code": code.as_u16(), "details": {"retryAfterSeconds": 1},
        });
        let mut reply = Response::new(whole(Bytes::from(status.to_string())));
        *reply.status_mut() = code;
        reply
    }
}

fn locked(set: &Mutex<BTreeSet<String>>) -> MutexGuard<'_, BTreeSet<String>> {
    set.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A body that ends after a while, with nothing in it.
fn blind(time: Duration) -> UnsyncBoxBody<Bytes, BoxError> {
    let nothing = futures::stream::once(tokio::time::sleep(time));
    let nothing = nothing.filter_map(|()| std::future::ready(None));
    StreamBody::new(nothing).boxed_unsync()
}

fn whole(body: Bytes) -> UnsyncBoxBody<Bytes, BoxError> {
    let body = Full::from(body).map_err(|never: Infallible| match never {});
    body.boxed_unsync()
}
