//! Metrics and health over HTTP.

use std::{future::Future, io};

use anyhow::{Context, Result};
use axum::{
    Router,
    http::{HeaderMap, StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use orlop_runtime::Metrics;
use orlop_sidecars::liveness::Liveness;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

pub(crate) mod plain;

/// How well something is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Health {
    /// Well.
    Ok,
    /// There is no such thing.
    Absent(String),
    /// Not well.
    Sick(String),
}

impl From<Liveness> for Health {
    fn from(liveness: Liveness) -> Self {
        match liveness {
            Liveness::Ready => Self::Ok,
            Liveness::NotReady => Self::Sick("driver responded but is not ready".to_owned()),
            Liveness::Failed(why) => Self::Sick(why),
        }
    }
}

impl IntoResponse for Health {
    fn into_response(self) -> axum::response::Response {
        match self {
            Self::Ok => (StatusCode::OK, "ok".to_owned()),
            Self::Absent(why) => (StatusCode::NOT_FOUND, why),
            Self::Sick(why) => (StatusCode::INTERNAL_SERVER_ERROR, why),
        }
        .into_response()
    }
}

/// What is served at one address.
#[derive(Default)]
pub(crate) struct Endpoint {
    router: Router,
}

impl Endpoint {
    /// With metrics at a path, as OpenMetrics for who asks for that.
    pub(crate) fn metrics(self, path: &str, metrics: Metrics) -> Self {
        const OPEN: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";
        let answer = move |asked: HeaderMap| {
            let mut accepted = asked.get_all(header::ACCEPT).iter();
            let open = accepted.any(|form| {
                form.to_str()
                    .is_ok_and(|form| form.contains("openmetrics-text"))
            });
            let (form, text) = match open {
                true => (OPEN, metrics.render()),
                false => (PLAIN, plain::from_open(&metrics.render())),
            };
            async move { ([(header::CONTENT_TYPE, form)], text) }
        };
        Self {
            router: self.router.route(path, get(answer)),
        }
    }

    /// With a question for health at a path.
    pub(crate) fn health<F, A>(self, path: &str, ask: F) -> Self
    where
        F: Fn() -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Health> + Send + 'static,
    {
        Self {
            router: self.router.route(path, get(ask)),
        }
    }

    /// Serves it, until what is answered is dropped.
    pub(crate) async fn serve(self, address: &str) -> Result<AbortOnDropHandle<()>> {
        let listener = listen(address)
            .await
            .with_context(|| format!("could not listen at {address}"))?;
        tracing::info!(address = ?listener.local_addr().ok(), "serving metrics and health");
        let serving = axum::serve(listener, self.router);
        let task = tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::error!(%error, "metrics and health are served no more");
            }
        });
        Ok(AbortOnDropHandle::new(task))
    }
}

/// Serves a router at an address, until what is answered is dropped.
pub(crate) async fn serve(router: Router, address: &str) -> Result<AbortOnDropHandle<()>> {
    Endpoint { router }.serve(address).await
}

/// Listens at an address as Go writes them: `:8080` is that port everywhere.
async fn listen(address: &str) -> io::Result<TcpListener> {
    match address.strip_prefix(':') {
        Some(port) => match TcpListener::bind(format!("[::]:{port}")).await {
            Ok(listener) => Ok(listener),
            // A host without IPv6.
            Err(_) => TcpListener::bind(format!("0.0.0.0:{port}")).await,
        },
        None => TcpListener::bind(address).await,
    }
}
