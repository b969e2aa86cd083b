//! The way to the API server: which one, and how much may be asked of it.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use anyhow::{Context as _, Result};
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::{
    client::{Body, ClientBuilder},
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::time::{Instant, sleep_until};
use tower::{Layer, Service};

/// The most that may be asked of an API server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cap {
    pub(crate) per_second: f64,
    pub(crate) burst: u32,
}

/// A client as a Go sidecar makes it: of the kubeconfig, `$KUBECONFIG`, or the pod's account.
pub(crate) async fn connect(
    kubeconfig: Option<&Path>,
    master: Option<&str>,
    cap: Option<Cap>,
) -> Result<kube::Client> {
    let config = configuration(kubeconfig, master).await?;
    let builder = ClientBuilder::try_from(config).context("the cluster's address is unusable")?;
    Ok(match cap {
        Some(cap) => builder.with_layer(&Pace::new(cap)).build(),
        None => builder.build(),
    })
}

/// Which API server, and how to speak to it.
pub(crate) async fn configuration(
    kubeconfig: Option<&Path>,
    master: Option<&str>,
) -> Result<kube::Config> {
    let mut config = match kubeconfig {
        Some(file) => {
            let kubeconfig = Kubeconfig::read_from(file)
                .with_context(|| format!("could not read {}", file.display()))?;
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("{} names no cluster to talk to", file.display()))?
        }
        None => kube::Config::infer()
            .await
            .context("no cluster was found: name one with --kubeconfig")?,
    };
    if let Some(master) = master {
        config.cluster_url = master
            .parse()
            .with_context(|| format!("--master={master} is no address"))?;
    }
    // Its retries also repeat POST, which can create an object twice; our queues retry.
    config.default_retry = false;
    Ok(config)
}

/// Lets no more requests through than a cap allows.
#[derive(Clone)]
struct Pace {
    bucket: Arc<Mutex<Bucket>>,
}

impl Pace {
    fn new(cap: Cap) -> Self {
        Self {
            bucket: Arc::new(Mutex::new(Bucket::new(cap))),
        }
    }
}

impl<S> Layer<S> for Pace {
    type Service = Paced<S>;

    fn layer(&self, inner: S) -> Paced<S> {
        Paced {
            inner,
            pace: self.clone(),
        }
    }
}

struct Paced<S> {
    inner: S,
    pace: Pace,
}

impl<S, B> Service<Request<Body>> for Paced<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        // A request is sent when its future is first looked at, not when it is made.
        let sent = self.inner.call(request);
        let bucket = Arc::clone(&self.pace.bucket);
        Box::pin(async move {
            let turn = {
                let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
                bucket.take(Instant::now())
            };
            sleep_until(turn).await;
            sent.await
        })
    }
}

/// Room for so many requests at once, that comes back with time.
struct Bucket {
    every: Duration,
    burst: u32,
    /// When it would be full again.
    full_at: Option<Instant>,
}

impl Bucket {
    fn new(cap: Cap) -> Self {
        Self {
            every: Duration::from_secs_f64(1.0 / cap.per_second),
            burst: cap.burst,
            full_at: None,
        }
    }

    /// Takes room for one request; answers with the time at which it may go.
    fn take(&mut self, now: Instant) -> Instant {
        let full = self.full_at.map_or(now, |at| at.max(now)) + self.every;
        self.full_at = Some(full);
        full.checked_sub(self.every * self.burst)
            .map_or(now, |at| at.max(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_goes_at_once_and_the_rest_at_its_pace() {
        let start = Instant::now();
        let mut bucket = Bucket::new(Cap {
            per_second: 10.0,
            burst: 3,
        });
        let waits: Vec<u128> = (0..6)
            .map(|_| (bucket.take(start) - start).as_millis())
            .collect();
        assert_eq!(waits, [0, 0, 0, 100, 200, 300]);
        // After a rest there is room for a burst again, and for no more than that.
        let later = start + Duration::from_secs(60);
        let waits: Vec<u128> = (0..4)
            .map(|_| (bucket.take(later) - later).as_millis())
            .collect();
        assert_eq!(waits, [0, 0, 0, 100]);
    }
}
