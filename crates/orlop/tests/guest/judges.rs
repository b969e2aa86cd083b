//! The conformance suite and csi-sanity on the driver.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::client::{Driver, orlop};
use crate::{in_guest, server};

const CLASS: &str = "server: 127.0.0.1\nshare: /data\n";

/// A program of others that was built elsewhere, if it is there.
pub(crate) fn peer(folder: &str, name: &str) -> Option<PathBuf> {
    let peers = PathBuf::from(std::env::var_os("ORLOP_PEERS")?);
    let found = fs::read_dir(peers.join(folder))
        .ok()?
        .filter_map(Result::ok);
    let mut places: Vec<PathBuf> = found.map(|entry| entry.path()).collect();
    places.sort();
    let named = places.iter().find(|path| path.ends_with(name)).cloned();
    named.or_else(|| {
        places
            .into_iter()
            .map(|path| path.join(name))
            .find(|path| path.is_file())
    })
}

/// Cases about several callers, and about those that leave: most of the suite's time.
const AT_ONCE: [&str; 4] = ["parallel.*", "conflict.*", "late.*", "restart.*"];
/// Cases about paths of a node.
const NODE: [&str; 9] = [
    "stage.*",
    "publish.*",
    "access.*",
    "read_only.*",
    "block.*",
    "stats.*",
    "expand.*",
    "data.*",
    "paths.*",
];

/// So many words, each after a flag.
fn each(flag: &str, words: &[&str]) -> Vec<String> {
    let pair = |word: &&str| [flag.to_owned(), (*word).to_owned()];
    words.iter().flat_map(pair).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_driver_conforms_with_many_callers_at_once() {
    in_guest!();
    conforms(&each("--focus", &AT_ONCE)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_driver_conforms_on_a_node() {
    in_guest!();
    conforms(&each("--focus", &NODE)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_driver_conforms_in_everything_else() {
    in_guest!();
    let skipped = [each("--skip", &AT_ONCE), each("--skip", &NODE)];
    conforms(&skipped.concat()).await;
}

/// The conformance suite, or a part of it. In parts: emulated processors take their time.
async fn conforms(part: &[String]) {
    server::kernel();
    let driver = Driver::start().await;
    let folder = driver.folder.path().to_owned();
    fs::write(folder.join("class.yaml"), CLASS).unwrap();
    let at = |name: &str| folder.join(name).display().to_string();
    let endpoint = format!("unix://{}", driver.socket().display());
    // Kills the driver, whichever it is by now, and starts another.
    let pid = at("pid");
    fs::write(&pid, driver.process().to_string()).unwrap();
    let restart = format!(
        "kill -9 $(cat {pid}); {} driver nfs --kubelet-dir / --nodeid node-1 --endpoint {endpoint} \
         >>{log} 2>&1 & echo $! >{pid}",
        orlop().display(),
        log = at("log"),
    );
    let judged = Command::new(orlop())
        .args(["conformance", "--endpoint", &endpoint, "--quiet"])
        .args(["--parameters", &at("class.yaml")])
        .args(["--test-volume-size", "1Mi"])
        .args(["--staging-dir", &at("staging")])
        .args(["--target-dir", &at("target")])
        .args(["--driver-log", &at("log")])
        .args(["--restart-command", &restart])
        .args(["--timeout", "60"])
        // A volume that an administrator wrote down has any id: its attributes say where it is.
        .args(["--skip", "publish.unknown_volume"])
        .args(part)
        .status();
    let _ = Command::new("sh")
        .args(["-c", &format!("kill -9 $(cat {pid})")])
        .status();
    assert!(judged.unwrap().success(), "the driver does not conform");
}

#[tokio::test(flavor = "multi_thread")]
async fn csi_sanity_passes() {
    in_guest!();
    let Some(sanity) = peer("bin", "csi-sanity") else {
        eprintln!("skipped: csi-sanity is not built; cargo xtask kube build does it");
        return;
    };
    server::kernel();
    let driver = Driver::start().await;
    let folder = driver.folder.path().to_owned();
    fs::write(folder.join("class.yaml"), CLASS).unwrap();
    let at = |name: &str| folder.join(name).display().to_string();
    let judged = Command::new(sanity)
        .args([
            format!("--csi.endpoint={}", driver.socket().display()),
            format!("--csi.mountdir={}", at("mount")),
            format!("--csi.stagingdir={}", at("staging")),
            format!("--csi.testvolumeparameters={}", at("class.yaml")),
            format!("--ginkgo.json-report={}", at("report.json")),
            "--ginkgo.no-color".to_owned(),
        ])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&judged.stdout);
    assert!(judged.status.success(), "{said}");
    let report = fs::read(folder.join("report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report).unwrap();
    let specs = report[0]["SpecReports"].as_array().unwrap();
    let count = |state: &str| specs.iter().filter(|spec| spec["State"] == state).count();
    eprintln!(
        "csi-sanity: {} passed, {} skipped",
        count("passed"),
        count("skipped")
    );
    assert!(count("passed") > 40, "{said}");
    // What is skipped is what the driver does not say that it can.
    for spec in specs.iter().filter(|spec| spec["State"] == "skipped") {
        let reason = spec["Failure"]["Message"].as_str().unwrap_or_default();
        assert!(
            reason.to_lowercase().contains("not supported"),
            "{}: {reason}",
            spec["LeafNodeText"]
        );
    }
}
