//! Writing and reading as fast as it goes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use bytes::Bytes;
use futures::future::try_join_all;
use http::Method;

use super::{client::Server, figures::Figures, objects::Kind};

/// How often each client asks before it counts.
const WARM_UP: usize = 20;

/// One request of a load: what is asked the nth time.
type Ask = Arc<dyn Fn(usize) -> (Method, String, Bytes) + Send + Sync>;

/// Creates objects named `PREFIX-N`.
pub(super) async fn create(
    server: &Server,
    kind: Kind,
    prefix: &str,
    (count, clients): (usize, usize),
) -> Result<Figures> {
    let (path, prefix) = (kind.collection(), prefix.to_owned());
    let ask: Ask = Arc::new(move |n| {
        let object = kind.object(&format!("{prefix}-{n}"));
        (Method::POST, path.clone(), object)
    });
    run(server, (count, clients), 0, ask).await
}

/// Gets objects that [`create`] made, each as likely as the others.
pub(super) async fn get(
    server: &Server,
    kind: Kind,
    (prefix, objects): (&str, usize),
    (count, clients): (usize, usize),
) -> Result<Figures> {
    let (path, prefix) = (kind.collection(), prefix.to_owned());
    let ask: Ask = Arc::new(move |_| {
        let path = format!("{path}/{prefix}-{}", fastrand::usize(..objects));
        (Method::GET, path, Bytes::new())
    });
    run(server, (count, clients), WARM_UP, ask).await
}

/// Lists a collection this many times, one after the other; page by page with a limit.
pub(super) async fn list(
    server: &Server,
    kind: Kind,
    times: usize,
    limit: Option<usize>,
) -> Result<Figures> {
    let mut connection = server.connect().await?;
    let (mut sample, mut bytes) = (Vec::new(), 0);
    for time in 0..=times {
        let begin = Instant::now();
        let mut token = String::new();
        bytes = 0;
        loop {
            let mut path = kind.collection();
            if let Some(limit) = limit {
                path.push_str(&format!("?limit={limit}&continue={token}"));
            }
            let page = connection.ask(Method::GET, &path, Bytes::new()).await?;
            bytes += page.len();
            match limit.and_then(|_| continued(&page)) {
                Some(next) => token = next,
                None => break,
            }
        }
        // The first one warms up.
        if time > 0 {
            sample.push(begin.elapsed());
        }
    }
    let mut figures = Figures::default();
    figures.set("bytes", bytes as f64);
    figures.sample("time", sample);
    Ok(figures)
}

/// The token of the next page, which stands near the beginning, before the items.
fn continued(page: &[u8]) -> Option<String> {
    let head = page.get(..page.len().min(1024))?;
    let head = String::from_utf8_lossy(head);
    let (_, rest) = head.split_once(r#""continue":""#)?;
    let (token, _) = rest.split_once('"')?;
    (!token.is_empty()).then(|| token.to_owned())
}

async fn run(
    server: &Server,
    (count, clients): (usize, usize),
    warm_up: usize,
    ask: Ask,
) -> Result<Figures> {
    let connections = try_join_all((0..clients).map(|_| async {
        let mut connection = server.connect().await?;
        for n in 0..warm_up {
            let (method, path, body) = ask(n);
            connection.ask(method, &path, body).await?;
        }
        anyhow::Ok(connection)
    }))
    .await?;
    let next = Arc::new(AtomicUsize::new(0));
    let begin = Instant::now();
    let tasks = connections.into_iter().map(|mut connection| {
        let (next, ask) = (Arc::clone(&next), Arc::clone(&ask));
        tokio::spawn(async move {
            let mut sample: Vec<Duration> = Vec::new();
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= count {
                    return anyhow::Ok(sample);
                }
                let (method, path, body) = ask(n);
                let begin = Instant::now();
                connection.ask(method, &path, body).await?;
                sample.push(begin.elapsed());
            }
        })
    });
    let samples = try_join_all(tasks.collect::<Vec<_>>()).await?;
    let took = begin.elapsed();
    let mut sample = Vec::with_capacity(count);
    for one in samples {
        sample.extend(one?);
    }
    let mut figures = Figures::default();
    figures.set("rate", count as f64 / took.as_secs_f64());
    figures.sample("time", sample);
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_page_names_no_next_one() {
        let page =
            br#"{"kind":"L","metadata":{"resourceVersion":"1","continue":"abc"},"items":[]}"#;
        assert_eq!(continued(page).as_deref(), Some("abc"));
        let last = br#"{"kind":"L","metadata":{"resourceVersion":"1"},"items":[]}"#;
        assert_eq!(continued(last), None);
    }
}
