//! Whether the server is alive, and whether it is ready: the paths that probes ask.

use axum::body::Body;
use http::request::Parts;
use http::{Method, Response, StatusCode};

use super::reply;
use crate::store::Health;

/// What a probe asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question {
    path: &'static str,
    /// The one check that it asks for; none for all.
    one: Option<String>,
    verbose: bool,
    /// Checks that it doesn't want.
    exclude: Vec<String>,
}

impl Question {
    /// The question of a request, if it is one.
    pub(super) fn parse(parts: &Parts) -> Option<Self> {
        if parts.method != Method::GET && parts.method != Method::HEAD {
            return None;
        }
        let asked = parts.uri.path().trim_end_matches('/');
        let mut paths = ["/healthz", "/livez", "/readyz"].into_iter();
        let path = paths.find(|path| asked.strip_prefix(path).is_some_and(is_end))?;
        let one = asked[path.len()..].strip_prefix('/').map(str::to_owned);
        let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
        let pairs = pairs.map(|pairs| pairs.0).unwrap_or_default();
        let mut question = Self {
            path: &path[1..],
            one,
            verbose: false,
            exclude: Vec::new(),
        };
        for (name, value) in pairs {
            match name.as_str() {
                "verbose" => question.verbose = true,
                "exclude" => question.exclude.push(value),
                _ => {}
            }
        }
        Some(question)
    }

    /// The answer, in the original's form. A server that can't write isn't ready; only if a
    /// restart would help isn't it alive.
    pub(super) fn answer(&self, health: &Health) -> Response<Body> {
        let ill = match (self.path, health) {
            (_, Health::Well) | ("livez", Health::Full(_) | Health::Failing(_)) => None,
            (_, unwell) => Some(unwell),
        };
        let checks = [("ping", None), ("storage", ill)];
        if let Some(one) = &self.one {
            return match checks.iter().find(|(name, _)| name == one) {
                None => reply::text(StatusCode::NOT_FOUND, "404 page not found\n"),
                Some((_, None)) => reply::text(StatusCode::OK, "ok"),
                Some((_, Some(why))) => {
                    let text = format!("internal server error: {why}\n");
                    reply::text(StatusCode::INTERNAL_SERVER_ERROR, text)
                }
            };
        }
        let mut text = String::new();
        let mut well = true;
        for (name, ill) in checks {
            text += &match ill {
                _ if self.exclude.iter().any(|excluded| excluded == name) => {
                    format!("[+]{name} excluded: ok\n")
                }
                None => format!("[+]{name} ok\n"),
                Some(why) => {
                    well = false;
                    format!("[-]{name} failed: {why}\n")
                }
            };
        }
        let path = self.path;
        match (well, self.verbose) {
            (true, false) => reply::text(StatusCode::OK, "ok"),
            (true, true) => reply::text(StatusCode::OK, format!("{text}{path} check passed\n")),
            (false, _) => {
                let text = format!("{text}{path} check failed\n");
                reply::text(StatusCode::INTERNAL_SERVER_ERROR, text)
            }
        }
    }
}

/// Whether a path goes no further, or by whole segments.
fn is_end(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('/')
}

#[cfg(test)]
mod tests {
    use http::Request;
    use http_body_util::BodyExt as _;

    use super::*;

    async fn ask(path: &str, health: &Health) -> (u16, String) {
        let (parts, ()) = Request::get(path).body(()).unwrap().into_parts();
        let answer = Question::parse(&parts).unwrap().answer(health);
        let code = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (code, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn a_server_that_cannot_write_is_not_ready_and_is_alive_unless_a_restart_helps() {
        let (full, broken) = (Health::Full("no".into()), Health::Broken("no".into()));
        assert_eq!(ask("/readyz", &Health::Well).await, (200, "ok".to_owned()));
        let passed = "[+]ping ok\n[+]storage ok\nreadyz check passed\n";
        let verbose = ask("/readyz?verbose", &Health::Well).await;
        assert_eq!(verbose, (200, passed.to_owned()));
        let (code, text) = ask("/readyz", &full).await;
        assert_eq!(code, 500);
        assert!(text.contains("[-]storage failed: the store has no room (no)"));
        assert!(text.ends_with("readyz check failed\n"), "{text}");
        for (path, health, code) in [
            ("/healthz", &full, 500),
            ("/livez", &full, 200),
            ("/livez", &broken, 500),
            ("/readyz?exclude=storage", &full, 200),
            ("/readyz/ping", &full, 200),
            ("/readyz/storage", &full, 500),
            ("/livez/storage", &full, 200),
            ("/livez/nothing", &full, 404),
        ] {
            assert_eq!(ask(path, health).await.0, code, "{path}");
        }
    }
}
