//! Go's typed client, speaking protobuf only, against the API over HTTPS.
//!
//! Needs `go` and the program's modules; skips with a word where they cannot be had. The
//! program is built into a folder of the target directory, so that a second run finds it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Output;
use std::time::Duration;

use orlop_apiserver::{ApiServer, Config, Pki, Storage};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// For one run of the program, which gives up by itself before.
const PATIENCE: Duration = Duration::from_secs(120);
/// For the first build, which may have to download modules and compiles all of client-go.
const BUILD_PATIENCE: Duration = Duration::from_secs(1200);

async fn go(arguments: &[&str]) -> Result<(), String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/go-client");
    let mut go = Command::new("go");
    go.args(arguments)
        .current_dir(source)
        .env("GOTOOLCHAIN", "local")
        .kill_on_drop(true);
    match timeout(BUILD_PATIENCE, go.output()).await {
        Ok(Ok(output)) if output.status.success() => Ok(()),
        Ok(Ok(output)) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("go {} did not end", arguments[0])),
    }
}

async fn run(program: &Path, kubeconfig: &Path) -> Output {
    let mut command = Command::new(program);
    command.arg(kubeconfig).kill_on_drop(true);
    timeout(PATIENCE, command.output())
        .await
        .expect("the program ends")
        .unwrap()
}

#[tokio::test]
async fn a_go_client_that_speaks_protobuf_only_gets_everything_done() {
    // What the machine lacks is a reason to skip; what we wrote must build.
    if let Err(reason) = go(&["mod", "download"]).await {
        println!("skipped: Go or its modules cannot be had here: {reason}");
        return;
    }
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-client");
    go(&["build", "-o", program.to_str().unwrap(), "."])
        .await
        .unwrap();

    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    let server = ApiServer::open(Config::new(Storage::Memory)).await.unwrap();
    let pki = Pki::open(&directory.path().join("pki"), jiff::Timestamp::now()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    pki.write_kubeconfig(&kubeconfig, &url).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(server.serve(listener, pki.tls(&[]).unwrap(), async {
        drop(stopped.await);
    }));

    let output = run(&program, &kubeconfig).await;
    let done = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "after {done}: {errors}");
    let expected = [
        "claims",
        "volumes",
        "pods",
        "secrets",
        "leases",
        "events",
        "storage",
        "access",
        "refusals",
        "informers",
        "elections",
        "metadata",
    ];
    assert_eq!(done.lines().collect::<Vec<_>>(), expected);

    drop(stop);
    timeout(PATIENCE, serving)
        .await
        .expect("the server ends")
        .unwrap();
    server.shutdown().await;
}
