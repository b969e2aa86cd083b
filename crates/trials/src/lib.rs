//! The way of a role's calls to the embedded API server: counted, and struck where a trial says
//! so. For tests.
//!
//! A trial is told once undisturbed, which counts the calls that a fault may strike, and then
//! once for each of them. Where the simulation plays all roles on a paused clock, a trial runs
//! one role as it is, on the machine as it is.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use futures::StreamExt as _;
use http::{Method, Request};
use kube::client::Body;
use orlop_apiserver::ApiService;
use tokio::sync::Notify;
use tower::Service;

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Answer = <ApiService as Service<Request<Body>>>::Response;

/// What happens at a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The process ends before the answer comes; the request is carried out. Ending before the
    /// next request leaves is the same to the world.
    Die,
    /// The answer is lost, and the process goes on with what it knew before.
    LoseAnswer,
}

/// Which calls a fault may strike. Events never: nobody relies on one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Those that change something.
    Writes,
    /// Those that make something: others name the version or the object that they are for, and
    /// can't be carried out twice.
    Creations,
    /// Those, and reads of single objects; lists and watches go on by themselves.
    Calls,
}

/// The calls of a process, through all its lives, and what awaits it at one of them.
#[derive(Debug)]
pub struct Strikes {
    calls: AtomicU64,
    at: u64,
    fault: Fault,
    reach: Reach,
    end: Notify,
}

impl Strikes {
    /// A fault at one of the calls that it may strike, counted from 1.
    pub fn at(number: u64, fault: Fault, reach: Reach) -> Arc<Self> {
        Arc::new(Self {
            calls: AtomicU64::new(0),
            at: number,
            fault,
            reach,
            end: Notify::new(),
        })
    }

    /// Only counts.
    pub fn none(reach: Reach) -> Arc<Self> {
        Self::at(u64::MAX, Fault::Die, reach)
    }

    /// How many calls there were that could have been struck.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    /// Waits until the process has to end.
    pub async fn end(&self) {
        self.end.notified().await;
    }

    /// A client whose calls go this way.
    pub fn client(self: &Arc<Self>, server: ApiService) -> kube::Client {
        let strikes = self.clone();
        kube::Client::new(Wire { server, strikes }, "default")
    }

    fn strike(&self, request: &Request<Body>) -> Option<Fault> {
        let (method, path) = (request.method(), request.uri().path());
        let counts = match self.reach {
            Reach::Writes => method != Method::GET,
            Reach::Creations => method == Method::POST,
            Reach::Calls => method != Method::GET || names_one(path),
        };
        if !counts || path.contains("/events") {
            return None;
        }
        let number = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        (self.at == number).then_some(self.fault)
    }
}

/// Whether a path is of one object: `/api/v1/nodes/a`, `/apis/apps/v1/namespaces/b/jobs/c`.
fn names_one(path: &str) -> bool {
    let mut parts: Vec<&str> = path.split('/').skip(1).collect();
    parts.drain(..parts.len().min(if parts[0] == "api" { 2 } else { 3 }));
    match parts[..] {
        ["namespaces", _, ref rest @ ..] => rest.len() != 1,
        _ => parts.len() > 1,
    }
}

#[derive(Clone)]
struct Wire {
    server: ApiService,
    strikes: Arc<Strikes>,
}

impl Service<Request<Body>> for Wire {
    type Response = Answer;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let fault = self.strikes.strike(&request);
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

/// How many trials run side by side: most of their time they wait.
const AT_ONCE: usize = 16;

/// Makes a trial undisturbed, and then once for each call that a fault may strike.
///
/// # Panics
/// There are too few calls for the trial to be one.
pub async fn at_every_call(fault: Fault, reach: Reach, trial: impl AsyncFn(Arc<Strikes>)) {
    let calm = Strikes::none(reach);
    trial(calm.clone()).await;
    let calls = calm.calls();
    assert!(calls > 2, "only {calls} calls");
    let trials = (1..=calls).map(|number| trial(Strikes::at(number, fault, reach)));
    let mut trials = futures::stream::iter(trials).buffer_unordered(AT_ONCE);
    while trials.next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use super::names_one;

    #[test]
    fn reads_of_one_object_are_told_from_lists() {
        for (path, one) in [
            ("/api/v1/nodes", false),
            ("/api/v1/nodes/a", true),
            ("/api/v1/namespaces/a", true),
            ("/api/v1/namespaces/a/pods", false),
            ("/api/v1/namespaces/a/pods/b", true),
            ("/api/v1/namespaces/a/pods/b/status", true),
            ("/apis/storage.k8s.io/v1/storageclasses", false),
            ("/apis/storage.k8s.io/v1/storageclasses/a", true),
        ] {
            assert_eq!(names_one(path), one, "{path}");
        }
    }
}
