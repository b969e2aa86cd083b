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

#[tokio::test(flavor = "multi_thread")]
async fn the_driver_conforms() {
    in_guest!();
    server::kernel();
    let driver = Driver::start().await;
    let folder = driver.folder.path().to_owned();
    fs::write(folder.join("class.yaml"), CLASS).unwrap();
    let at = |name: &str| folder.join(name).display().to_string();
    let judged = Command::new(orlop())
        .args([
            "conformance",
            "--endpoint",
            &format!("unix://{}", driver.socket().display()),
        ])
        .args([
            "--parameters",
            &at("class.yaml"),
            "--quiet",
            "--test-volume-size",
            "1Mi",
        ])
        .args([
            "--staging-dir",
            &at("staging"),
            "--target-dir",
            &at("target"),
        ])
        .args(["--timeout", "60"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&judged.stdout);
    eprintln!("{said}");
    assert!(
        judged.status.success(),
        "{}",
        String::from_utf8_lossy(&judged.stderr)
    );
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
            "--ginkgo.no-color".to_owned(),
        ])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&judged.stdout);
    let told: Vec<&str> = said
        .lines()
        .filter(|line| line.contains("Passed") || line.contains("[FAIL]"))
        .collect();
    eprintln!("{}", told.join("\n"));
    assert!(judged.status.success(), "{said}");
}
