//! Keeps a cache equal to the API server: list, then watch, for ever.
//!
//! A watch may end at any time, say "too old" or deliver something unreadable; none of
//! that ends the loop. It lists again only when it must (at the start, and when the
//! server no longer has the events in between), and otherwise resumes where it was.

use std::time::Duration;

use bytes::{Buf, BytesMut};
use futures::StreamExt;
use http_body_util::BodyExt;
use orlop_model::{Key, Kind};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::sleep;
use tracing::{debug, warn};

use crate::{
    backoff::Backoff,
    cache::Cache,
    cluster::{Cluster, Status},
    error::{ApiError, Refusal},
};

const PAGE: usize = 500;
/// How long the server may keep one watch open. Upstream takes five to ten minutes.
const WATCH_SECONDS: u32 = 290;

/// Never returns.
pub(crate) async fn reflect<K: Kind>(cluster: Cluster, selector: String, cache: Cache<K>) {
    let backoff = Backoff {
        first: Duration::from_millis(100),
        most: Duration::from_secs(10),
    };
    let mut failures = 0;
    let mut resume: Option<String> = None;
    loop {
        let result = match resume.clone() {
            None => list(&cluster, &selector, &cache)
                .await
                .map(|version| resume = Some(version)),
            Some(version) => {
                let mut at = version.clone();
                let ended = follow(&cluster, &selector, &cache, &mut at).await;
                let moved = at != version;
                resume = Some(at);
                if moved {
                    failures = 0;
                }
                ended
            }
        };
        match result {
            Ok(()) => failures = 0,
            Err(error) => {
                if error.is_expired() {
                    debug!(kind = K::KIND, "the watch is too far behind; listing again");
                    resume = None;
                } else {
                    warn!(kind = K::KIND, error = error.chain(), "watch interrupted");
                }
                failures += 1;
                sleep(backoff.after(failures)).await;
            }
        }
    }
}

/// Reads everything, page by page, and tells the version that it is of.
async fn list<K: Kind>(
    cluster: &Cluster,
    selector: &str,
    cache: &Cache<K>,
) -> Result<String, ApiError> {
    let mut items = Vec::new();
    let mut token = String::new();
    loop {
        let page = cluster
            .page::<K>(&format!("limit={PAGE}{token}{selector}"))
            .await?;
        items.extend(page.items.iter().filter_map(|raw| readable(raw)));
        if page.metadata.next.is_empty() {
            let version = page.metadata.resource_version;
            cache.replace(items, version.parse().unwrap_or(0));
            return Ok(version);
        }
        token = format!("&continue={}", page.metadata.next);
    }
}

/// One object that we can't read must neither hide the others nor stop the loop.
fn readable<K: Kind>(raw: &RawValue) -> Option<K> {
    serde_json::from_str(raw.get())
        .inspect_err(|error| {
            let name = serde_json::from_str::<Named>(raw.get()).map(|n| n.metadata.key());
            let name = name.map_or_else(|_| "?".to_owned(), |key| key.to_string());
            warn!(kind = K::KIND, name, %error, "skipping an object that can't be read");
        })
        .ok()
}

#[derive(Deserialize)]
struct Named {
    metadata: orlop_model::Meta,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    what: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Applies events until the watch ends.
async fn follow<K: Kind>(
    cluster: &Cluster,
    selector: &str,
    cache: &Cache<K>,
    at: &mut String,
) -> Result<(), ApiError> {
    let query = format!(
        "allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={at}{selector}"
    );
    let mut stream = cluster.watch::<K>(&query).await?.into_data_stream();
    let mut buffer = BytesMut::new();
    let lost = |error: Box<dyn std::error::Error + Send + Sync>| ApiError {
        verb: "watch",
        what: K::PLURAL.to_owned(),
        refusal: Refusal::Lost(error),
    };
    while let Some(chunk) = stream.next().await {
        buffer.extend_from_slice(&chunk.map_err(|e| lost(Box::new(e)))?);
        while let Some(end) = buffer.iter().position(|b| *b == b'\n') {
            let line = buffer.split_to(end);
            buffer.advance(1);
            apply(cache, &line, at)?;
        }
    }
    Ok(())
}

fn apply<K: Kind>(cache: &Cache<K>, line: &[u8], at: &mut String) -> Result<(), ApiError> {
    let refuse = |refusal| ApiError {
        verb: "watch",
        what: K::PLURAL.to_owned(),
        refusal,
    };
    let event: Line<'_> =
        serde_json::from_slice(line).map_err(|e| refuse(Refusal::Unreadable(e)))?;
    if event.what == "ERROR" {
        let status: Status = serde_json::from_str(event.object.get()).unwrap_or_default();
        return Err(refuse(status.into()));
    }
    let Ok(named) = serde_json::from_str::<Named>(event.object.get()) else {
        return Ok(());
    };
    let key: Key = named.metadata.key();
    match event.what {
        "ADDED" | "MODIFIED" => {
            if let Some(object) = readable(event.object) {
                cache.put(object);
            }
        }
        "DELETED" => cache.remove(&key),
        _ => {}
    }
    cache.advance(named.metadata.revision());
    *at = named.metadata.resource_version;
    Ok(())
}
