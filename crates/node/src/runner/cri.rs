//! Containers by a container runtime that speaks the CRI, such as containerd.
//!
//! What runs is on record with the runtime: containers and sandboxes are found again by the
//! kubelet's labels. The end of a container is noticed by its process, without asking again and
//! again. Pods are on the host's network, as with the other runner.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use orlop_host::sandbox::{Below, ContainerSpec, Mount, Privilege, Propagation, Writable};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tonic::{Code, Status};
use tracing::warn;

use self::api::image_service_client::ImageServiceClient;
use self::api::runtime_service_client::RuntimeServiceClient;
use super::{
    Attempts, ContainerId, Finish, Found, Launch, Pull, Runner, RunnerError, RunningContainer,
};
use crate::layout::{Layout, PodUid};
use crate::registration::Work;
use crate::subpaths::{self, Part};
use crate::words::chain;

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

/// How long a runtime may take for one call; a pull has longer.
const DEADLINE: Duration = Duration::from_secs(120);
/// How long a volume may take to answer when a part of it is looked for.
const PART_PATIENCE: Duration = Duration::from_secs(30);
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
}

/// Why the runtime did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
enum CriError {
    #[error("the container runtime refused to {doing}: {}", status.message())]
    Refused { doing: &'static str, status: Status },
    #[error("the container runtime did not {doing} within {} s", after.as_secs())]
    Late {
        doing: &'static str,
        after: Duration,
    },
    #[error("the container runtime's answer lacks {0}")]
    Lacks(&'static str),
    #[error("image {0} is not here, and the pull policy is Never")]
    NeverPulled(String),
    #[error("recursiveReadOnly is Enabled, and the container runtime does not have it")]
    NoRecursive,
    #[error("could not mount part {part:?} of volume {volume:?}")]
    Part {
        part: String,
        volume: String,
        #[source]
        source: std::io::Error,
    },
    #[error("could not make the log's folder")]
    Log(#[source] std::io::Error),
}

impl CriError {
    fn is_gone(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if status.code() == Code::NotFound)
    }
}

/// One call, with its deadline.
async fn ask<T>(
    doing: &'static str,
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, CriError> {
    within(doing, DEADLINE, call).await
}

async fn within<T>(
    doing: &'static str,
    after: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, CriError> {
    match tokio::time::timeout(after, call).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(CriError::Refused { doing, status }),
        Err(_) => Err(CriError::Late { doing, after }),
    }
}

impl CriRunner {
    /// The runtime at a socket, if one that speaks version 1 answers there.
    ///
    /// # Errors
    /// In words.
    pub async fn connect(endpoint: &str, layout: Layout) -> Result<Self, String> {
        let channel = orlop_csi::client::channel(endpoint).map_err(|error| error.to_string())?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let runner = Self {
            layout,
            runtime: RuntimeServiceClient::new(channel.clone()),
            images: ImageServiceClient::new(channel),
            // Half of the time it waits itself.
            removals: Arc::new(Semaphore::new(cores * 2)),
        };
        let request = api::VersionRequest {
            version: "0.1.0".to_owned(),
        };
        let version = ask("tell its version", runner.runtime().version(request)).await;
        version
            .map_err(|error| format!("no container runtime at {endpoint}: {}", chain(&error)))?;
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
                    stopping: Mutex::default(),
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

    fn sandbox_config(
        &self,
        id: &ContainerId,
        launch: &Launch,
        attempt: u32,
    ) -> api::PodSandboxConfig {
        let (name, namespace) = (&launch.pod.name, &launch.pod.namespace);
        let context = api::LinuxSandboxSecurityContext {
            namespace_options: Some(namespaces()),
            privileged: launch.spec.privilege == Privilege::Full,
            ..Default::default()
        };
        api::PodSandboxConfig {
            metadata: Some(api::PodSandboxMetadata {
                name: name.clone(),
                uid: id.pod.to_string(),
                namespace: namespace.clone(),
                attempt,
            }),
            // On the host's network a sandbox has the host's name.
            hostname: String::new(),
            log_directory: self.layout.containers(&id.pod).display().to_string(),
            labels: owned(&[
                (POD_UID, id.pod.as_str()),
                (POD_NAME, name),
                (POD_NAMESPACE, namespace),
            ]),
            linux: Some(api::LinuxPodSandboxConfig {
                cgroup_parent: String::new(),
                security_context: Some(context),
            }),
            ..Default::default()
        }
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

    async fn config(
        &self,
        id: &ContainerId,
        launch: &Launch,
    ) -> Result<api::ContainerConfig, CriError> {
        let spec = &launch.spec;
        let env = |var: &orlop_host::sandbox::EnvVar| api::KeyValue {
            key: var.name.clone(),
            value: var.value.clone().into_bytes(),
        };
        let device = |device: &orlop_host::sandbox::Device| api::Device {
            container_path: device.target.display().to_string(),
            host_path: device.source.display().to_string(),
            permissions: "mrw".to_owned(),
        };
        let mut mounts = Vec::new();
        for (index, mount) in spec.mounts.iter().enumerate() {
            mounts.push(self.mount(id, (index, mount)).await?);
        }
        let names = [
            (POD_UID, id.pod.as_str()),
            (POD_NAME, &launch.pod.name),
            (POD_NAMESPACE, &launch.pod.namespace),
            (CONTAINER_NAME, &id.container),
        ];
        Ok(api::ContainerConfig {
            metadata: Some(api::ContainerMetadata {
                name: id.container.clone(),
                attempt: id.attempt,
            }),
            image: Some(api::ImageSpec {
                image: launch.image.name.clone(),
                ..Default::default()
            }),
            command: launch.image.command.clone(),
            args: launch.image.args.clone(),
            working_dir: spec
                .working_dir
                .as_deref()
                .map(|path| path.display().to_string())
                .unwrap_or_default(),
            envs: spec.env.iter().map(env).collect(),
            mounts,
            devices: spec.devices.iter().map(device).collect(),
            labels: owned(&names),
            annotations: marks::annotations(id, &launch.image.name),
            log_path: format!("{}/{}/log", id.container, id.attempt),
            linux: Some(api::LinuxContainerConfig {
                security_context: Some(context(spec, launch)),
            }),
        })
    }

    async fn mount(
        &self,
        id: &ContainerId,
        (index, mount): (usize, &Mount),
    ) -> Result<api::Mount, CriError> {
        let source = match &mount.sub_path {
            None => mount.source.clone(),
            Some(part) => {
                let (layout, id, mount) = (self.layout.clone(), id.clone(), mount.clone());
                let (volume, path) = (mount.volume.clone(), part.clone());
                // The volume may not answer, and this thread has others to serve.
                let work = tokio::task::spawn_blocking(move || {
                    let what = Part {
                        pod: &id.pod,
                        volume: &mount.volume,
                        container: &id.container,
                        index,
                        source: &mount.source,
                        part: &path,
                    };
                    subpaths::bind(&layout, &what)
                });
                let bound = match tokio::time::timeout(PART_PATIENCE, work).await {
                    Ok(Ok(bound)) => bound,
                    Ok(Err(broken)) => Err(std::io::Error::other(broken)),
                    Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
                };
                let part = part.display().to_string();
                bound.map_err(|source| CriError::Part {
                    part,
                    volume,
                    source,
                })?
            }
        };
        let recursive = match mount.below {
            Below::AsItIs => false,
            Below::ReadOnly if self.has_recursive().await? => true,
            Below::ReadOnly => return Err(CriError::NoRecursive),
            Below::ReadOnlyIfPossible => self.has_recursive().await?,
        };
        let propagation = match mount.propagation {
            Propagation::None => api::MountPropagation::PropagationPrivate,
            Propagation::HostToContainer => api::MountPropagation::PropagationHostToContainer,
            Propagation::Bidirectional => api::MountPropagation::PropagationBidirectional,
        };
        Ok(api::Mount {
            container_path: mount.target.display().to_string(),
            host_path: source.display().to_string(),
            readonly: mount.access == Writable::ReadOnly,
            selinux_relabel: false,
            propagation: propagation.into(),
            recursive_read_only: recursive,
        })
    }

    /// A runtime that does not know the wish would leave it out without a word.
    async fn has_recursive(&self) -> Result<bool, CriError> {
        let request = api::StatusRequest { verbose: false };
        let status = ask("tell what it can do", self.runtime().status(request)).await?;
        let mut handlers = status.runtime_handlers.iter();
        let usual = handlers.find(|handler| handler.name.is_empty());
        let features = usual.and_then(|handler| handler.features.as_ref());
        Ok(features.is_some_and(|features| features.recursive_read_only_mounts))
    }

    fn ask_to_stop(&self, container: &str, grace: Duration) -> JoinHandle<()> {
        let request = api::StopContainerRequest {
            container_id: container.to_owned(),
            timeout: i64::try_from(grace.as_secs()).unwrap_or(i64::MAX),
        };
        let mut runtime = self.runtime();
        tokio::spawn(async move {
            match runtime.stop_container(request).await {
                Ok(_) => {}
                Err(status) if status.code() == Code::NotFound => {}
                Err(status) => warn!(error = status.message(), "could not stop a container"),
            }
        })
    }
}

/// Whose namespaces a pod's containers have.
fn namespaces() -> api::NamespaceOption {
    api::NamespaceOption {
        network: api::NamespaceMode::Node.into(),
        pid: api::NamespaceMode::Container.into(),
        ipc: api::NamespaceMode::Pod.into(),
    }
}

fn context(spec: &ContainerSpec, launch: &Launch) -> api::LinuxContainerSecurityContext {
    let id = |value: u32| api::Int64Value {
        value: i64::from(value),
    };
    // Without a word of the pod's, the image decides.
    let says = launch.image.says_user;
    api::LinuxContainerSecurityContext {
        privileged: spec.privilege == Privilege::Full,
        namespace_options: Some(namespaces()),
        run_as_user: says.then(|| id(spec.user.uid)),
        run_as_group: says.then(|| id(spec.user.gid)),
        readonly_rootfs: spec.root == Writable::ReadOnly,
        supplemental_groups: spec.user.groups.iter().copied().map(i64::from).collect(),
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

/// A container of the runtime's that runs.
struct CriContainer {
    runner: CriRunner,
    id: ContainerId,
    /// The runtime's name for it.
    container: String,
    started_at: Timestamp,
    /// A stop that is under way.
    stopping: Mutex<Option<JoinHandle<()>>>,
}

impl CriContainer {
    fn stop(&self, grace: Duration) {
        let stop = self.runner.ask_to_stop(&self.container, grace);
        let mut stopping = self
            .stopping
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(earlier) = stopping.replace(stop) {
            earlier.abort();
        }
    }
}

impl RunningContainer for CriContainer {
    fn started_at(&self) -> Timestamp {
        self.started_at
    }

    fn wait(&self) -> Work<'_, Finish> {
        Box::pin(wait::ended(self))
    }

    fn terminate(&self) -> Result<(), RunnerError> {
        // The pod's own deadline comes as a kill.
        self.stop(Duration::from_hours(24));
        Ok(())
    }

    fn kill(&self) -> Result<(), RunnerError> {
        self.stop(Duration::ZERO);
        Ok(())
    }
}
