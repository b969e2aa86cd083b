//! Ends a process at its k-th call, before the call leaves or after its answer has come.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use http::Request;
use kube::client::Body;
use orlop_apiserver::ApiService;
use orlop_csi::{
    Gate,
    client::{CallSite, Passage},
};
use tonic::Code;
use tower::Service;

/// Which half of a call is the last thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Half {
    /// It was about to be sent.
    Before,
    /// It was carried out; nobody learns of it.
    After,
}

/// Chooses requests, such as `PATCH /api/v1/…`.
pub(crate) type Which = fn(&str) -> bool;

/// Blows at one call. From then on no call gets through: the process is as good as dead.
#[derive(Clone)]
pub(crate) struct Fuse(Arc<Inner>);

struct Inner {
    at: usize,
    half: Half,
    seen: AtomicUsize,
    blown: AtomicBool,
    /// Requests to the API server and how they were answered.
    requests: Mutex<Vec<(String, u16)>>,
    /// Which requests the API server says no to.
    refused: Mutex<Option<Which>>,
    /// Numbers of the calls that are at the driver.
    away: Mutex<Vec<(CallSite, usize)>>,
}

impl Fuse {
    pub(crate) fn at(at: usize, half: Half) -> Self {
        Self(Arc::new(Inner {
            at,
            half,
            seen: AtomicUsize::new(0),
            blown: AtomicBool::new(false),
            requests: Mutex::default(),
            refused: Mutex::default(),
            away: Mutex::default(),
        }))
    }

    pub(crate) fn never() -> Self {
        Self::at(usize::MAX, Half::Before)
    }

    /// The requests to the API server so far, and how they were answered.
    pub(crate) fn requests(&self) -> Vec<(String, u16)> {
        let requests = self.0.requests.lock();
        requests.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on these requests are not for the process to make.
    pub(crate) fn refuse(&self, which: Option<Which>) {
        *self
            .0
            .refused
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = which;
    }

    fn refuses(&self, what: &str) -> bool {
        let refused = self.0.refused.lock();
        let refused = *refused.unwrap_or_else(PoisonError::into_inner);
        refused.is_some_and(|which| which(what))
    }

    pub(crate) fn is_blown(&self) -> bool {
        self.0.blown.load(Ordering::SeqCst)
    }

    /// The number of this call; never comes if the process ends here.
    async fn enter(&self) -> usize {
        let number = self.0.seen.fetch_add(1, Ordering::SeqCst) + 1;
        self.pass(number, Half::Before).await;
        number
    }

    fn away(&self) -> MutexGuard<'_, Vec<(CallSite, usize)>> {
        self.0.away.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn pass(&self, number: usize, half: Half) {
        if number == self.0.at && half == self.0.half {
            self.0.blown.store(true, Ordering::SeqCst);
        }
        if self.is_blown() {
            std::future::pending::<()>().await;
        }
    }
}

impl Gate for Fuse {
    fn before<'a>(&'a self, call: &'a CallSite) -> Passage<'a> {
        Box::pin(async move {
            let number = self.enter().await;
            self.away().push((call.clone(), number));
            Ok(())
        })
    }

    fn after<'a>(&'a self, call: &'a CallSite, _: Code) -> Passage<'a> {
        Box::pin(async move {
            let number = {
                let mut away = self.away();
                let found = away.iter().position(|(site, _)| site == call);
                away.remove(found.expect("it went before it came back")).1
            };
            self.pass(number, Half::After).await;
            Ok(())
        })
    }
}

/// The API server behind a fuse. Watches pass: their loss is no step of a role.
#[derive(Clone)]
pub(crate) struct Fused {
    pub(crate) inner: ApiService,
    pub(crate) fuse: Fuse,
}

impl Service<Request<Body>> for Fused {
    type Response = <ApiService as Service<Request<Body>>>::Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let watch = request.uri().query().is_some_and(|q| q.contains("watch="));
        let (fuse, answer) = (self.fuse.clone(), self.inner.clone());
        Box::pin(async move {
            let mut answer = answer;
            if watch {
                return answer.call(request).await;
            }
            let what = format!("{} {}", request.method(), request.uri().path());
            let number = fuse.enter().await;
            if fuse.refuses(&what) {
                // In a form that it takes from nobody.
                let form = http::HeaderValue::from_static("text/plain");
                request.headers_mut().insert("content-type", form);
            }
            let answer = answer.call(request).await;
            if let Ok(answer) = &answer {
                let requests = fuse.0.requests.lock();
                let mut requests = requests.unwrap_or_else(PoisonError::into_inner);
                requests.push((what, answer.status().as_u16()));
            }
            fuse.pass(number, Half::After).await;
            answer
        })
    }
}
