//! The servers that are measured: each with its data on the disk, flushed as it does by default.

use std::{
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http::Method;
use rcgen::DnType;
use tokio::process::{Child, Command};

use super::{
    client::Server,
    usage::{self, Usage},
};
use crate::kube::{Authority, logs};

/// How long a server may take to become ready.
const START: Duration = Duration::from_secs(60);
/// How often it is asked whether it is.
const POLL: Duration = Duration::from_millis(1);

/// A running API server, with whatever it needs.
pub(super) struct Running {
    pub(super) kubeconfig: PathBuf,
    folder: PathBuf,
    /// Where it listens.
    pub(super) server: String,
    /// From the first program's start until it said that it is ready.
    pub(super) start: Duration,
    processes: Vec<Process>,
}

struct Process {
    name: &'static str,
    log: PathBuf,
    child: Child,
}

/// Starts ours.
pub(super) async fn ours(folder: &Path, orlop: &Path) -> Result<Running> {
    let data = folder.join("data");
    let kubeconfig = data.join("kubeconfig");
    let address = format!("127.0.0.1:{}", free_port()?);
    let listen = format!("--listen={address}");
    let server = format!("https://{address}");
    let data = format!("--data-dir={}", data.display());
    let begin = Instant::now();
    let process = Process::start(folder, "orlop", orlop, ["apiserver", &listen, &data])?;
    ready(folder, (server, kubeconfig), begin, vec![process]).await
}

/// Starts ours with all roles, in one process.
pub(super) async fn everything(folder: &Path, orlop: &Path) -> Result<Running> {
    let data = folder.join("data");
    let kubeconfig = data.join("kubeconfig");
    let address = format!("127.0.0.1:{}", free_port()?);
    let listen = format!("--listen={address}");
    let server = format!("https://{address}");
    let data = format!("--data-dir={}", data.display());
    let begin = Instant::now();
    let arguments = ["up", "--quiet", &listen, &data];
    let process = Process::start(folder, "orlop", orlop, arguments)?;
    ready(folder, (server, kubeconfig), begin, vec![process]).await
}

/// The one of these binaries that has this name.
pub(super) fn binary<'b>(binaries: &'b [PathBuf], name: &str) -> Result<&'b PathBuf> {
    let found = binaries.iter().find(|path| path.ends_with(name));
    found.with_context(|| format!("{name} was not built"))
}

/// Starts etcd and kube-apiserver, with the certificates and settings of the test cluster; the API
/// server with further flags.
pub(super) async fn theirs(
    folder: &Path,
    binaries: &[PathBuf],
    more: &[String],
) -> Result<Running> {
    let authority = Authority::create(folder)?;
    authority.server("etcd", &[(DnType::CommonName, "etcd")])?;
    authority.server("apiserver", &[(DnType::CommonName, "kube-apiserver")])?;
    let (etcd, peers, port) = (free_port()?, free_port()?, free_port()?);
    let kubeconfig = folder.join("admin.kubeconfig");
    let server = format!("https://127.0.0.1:{port}");
    authority.kubeconfig_of(&server, &kubeconfig, "admin", Some("system:masters"))?;
    let file = |name: &str| folder.join(name).display().to_string();
    let store = format!("https://127.0.0.1:{etcd}");
    let peers = format!("http://127.0.0.1:{peers}");
    let begin = Instant::now();
    let etcd = Process::start(
        folder,
        "etcd",
        binary(binaries, "etcd")?,
        [
            format!("--data-dir={}", file("etcd")),
            format!("--listen-client-urls={store}"),
            format!("--advertise-client-urls={store}"),
            format!("--listen-peer-urls={peers}"),
            format!("--initial-advertise-peer-urls={peers}"),
            format!("--initial-cluster=default={peers}"),
            "--client-cert-auth".to_owned(),
            format!("--trusted-ca-file={}", file("ca.crt")),
            format!("--cert-file={}", file("etcd.crt")),
            format!("--key-file={}", file("etcd.key")),
        ],
    )?;
    let apiserver = Process::start(
        folder,
        "kube-apiserver",
        binary(binaries, "kube-apiserver")?,
        [
            format!("--etcd-servers={store}"),
            format!("--etcd-cafile={}", file("ca.crt")),
            format!("--etcd-certfile={}", file("apiserver.crt")),
            format!("--etcd-keyfile={}", file("apiserver.key")),
            "--bind-address=127.0.0.1".to_owned(),
            // No pod is to reach it.
            format!("--advertise-address={}", crate::kube::ADDRESS),
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--secure-port={port}"),
            format!("--tls-cert-file={}", file("apiserver.crt")),
            format!("--tls-private-key-file={}", file("apiserver.key")),
            format!("--client-ca-file={}", file("ca.crt")),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", file("tokens.pub")),
            format!("--service-account-signing-key-file={}", file("tokens.key")),
            "--service-cluster-ip-range=10.96.0.0/24".to_owned(),
        ]
        .into_iter()
        .chain(more.iter().cloned()),
    )?;
    ready(folder, (server, kubeconfig), begin, vec![etcd, apiserver]).await
}

async fn ready(
    folder: &Path,
    (server, kubeconfig): (String, PathBuf),
    begin: Instant,
    processes: Vec<Process>,
) -> Result<Running> {
    let mut running = Running {
        server,
        folder: folder.to_owned(),
        kubeconfig,
        start: Duration::ZERO,
        processes,
    };
    loop {
        let asked = async {
            let server = Server::of(&running.kubeconfig).await?;
            let mut connection = server.connect().await?;
            connection.ask(Method::GET, "/readyz", Bytes::new()).await
        };
        if asked.await.is_ok() {
            running.start = begin.elapsed();
            return Ok(running);
        }
        if begin.elapsed() > START {
            bail!(
                "the server was not ready within {} s{}",
                START.as_secs(),
                running.logs()
            );
        }
        running.check()?;
        tokio::time::sleep(POLL).await;
    }
}

impl Running {
    /// What its processes used so far.
    pub(super) fn usage(&self) -> Result<Usage> {
        self.usage_of(|_| true)
    }

    /// What those of its processes used whose names are chosen.
    pub(super) fn usage_of(&self, chosen: impl Fn(&str) -> bool) -> Result<Usage> {
        let chosen = self.processes.iter().filter(|one| chosen(one.name));
        usage::of(chosen.filter_map(|process| process.child.id()))
    }

    /// The names of its processes.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.processes.iter().map(|process| process.name)
    }

    /// Starts a program beside those that there are; it ends before them.
    pub(super) fn add(
        &mut self,
        name: &'static str,
        program: &Path,
        arguments: &[String],
    ) -> Result<()> {
        let process = Process::start(&self.folder, name, program, arguments)?;
        self.processes.push(process);
        Ok(())
    }

    /// Fails if one of its processes has died.
    pub(super) fn check(&mut self) -> Result<()> {
        for process in &mut self.processes {
            if let Some(status) = process.child.try_wait()? {
                let end = logs::end(&process.log, 20);
                bail!("{} ended ({status}):\n{end}", process.name);
            }
        }
        Ok(())
    }

    /// Ends it.
    pub(super) async fn end(mut self) -> Result<()> {
        // What uses the store goes before it.
        for process in self.processes.iter_mut().rev() {
            process.child.kill().await?;
        }
        Ok(())
    }

    fn logs(&self) -> String {
        let end =
            |process: &Process| format!("\n--- {}\n{}", process.name, logs::end(&process.log, 20));
        self.processes.iter().map(end).collect()
    }
}

impl Process {
    fn start<A: AsRef<str>>(
        folder: &Path,
        name: &'static str,
        program: &Path,
        arguments: impl IntoIterator<Item = A>,
    ) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let log = folder.join(format!("{name}.log"));
        let output = File::create(&log)?;
        // Whoever kills the benchmark leaves no server behind.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(
                arguments
                    .into_iter()
                    .map(|argument| argument.as_ref().to_owned()),
            )
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .kill_on_drop(true)
            .spawn()
            .context("could not run setpriv")?;
        Ok(Self { name, log, child })
    }
}

/// A port that nobody listens on at the moment.
pub(super) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no port is free")?;
    Ok(listener.local_addr()?.port())
}
