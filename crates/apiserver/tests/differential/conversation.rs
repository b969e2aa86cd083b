//! Requests and answers as they stand in the files, and how they are exchanged.

use std::fmt::Write as _;
use std::time::Duration;

use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::normal;

/// One request, as written down.
#[derive(Debug)]
pub(crate) struct Request {
    title: String,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    /// Ask again until the answer holds this text.
    until: Option<String>,
    body: String,
}

/// One answer, normalised.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) title: String,
    code: u16,
    warnings: Vec<String>,
    body: String,
}

/// The sections of a file: a title and the lines below it.
fn sections(text: &str) -> Vec<(String, Vec<&str>)> {
    let mut all: Vec<(String, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        match (line.strip_prefix("== "), all.last_mut()) {
            (Some(title), _) => all.push((title.to_owned(), Vec::new())),
            (None, Some((_, lines))) => lines.push(line),
            (None, None) => {}
        }
    }
    all
}

impl Request {
    pub(crate) fn read_all(text: &str) -> Vec<Self> {
        sections(text)
            .into_iter()
            .map(|(title, lines)| Self::read(title, &lines))
            .collect()
    }

    fn read(title: String, lines: &[&str]) -> Self {
        let (first, mut rest) = lines.split_first().expect("a request has a first line");
        let (method, path) = first.split_once(' ').expect("a method and a path");
        let (mut headers, mut until) = (Vec::new(), None);
        while let Some((line, after)) = rest.split_first() {
            let header = line.split_once(": ").filter(|(name, _)| {
                name.bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte == b'-')
            });
            match header {
                Some(("until", text)) => until = Some(text.to_owned()),
                Some((name, value)) if headers.is_empty() || !name.contains("version") => {
                    headers.push((name.to_owned(), value.to_owned()));
                }
                _ => break,
            }
            rest = after;
        }
        Self {
            title,
            method: method.to_owned(),
            path: path.to_owned(),
            headers,
            until,
            body: rest.join("\n").trim_end().to_owned(),
        }
    }
}

impl Answer {
    pub(crate) fn read_all(text: &str) -> Vec<Self> {
        let read = |(title, lines): (String, Vec<&str>)| {
            let (code, mut rest) = lines.split_first().expect("an answer has a code");
            let mut warnings = Vec::new();
            while let Some((warning, after)) = rest
                .split_first()
                .and_then(|(line, after)| Some((line.strip_prefix("warning: ")?, after)))
            {
                warnings.push(warning.to_owned());
                rest = after;
            }
            Self {
                title,
                code: code.parse().expect("a status code"),
                warnings,
                body: rest.join("\n").trim_end().to_owned(),
            }
        };
        sections(text).into_iter().map(read).collect()
    }

    pub(crate) fn write(&self) -> String {
        let mut text = format!("== {}\n{}\n", self.title, self.code);
        for warning in &self.warnings {
            let _ = writeln!(text, "warning: {warning}");
        }
        if !self.body.is_empty() {
            let _ = writeln!(text, "{}", self.body);
        }
        text
    }

    /// Both answers, with the lines that only one has marked.
    pub(crate) fn beside(&self, theirs: &Self) -> String {
        let lines = |answer: &Self| -> Vec<String> {
            answer.write().lines().skip(1).map(str::to_owned).collect()
        };
        let (ours, theirs) = (lines(self), lines(theirs));
        let mut text = String::new();
        for line in ours.iter().filter(|line| !theirs.contains(line)) {
            let _ = writeln!(text, "ours   {line}");
        }
        for line in theirs.iter().filter(|line| !ours.contains(line)) {
            let _ = writeln!(text, "theirs {line}");
        }
        if text.is_empty() {
            text.push_str("the same lines in another order\n");
        }
        text
    }
}

/// Holds a conversation in a namespace of its own.
pub(crate) async fn converse(client: &Client, name: &str, requests: &[Request]) -> Vec<Answer> {
    let namespace = format!("d-{name}");
    let setup = Request {
        title: "the namespace".to_owned(),
        method: "POST".to_owned(),
        path: "/api/v1/namespaces".to_owned(),
        headers: Vec::new(),
        until: None,
        body: json!({ "metadata": { "name": namespace } }).to_string(),
    };
    let made = ask(client, &namespace, &setup).await;
    assert_eq!(made.code, 201, "{made:?}");
    let mut answers = Vec::new();
    for request in requests {
        let mut answer = ask(client, &namespace, request).await;
        if let Some(wanted) = &request.until {
            for _ in 0..100 {
                if answer.body.contains(wanted.as_str()) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
                answer = ask(client, &namespace, request).await;
            }
        }
        answers.push(answer);
    }
    answers
}

async fn ask(client: &Client, namespace: &str, request: &Request) -> Answer {
    let fill = |text: &str| text.replace("{ns}", namespace);
    let mut built = http::Request::builder()
        .method(request.method.as_str())
        .uri(fill(&request.path))
        .header("user-agent", "differential/1");
    let has = |name: &str| request.headers.iter().any(|(own, _)| own == name);
    if !has("accept") {
        built = built.header("accept", "application/json");
    }
    if !has("content-type") && !request.body.is_empty() {
        built = built.header("content-type", "application/json");
    }
    for (name, value) in &request.headers {
        built = built.header(name, value);
    }
    let body = Body::from(fill(&request.body).into_bytes());
    let sent = client.send(built.body(body).unwrap());
    let response = tokio::time::timeout(Duration::from_secs(60), sent);
    let response = response.await.expect("no answer").unwrap();
    let code = response.status().as_u16();
    let warnings = response
        .headers()
        .get_all("warning")
        .iter()
        .map(|warning| warning.to_str().unwrap().to_owned())
        .collect();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    // A watch is a line for each event.
    let lines: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    let body = match (serde_json::from_str::<Value>(&text), lines) {
        (Ok(value), _) => normal::text(value),
        (Err(_), Ok(events)) => {
            let events: Vec<String> = events.into_iter().map(normal::text).collect();
            events.join("\n")
        }
        (Err(_), Err(_)) => text.trim_end().to_owned(),
    };
    Answer {
        title: request.title.clone(),
        code,
        warnings,
        body,
    }
}
