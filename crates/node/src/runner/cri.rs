//! Containers by a container runtime that speaks the CRI, such as containerd.
//!
//! What runs is on record with the runtime: containers and sandboxes are found again by the
//! kubelet's labels. The end of a container is noticed by its process, without asking again and
//! again. Pods are on the host's network, as with the other runner.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use orlop_runtime::Backoff;
use tokio::sync::{Semaphore, watch};
use tracing::info;

use self::api::image_service_client::ImageServiceClient;
use self::api::runtime_service_client::RuntimeServiceClient;
use self::call::{CriError, ask, within};
use self::container::CriContainer;
use super::{Attempts, ContainerId, Finish, Found, Launch, Pull, Runner, RunnerError};
use crate::layout::{Layout, PodUid};
use crate::registration::Work;
use crate::returns::Returns;
use crate::words::chain;

mod call;
mod container;
mod describe;
mod marks;
mod wait;

/// The generated interface.
#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub)]
mod api {
    tonic::include_proto!("runtime.v1");

    impl std::fmt::Debug for KeyValue {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            write!(f, "{}=…", self.key)
        }
    }
}

/// How long a runtime may take to fetch an image.
const PULL_DEADLINE: Duration = Duration::from_mins(30);

/// The kubelet's labels.
const POD_UID: &str = "io.kubernetes.pod.uid";
const POD_NAME: &str = "io.kubernetes.pod.name";
const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
const CONTAINER_NAME: &str = "io.kubernetes.container.name";

type Channel = tonic::transport::Channel;

/// How much a runtime shall tell of a container. It takes it long to write down everything.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Words {
    Few,
    /// Its process too.
    Many,
}

/// Runs containers by a container runtime.
#[derive(Clone)]
pub struct CriRunner {
    layout: Layout,
    runtime: RuntimeServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
    /// Removing costs the runtime as much processor time as running, and no volume waits for it: a
    /// little at a time, so that what volumes wait for has its share.
    removals: Arc<Semaphore>,
    /// Counts how often the runtime was away and is back.
    back: watch::Receiver<u64>,
}

impl CriRunner {
    /// The runtime at a socket, if one that speaks version 1 answers there.
    ///
    /// # Errors
    /// In words.
    pub async fn connect(endpoint: &str, layout: Layout) -> Result<Self, String> {
        let channel = orlop_csi::client::channel(endpoint).map_err(|error| error.to_string())?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let socket = orlop_csi::client::socket_path(endpoint).map_err(|e| e.to_string())?;
        let (returned, back) = watch::channel(0);
        let runner = Self {
            back,
            layout,
            runtime: RuntimeServiceClient::new(channel.clone()),
            images: ImageServiceClient::new(channel),
            // Half of the time it waits itself.
            removals: Arc::new(Semaphore::new(cores * 2)),
        };
        answers(&runner.runtime())
            .await
            .map_err(|error| format!("no container runtime at {endpoint}: {}", chain(&error)))?;
        if let Some(returns) = Returns::of(&socket) {
            tokio::spawn(look_out(runner.runtime(), returns, returned));
        }
        Ok(runner)
    }

    fn runtime(&self) -> RuntimeServiceClient<Channel> {
        self.runtime.clone()
    }

    async fn containers(
        &self,
        labels: BTreeMap<String, String>,
    ) -> Result<Vec<api::Container>, CriError> {
        let filter = api::ContainerFilter {
            label_selector: labels,
            ..Default::default()
        };
        let request = api::ListContainersRequest {
            filter: Some(filter),
        };
        let listed = ask("list containers", self.runtime().list_containers(request)).await?;
        Ok(listed.containers)
    }

    async fn container(&self, id: &ContainerId) -> Result<Option<api::Container>, CriError> {
        let labels = [(POD_UID, id.pod.as_str()), (CONTAINER_NAME, &id.container)];
        let listed = self.containers(owned(&labels)).await?;
        let is_it = |container: &api::Container| {
            let metadata = container.metadata.as_ref();
            metadata.is_some_and(|metadata| metadata.attempt == id.attempt)
        };
        Ok(listed.into_iter().find(is_it))
    }

    async fn status(
        &self,
        id: &str,
        words: Words,
    ) -> Result<api::ContainerStatusResponse, CriError> {
        let request = api::ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose: words == Words::Many,
        };
        ask(
            "tell how a container is",
            self.runtime().container_status(request),
        )
        .await
    }

    async fn remove_container(&self, id: String) -> Result<(), CriError> {
        // The semaphore is never closed.
        let _turn = self.removals.acquire().await;
        let request = api::RemoveContainerRequest { container_id: id };
        let removed = ask(
            "remove a container",
            self.runtime().remove_container(request),
        )
        .await;
        gone(removed.map(drop))
    }

    async fn find(&self, id: &ContainerId) -> Result<Found, CriError> {
        let Some(container) = self.container(id).await? else {
            return Ok(Found::Nothing);
        };
        let found = match self.status(&container.id, Words::Few).await {
            Err(error) if error.is_gone() => return Ok(Found::Nothing),
            other => other?,
        };
        let status = found.status.ok_or(CriError::Lacks("a status"))?;
        Ok(match status.state() {
            api::ContainerState::ContainerCreated => Found::Nothing,
            api::ContainerState::ContainerExited => Found::Ended(finish(&status)),
            api::ContainerState::ContainerRunning | api::ContainerState::ContainerUnknown => {
                Found::Running(Arc::new(CriContainer {
                    runner: self.clone(),
                    id: id.clone(),
                    container: container.id,
                    started_at: time(status.started_at).unwrap_or_else(Timestamp::now),
                    stopping: std::sync::Mutex::default(),
                }))
            }
        })
    }

    /// The pod's sandbox: the one that is ready, or a new one.
    async fn sandbox(
        &self,
        id: &ContainerId,
        launch: &Launch,
    ) -> Result<(String, api::PodSandboxConfig), CriError> {
        let known = self.sandboxes(&id.pod).await?;
        let attempt = |sandbox: &api::PodSandbox| {
            let metadata = sandbox.metadata.as_ref();
            metadata.map_or(0, |metadata| metadata.attempt)
        };
        let ready = known
            .iter()
            .find(|sandbox| sandbox.state() == api::PodSandboxState::SandboxReady);
        let next = known.iter().map(attempt).max().map_or(0, |last| last + 1);
        let config = self.sandbox_config(id, launch, ready.map_or(next, attempt));
        if let Some(ready) = ready {
            return Ok((ready.id.clone(), config));
        }
        let request = api::RunPodSandboxRequest {
            config: Some(config.clone()),
            ..Default::default()
        };
        let made = ask("run a sandbox", self.runtime().run_pod_sandbox(request)).await?;
        Ok((made.pod_sandbox_id, config))
    }

    async fn sandboxes(&self, pod: &PodUid) -> Result<Vec<api::PodSandbox>, CriError> {
        let filter = api::PodSandboxFilter {
            label_selector: owned(&[(POD_UID, pod.as_str())]),
            ..Default::default()
        };
        let request = api::ListPodSandboxRequest {
            filter: Some(filter),
        };
        let listed = ask("list sandboxes", self.runtime().list_pod_sandbox(request)).await?;
        Ok(listed.items)
    }

    async fn image(&self, launch: &Launch) -> Result<(), CriError> {
        let name = &launch.image.name;
        let spec = || {
            Some(api::ImageSpec {
                image: name.clone(),
                ..Default::default()
            })
        };
        if launch.image.pull != Pull::Always {
            let request = api::ImageStatusRequest {
                image: spec(),
                verbose: false,
            };
            let mut images = self.images.clone();
            let known = ask("look for an image", images.image_status(request)).await?;
            if known.image.is_some() {
                return Ok(());
            }
        }
        if launch.image.pull == Pull::Never {
            return Err(CriError::NeverPulled(name.clone()));
        }
        let request = api::PullImageRequest {
            image: spec(),
            sandbox_config: None,
        };
        let mut images = self.images.clone();
        within("pull an image", PULL_DEADLINE, images.pull_image(request)).await?;
        Ok(())
    }

    async fn launch(&self, id: &ContainerId, launch: &Launch) -> Result<Found, CriError> {
        match self.find(id).await? {
            Found::Nothing => {}
            found => return Ok(found),
        }
        // Made by one that was killed before it could start it.
        if let Some(left) = self.container(id).await? {
            self.remove_container(left.id).await?;
        }
        self.image(launch).await?;
        let (sandbox, sandbox_config) = self.sandbox(id, launch).await?;
        let log = self.layout.attempt(&id.pod, &id.container, id.attempt);
        std::fs::create_dir_all(&log).map_err(CriError::Log)?;
        let config = self.config(id, launch).await?;
        let request = api::CreateContainerRequest {
            pod_sandbox_id: sandbox,
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        let made = ask(
            "create a container",
            self.runtime().create_container(request),
        )
        .await?;
        let request = api::StartContainerRequest {
            container_id: made.container_id,
        };
        let started = ask("start a container", self.runtime().start_container(request)).await;
        match (self.find(id).await?, started) {
            // A program that can't be executed: the runtime has written it down.
            (Found::Ended(mut finish), Err(error)) => {
                finish.started_at = None;
                if finish.message.is_empty() {
                    finish.message = chain(&error);
                }
                Ok(Found::Ended(finish))
            }
            (_, Err(error)) => Err(error),
            (found, Ok(_)) => Ok(found),
        }
    }
}

/// Whether the runtime answers.
async fn answers(runtime: &RuntimeServiceClient<Channel>) -> Result<(), CriError> {
    let request = api::VersionRequest {
        version: "0.1.0".to_owned(),
    };
    let mut runtime = runtime.clone();
    let version = ask("tell its version", runtime.version(request)).await;
    version.map(drop)
}

/// Tells those who wait for the runtime that it is back, for as long as there are any.
async fn look_out(
    runtime: RuntimeServiceClient<Channel>,
    mut returns: Returns,
    returned: watch::Sender<u64>,
) {
    let again = Backoff {
        first: Duration::from_millis(20),
        most: Duration::from_secs(5),
    };
    loop {
        tokio::select! {
            came = returns.next() => if came.is_err() { return },
            () = returned.closed() => return,
        }
        // Its socket is there before it listens.
        let mut failures = 0;
        while !returned.is_closed() && answers(&runtime).await.is_err() {
            failures += 1;
            tokio::time::sleep(again.after(failures)).await;
        }
        info!("the container runtime is back");
        returned.send_modify(|times| *times += 1);
    }
}

fn owned(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let pairs = pairs.iter();
    pairs
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn gone(result: Result<(), CriError>) -> Result<(), CriError> {
    match result {
        Err(error) if error.is_gone() => Ok(()),
        other => other,
    }
}

fn time(nanoseconds: i64) -> Option<Timestamp> {
    let time = Timestamp::from_nanosecond(i128::from(nanoseconds)).ok();
    time.filter(|_| nanoseconds > 0)
}

fn finish(status: &api::ContainerStatus) -> Finish {
    let usual = if status.exit_code == 0 {
        "Completed"
    } else {
        "Error"
    };
    Finish {
        code: status.exit_code,
        signal: None,
        reason: if status.reason.is_empty() {
            usual.to_owned()
        } else {
            status.reason.clone()
        },
        message: status.message.clone(),
        started_at: time(status.started_at),
        finished_at: time(status.finished_at).unwrap_or_else(Timestamp::now),
    }
}

fn failed(doing: &'static str, what: &impl ToString) -> impl FnOnce(CriError) -> RunnerError {
    let container = what.to_string();
    move |source| RunnerError {
        doing,
        container,
        source: Box::<dyn Error + Send + Sync>::from(source),
    }
}

impl Runner for CriRunner {
    fn returns(&self) -> Option<watch::Receiver<u64>> {
        Some(self.back.clone())
    }

    fn needs_command(&self) -> bool {
        false
    }

    fn start<'a>(
        &'a self,
        id: &'a ContainerId,
        launch: &'a Launch,
    ) -> Work<'a, Result<Found, RunnerError>> {
        Box::pin(async move { self.launch(id, launch).await.map_err(failed("start", id)) })
    }

    fn adopt<'a>(&'a self, id: &'a ContainerId) -> Work<'a, Result<Found, RunnerError>> {
        Box::pin(async move { self.find(id).await.map_err(failed("find", id)) })
    }

    fn remove<'a>(&'a self, id: &'a ContainerId) -> Work<'a, Result<(), RunnerError>> {
        Box::pin(async move {
            let failed = || failed("remove", id);
            if let Some(container) = self.container(id).await.map_err(failed())? {
                let removed = self.remove_container(container.id).await;
                removed.map_err(failed())?;
            }
            let folder = self.layout.attempt(&id.pod, &id.container, id.attempt);
            remove_log(&folder).map_err(CriError::Log).map_err(failed())
        })
    }

    fn attempts<'a>(&'a self, pod: &'a PodUid) -> Work<'a, Result<Attempts, RunnerError>> {
        Box::pin(async move {
            let listed = self.containers(owned(&[(POD_UID, pod.as_str())])).await;
            let listed = listed.map_err(failed("list the containers of", pod))?;
            let mut attempts = Attempts::new();
            for metadata in listed
                .into_iter()
                .filter_map(|container| container.metadata)
            {
                let of = attempts.entry(metadata.name).or_default();
                of.insert(metadata.attempt);
            }
            Ok(attempts)
        })
    }

    fn end_pod<'a>(&'a self, pod: &'a PodUid) -> Work<'a, Result<(), RunnerError>> {
        Box::pin(async move {
            let listed = self.containers(owned(&[(POD_UID, pod.as_str())])).await;
            let listed = listed.map_err(failed("list the containers of", pod))?;
            let ended = |container: &api::Container| {
                container.state() == api::ContainerState::ContainerExited
            };
            // A sandbox takes all that is in it with it.
            if listed.iter().all(ended) {
                Ok(())
            } else {
                self.stop_pod(pod).await
            }
        })
    }

    fn stop_pod<'a>(&'a self, pod: &'a PodUid) -> Work<'a, Result<(), RunnerError>> {
        Box::pin(async move {
            let failed = || failed("stop what is left of", pod);
            for sandbox in self.sandboxes(pod).await.map_err(failed())? {
                let request = api::StopPodSandboxRequest {
                    pod_sandbox_id: sandbox.id,
                };
                let done = ask("stop a sandbox", self.runtime().stop_pod_sandbox(request)).await;
                gone(done.map(drop)).map_err(failed())?;
            }
            Ok(())
        })
    }

    fn remove_pod<'a>(&'a self, pod: &'a PodUid) -> Work<'a, Result<(), RunnerError>> {
        Box::pin(async move {
            let failed = || failed("remove what is left of", pod);
            for sandbox in self.sandboxes(pod).await.map_err(failed())? {
                let request = api::RemovePodSandboxRequest {
                    pod_sandbox_id: sandbox.id,
                };
                let mut runtime = self.runtime();
                let _turn = self.removals.acquire().await;
                let done = ask("remove a sandbox", runtime.remove_pod_sandbox(request)).await;
                gone(done.map(drop)).map_err(failed())?;
            }
            Ok(())
        })
    }
}

fn remove_log(folder: &Path) -> std::io::Result<()> {
    let removed = orlop_host::remove_tree_one_fs(folder);
    removed.map_err(std::io::Error::other)
}
