//! What a pod is in the runtime's words: its sandbox, its containers, and what they see of volumes.

use std::time::Duration;

use orlop_host::sandbox::{Below, ContainerSpec, Mount, Privilege, Propagation, Writable};

use super::super::{ContainerId, Launch};
use super::call::{CriError, ask};
use super::{CONTAINER_NAME, CriRunner, POD_NAME, POD_NAMESPACE, POD_UID, api, marks, owned};
use crate::subpaths::{self, Part};

/// How long a volume may take to answer when a part of it is looked for.
const PART_PATIENCE: Duration = Duration::from_secs(30);

impl CriRunner {
    pub(super) fn sandbox_config(
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

    pub(super) async fn config(
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
