//! The supervisor: starts the components in order and tells when one of them dies.

use std::{
    fs,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
};
use rcgen::DnType;
use tokio::{process::Child, sync::mpsc};

use super::{NODE, certificates::Authority, component, folder::Folder, keeper, logs, namespaces};

/// How long a cluster may take to become ready.
const START: Duration = Duration::from_secs(60);
/// How often a component that pauses is asked whether it still does.
const PAUSE: Duration = Duration::from_millis(50);
/// How many lines of a dead component's log are told.
const LINES: usize = 25;

/// Starts everything, says that it is ready, and ends with the first component that dies.
pub(super) async fn run(folder: &Folder) -> Result<ExitCode> {
    let (died, mut deaths) = mpsc::unbounded_channel();
    let failure = tokio::select! {
        biased;
        Some(death) = deaths.recv() => death,
        started = tokio::time::timeout(START, start(folder, &died)) => match started {
            Ok(Ok(())) => deaths.recv().await.context("the components' watch ended")?,
            Ok(Err(failure)) => failure,
            Err(_) => late(folder),
        },
    };
    folder.note("failure", &format!("{failure:#}"))?;
    folder.note("keep", "")?;
    Ok(ExitCode::FAILURE)
}

fn late(folder: &Folder) -> anyhow::Error {
    let ends: String = component::NAMES
        .iter()
        .map(|name| format!("--- {name}\n{}", logs::end(&folder.log(name), 8)))
        .collect();
    anyhow::anyhow!(
        "the cluster was not ready within {} s:\n{ends}",
        START.as_secs()
    )
}

async fn start(folder: &Folder, died: &mpsc::UnboundedSender<anyhow::Error>) -> Result<()> {
    let begin = Instant::now();
    namespaces::furnish(folder)?;
    certify(folder)?;
    let launch = |component: component::Component| -> Result<()> {
        let child = component.start(folder)?;
        let (folder, died) = (folder.clone(), died.clone());
        tokio::spawn(async move {
            // Nobody listens any more when the cluster ends anyway.
            let _ = died.send(watch(folder, component, child).await);
        });
        Ok(())
    };
    launch(component::etcd(folder))?;
    launch(component::containerd(folder)?)?;
    launch(component::apiserver(folder))?;
    let ((), client) = tokio::try_join!(component::import(folder), reachable(folder))?;
    // These give up when they find no API server for some seconds, so they come after it.
    launch(component::controller_manager(folder))?;
    launch(component::scheduler(folder))?;
    launch(component::kubelet(folder)?)?;
    node_ready(&client).await?;
    folder.note("ready", &format!("{:.1}", begin.elapsed().as_secs_f64()))?;
    keeper::say(keeper::READY);
    Ok(())
}

/// Resolves with the news of a component's death. A death that was asked for, by a file
/// `components/NAME.restart`, starts it again instead; not before a file `components/NAME.pause`
/// is gone.
async fn watch(folder: Folder, component: component::Component, mut child: Child) -> anyhow::Error {
    loop {
        let status = child.wait().await;
        let asked = folder.join(format!("components/{}.restart", component.name));
        if fs::remove_file(&asked).is_err() {
            let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
            return anyhow::anyhow!(
                "{} died ({status}); the end of its log:\n{}",
                component.name,
                logs::end(&folder.log(component.name), LINES)
            );
        }
        let paused = folder.join(format!("components/{}.pause", component.name));
        if paused.exists() {
            // Who asked for it learns from this that it has ended.
            let _ = fs::remove_file(folder.join(format!("components/{}.pid", component.name)));
        }
        while paused.exists() {
            tokio::time::sleep(PAUSE).await;
        }
        child = match component.start(&folder) {
            Ok(child) => child,
            Err(error) => return error,
        };
    }
}

fn certify(folder: &Folder) -> Result<()> {
    let authority = Authority::create(&folder.join("pki"))?;
    let masters = (DnType::OrganizationName, "system:masters");
    authority.server("etcd", &[(DnType::CommonName, "etcd")])?;
    // The API server shows the same certificate to the kubelets, which ask who may do what.
    authority.server(
        "apiserver",
        &[(DnType::CommonName, "kube-apiserver"), masters],
    )?;
    authority.server("kubelet", &[(DnType::CommonName, NODE)])?;
    let config = |name: &str| folder.join(format!("config/{name}.kubeconfig"));
    authority.kubeconfig(&folder.admin(), "admin", Some("system:masters"))?;
    authority.kubeconfig(
        &config("controller-manager"),
        "system:kube-controller-manager",
        None,
    )?;
    authority.kubeconfig(&config("scheduler"), "system:kube-scheduler", None)?;
    authority.kubeconfig(
        &config("kubelet"),
        &format!("system:node:{NODE}"),
        Some("system:nodes"),
    )
}

/// Waits for the API server to say that it is ready.
async fn reachable(folder: &Folder) -> Result<Client> {
    let client = client(&folder.admin()).await?;
    loop {
        let request = http::Request::get("/readyz").body(Vec::new())?;
        if client.request_text(request).await.is_ok() {
            return Ok(client);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn node_ready(client: &Client) -> Result<()> {
    let node = ApiResource::from_gvk_with_plural(
        &kube::core::GroupVersionKind::gvk("", "v1", "Node"),
        "nodes",
    );
    let nodes: Api<DynamicObject> = Api::all_with(client.clone(), &node);
    loop {
        if let Some(node) = nodes.get_opt(NODE).await? {
            let conditions = node
                .data
                .pointer("/status/conditions")
                .and_then(|all| all.as_array().cloned());
            let ready = conditions
                .unwrap_or_default()
                .iter()
                .any(|one| one["type"] == "Ready" && one["status"] == "True");
            if ready {
                return Ok(());
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A client for the API server, as the user of a kubeconfig.
pub(crate) async fn client(kubeconfig: &std::path::Path) -> Result<Client> {
    let read = kube::config::Kubeconfig::read_from(kubeconfig)
        .with_context(|| format!("could not read {}", kubeconfig.display()))?;
    let config = kube::Config::from_custom_kubeconfig(read, &Default::default()).await;
    let Ok(mut config) = config else {
        bail!("{} is no usable kubeconfig", kubeconfig.display());
    };
    // A create that is sent twice fails; scenarios see the first answer.
    config.default_retry = false;
    Ok(Client::try_from(config)?)
}
