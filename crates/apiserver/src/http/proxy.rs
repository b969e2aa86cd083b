//! `nodes/proxy`: what a node tells of itself, from whoever runs it.

use axum::body::Body;
use futures::future::BoxFuture;
use http::header::HeaderValue;
use http::request::Parts;
use http::{Response, StatusCode};

use super::{Api, reply};
use crate::refusal::Refusal;
use crate::registry::Target;

/// What a node answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAnswer {
    /// What it is, for its header.
    pub content_type: &'static str,
    /// The text.
    pub body: String,
}

/// Whoever runs nodes, and can ask them.
pub trait NodeSource: Send + Sync {
    /// Asks a node for what it has at a path such as `/stats/summary`; none if it has nothing
    /// there.
    fn get(&self, node: String, path: String) -> BoxFuture<'_, Option<NodeAnswer>>;
}

impl Api {
    pub(super) async fn proxy(
        &self,
        target: &Target,
        parts: &Parts,
    ) -> Result<Response<Body>, Refusal> {
        if self.registry.store.get(&target.key()).is_none() {
            return Err(Refusal::not_found(target.kind, &target.name));
        }
        let source = self.nodes.as_ref().ok_or_else(|| {
            Refusal::internal("no node is run by this process; ask it where it runs")
        })?;
        let (_, path) = parts.uri.path().split_once("/proxy").unwrap_or_default();
        let answer = source.get(target.name.clone(), path.to_owned()).await;
        let Some(answer) = answer else {
            return Ok(reply::text(StatusCode::NOT_FOUND, "404 page not found\n"));
        };
        let form = HeaderValue::from_static(answer.content_type);
        Ok(reply::with_type(StatusCode::OK, form, answer.body))
    }
}
