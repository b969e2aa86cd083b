//! A server over HTTPS, and kubectl against it.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use orlop_apiserver::{
    ApiServer, Config, LogError, LogRequest, LogSource, LogStream, Pki, Storage,
};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// How long one kubectl may take; generous, since the machine may be busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A log that says what was asked for.
#[derive(Default)]
pub(crate) struct Echo {
    pub(crate) asked: Mutex<Option<LogRequest>>,
}

impl LogSource for Echo {
    fn open(&self, request: LogRequest) -> BoxFuture<'_, Result<LogStream, LogError>> {
        let lines = request.tail_lines.unwrap_or(3);
        *self.asked.lock().unwrap() = Some(request);
        Box::pin(async move {
            let lines = (1..=lines).map(|line| Ok(Bytes::from(format!("line {line}\n"))));
            Ok(futures::stream::iter(lines.collect::<Vec<_>>()).boxed())
        })
    }
}

pub(crate) struct Served {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) url: String,
    pub(crate) logs: Arc<Echo>,
    pub(crate) stop: Option<oneshot::Sender<()>>,
    pub(crate) serving: JoinHandle<()>,
}

impl Served {
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let logs = Arc::new(Echo::default());
        let mut config = Config::new(Storage::Disk(directory.path().join("store")));
        config.logs = Some(Arc::clone(&logs) as Arc<dyn LogSource>);
        let server = ApiServer::open(config).await.unwrap();
        let pki = Pki::open(&directory.path().join("pki"), jiff::Timestamp::now()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        pki.write_kubeconfig(&directory.path().join("kubeconfig"), &url)
            .unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = server.serve(listener, pki.tls(&[]).unwrap(), async {
            drop(stopped.await);
        });
        let serving = tokio::spawn(async move {
            serving.await;
            server.shutdown().await;
        });
        Self {
            directory,
            url,
            logs,
            stop: Some(stop),
            serving,
        }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.directory.path().join("kubeconfig")
    }

    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new("kubectl");
        command
            .args(arguments.split_whitespace())
            .env("KUBECONFIG", self.kubeconfig())
            .env("HOME", self.directory.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    pub(crate) async fn output(&self, arguments: &str) -> Output {
        let output = self.command(arguments).output();
        tokio::time::timeout(PATIENCE, output)
            .await
            .expect("kubectl took too long")
            .unwrap()
    }

    /// Runs kubectl, which must succeed, and gives its output.
    pub(crate) async fn kubectl(&self, arguments: &str) -> String {
        let output = self.output(arguments).await;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "kubectl {arguments}: {}",
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    /// Runs kubectl, which must fail, and gives its complaint.
    pub(crate) async fn refused(&self, arguments: &str) -> String {
        let output = self.output(arguments).await;
        assert!(!output.status.success(), "kubectl {arguments} succeeded");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Runs kubectl with this text as its input.
    pub(crate) async fn feed(&self, arguments: &str, input: &str) -> String {
        let mut command = self.command(arguments);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .await
            .unwrap();
        let output = tokio::time::timeout(PATIENCE, child.wait_with_output());
        let output = output.await.expect("kubectl took too long").unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {arguments}: {errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        tokio::time::timeout(PATIENCE, &mut self.serving)
            .await
            .expect("the server didn't stop")
            .unwrap();
    }
}

/// Whether these tests can run here; says so if not.
pub(crate) fn kubectl_is_missing() -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| is_file(&folder.join("kubectl")))
    });
    if !found {
        println!("skipped: there is no kubectl on this machine; install kubernetes-client");
    }
    !found
}

fn is_file(path: &Path) -> bool {
    path.is_file()
}
