//! Keeps a cache equal to the API server: list, then watch, for ever.
//!
//! A watch may end at any time, say "too old" or deliver something unreadable; none of
//! that ends the loop. It lists again only when it must (at the start, and when the
//! server no longer has the events in between), and otherwise resumes where it was.

use std::time::Duration;

use bytes::{Buf, BytesMut};
use futures::StreamExt;
use http_body_util::BodyExt;
use orlop_model::{Key, Kind, Meta};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use crate::{
    backoff::Backoff,
    cache::Cache,
    cluster::{Cluster, Collection, Status},
    error::{ApiError, Refusal},
};

const PAGE: usize = 500;
/// How long the server may keep one watch open. Upstream takes five to ten minutes.
const WATCH_SECONDS: u32 = 290;
/// A watch that ends sooner, with nothing told, was not really one.
const SHORTEST: Duration = Duration::from_secs(1);

/// What a watch is reflected into. Not generic, so that the loop below is compiled once
/// and not once per kind and crate.
pub(crate) trait Mirror: Send + Sync {
    /// Takes in one object and tells its version; an error means that it can't be read.
    fn put(&self, json: &[u8]) -> Result<String, serde_json::Error>;
    /// Lets one object go.
    fn remove(&self, key: &Key);
    /// The object of this uid is gone for good.
    fn ended(&self, uid: &str);
    /// The watch has come this far.
    fn advance(&self, revision: u64);
    /// This is all there is; gives back what can't be read.
    fn replace(&self, items: &[Box<RawValue>], revision: u64) -> Vec<(usize, serde_json::Error)>;
}

/// Never returns.
pub(crate) async fn reflect(
    cluster: Cluster,
    from: Collection,
    selector: String,
    mirror: impl Mirror,
) {
    let reflection = Reflection {
        cluster,
        from,
        selector,
        mirror: &mirror,
    };
    reflection.run().await;
}

impl Cluster {
    /// Takes into a cache what there is now, ahead of its watch. What can't be read is skipped, as the watch
    /// does.
    ///
    /// # Errors
    /// The list could not be read.
    pub async fn catch_up<K: Kind>(&self, cache: &Cache<K>) -> Result<(), ApiError> {
        let from = Collection::of::<K>(None);
        let (items, _) = all(self, &from, "").await?;
        for item in items {
            let json = item.get().as_bytes();
            match K::decode(json) {
                Ok(object) => cache.absorb(object),
                Err(error) => skipped(&from, json, &error),
            }
        }
        Ok(())
    }
}

/// Everything, page by page, and the version that it is of.
async fn all(
    cluster: &Cluster,
    from: &Collection,
    selector: &str,
) -> Result<(Vec<Box<RawValue>>, String), ApiError> {
    let mut items = Vec::new();
    let mut token = String::new();
    loop {
        let query = format!("limit={PAGE}{token}{selector}");
        let page = cluster.page(from, &query).await?;
        items.extend(page.items);
        if page.metadata.next.is_empty() {
            return Ok((items, page.metadata.resource_version));
        }
        token = format!("&continue={}", page.metadata.next);
    }
}

/// One object that we can't read must neither hide the others nor stop anything.
fn skipped(from: &Collection, json: &[u8], error: &serde_json::Error) {
    let name = serde_json::from_slice::<Named>(json).map(|n| n.metadata.key());
    let name = name.map_or_else(|_| "?".to_owned(), |key| key.to_string());
    warn!(kind = from.kind, name, %error, "skipping an object that can't be read");
}

struct Reflection<'a> {
    cluster: Cluster,
    from: Collection,
    selector: String,
    mirror: &'a dyn Mirror,
}

impl Reflection<'_> {
    async fn run(&self) {
        let backoff = Backoff {
            first: Duration::from_millis(100),
            most: Duration::from_secs(10),
        };
        let mut failures = 0;
        let mut resume: Option<String> = None;
        loop {
            let started = Instant::now();
            let mut moved = false;
            let result = match resume.take() {
                None => self.list().await.map(|version| {
                    moved = true;
                    resume = Some(version);
                }),
                Some(version) => {
                    let mut at = version.clone();
                    let ended = self.follow(&mut at).await;
                    moved = at != version;
                    resume = Some(at);
                    ended
                }
            };
            if moved {
                failures = 0;
            }
            match result {
                Ok(()) if moved || started.elapsed() >= SHORTEST => continue,
                Ok(()) => {}
                Err(error) if error.is_expired() => {
                    debug!(
                        kind = self.from.kind,
                        "the watch is too far behind; listing again"
                    );
                    resume = None;
                }
                Err(error) => {
                    warn!(
                        kind = self.from.kind,
                        error = error.chain(),
                        "watch interrupted"
                    );
                }
            }
            failures += 1;
            sleep(backoff.after(failures)).await;
        }
    }

    /// Reads everything, page by page, and tells the version that it is of.
    async fn list(&self) -> Result<String, ApiError> {
        let (items, version) = all(&self.cluster, &self.from, &self.selector).await?;
        let unreadable = self.mirror.replace(&items, version.parse().unwrap_or(0));
        for (index, error) in unreadable {
            skipped(&self.from, items[index].get().as_bytes(), &error);
        }
        Ok(version)
    }

    /// Applies events until the watch ends.
    async fn follow(&self, at: &mut String) -> Result<(), ApiError> {
        let query = format!(
            "allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={at}{}",
            self.selector
        );
        let mut stream = self
            .cluster
            .watch(&self.from, &query)
            .await?
            .into_data_stream();
        let mut buffer = BytesMut::new();
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(|e| self.refuse(Refusal::Lost(Box::new(e))))?;
            buffer.extend_from_slice(&chunk);
            while let Some(end) = buffer.iter().position(|b| *b == b'\n') {
                let line = buffer.split_to(end);
                buffer.advance(1);
                self.apply(&line, at)?;
            }
        }
        Ok(())
    }

    fn refuse(&self, refusal: Refusal) -> ApiError {
        ApiError {
            verb: "watch",
            what: self.from.plural.to_owned(),
            refusal,
        }
    }

    fn apply(&self, line: &[u8], at: &mut String) -> Result<(), ApiError> {
        if let Some(object) = put_in(line)
            && let Ok(version) = self.mirror.put(object)
        {
            self.mirror.advance(version.parse().unwrap_or(0));
            *at = version;
            return Ok(());
        }
        self.apply_with_care(line, at)
    }

    /// What is no object that was put in as all servers write it.
    fn apply_with_care(&self, line: &[u8], at: &mut String) -> Result<(), ApiError> {
        let event: Line<'_> =
            serde_json::from_slice(line).map_err(|e| self.refuse(Refusal::Unreadable(e)))?;
        let object = event.object.get().as_bytes();
        if event.what == "ERROR" {
            let status: Status = serde_json::from_slice(object).unwrap_or_default();
            return Err(self.refuse(status.into()));
        }
        if matches!(event.what, "ADDED" | "MODIFIED") {
            match self.mirror.put(object) {
                Ok(version) => {
                    self.mirror.advance(version.parse().unwrap_or(0));
                    *at = version;
                    return Ok(());
                }
                Err(error) => skipped(&self.from, object, &error),
            }
        }
        let Ok(named) = serde_json::from_slice::<Named>(object) else {
            return Ok(());
        };
        if event.what == "DELETED" {
            // What leaves a selection may live on.
            if self.selector.is_empty() {
                self.mirror.ended(&named.metadata.uid);
            }
            self.mirror.remove(&named.metadata.key());
        }
        self.mirror.advance(named.metadata.revision());
        *at = named.metadata.resource_version;
        Ok(())
    }
}

/// The object of an event that puts one in. Found by how servers write a line, so that it isn't read
/// once to find its end and once more for what it says: whoever reads it finds out if there is more.
fn put_in(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(br#"{"type":""#)?;
    let put = [&br#"ADDED","object":"#[..], br#"MODIFIED","object":"#];
    let object = put.into_iter().find_map(|put| rest.strip_prefix(put))?;
    object.trim_ascii_end().strip_suffix(b"}")
}

#[derive(Deserialize)]
struct Named {
    metadata: Meta,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    what: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[cfg(test)]
mod tests {
    use orlop_model::Volume;

    use super::*;
    use crate::cache::Cache;

    #[tokio::test]
    async fn an_event_is_taken_in_however_it_is_written() {
        let nobody = tower::service_fn(async |_: http::Request<kube::client::Body>| {
            Ok::<_, std::io::Error>(http::Response::new(kube::client::Body::empty()))
        });
        let cache = Cache::<Volume>::new();
        let reflection = Reflection {
            cluster: Cluster::new(kube::Client::new(nobody, "default")),
            from: Collection::of::<Volume>(None),
            selector: String::new(),
            mirror: &cache,
        };
        let object = |version: u64| {
            format!(r#"{{"metadata":{{"name":"v","resourceVersion":"{version}"}}}}"#)
        };
        let lines = [
            format!(r#"{{"type":"ADDED","object":{}}}"#, object(1)),
            format!(r#"{{"type":"MODIFIED","object":{}}} "#, object(2)),
            format!(r#"{{"object":{},"type":"MODIFIED"}}"#, object(3)),
            format!(r#"{{ "type": "MODIFIED", "object": {} }}"#, object(4)),
            format!(
                r#"{{"type":"MODIFIED","object":{},"more":{{}}}}"#,
                object(5)
            ),
        ];
        let mut at = String::new();
        for (number, line) in lines.iter().enumerate() {
            reflection.apply(line.as_bytes(), &mut at).unwrap();
            let version = (number + 1).to_string();
            let volume = cache.named("v").unwrap();
            assert_eq!(volume.metadata.resource_version, version, "{line}");
            assert_eq!(at, version, "{line}");
        }
        let gone = format!(r#"{{"type":"DELETED","object":{}}}"#, object(6));
        reflection.apply(gone.as_bytes(), &mut at).unwrap();
        assert!(cache.named("v").is_none());
        let cut = br#"{"type":"ADDED","object":{"metadata":{"name":"v""#;
        assert!(reflection.apply(cut, &mut at).is_err());
    }
}
