//! The API over HTTP, as a tower service.
//!
//! Roles in the same process call the service directly, all others through `crate::serve`.
//! It owns the words of the protocol (paths, parameters, media types, status codes); what
//! may happen to objects is [`crate::registry`]'s to say.

mod body;
mod gate;
mod health;
mod inflight;
mod logs;
mod metrics;
mod negotiate;
mod pieces;
mod proxy;
mod query;
mod read;
mod reply;
mod route;
mod scale;
mod watching;
mod writes;
mod writing;

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{ACCEPT, CONNECTION, HeaderValue};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use serde_json::json;
use tokio::runtime::RuntimeFlavor;

pub use logs::{LogError, LogRequest, LogSource, LogStream};
pub use proxy::{NodeAnswer, NodeSource};

pub(crate) use self::body::HEADERS_LIMIT;
pub(crate) use self::route::decode as decode_segment;

use self::body::{BoxError, headers_length, lend, read_body};
use self::inflight::{InFlight, Lane};
use self::query::Query;
use self::route::Route;
use self::writing::Writing;
use crate::access::{Caller, Index, Signer, User};
use crate::discovery;
use crate::limits::Limits;
use crate::openapi;
use crate::protobuf;
use crate::refusal::Refusal;
use crate::registry::{Registry, Target};

/// Bodies from this size on are handled apart from the threads that all requests share.
const LARGE: usize = 128 << 10;

/// The API as a tower service; clones share it. It speaks for one caller: whoever holds the
/// one that [`crate::ApiServer::service`] returns may do everything.
#[derive(Clone)]
pub struct ApiService {
    api: Api,
    caller: Caller,
}

/// What all requests need.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) registry: Registry,
    pub(crate) logs: Option<Arc<dyn LogSource>>,
    nodes: Option<Arc<dyn NodeSource>>,
    pub(crate) metrics: Arc<metrics::Metrics>,
    signer: Arc<Signer>,
    index: Index,
    in_flight: Arc<InFlight>,
    /// How long a request may take.
    patience: Duration,
}

/// Who knows what no object tells.
pub(crate) struct Sources {
    pub(crate) logs: Option<Arc<dyn LogSource>>,
    pub(crate) nodes: Option<Arc<dyn NodeSource>>,
}

impl ApiService {
    pub(crate) fn new(
        registry: Registry,
        Sources { logs, nodes }: Sources,
        signer: Arc<Signer>,
        limits: &Limits,
    ) -> Self {
        Self {
            api: Api {
                registry,
                logs,
                nodes,
                metrics: Arc::default(),
                signer,
                index: Index::default(),
                in_flight: Arc::new(InFlight::new(limits.reading, limits.writing)),
                patience: limits.request,
            },
            caller: Caller::Known(User::master("system:apiserver")),
        }
    }

    /// The same API for another caller.
    pub(crate) fn called_by(mut self, caller: Caller) -> Self {
        self.caller = caller;
        self
    }
}

impl std::fmt::Debug for ApiService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ApiService")
    }
}

impl<B> tower::Service<Request<B>> for ApiService
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let Self { api, caller } = self.clone();
        Box::pin(async move { Ok(api.answer(request, &caller).await) })
    }
}

impl Api {
    async fn answer<B>(&self, request: Request<B>, caller: &Caller) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (parts, body) = request.into_parts();
        let (body, home) = lend(body);
        let route = Route::parse(&self.registry.kinds(), parts.uri.path());
        let admitted = match headers_length(&parts) {
            length if length > HEADERS_LIMIT => Err(Refusal::headers_too_large(HEADERS_LIMIT)),
            _ => self.admitted(&parts, route.as_ref(), caller),
        };
        let answer = match (admitted, &route) {
            (Ok(user), Some(route)) => self.resource(&parts, route, &user, body).await,
            (Err(refusal), _) => {
                drop(body);
                Err(refusal)
            }
            (Ok(_), None) => {
                drop(body);
                match health::Question::parse(&parts) {
                    Some(question) => Ok(question.answer(&self.registry.store.look().await)),
                    None => self.document(&parts),
                }
            }
        };
        let response = answer.unwrap_or_else(|refusal| {
            reply::refusal(&refusal, negotiate::encoding(&accept(&parts)))
        });
        let custom = route.as_ref().and_then(|route| route.kind.custom);
        let deprecation = custom.and_then(|custom| custom.deprecation.clone());
        let mut response = reply::warned(response, deprecation.as_slice());
        if !home.cleared(&parts, response.status()).await {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        self.metrics
            .count(&parts.method, route.as_ref(), response.status());
        response
    }

    async fn resource<B>(
        &self,
        parts: &Parts,
        route: &Route,
        user: &User,
        body: B,
    ) -> Result<Response<Body>, Refusal>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let query = Query::parse(&parts.uri)?;
        let mut query = match parts.method {
            Method::GET | Method::HEAD => query,
            _ => query.for_write(&parts.method)?,
        };
        if let Some(watched) = &route.watched {
            if parts.method != Method::GET {
                return Err(Refusal::method_not_allowed());
            }
            query.watch = true;
            if !watched.is_empty() {
                query.field_selector = format!("metadata.name={watched}");
            }
        }
        if is_long(parts, route, &query) {
            return self.read(parts, route, &query).await;
        }
        let lane = match parts.method {
            Method::GET | Method::HEAD => Lane::Reading,
            _ => Lane::Writing,
        };
        // Whoever may do everything is let in always, to set right what others do.
        let turn = match user.is_master() {
            true => None,
            false => Some(self.in_flight.begin(lane, &user.name)),
        };
        if matches!(turn, Some(None)) {
            return Err(Refusal::too_many_requests());
        }
        let patience = query.timeout.unwrap_or(self.patience).min(self.patience);
        let answer = async {
            match lane {
                Lane::Reading => self.read(parts, route, &query).await,
                Lane::Writing => self.write(parts, route, &query, (user, body)).await,
            }
        };
        tokio::time::timeout(patience, answer)
            .await
            .unwrap_or_else(|_| Err(Refusal::timeout()))
    }

    async fn write<B>(
        &self,
        parts: &Parts,
        route: &Route,
        query: &Query,
        (user, body): (&User, B),
    ) -> Result<Response<Body>, Refusal>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let answer = negotiate::choose(&accept(parts), protobuf::serves(route.kind))?;
        let body = read_body(body).await?;
        let writing = Writing {
            route,
            query,
            answer,
            headers: &parts.headers,
            user,
            body: &body,
        };
        if route.subresource.as_deref() == Some("scale") {
            return self.rescale(&writing, &parts.method).await;
        }
        let answer = async {
            match parts.method {
                Method::POST => self.post(&writing).await,
                Method::PUT => self.put(&writing).await,
                Method::PATCH => self.patch(&writing).await,
                Method::DELETE => self.delete(&writing).await,
                _ => Err(Refusal::method_not_allowed()),
            }
        };
        let runtime = tokio::runtime::Handle::current();
        if body.len() < LARGE || runtime.runtime_flavor() != RuntimeFlavor::MultiThread {
            return answer.await;
        }
        // A large object takes long to read and to check: others' requests must not wait for
        // the thread that does it.
        let patience = query.timeout.unwrap_or(self.patience).min(self.patience);
        tokio::task::block_in_place(|| {
            let answer = async { tokio::time::timeout(patience, answer).await };
            let answer = runtime.block_on(answer);
            answer.unwrap_or_else(|_| Err(Refusal::timeout()))
        })
    }

    async fn read(
        &self,
        parts: &Parts,
        route: &Route,
        query: &Query,
    ) -> Result<Response<Body>, Refusal> {
        let target = |name: &str| Target {
            kind: route.kind,
            namespace: route.namespace.clone(),
            name: name.to_owned(),
        };
        let encodable = protobuf::serves(route.kind);
        match (route.name.as_deref(), route.subresource.as_deref()) {
            (Some(name), Some("log")) => self.log(&target(name), query).await,
            (Some(name), Some("proxy")) => self.proxy(&target(name), parts).await,
            (Some(name), None | Some("status")) => {
                let answer = negotiate::choose(&accept(parts), encodable)?;
                self.get(&target(name), query, answer).await
            }
            (Some(name), Some("scale")) => {
                let answer = negotiate::choose(&accept(parts), true)?;
                self.scale(&target(name), answer)
            }
            (Some(_), Some(_)) => Err(Refusal::method_not_allowed()),
            (None, _) => {
                let answer = negotiate::choose(&accept(parts), encodable)?;
                let of = (route.kind, route.namespace.as_str());
                if query.watch {
                    self.watch(of, query, answer).await
                } else {
                    self.list(of, query, answer, &parts.headers).await
                }
            }
        }
    }

    /// Everything that isn't an object.
    fn document(&self, parts: &Parts) -> Result<Response<Body>, Refusal> {
        if parts.method != Method::GET && parts.method != Method::HEAD {
            return Err(Refusal::no_such_path());
        }
        let kinds = self.registry.kinds();
        let path = parts.uri.path();
        let path = if path.len() > 1 {
            path.trim_end_matches('/')
        } else {
            path
        };
        match path {
            "/.well-known/openid-configuration" => {
                Ok(reply::value(StatusCode::OK, &self.signer.discovery()))
            }
            "/openid/v1/jwks" => {
                let form = HeaderValue::from_static("application/jwk-set+json");
                let keys = self.signer.keys().to_string();
                Ok(reply::with_type(StatusCode::OK, form, keys))
            }
            "/metrics" => {
                let text = self.metrics.text(&self.registry.store);
                Ok(reply::text(StatusCode::OK, text))
            }
            "/openapi/v2" if openapi::wants_v2_protobuf(&accept(parts)) => {
                let form = HeaderValue::from_static(openapi::V2_PROTOBUF);
                Ok(reply::large(
                    &parts.headers,
                    form,
                    openapi::v2_protobuf(&kinds),
                ))
            }
            "/openapi/v2" => Ok(large_json(parts, &openapi::v2(&kinds))),
            "/openapi/v3" => Ok(large_json(parts, &openapi::v3_index(&kinds))),
            "/" => {
                let paths = [
                    "/.well-known/openid-configuration",
                    "/api",
                    "/apis",
                    "/healthz",
                    "/healthz/ping",
                    "/healthz/storage",
                    "/livez",
                    "/livez/ping",
                    "/livez/storage",
                    "/metrics",
                    "/openapi/v2",
                    "/openapi/v3",
                    "/openid/v1/jwks",
                    "/readyz",
                    "/readyz/ping",
                    "/readyz/storage",
                    "/version",
                ];
                Ok(reply::value(StatusCode::OK, &json!({ "paths": paths })))
            }
            other => {
                if let Some(group_version) = other.strip_prefix("/openapi/v3/") {
                    let document =
                        openapi::v3(&kinds, group_version).ok_or_else(Refusal::no_such_path)?;
                    return Ok(large_json(parts, &document));
                }
                let document = discovery::document(&kinds, other, &accept(parts));
                let Some(document) = document else {
                    return no_document(other);
                };
                let content_type = HeaderValue::from_static(document.content_type);
                let body = document.body.to_string().into_bytes();
                Ok(reply::large(&parts.headers, content_type, body))
            }
        }
    }
}

/// The answer to a path that names nothing: a group that is known tells so in its own words.
fn no_document(path: &str) -> Result<Response<Body>, Refusal> {
    let mut segments = path.split('/').skip(1);
    let group = match (segments.next(), segments.next()) {
        (Some("api"), Some(_)) => Some(""),
        (Some("apis"), group) => group,
        _ => None,
    };
    // Groups that users defined answer as those that nobody did.
    let known = |group: &str| crate::kinds::all().iter().any(|kind| kind.group == group);
    if group.is_some_and(known) {
        return Err(Refusal::no_such_path());
    }
    Ok(reply::text(StatusCode::NOT_FOUND, "404 page not found\n"))
}

/// Whether a request goes on for as long as its sender likes.
fn is_long(parts: &Parts, route: &Route, query: &Query) -> bool {
    let logs = route.subresource.as_deref() == Some("log");
    parts.method == Method::GET && (logs || route.name.is_none() && query.watch)
}

fn large_json(parts: &Parts, value: &serde_json::Value) -> Response<Body> {
    reply::large(&parts.headers, reply::JSON, value.to_string().into_bytes())
}

/// All `Accept` headers as one.
fn accept(parts: &Parts) -> String {
    let all: Vec<&str> = parts
        .headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect();
    all.join(",")
}
