//! Requests to the API server, in our own types.
//!
//! Over a [`kube::Client`], which reaches a real API server by HTTPS or the embedded one
//! in the same process; a role can't tell which.

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use orlop_model::{Key, Kind, Scope};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use tokio::time::Instant;

use crate::{
    error::{ApiError, Refusal, found},
    fence::Fence,
    pace::{Answer, Pace},
    patch::{Patch, merge},
    token::{self, Token, TokenRequest},
};

/// Where leases are.
const LEASES: &str = "/apis/coordination.k8s.io/";

/// How often a change that holds for any version is tried on a new one.
const PUTS: usize = 5;

/// The API server. How many requests of a process are there at once follows its answers;
/// leases and watches are never held back. Nothing but leases is sent once a lease that the process
/// works by was not renewed in time.
#[derive(Clone)]
pub struct Cluster {
    client: kube::Client,
    pace: Pace,
    fence: Fence,
    /// Until when requests let all others of the process go first.
    patience: Option<Instant>,
}

/// What must still be true of an object for a delete to go through.
#[derive(Debug, Clone, Default)]
pub struct Preconditions {
    /// It is this very object.
    pub uid: Option<String>,
    /// It is at this very version.
    pub resource_version: Option<String>,
    /// Overrides how long the deletion may take; pods only.
    pub grace_period_seconds: Option<i64>,
}

impl Preconditions {
    /// The object must be the very one that was looked at, whatever its version.
    pub fn same_object<K: Kind>(seen: &K) -> Self {
        Self {
            uid: Some(seen.meta().uid.clone()),
            ..Self::default()
        }
    }

    /// The object must be unchanged since it was looked at.
    pub fn unchanged<K: Kind>(seen: &K) -> Self {
        let meta = seen.meta();
        Self {
            uid: Some(meta.uid.clone()),
            resource_version: Some(meta.resource_version.clone()),
            ..Self::default()
        }
    }
}

/// One page of a list, its items still as text: one that we can't read must not hide the rest.
#[derive(Deserialize)]
pub(crate) struct Page {
    pub(crate) metadata: PageMeta,
    #[serde(default)]
    pub(crate) items: Vec<Box<RawValue>>,
}

/// Where a page stands in its list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PageMeta {
    pub(crate) resource_version: String,
    #[serde(default, rename = "continue")]
    pub(crate) next: String,
}

impl Cluster {
    /// The API server behind this client.
    pub fn new(client: kube::Client) -> Self {
        Self {
            client,
            pace: Pace::default(),
            fence: Fence::default(),
            patience: None,
        }
    }

    /// The same, for requests that nothing hangs on: each waits until no other request of the
    /// process is under way, though not beyond a time.
    #[must_use]
    pub(crate) fn in_no_hurry(&self, latest: Instant) -> Self {
        Self {
            patience: Some(latest),
            ..self.clone()
        }
    }

    /// What of the process is sent goes by a lease, which holds until then.
    pub(crate) fn leads_until(&self, until: Instant) {
        self.fence.move_to(until);
    }

    /// Reads one object; `None` if it isn't there.
    ///
    /// # Errors
    /// Anything but "not found".
    pub async fn get<K: Kind>(&self, key: &Key) -> Result<Option<K>, ApiError> {
        let call = Call::new::<K>("get", Some(key));
        found(self.object(&call, Method::GET, Vec::new()).await)
    }

    /// Reads all objects of a kind, of one namespace or (with `None`) of all.
    ///
    /// # Errors
    /// Any failure.
    pub async fn list<K: Kind>(&self, namespace: Option<&str>) -> Result<Vec<K>, ApiError> {
        self.read_list(&Call::list(&Collection::of::<K>(namespace)))
            .await
    }

    /// As [`Cluster::list`], of the objects that match a field selector, such as
    /// `involvedObject.uid=a`.
    ///
    /// # Errors
    /// Any failure.
    pub async fn list_where<K: Kind>(
        &self,
        namespace: Option<&str>,
        fields: &str,
    ) -> Result<Vec<K>, ApiError> {
        let mut call = Call::list(&Collection::of::<K>(namespace));
        let fields = fields.replace('=', "%3D");
        call.path = format!("{}?fieldSelector={fields}", call.path);
        self.read_list(&call).await
    }

    async fn read_list<K: Kind>(&self, call: &Call) -> Result<Vec<K>, ApiError> {
        let page = self.read_page(call).await?;
        page.items
            .iter()
            .map(|item| K::decode(item.get().as_bytes()))
            .collect::<Result<_, _>>()
            .map_err(|e| call.error(Refusal::Unreadable(e)))
    }

    /// Creates an object.
    ///
    /// # Errors
    /// `AlreadyExists` among others.
    pub async fn create<K: Kind>(&self, object: &K) -> Result<K, ApiError> {
        let mut call = Call::new::<K>("create", Some(&object.key()));
        call.path = Collection::of::<K>(Some(&object.meta().namespace)).path;
        let body = object
            .encode()
            .map_err(|e| call.error(Refusal::Unreadable(e)))?;
        self.post(call, body).await
    }

    /// Creates an object given as JSON, for fields that our projection doesn't hold.
    ///
    /// # Errors
    /// `AlreadyExists` among others.
    pub async fn create_json<K: Kind>(&self, body: &Value) -> Result<K, ApiError> {
        let text = |field: &str| {
            body["metadata"][field]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let key = Key {
            namespace: text("namespace"),
            name: text("name"),
        };
        let mut call = Call::new::<K>("create", Some(&key));
        call.path = Collection::of::<K>(Some(&key.namespace)).path;
        self.post(call, body.clone()).await
    }

    async fn post<K: Kind>(&self, mut call: Call, mut body: Value) -> Result<K, ApiError> {
        call.content_type = "application/json";
        body["apiVersion"] = json!(K::api_version());
        body["kind"] = json!(K::KIND);
        self.object(&call, Method::POST, body.to_string().into_bytes())
            .await
    }

    /// Changes an object.
    ///
    /// # Errors
    /// `NotFound`, and `Conflict` where the patch names a version.
    pub async fn patch<K: Kind>(&self, key: &Key, patch: &Patch) -> Result<K, ApiError> {
        self.patch_at(Call::new::<K>("patch", Some(key)), patch)
            .await
    }

    /// Changes an object's status.
    ///
    /// # Errors
    /// `NotFound`, and `Conflict` where the patch names a version.
    pub async fn patch_status<K: Kind>(&self, key: &Key, patch: &Patch) -> Result<K, ApiError> {
        let mut call = Call::new::<K>("patch the status of", Some(key));
        call.path.push_str("/status");
        self.patch_at(call, patch).await
    }

    async fn patch_at<K: Kind>(&self, mut call: Call, patch: &Patch) -> Result<K, ApiError> {
        call.content_type = patch.content_type();
        let body = patch.body().to_string().into_bytes();
        let patched = self.object(&call, Method::PATCH, body).await;
        match (patched, patch) {
            (Err(error), Patch::Merge(change)) if error.is_forbidden() => {
                let put = self.put_instead(call, change).await;
                put.unwrap_or(Err(error))
            }
            (patched, _) => patched,
        }
    }

    /// Does by reading and writing what a merge patch would have done: rights that were written for
    /// the Go sidecars let claims and leases be updated, not patched. `None` if that is forbidden, too.
    async fn put_instead<K: Kind>(
        &self,
        mut call: Call,
        change: &Value,
    ) -> Option<Result<K, ApiError>> {
        let pinned = !change["metadata"]["resourceVersion"].is_null();
        for _ in 0..PUTS {
            call.content_type = "";
            let bytes = match self.send(&call, Method::GET, Vec::new()).await {
                Ok(bytes) => bytes,
                Err(error) if error.is_forbidden() => return None,
                Err(error) => return Some(Err(error)),
            };
            let mut object: Value = match serde_json::from_slice(&bytes) {
                Ok(object) => object,
                Err(error) => return Some(Err(call.error(Refusal::Unreadable(error)))),
            };
            merge(&mut object, change);
            call.content_type = "application/json";
            let body = object.to_string().into_bytes();
            match self.object(&call, Method::PUT, body).await {
                Err(error) if error.is_forbidden() => return None,
                // A patch that names no version holds for any.
                Err(error) if error.is_conflict() && !pinned => {}
                answered => return Some(answered),
            }
        }
        None
    }

    /// Asks for an object's deletion. An object that is gone already is fine.
    ///
    /// # Errors
    /// `Conflict` where a precondition doesn't hold.
    pub async fn delete<K: Kind>(
        &self,
        key: &Key,
        only_if: &Preconditions,
    ) -> Result<(), ApiError> {
        self.send_delete::<K>(key, only_if).await.map(|_| ())
    }

    /// As [`Cluster::delete`]; answers with the object as it is now if something holds it still.
    ///
    /// # Errors
    /// `Conflict` where a precondition doesn't hold.
    pub async fn delete_held<K: Kind>(
        &self,
        key: &Key,
        only_if: &Preconditions,
    ) -> Result<Option<K>, ApiError> {
        let answer = self.send_delete::<K>(key, only_if).await?;
        let answer = answer.unwrap_or_default();
        // Of what is gone at once the server answers with a status.
        let told = serde_json::from_slice::<Told>(&answer).unwrap_or_default();
        Ok((told.kind == K::KIND)
            .then(|| K::decode(&answer).ok())
            .flatten())
    }

    async fn send_delete<K: Kind>(
        &self,
        key: &Key,
        only_if: &Preconditions,
    ) -> Result<Option<Bytes>, ApiError> {
        let mut call = Call::new::<K>("delete", Some(key));
        call.content_type = "application/json";
        let mut body = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
        if let Some(uid) = &only_if.uid {
            body["preconditions"]["uid"] = json!(uid);
        }
        if let Some(version) = &only_if.resource_version {
            body["preconditions"]["resourceVersion"] = json!(version);
        }
        if let Some(seconds) = only_if.grace_period_seconds {
            body["gracePeriodSeconds"] = json!(seconds);
        }
        let result = self
            .send(&call, Method::DELETE, body.to_string().into_bytes())
            .await;
        found(result)
    }

    /// Places a pod on a node, by the `binding` subresource.
    ///
    /// # Errors
    /// `Conflict` if it was placed already.
    pub async fn bind_pod(&self, pod: &Key, uid: &str, node: &str) -> Result<(), ApiError> {
        let mut call = Call::new::<orlop_model::Pod>("bind", Some(pod));
        call.path.push_str("/binding");
        call.content_type = "application/json";
        let body = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        self.send(&call, Method::POST, body.to_string().into_bytes())
            .await
            .map(|_| ())
    }

    /// Asks for a token of a service account.
    ///
    /// # Errors
    /// `NotFound` if the account or the pod isn't there.
    pub async fn request_token(
        &self,
        account: &Key,
        wanted: &TokenRequest,
    ) -> Result<Token, ApiError> {
        let call = Call {
            verb: "request a token of",
            what: format!("ServiceAccount {account}"),
            path: format!(
                "/api/v1/namespaces/{}/serviceaccounts/{}/token",
                account.namespace, account.name
            ),
            content_type: "application/json",
        };
        let body = wanted.body().to_string().into_bytes();
        let bytes = self.send(&call, Method::POST, body).await?;
        serde_json::from_slice::<token::Answer>(&bytes)
            .map(|answer| answer.status)
            // What could not be read holds a token: it is not told.
            .map_err(|_| {
                let why = <serde_json::Error as serde::de::Error>::custom("no token in the answer");
                call.error(Refusal::Unreadable(why))
            })
    }

    /// One page of a list of what stands at a path.
    pub(crate) async fn page(&self, at: &Collection, query: &str) -> Result<Page, ApiError> {
        let mut call = Call::list(at);
        call.path = format!("{}?{query}", at.path);
        self.read_page(&call).await
    }

    async fn read_page(&self, call: &Call) -> Result<Page, ApiError> {
        let bytes = self.send(call, Method::GET, Vec::new()).await?;
        serde_json::from_slice(&bytes).map_err(|e| call.error(Refusal::Unreadable(e)))
    }

    /// Opens a watch; the body never ends by itself before the server's time-out.
    /// Whether objects of a kind may be watched; any other trouble is left to who watches them.
    pub async fn may_watch<K: Kind>(&self) -> bool {
        let all = Collection::of::<K>(None);
        let watched = self.watch(&all, "timeoutSeconds=1").await;
        !watched.is_err_and(|error| error.is_forbidden())
    }

    pub(crate) async fn watch(&self, at: &Collection, query: &str) -> Result<Body, ApiError> {
        let mut call = Call::list(at);
        call.verb = "watch";
        call.path = format!("{}?watch=true&{query}", at.path);
        let response = self.raw(&call, Method::GET, Vec::new()).await?;
        if response.status().is_success() {
            return Ok(response.into_body());
        }
        Err(refused(&call, response).await)
    }

    async fn object<K: Kind>(
        &self,
        call: &Call,
        method: Method,
        body: Vec<u8>,
    ) -> Result<K, ApiError> {
        let bytes = self.send(call, method, body).await?;
        K::decode(&bytes).map_err(|e| call.error(Refusal::Unreadable(e)))
    }

    async fn send(&self, call: &Call, method: Method, body: Vec<u8>) -> Result<Bytes, ApiError> {
        // Who waits too long for its lease loses it.
        let place = match (call.path.starts_with(LEASES), self.patience) {
            (true, _) => None,
            (false, None) => Some(self.pace.enter().await),
            (false, Some(latest)) => Some(self.pace.enter_idle(latest).await),
        };
        let response = self.raw(call, method, body).await?;
        if let Some(place) = place {
            place.answered(answer(&response));
        }
        if !response.status().is_success() {
            return Err(refused(call, response).await);
        }
        let body = response.into_body().collect().await;
        body.map(http_body_util::Collected::to_bytes)
            .map_err(|e| call.error(Refusal::Lost(Box::new(e))))
    }

    async fn raw(
        &self,
        call: &Call,
        method: Method,
        body: Vec<u8>,
    ) -> Result<Response<Body>, ApiError> {
        let mut request = Request::builder()
            .method(method)
            .uri(&call.path)
            .header(http::header::ACCEPT, "application/json")
            // The server records it as the manager of the fields that we write.
            .header(http::header::USER_AGENT, concat!("orlop/", env!("CARGO_PKG_VERSION")))
            // The client in the middle can't undo gzip member by member, as watches send it.
            .header(http::header::ACCEPT_ENCODING, "identity");
        if !call.content_type.is_empty() {
            request = request.header(http::header::CONTENT_TYPE, call.content_type);
        }
        let request = request
            .body(Body::from(body))
            .map_err(|e| call.error(Refusal::Lost(Box::new(e))))?;
        // Last of all: what waited for its place may have waited for too long.
        if !(call.path.starts_with(LEASES) || self.fence.is_open()) {
            return Err(call.error(Refusal::Deposed));
        }
        self.client
            .send(request)
            .await
            .map_err(|e| call.error(Refusal::Lost(Box::new(e))))
    }
}

/// What the server's answer tells of the server.
fn answer(response: &Response<Body>) -> Answer {
    match response.status() {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            let after = response.headers().get(http::header::RETRY_AFTER);
            let seconds = after.and_then(|value| value.to_str().ok()?.parse().ok());
            Answer::Busy(seconds.map(std::time::Duration::from_secs))
        }
        _ => Answer::Good,
    }
}

/// A request before it is sent, with what its error would say.
#[derive(Clone)]
struct Call {
    verb: &'static str,
    what: String,
    path: String,
    content_type: &'static str,
}

impl Call {
    fn new<K: Kind>(verb: &'static str, key: Option<&Key>) -> Self {
        let mut path = Collection::of::<K>(key.map(|k| k.namespace.as_str())).path;
        let mut what = K::PLURAL.to_owned();
        if let Some(key) = key {
            path.push('/');
            path.push_str(&key.name);
            what = format!("{} {key}", K::KIND);
        }
        Self {
            verb,
            what,
            path,
            content_type: "",
        }
    }

    fn list(at: &Collection) -> Self {
        Self {
            verb: "list",
            what: at.plural.to_owned(),
            path: at.path.clone(),
            content_type: "",
        }
    }

    fn error(&self, refusal: Refusal) -> ApiError {
        ApiError {
            verb: self.verb,
            what: self.what.clone(),
            refusal,
        }
    }
}

/// Where a kind's objects stand, in one namespace or in all.
#[derive(Clone)]
pub(crate) struct Collection {
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    path: String,
}

impl Collection {
    pub(crate) fn of<K: Kind>(namespace: Option<&str>) -> Self {
        let mut path = if K::GROUP.is_empty() {
            format!("/api/{}", K::VERSION)
        } else {
            format!("/apis/{}/{}", K::GROUP, K::VERSION)
        };
        let namespace = namespace.filter(|n| !n.is_empty());
        if let (Scope::Namespaced, Some(namespace)) = (K::SCOPE, namespace) {
            path.push_str("/namespaces/");
            path.push_str(namespace);
        }
        path.push('/');
        path.push_str(K::PLURAL);
        Self {
            kind: K::KIND,
            plural: K::PLURAL,
            path,
        }
    }
}

/// What an answer says to be.
#[derive(Deserialize, Default)]
struct Told {
    #[serde(default)]
    kind: String,
}

/// What the API server answers when it says no.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Status {
    pub(crate) code: u16,
    pub(crate) reason: String,
    pub(crate) message: String,
    details: StatusDetails,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct StatusDetails {
    retry_after_seconds: u64,
}

async fn refused(call: &Call, response: Response<Body>) -> ApiError {
    let code = response.status();
    let body = response.into_body().collect().await;
    let bytes = body
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    let mut status: Status = serde_json::from_slice(&bytes).unwrap_or_else(|_| Status {
        message: String::from_utf8_lossy(&bytes[..bytes.len().min(512)]).into_owned(),
        ..Status::default()
    });
    status.code = code.as_u16();
    call.error(status.into())
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        let Status {
            code,
            reason,
            message,
            details,
        } = status;
        match StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR) {
            StatusCode::NOT_FOUND => Self::NotFound(message),
            StatusCode::CONFLICT if reason == "AlreadyExists" => Self::AlreadyExists(message),
            StatusCode::CONFLICT => Self::Conflict(message),
            StatusCode::GONE => Self::Expired(message),
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                let seconds = details.retry_after_seconds;
                let after = (seconds > 0).then(|| std::time::Duration::from_secs(seconds));
                Self::Busy { after, message }
            }
            _ => Self::Refused { code, message },
        }
    }
}

#[cfg(test)]
mod tests;
