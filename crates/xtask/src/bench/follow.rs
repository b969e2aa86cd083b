//! A collection, followed by watch for as long as it takes: a watch that ends or lags behind is begun
//! anew, after a list.

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::Method;
use serde_json::Value;

use super::client::{Server, Watch};

/// What became known.
pub(super) enum News {
    /// One event, as the server told it.
    Event(Value),
    /// All that there is, in place of events that were missed.
    Anew(Vec<Value>),
}

/// Somebody who follows a collection.
pub(super) struct Follower {
    server: Server,
    path: String,
    /// None while it has to be begun anew.
    watch: Option<Watch>,
    rest: Vec<u8>,
}

impl Follower {
    /// Follows from now on.
    pub(super) async fn begin(server: &Server, path: String) -> Result<Self> {
        let mut follower = Self {
            server: server.clone(),
            path,
            watch: None,
            rest: Vec::new(),
        };
        let page = follower.list("?limit=1").await?;
        follower.resume(&page).await?;
        Ok(follower)
    }

    /// Waits for news. Whoever stops waiting misses nothing.
    pub(super) async fn next(&mut self) -> Result<Vec<News>> {
        let Some(watch) = &mut self.watch else {
            let list = self.list("").await?;
            self.resume(&list).await?;
            let items = list["items"].as_array().cloned();
            return Ok(vec![News::Anew(items.unwrap_or_default())]);
        };
        let bytes = match watch.bytes().await {
            Ok(bytes) => bytes,
            Err(error) => {
                eprintln!("  {}: {error:#}; listing anew", self.path);
                self.watch = None;
                return Ok(Vec::new());
            }
        };
        self.rest.extend_from_slice(&bytes);
        let (mut news, mut read) = (Vec::new(), 0);
        while let Some(length) = self.rest[read..].iter().position(|byte| *byte == b'\n') {
            let event: Value = serde_json::from_slice(&self.rest[read..read + length])?;
            read += length + 1;
            if event["type"] == "ERROR" {
                eprintln!("  {}: {}; listing anew", self.path, event["object"]);
                self.watch = None;
                break;
            }
            news.push(News::Event(event));
        }
        self.rest.drain(..read);
        Ok(news)
    }

    async fn list(&self, query: &str) -> Result<Value> {
        let mut connection = self.server.connect().await?;
        let path = format!("{}{query}", self.path);
        let list = connection.ask(Method::GET, &path, Bytes::new()).await?;
        Ok(serde_json::from_slice(&list)?)
    }

    async fn resume(&mut self, list: &Value) -> Result<()> {
        let version = list["metadata"]["resourceVersion"].as_str();
        let version = version.context("a list without a version")?;
        let watch = format!("{}?watch=1&resourceVersion={version}", self.path);
        self.rest.clear();
        self.watch = Some(self.server.connect().await?.watch(&watch).await?);
        Ok(())
    }
}
