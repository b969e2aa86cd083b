//! The way to the API server: which one, and how much may be asked of it.

use std::{
    path::Path,
    task::{Context, Poll},
};

use anyhow::{Context as _, Result};
use futures::future::BoxFuture;
use http::{Request, Response};
use kube::{
    client::{Body, ClientBuilder},
    config::{KubeConfigOptions, Kubeconfig},
};
use orlop_runtime::{Bucket, Cap};
use tower::{Layer, Service};

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
    bucket: Bucket,
}

impl Pace {
    fn new(cap: Cap) -> Self {
        Self {
            bucket: Bucket::new(cap),
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
        let bucket = self.pace.bucket.clone();
        Box::pin(async move {
            bucket.turn().await;
            sent.await
        })
    }
}
