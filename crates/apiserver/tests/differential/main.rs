//! The same requests to this server and to a real kube-apiserver, answer by answer.
//!
//! `requests/*.txt` hold what is asked, one conversation a file; `answers/*.txt` what
//! kube-apiserver said, recorded by `scripts/record-answers`; `differences.txt` names the
//! answers that differ, each with the reason. An answer that differs and isn't named there
//! fails the test, and so does one that is named and doesn't differ any more.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod conversation;
mod normal;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use orlop_apiserver::{ApiServer, Config, Storage};

use conversation::{Answer, Request, converse};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/differential")
}

/// Every file of requests, by its name.
fn conversations() -> BTreeMap<String, Vec<Request>> {
    let files = fs::read_dir(folder().join("requests")).unwrap();
    files
        .map(|file| {
            let path = file.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            let requests = Request::read_all(&fs::read_to_string(&path).unwrap());
            (name, requests)
        })
        .collect()
}

/// The answers that may differ, as `file: title`, and why.
fn known_differences() -> BTreeMap<String, String> {
    let text = fs::read_to_string(folder().join("differences.txt")).unwrap();
    let mut known = BTreeMap::new();
    let mut reason = String::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        match (line.strip_prefix("# "), line.strip_prefix("- ")) {
            (Some(text), _) => text.clone_into(&mut reason),
            (None, Some(answer)) => {
                assert!(!reason.is_empty(), "{answer} differs for no reason");
                known.insert(answer.to_owned(), reason.clone());
            }
            _ => panic!("neither a reason nor an answer: {line}"),
        }
    }
    known
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_is_the_originals_or_the_difference_is_explained() {
    if let Some(kubeconfig) = std::env::var_os("ORLOP_RECORD") {
        return record(Path::new(&kubeconfig)).await;
    }
    let known = known_differences();
    let mut differing = BTreeSet::new();
    let mut unexpected = String::new();
    let (mut asked, mut titles) = (0, BTreeSet::new());
    for (name, requests) in conversations() {
        let mut config = Config::new(Storage::Memory);
        config.policy.service_accounts = true;
        let server = ApiServer::open(config).await.unwrap();
        let client = Client::new(server.service(), "default");
        let ours = converse(&client, &name, &requests).await;
        let recorded = folder().join("answers").join(format!("{name}.txt"));
        let theirs = Answer::read_all(&fs::read_to_string(recorded).unwrap());
        assert_eq!(ours.len(), theirs.len(), "{name}: record the answers anew");
        for (our, their) in ours.iter().zip(&theirs) {
            asked += 1;
            let title = format!("{name}: {}", our.title);
            assert!(titles.insert(title.clone()), "{title} stands twice");
            if our == their {
                continue;
            }
            if !known.contains_key(&title) {
                unexpected.push_str(&format!("\n---- {title}\n{}", our.beside(their)));
            }
            differing.insert(title);
        }
    }
    println!(
        "{asked} answers, {} of them differ as explained",
        differing.len()
    );
    assert!(
        unexpected.is_empty(),
        "answers differ from the original's:{unexpected}"
    );
    let settled: Vec<_> = known
        .keys()
        .filter(|title| !differing.contains(*title))
        .collect();
    assert!(
        settled.is_empty(),
        "these don't differ any more: {settled:#?}"
    );
}

/// Asks a real kube-apiserver and keeps what it says; all of it, or some conversations.
async fn record(kubeconfig: &Path) {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options);
    let client = Client::try_from(config.await.unwrap()).unwrap();
    let only = std::env::var("ORLOP_RECORD_ONLY").unwrap_or_default();
    let wanted = |name: &str| only.is_empty() || only.split(' ').any(|one| one == name);
    for (name, requests) in conversations() {
        if !wanted(&name) {
            continue;
        }
        let answers = converse(&client, &name, &requests).await;
        let text: Vec<String> = answers.iter().map(Answer::write).collect();
        let path = folder().join("answers").join(format!("{name}.txt"));
        fs::write(path, text.join("\n")).unwrap();
    }
}
