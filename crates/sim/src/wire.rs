//! The way of every call that a process makes, to the API server and to the driver.
//!
//! Each call is counted, delayed by a seeded while, written down and, where the plan says
//! so, struck. A request that was sent is carried out whatever becomes of its sender, as
//! over a network. A process whose time has come ends at that very call: nothing that it
//! still tries leaves it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::StreamExt as _;
use http::{Request, Response};
use http_body_util::{BodyExt as _, BodyStream, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use orlop_apiserver::ApiService;
use orlop_csi::client::{CallSite, Passage};
use orlop_csi::{Gate, Method, code_name};
use tokio::sync::mpsc;
use tonic::{Code, Status};
use tower::Service;

use crate::faults::{Fault, Member, Phase, Plan};
use crate::trace::Trace;
use crate::witness::Witness;

/// The longest that a message is under way; each takes a random share of it.
const LONGEST_WAY: u64 = 3;

/// A process across all its lives: its calls so far and what awaits it.
#[derive(Clone)]
pub struct Ledger {
    member: Member,
    plan: Arc<Plan>,
    trace: Trace,
    counted: Arc<Mutex<Counted>>,
}

struct Counted {
    calls: Vec<Call>,
    random: fastrand::Rng,
}

/// What a call is to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nature {
    /// It may change something that somebody relies on.
    Effect,
    /// It changes nothing, or (an event for people) nothing that anybody relies on: dying
    /// before it and dying after it are the same.
    Look,
}

/// A call that a process made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its number, from 1.
    pub number: u64,
    /// What was called.
    pub what: String,
    /// What it is to the world.
    pub nature: Nature,
}

impl Ledger {
    /// The ledger of a process that has not lived yet.
    pub fn new(member: Member, plan: Arc<Plan>, seed: u64, trace: Trace) -> Self {
        let mut salted = fastrand::Rng::with_seed(seed);
        for byte in member.to_string().bytes() {
            salted = fastrand::Rng::with_seed(salted.u64(..) ^ u64::from(byte));
        }
        let counted = Arc::new(Mutex::new(Counted {
            calls: Vec::new(),
            random: salted,
        }));
        Self {
            member,
            plan,
            trace,
            counted,
        }
    }

    /// The calls that it made.
    pub fn calls(&self) -> Vec<Call> {
        self.counted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .calls
            .clone()
    }

    fn count(&self, what: &str, nature: Nature) -> (u64, Option<Fault>) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        let number = counted.calls.len() as u64 + 1;
        counted.calls.push(Call {
            number,
            what: what.to_owned(),
            nature,
        });
        (number, self.plan.at(self.member, number))
    }

    fn way(&self) -> Duration {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        Duration::from_millis(counted.random.u64(0..=LONGEST_WAY))
    }
}

/// One life of a process.
#[derive(Clone)]
pub struct Wire {
    ledger: Ledger,
    ended: Arc<AtomicBool>,
    deaths: mpsc::UnboundedSender<Member>,
}

impl Wire {
    /// A new life. Its end is told to `deaths`.
    pub fn new(ledger: Ledger, deaths: mpsc::UnboundedSender<Member>) -> Self {
        Self {
            ledger,
            ended: Arc::default(),
            deaths,
        }
    }

    /// The API server through this wire.
    pub fn client(&self, api: ApiService, witness: Witness) -> kube::Client {
        kube::Client::new(
            ApiWire {
                wire: self.clone(),
                api,
                witness,
            },
            "default",
        )
    }

    /// What stands between this process and its driver.
    pub fn gate(&self) -> Arc<dyn Gate> {
        Arc::new(CsiWire {
            wire: self.clone(),
            under_way: Mutex::default(),
        })
    }

    /// Takes the next number for a call; waits for ever if the process has ended.
    async fn begin(&self, what: &str, nature: Nature) -> (u64, Option<Fault>) {
        if self.ended.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        let (number, fault) = self.ledger.count(what, nature);
        let strike = fault.map(|fault| format!(" [{fault}]")).unwrap_or_default();
        self.ledger
            .trace
            .say(format!("{} #{number} {what}{strike}", self.ledger.member));
        (number, fault)
    }

    fn finish(&self, number: u64, outcome: &str) {
        self.ledger
            .trace
            .say(format!("{} #{number} = {outcome}", self.ledger.member));
    }

    /// The process dies here.
    async fn end<T>(&self) -> T {
        if !self.ended.swap(true, Ordering::Relaxed) {
            self.ledger
                .trace
                .say(format!("{} dies", self.ledger.member));
            let _a_supervisor_that_is_gone_restarts_nothing = self.deaths.send(self.ledger.member);
        }
        std::future::pending().await
    }
}

/// The API server as one process reaches it.
#[derive(Clone)]
struct ApiWire {
    wire: Wire,
    api: ApiService,
    witness: Witness,
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Answer = Response<UnsyncBoxBody<bytes::Bytes, BoxError>>;
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

impl ApiWire {
    async fn send(self, request: Request<Body>) -> Answer {
        let watching = request
            .uri()
            .query()
            .is_some_and(|query| query.contains("watch=true"));
        let verb = if watching {
            "WATCH"
        } else {
            request.method().as_str()
        };
        let what = format!("{verb} {}", request.uri().path());
        let is_look =
            request.method() == http::Method::GET || request.uri().path().ends_with("/events");
        let nature = if is_look {
            Nature::Look
        } else {
            Nature::Effect
        };
        let (number, fault) = self.wire.begin(&what, nature).await;
        match fault {
            Some(Fault::Crash(Phase::Before)) => return self.wire.end().await,
            Some(Fault::Error(Phase::Before)) => return self.refuse(number),
            _ => tokio::time::sleep(self.wire.ledger.way()).await,
        }
        // Sent: from here on it is carried out, whether or not its sender lives.
        let (mut api, witness) = (self.api.clone(), self.witness.clone());
        let carried_out = tokio::spawn(async move {
            let Ok(reply) = api.call(request).await;
            witness.look();
            reply
        });
        let Ok(reply) = carried_out.await else {
            return self.refuse(number);
        };
        match fault {
            Some(Fault::Crash(Phase::After)) => return self.wire.end().await,
            Some(Fault::Error(Phase::After)) => return self.refuse(number),
            _ => tokio::time::sleep(self.wire.ledger.way()).await,
        }
        self.wire.finish(number, reply.status().as_str());
        if !watching {
            return reply.map(|body| body.map_err(Into::into).boxed_unsync());
        }
        let pieces = if let Some(Fault::Cut(pieces)) = fault {
            pieces
        } else {
            usize::MAX
        };
        let ledger = self.wire.ledger.clone();
        reply.map(|body| {
            let late = BodyStream::new(body).take(pieces).then(move |piece| {
                let way = ledger.way();
                async move {
                    tokio::time::sleep(way).await;
                    piece
                }
            });
            StreamBody::new(late).map_err(Into::into).boxed_unsync()
        })
    }

    fn refuse(&self, number: u64) -> Answer {
        self.wire.finish(number, "500, by plan");
        let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"the simulation fails this call","reason":"InternalError","code":500}"#;
        let body = Full::from(status).map_err(|never: Infallible| match never {});
        let mut reply = Response::new(body.boxed_unsync());
        *reply.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
        reply
    }
}

/// What a call to the driver is known by between its two halves.
type CallKey = (Method, String);
/// A call's number and what awaits it.
type Numbered = (u64, Option<Fault>);

/// The driver as one process reaches it.
struct CsiWire {
    wire: Wire,
    /// The calls under way that have a number, and what awaits them when they return.
    under_way: Mutex<BTreeMap<CallKey, Numbered>>,
}

impl Gate for CsiWire {
    fn before<'a>(&'a self, call: &'a CallSite) -> Passage<'a> {
        Box::pin(async move {
            let what = format!("{} {}", call.method, call.subject);
            let (number, fault) = self.wire.begin(&what, nature(call.method)).await;
            match fault {
                Some(Fault::Crash(Phase::Before)) => self.wire.end().await,
                Some(Fault::Error(Phase::Before)) => {
                    self.wire.finish(number, "Internal, by plan");
                    Err(Status::internal("the simulation fails this call"))
                }
                _ => {
                    let mut struck = self
                        .under_way
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner);
                    struck.insert((call.method, call.subject.clone()), (number, fault));
                    Ok(())
                }
            }
        })
    }

    fn after<'a>(&'a self, call: &'a CallSite, code: Code) -> Passage<'a> {
        Box::pin(async move {
            let key = (call.method, call.subject.clone());
            let struck = {
                let mut struck = self
                    .under_way
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                struck.remove(&key)
            };
            match struck {
                Some((_, Some(Fault::Crash(Phase::After)))) => self.wire.end().await,
                Some((number, Some(Fault::Error(Phase::After)))) => {
                    self.wire.finish(number, "Unavailable, by plan");
                    // A lost reply leaves the caller uncertain; INTERNAL would not.
                    Err(Status::unavailable("the simulation loses this reply"))
                }
                Some((number, _)) => {
                    self.wire.finish(number, code_name(code));
                    Ok(())
                }
                None => Ok(()),
            }
        })
    }
}

/// The fake driver serves no other call that changes something.
fn nature(method: Method) -> Nature {
    match method {
        Method::CreateVolume
        | Method::DeleteVolume
        | Method::ControllerPublishVolume
        | Method::ControllerUnpublishVolume
        | Method::ControllerExpandVolume
        | Method::NodeStageVolume
        | Method::NodeUnstageVolume
        | Method::NodePublishVolume
        | Method::NodeUnpublishVolume
        | Method::NodeExpandVolume => Nature::Effect,
        _ => Nature::Look,
    }
}
