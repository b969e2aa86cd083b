//! `pods/log`: what a container wrote, from whoever runs it.

use axum::body::Body;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use jiff::Timestamp;
use serde_json::Value;

use super::Api;
use super::query::Query;
use crate::refusal::Refusal;
use crate::registry::{Target, text};

/// Which part of which log is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRequest {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub pod: String,
    /// The pod's uid.
    pub uid: String,
    /// The node that the pod is on.
    pub node: String,
    /// The container.
    pub container: String,
    /// Go on with what is written from now on.
    pub follow: bool,
    /// The log of the container's previous run.
    pub previous: bool,
    /// Put the time before each line.
    pub timestamps: bool,
    /// Only so many lines from the end.
    pub tail_lines: Option<u64>,
    /// Only so many bytes.
    pub limit_bytes: Option<u64>,
    /// Only what was written since then.
    pub since: Option<Timestamp>,
}

/// Why there is no log.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The container hasn't written anything yet; the text says why.
    #[error("{0}")]
    NotReady(String),
    /// The log can't be read.
    #[error("could not read the log")]
    Read(#[source] std::io::Error),
}

/// The text of a log as it comes.
pub type LogStream = BoxStream<'static, std::io::Result<Bytes>>;

/// Whoever runs the containers and keeps their logs.
pub trait LogSource: Send + Sync {
    /// Opens a log. The stream ends with the log, or, when following, with the container.
    fn open(&self, request: LogRequest) -> BoxFuture<'_, Result<LogStream, LogError>>;
}

impl Api {
    pub(super) async fn log(
        &self,
        target: &Target,
        query: &Query,
    ) -> Result<Response<Body>, Refusal> {
        let pod = self.registry.store.get(&target.key());
        let pod = pod
            .ok_or_else(|| Refusal::not_found(target.kind, &target.name))?
            .value();
        let container = choose_container(&target.name, &pod, &query.logs.container)?;
        let node = text(&pod, "/spec/nodeName");
        if node.is_empty() {
            return Err(Refusal::bad_request(format!(
                "pod {} does not have a host assigned",
                target.name
            )));
        }
        let since = match (query.logs.since_seconds, query.logs.since_time.as_str()) {
            (Some(seconds), _) => {
                let span =
                    jiff::SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
                Some(
                    self.registry
                        .clock
                        .now()
                        .checked_sub(span)
                        .unwrap_or(Timestamp::MIN),
                )
            }
            (None, "") => None,
            (None, time) => Some(time.parse().map_err(|_| {
                Refusal::bad_request(format!("sinceTime: \"{time}\" is not an RFC 3339 time"))
            })?),
        };
        let request = LogRequest {
            namespace: target.namespace.clone(),
            pod: target.name.clone(),
            uid: text(&pod, "/metadata/uid").to_owned(),
            node: node.to_owned(),
            container,
            follow: query.logs.follow,
            previous: query.logs.previous,
            timestamps: query.logs.timestamps,
            tail_lines: query.logs.tail_lines,
            limit_bytes: query.logs.limit_bytes,
            since,
        };
        let source = self.logs.as_ref().ok_or_else(|| {
            Refusal::internal("no role in this process keeps logs; read them on the node")
        })?;
        let stream = source.open(request).await.map_err(|error| match error {
            LogError::NotReady(why) => Refusal::bad_request(why),
            LogError::Read(source) => Refusal::internal(source),
        })?;
        let mut response = Response::new(Body::from_stream(stream));
        let text = HeaderValue::from_static("text/plain");
        response.headers_mut().insert(CONTENT_TYPE, text);
        Ok(response)
    }
}

fn choose_container(name: &str, pod: &Value, asked: &str) -> Result<String, Refusal> {
    let names = |list: &str| -> Vec<&str> {
        let containers = pod["spec"][list].as_array().into_iter().flatten();
        containers
            .map(|container| text(container, "/name"))
            .collect()
    };
    let (main, init) = (names("containers"), names("initContainers"));
    match (asked, main.as_slice()) {
        ("", [only]) => Ok((*only).to_owned()),
        ("", several) => {
            let mut message = format!(
                "a container name must be specified for pod {name}, choose one of: [{}]",
                several.join(" ")
            );
            if !init.is_empty() {
                message.push_str(&format!(
                    " or one of the init containers: [{}]",
                    init.join(" ")
                ));
            }
            Err(Refusal::bad_request(message))
        }
        (asked, _) if main.contains(&asked) || init.contains(&asked) => Ok(asked.to_owned()),
        (asked, _) => Err(Refusal::bad_request(format!(
            "container {asked} is not valid for pod {name}"
        ))),
    }
}
