//! The way of the scheduler's calls to the API server: counted, and struck where a trial says so.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

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
    /// The process ends before the answer comes; the request is carried out.
    Die,
    /// The answer is lost, and the process goes on with what it knew before.
    LoseAnswer,
}

/// The writes of a process, and what awaits it at one of them.
#[derive(Debug)]
pub(super) struct Strikes {
    calls: AtomicU64,
    fault: (u64, Fault),
    /// Told when the process has to end.
    pub(super) end: Notify,
}

impl Strikes {
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
        // Nobody relies on an event.
        if request.method() == Method::GET || request.uri().path().contains("/events") {
            return None;
        }
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        (self.fault.0 == number).then_some(self.fault.1)
    }
}

#[derive(Clone)]
pub(super) struct Wire {
    pub(super) server: ApiService,
    pub(super) strikes: Arc<Strikes>,
}

impl Service<Request<Body>> for Wire {
    type Response = Answer;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let fault = self.strikes.strikes(&request);
        let mut server = self.server.clone();
        let strikes = self.strikes.clone();
        Box::pin(async move {
            // A request that was sent is carried out whatever becomes of its sender.
            let sent = tokio::spawn(async move { server.call(request).await });
            let answer = sent.await.map_err(BoxError::from)?;
            match fault {
                Some(Fault::Die) => {
                    strikes.end.notify_one();
                    std::future::pending().await
                }
                Some(Fault::LoseAnswer) => Err("the answer was lost".into()),
                None => answer.map_err(|never| match never {}),
            }
        })
    }
}
