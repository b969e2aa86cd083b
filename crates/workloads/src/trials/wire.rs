//! The way of the roles' calls to the API server: counted, and struck where a trial says so.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use http::{Method, Request};
use kube::client::Body;
use orlop_apiserver::ApiService;
use tokio::sync::Notify;
use tower::Service;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Answer = <ApiService as Service<Request<Body>>>::Response;

/// What happens at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The process ends before the answer comes; the request is carried out. Ending before
    /// the next request leaves is the same to the world.
    Die,
    /// The answer to a creation is lost, and the process goes on. Other requests name the
    /// version or the object that they are for, and can't be carried out twice.
    LoseAnswer,
}

/// The calls of a process that a fault may strike, and what awaits it.
#[derive(Debug)]
pub(super) struct Ledger {
    calls: AtomicU64,
    /// What strikes, and at which of the calls that it may strike.
    fault: (u64, Fault),
    /// Told when the process has to end.
    pub(super) end: Notify,
}

impl Ledger {
    pub(super) fn new(fault: (u64, Fault)) -> Arc<Self> {
        Arc::new(Self {
            calls: AtomicU64::new(0),
            fault,
            end: Notify::new(),
        })
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    fn strikes(&self, request: &Request<Body>) -> Option<Fault> {
        let (at, fault) = self.fault;
        let counts = match fault {
            Fault::Die => request.method() != Method::GET,
            Fault::LoseAnswer => request.method() == Method::POST,
        };
        // Nobody relies on an event.
        if !counts || request.uri().path().contains("/events") {
            return None;
        }
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        (at == number).then_some(fault)
    }
}

#[derive(Clone)]
pub(super) struct Wire {
    pub(super) server: ApiService,
    pub(super) ledger: Arc<Ledger>,
}

impl Service<Request<Body>> for Wire {
    type Response = Answer;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let fault = self.ledger.strikes(&request);
        let mut server = self.server.clone();
        let ledger = self.ledger.clone();
        Box::pin(async move {
            // A request that was sent is carried out whatever becomes of its sender.
            let sent = tokio::spawn(async move { server.call(request).await });
            let answer = sent.await.map_err(BoxError::from)?;
            match fault {
                Some(Fault::Die) => {
                    ledger.end.notify_one();
                    std::future::pending().await
                }
                Some(Fault::LoseAnswer) => Err("the answer was lost".into()),
                None => answer.map_err(|never| match never {}),
            }
        })
    }
}
