//! What the nodes of this process tell of themselves: volumes' usage, metrics, health.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use futures::future::BoxFuture;
use orlop_apiserver::{NodeAnswer, NodeSource};
use orlop_node::NodeStats;
use orlop_runtime::Metrics;

use crate::endpoint::plain;

/// One node.
#[derive(Clone)]
pub(crate) struct Told {
    pub(crate) stats: NodeStats,
    pub(crate) metrics: Metrics,
}

impl Told {
    /// What is at a path of the kubelet's; none if there is nothing.
    pub(crate) async fn get(&self, path: &str) -> Option<NodeAnswer> {
        let (content_type, body) = match path.trim_end_matches('/') {
            "/stats/summary" => ("application/json", self.stats.summary().await.to_string()),
            "/metrics" => {
                let own = plain::from_open(&self.metrics.render());
                let volumes = self.stats.metrics().await;
                ("text/plain; version=0.0.4; charset=utf-8", own + &volumes)
            }
            "/healthz" => ("text/plain; charset=utf-8", "ok".to_owned()),
            _ => return None,
        };
        Some(NodeAnswer { content_type, body })
    }

    /// The same over HTTP.
    pub(crate) fn router(self) -> Router {
        Router::new().fallback(answer).with_state(self)
    }
}

async fn answer(State(node): State<Told>, uri: Uri) -> Response {
    match node.get(uri.path()).await {
        Some(answer) => {
            ([(header::CONTENT_TYPE, answer.content_type)], answer.body).into_response()
        }
        None => (StatusCode::NOT_FOUND, "404 page not found\n").into_response(),
    }
}

/// The nodes of this process, for its API server: they come after it.
#[derive(Clone, Default)]
pub(crate) struct Nodes {
    all: Arc<OnceLock<BTreeMap<String, Told>>>,
}

impl Nodes {
    /// All of them, once they run.
    pub(crate) fn are(&self, all: BTreeMap<String, Told>) {
        // Told once, by the one who started them.
        let _ = self.all.set(all);
    }
}

impl NodeSource for Nodes {
    fn get(&self, node: String, path: String) -> BoxFuture<'_, Option<NodeAnswer>> {
        Box::pin(async move { self.all.get()?.get(&node)?.get(&path).await })
    }
}
