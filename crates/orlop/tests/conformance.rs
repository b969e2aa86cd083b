//! `orlop conformance` as its users meet it: what it prints, what it writes, how it ends.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use orlop_csi::proto::identity_server::Identity;
use orlop_csi::proto::node_server::Node;
use orlop_csi::proto::*;
use orlop_csi::server::{Services, Socket};
use tokio::process::Command;
use tonic::{Request, Response, Status};

/// A driver that only says who and where it is.
#[derive(Clone, Copy)]
struct Speaker {
    version: &'static str,
}

#[tonic::async_trait]
impl Identity for Speaker {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse {
            name: "speaker.csi.example".into(),
            vendor_version: self.version.into(),
            ..Default::default()
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        Ok(Response::new(GetPluginCapabilitiesResponse::default()))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        Ok(Response::new(ProbeResponse { ready: None }))
    }
}

#[tonic::async_trait]
impl Node for Speaker {
    async fn node_get_info(
        &self,
        _: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        Ok(Response::new(NodeGetInfoResponse {
            node_id: "speaker-1".into(),
            ..Default::default()
        }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        Ok(Response::new(NodeGetCapabilitiesResponse::default()))
    }
}

/// A folder with the driver's socket in it; the driver ends with the test's runtime.
struct Place(tempfile::TempDir);

impl Place {
    fn with(version: &'static str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = Socket::bind(&endpoint(folder.path())).unwrap();
        let speaker = Speaker { version };
        let services = Services::new().identity(speaker).node(speaker);
        tokio::spawn(socket.serve(services, std::future::pending()));
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    async fn run(&self, arguments: &[&str]) -> Said {
        let endpoint = endpoint(self.0.path());
        let folder = self.path("");
        let mut all = vec![
            "--endpoint",
            &endpoint,
            "--staging-dir",
            &folder,
            "--target-dir",
            &folder,
            "--timeout",
            "20",
        ];
        all.extend(arguments);
        conformance(&all).await
    }
}

fn endpoint(folder: &Path) -> String {
    format!("unix://{}/csi.sock", folder.display())
}

/// How a run ended and what it printed.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

async fn conformance(arguments: &[&str]) -> Said {
    let run = Command::new(env!("CARGO_BIN_EXE_orlop"))
        .arg("conformance")
        .args(arguments)
        .kill_on_drop(true)
        .output();
    let output: Output = tokio::time::timeout(Duration::from_secs(120), run)
        .await
        .expect("it ends")
        .unwrap();
    Said {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

const GOOD: &str = "1 <&\"> 2";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_conforms_ends_with_zero_and_a_line_per_case() {
    let said = Place::with(GOOD).run(&["--focus", "identity."]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(
        said.out.contains("identity.name_is_a_domain_name"),
        "{said:?}"
    );
    assert!(said.out.contains("skipped: "), "{said:?}");
    assert!(said.out.contains("speaker.csi.example"), "{said:?}");
    assert!(said.out.contains("conforms"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_does_not_conform_ends_with_one_and_the_reason() {
    let said = Place::with("")
        .run(&["--focus", "identity.", "--quiet"])
        .await;
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(
        said.out.contains("identity.vendor_version_is_set"),
        "{said:?}"
    );
    assert!(said.out.contains("does not conform"), "{said:?}");
    assert!(
        !said.out.contains("identity.probe_answers"),
        "a quiet run shows what failed alone: {said:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reports_are_written_in_every_form() {
    let place = Place::with("");
    let (junit, html, json) = (
        place.path("r.xml"),
        place.path("r.html"),
        place.path("r.json"),
    );
    let said = place
        .run(&[
            "--focus",
            "identity.",
            "--junit",
            &junit,
            "--html",
            &html,
            "--json",
            &json,
        ])
        .await;
    assert_eq!(said.code, Some(1), "{said:?}");

    let junit = std::fs::read_to_string(junit).unwrap();
    assert!(junit.starts_with("<?xml"), "{junit}");
    assert!(junit.contains("failures=\"1\""), "{junit}");
    assert!(
        junit.contains("classname=\"identity\" name=\"vendor_version_is_set\""),
        "{junit}"
    );
    let cases = junit.matches("<testcase").count();

    let html = std::fs::read_to_string(html).unwrap();
    for part in [
        "<a href=\"#identity.vendor_version_is_set\">",
        "<tr id=\"identity.vendor_version_is_set\">",
    ] {
        assert!(html.contains(part), "what failed is found at once: {html}");
    }
    for outside in ["src=\"http", "href=\"http", "@import", "<script src"] {
        assert!(!html.contains(outside), "the page stands alone: {outside}");
    }

    let json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(json["driver"], "speaker.csi.example");
    assert_eq!(json["cases"].as_array().unwrap().len(), cases);
    let failed: Vec<_> = json["cases"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|case| case["verdict"] == "failed")
        .map(|case| case["id"].as_str().unwrap())
        .collect();
    assert_eq!(failed, ["identity.vendor_version_is_set"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_driver_says_is_escaped_in_reports() {
    let place = Place::with(GOOD);
    let (junit, html) = (place.path("r.xml"), place.path("r.html"));
    let said = place
        .run(&["--focus", "identity.", "--junit", &junit, "--html", &html])
        .await;
    assert_eq!(said.code, Some(0), "{said:?}");
    for path in [junit, html] {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains(GOOD), "{path} holds the version as it is");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn focus_and_skip_choose_the_cases() {
    let place = Place::with(GOOD);
    let said = place
        .run(&[
            "--focus",
            "identity.*",
            "--skip",
            "probe",
            "--skip",
            "*node*",
        ])
        .await;
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(
        said.out.contains("identity.name_is_a_domain_name"),
        "{said:?}"
    );
    for left_out in ["probe", "identity.node", "create."] {
        assert!(!said.out.contains(left_out), "{left_out}: {said:?}");
    }
}

#[tokio::test]
async fn the_list_needs_no_driver_and_can_be_focused() {
    let all = conformance(&["--list"]).await;
    assert_eq!(all.code, Some(0), "{all:?}");
    assert!(all.out.lines().count() > 300, "{}", all.out.lines().count());
    let some = conformance(&["--list", "--focus", "restart."]).await;
    assert_eq!(some.code, Some(0), "{some:?}");
    assert!(some.out.lines().count() > 3, "{some:?}");
    for line in some.out.lines() {
        assert!(
            line.starts_with("restart.")
                && line.contains(" [")
                && line.contains("--restart-command"),
            "{line}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_run_ends_with_two_and_says_why() {
    let place = Place::with(GOOD);
    let nobody = format!("unix://{}", place.path("nobody.sock"));
    let missing = place.path("missing");
    let bad = place.path("bad");
    std::fs::write(&bad, "hunter2").unwrap();

    let said = conformance(&["--endpoint", &nobody, "--timeout", "2"]).await;
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("endpoint"), "{said:?}");

    for (arguments, word) in [
        (["--focus", "no-such-case"], "--list"),
        (["--parameters", &missing], missing.as_str()),
        (["--secrets", &bad], bad.as_str()),
        (["--driver-log", &missing], missing.as_str()),
        (["--test-volume-size", "0"], "--test-volume-size"),
        (["--test-volume-size", "64MB"], "64Mi"),
        (["--focus", "create.works"], "skipped"),
    ] {
        let said = place.run(&arguments).await;
        assert_eq!(said.code, Some(2), "{arguments:?}: {said:?}");
        assert!(said.err.contains(word), "{arguments:?}: {said:?}");
        assert!(
            !said.err.contains("hunter2") && !said.out.contains("hunter2"),
            "{arguments:?}: {said:?}"
        );
    }
    let said = conformance(&[]).await;
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("--endpoint"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_leaves_no_folder_behind() {
    let place = Place::with(GOOD);
    let said = place.run(&["--focus", "identity."]).await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let left: Vec<_> = std::fs::read_dir(place.0.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["csi.sock"]);
}
