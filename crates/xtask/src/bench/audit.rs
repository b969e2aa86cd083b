//! What was asked of an API server, by whom, as its own audit log tells.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// As whom the benchmark's client speaks: the administrator.
const CLIENT: &str = "admin";
/// As whom an API server asks itself.
const SERVER: &str = "system:apiserver";
/// What the names of the sidecars' users begin with.
pub(super) const SIDECAR: &str = "sidecar:";

/// For how long nothing may be written for the log to be whole, and how long that is waited for.
const STILL: Duration = Duration::from_millis(1500);
const PATIENCE: Duration = Duration::from_secs(60);

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Who {
    Client,
    Sidecars,
    /// Binder and protection, whoever's.
    Control,
    /// The API server, of itself.
    Server,
}

impl Who {
    fn of(user: &str) -> Self {
        match user {
            CLIENT => Self::Client,
            SERVER => Self::Server,
            _ if user.starts_with(SIDECAR) => Self::Sidecars,
            _ => Self::Control,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Sidecars => "sidecars",
            Self::Control => "control",
            Self::Server => "the server itself",
        }
    }
}

/// One sort of request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Sort {
    pub(super) who: Who,
    /// Verb, resource and subresource.
    pub(super) what: String,
    pub(super) code: u64,
}

/// How many there were of each sort.
pub(super) type Counts = BTreeMap<Sort, usize>;

/// A log that grows.
pub(super) struct Audit {
    log: PathBuf,
    read: u64,
}

impl Audit {
    /// Writes the policy of what is logged; answers with the server's flags besides.
    pub(super) fn prepare(folder: &Path) -> Result<(Self, Vec<String>)> {
        let (policy, log) = (folder.join("audit.json"), folder.join("audit.log"));
        // Whoever looks for the users of a claim asks for pods.
        let mut resources = ["events", "pods", "secrets"].map(str::to_owned).to_vec();
        for name in ["persistentvolumeclaims", "persistentvolumes", "nodes"] {
            resources.extend([name.to_owned(), format!("{name}/*")]);
        }
        let rules = json!({
            "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
            "omitStages": ["RequestReceived", "ResponseStarted"],
            "rules": [
                {"level": "None", "verbs": ["watch"]},
                {"level": "Metadata", "resources": [
                    {"group": "", "resources": resources},
                    {"group": "events.k8s.io"}, {"group": "storage.k8s.io"},
                    {"group": "snapshot.storage.k8s.io"},
                ]},
                {"level": "None"},
            ],
        });
        fs::write(&policy, rules.to_string())?;
        let flags = vec![
            format!("--audit-policy-file={}", policy.display()),
            format!("--audit-log-path={}", log.display()),
            // In one file.
            "--audit-log-maxsize=100000".to_owned(),
        ];
        Ok((Self { log, read: 0 }, flags))
    }

    /// Waits until nothing is asked any more, and counts what was since the last time.
    pub(super) async fn settled(&mut self) -> Result<Counts> {
        let begin = Instant::now();
        let (mut size, mut since) = (self.size()?, begin);
        while since.elapsed() < STILL && begin.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let now = self.size()?;
            if now != size {
                (size, since) = (now, Instant::now());
            }
        }
        let mut text = String::new();
        let mut file = File::open(&self.log)?;
        file.seek(SeekFrom::Start(self.read))?;
        file.read_to_string(&mut text)?;
        // A line that is being written is read next time.
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        self.read += whole as u64;
        count(&text[..whole])
    }

    fn size(&self) -> Result<u64> {
        let size = fs::metadata(&self.log).context("the API server writes no audit log")?;
        Ok(size.len())
    }
}

fn count(lines: &str) -> Result<Counts> {
    let mut counts = Counts::new();
    for line in lines.lines() {
        let entry: Value = serde_json::from_str(line).context("an odd line in the audit log")?;
        let text = |pointer: &str| entry.pointer(pointer).and_then(Value::as_str);
        let mut what = format!(
            "{} {}",
            text("/verb").unwrap_or_default(),
            text("/objectRef/resource").unwrap_or_default()
        );
        if let Some(part) = text("/objectRef/subresource") {
            what.push('/');
            what.push_str(part);
        }
        let sort = Sort {
            who: Who::of(text("/user/username").unwrap_or_default()),
            what,
            code: entry["responseStatus"]["code"].as_u64().unwrap_or_default(),
        };
        *counts.entry(sort).or_default() += 1;
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn requests_are_counted_by_who_asked_for_what_and_the_answer() {
        let line = |user: &str, part: Value, code: u64| {
            json!({
                "verb": "patch", "user": {"username": user}, "responseStatus": {"code": code},
                "objectRef": {"resource": "persistentvolumes", "subresource": part},
            })
            .to_string()
        };
        let binder = "system:serviceaccount:kube-system:persistent-volume-binder";
        let log = [
            line("sidecar:csi-attacher", Value::Null, 200),
            line("sidecar:csi-attacher", Value::Null, 409),
            line(binder, json!("status"), 200),
            line("sidecar:orlop", Value::Null, 200),
        ];
        let counts = count(&log.join("\n")).unwrap();
        let told: Vec<_> = counts
            .iter()
            .map(|(sort, count)| (sort.who.word(), sort.what.as_str(), sort.code, *count))
            .collect();
        assert_eq!(
            told,
            [
                ("sidecars", "patch persistentvolumes", 200, 2),
                ("sidecars", "patch persistentvolumes", 409, 1),
                ("control", "patch persistentvolumes/status", 200, 1),
            ]
        );
    }
}
