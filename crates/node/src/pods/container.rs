//! From a container of a pod to what the runner is told to run.

use std::collections::BTreeMap;
use std::path::PathBuf;

use base64::Engine as _;
use orlop_host::sandbox::{ContainerSpec, Device, EnvVar, Mount, Privilege, User, Writable};
use orlop_model::pod::{Container, ContainerSecurityContext, EnvSource, KeyRef};
use orlop_model::{ConfigMap, Key, Pod, Secret};
use orlop_runtime::{ApiError, Cluster};
use serde::Deserialize;

use super::mounts::{self, Around, MountProblem};
use crate::plugins::{NodeFacts, Source, field, resource};
use crate::runner::{Image, Launch, PodName, Pull};

/// Why a container cannot be described.
#[derive(Debug, thiserror::Error)]
pub(super) enum DescribeError {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("{kind} {key} not found, which variable {name:?} needs")]
    NoObject {
        kind: &'static str,
        key: Key,
        name: String,
    },
    #[error("{kind} {key} has no key {item:?}, which variable {name:?} needs")]
    NoItem {
        kind: &'static str,
        key: Key,
        item: String,
        name: String,
    },
    #[error("variable {name:?} wants field {field:?}, which is not known")]
    NoField { name: String, field: String },
    #[error("volume {0:?} is mounted but not listed among the pod's volumes")]
    NoVolume(String),
    #[error("volume {volume:?} can't be mounted at {path}")]
    Mount {
        volume: String,
        path: String,
        #[source]
        problem: MountProblem,
    },
    #[error("no command is given; images are not run here, so name a program that the host has")]
    NoCommand,
}

/// How a container finds the API server: the variables of the `kubernetes` service, of which
/// clients read the host and the port.
fn service_variables((host, port): &(String, u16)) -> Vec<(String, String)> {
    let port = port.to_string();
    let name = |suffix: &str, value: &str| (format!("KUBERNETES_{suffix}"), value.to_owned());
    vec![
        name("SERVICE_HOST", host),
        name("SERVICE_PORT", &port),
        name("SERVICE_PORT_HTTPS", &port),
    ]
}

/// What a description is made from.
pub(super) struct Describe<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) facts: &'a NodeFacts,
    pub(super) pod: &'a Pod,
    pub(super) container: &'a Container,
    /// The volumes on the host, by their name in the pod.
    pub(super) volumes: &'a BTreeMap<String, PathBuf>,
    pub(super) hidden: &'a [PathBuf],
    /// Where the API server is, as host and port.
    pub(super) api_server: Option<&'a (String, u16)>,
    /// Whether there is no image whose program would run.
    pub(super) needs_command: bool,
}

impl Describe<'_> {
    pub(super) async fn launch(&self) -> Result<Launch, DescribeError> {
        let env = self.environment().await?;
        let container = self.container;
        let words = |words: &[String]| -> Vec<String> {
            words.iter().map(|word| expand(word, &env)).collect()
        };
        let (command, args) = (words(&container.command), words(&container.args));
        if command.is_empty() && args.is_empty() && self.needs_command {
            return Err(DescribeError::NoCommand);
        }
        let says_user = self.own_context(|own| own.run_as_user).is_some();
        let pods = self.pod.spec.security_context.as_ref();
        let image = Image {
            name: container.image.clone(),
            command: command.clone(),
            args: args.clone(),
            pull: pull(container),
            says_user: says_user || pods.is_some_and(|pods| pods.run_as_user.is_some()),
        };
        Ok(Launch {
            spec: self.spec([command, args].concat(), env)?,
            image,
            pod: PodName {
                namespace: self.pod.metadata.namespace.clone(),
                name: self.pod.metadata.name.clone(),
            },
        })
    }

    fn spec(
        &self,
        command: Vec<String>,
        env: Vec<(String, String)>,
    ) -> Result<ContainerSpec, DescribeError> {
        let container = self.container;
        let mounts = self.mounts(&env)?;
        let meta = &self.pod.metadata;
        let hostname = if self.pod.spec.hostname.is_empty() {
            &meta.name
        } else {
            &self.pod.spec.hostname
        };
        Ok(ContainerSpec {
            command,
            env: env
                .into_iter()
                .map(|(name, value)| EnvVar { name, value })
                .collect(),
            working_dir: (!container.working_dir.is_empty())
                .then(|| (&container.working_dir).into()),
            // The kernel's limit, and the kubelet's.
            hostname: Some(hostname.chars().take(63).collect()),
            mounts,
            devices: self.devices()?,
            hidden: self.hidden.to_vec(),
            user: self.user(),
            privilege: if self.is_privileged() {
                Privilege::Full
            } else {
                Privilege::Restricted
            },
            root: match self.own_context(|own| own.read_only_root_filesystem) {
                Some(true) => Writable::ReadOnly,
                _ => Writable::ReadWrite,
            },
        })
    }

    fn source(&self, volume: &str) -> Result<PathBuf, DescribeError> {
        self.volumes
            .get(volume)
            .cloned()
            .ok_or_else(|| DescribeError::NoVolume(volume.to_owned()))
    }

    fn own_context<T>(&self, of: fn(&ContainerSecurityContext) -> Option<T>) -> Option<T> {
        self.container.security_context.as_ref().and_then(of)
    }

    fn is_privileged(&self) -> bool {
        self.own_context(|own| own.privileged) == Some(true)
    }

    fn is_read_only(&self, volume: &str) -> bool {
        let mut volumes = self.pod.spec.volumes.iter();
        let source = volumes.find(|of| of.name == volume).map(Source::of);
        source.is_some_and(Source::is_read_only)
    }

    fn mounts(&self, env: &[(String, String)]) -> Result<Vec<Mount>, DescribeError> {
        let mounts = self.container.volume_mounts.iter().map(|mount| {
            let around = Around {
                source: self.source(&mount.name)?,
                read_only: self.is_read_only(&mount.name),
                privileged: self.is_privileged(),
                env,
            };
            mounts::mount(mount, around)
        });
        mounts.collect()
    }

    fn devices(&self) -> Result<Vec<Device>, DescribeError> {
        let devices = self.container.volume_devices.iter().map(|device| {
            Ok(Device {
                source: self.source(&device.name)?,
                target: PathBuf::from("/").join(&device.device_path),
            })
        });
        devices.collect()
    }

    fn user(&self) -> User {
        let pod = self.pod.spec.security_context.clone().unwrap_or_default();
        let own = self.container.security_context.clone().unwrap_or_default();
        let id = |id: Option<i64>| id.and_then(|id| u32::try_from(id).ok());
        let groups = pod.supplemental_groups.iter().copied().chain(pod.fs_group);
        User {
            uid: id(own.run_as_user.or(pod.run_as_user)).unwrap_or(0),
            gid: id(own.run_as_group.or(pod.run_as_group)).unwrap_or(0),
            groups: groups.filter_map(|group| id(Some(group))).collect(),
        }
    }

    /// In order, later ones over earlier ones; a variable may use those before it.
    async fn environment(&self) -> Result<Vec<(String, String)>, DescribeError> {
        let mut env = self.api_server.map(service_variables).unwrap_or_default();
        for source in &self.container.env_from {
            let source = EnvFrom::deserialize(source).unwrap_or_default();
            for (name, value) in self.all_of(&source).await? {
                env.push((format!("{}{name}", source.prefix), value));
            }
        }
        for var in &self.container.env {
            let value = match &var.value_from {
                None => Some(expand(&var.value, &env)),
                Some(source) => self.value(&var.name, source).await?,
            };
            if let Some(value) = value {
                env.push((var.name.clone(), value));
            }
        }
        Ok(env)
    }

    async fn value(&self, name: &str, source: &EnvSource) -> Result<Option<String>, DescribeError> {
        if let Some(reference) = &source.field_ref {
            let path = &reference.field_path;
            let unknown = || DescribeError::NoField {
                name: name.to_owned(),
                field: path.clone(),
            };
            return field(self.pod, path, self.facts)
                .map(Some)
                .ok_or_else(unknown);
        }
        if let Some(reference) = &source.resource_field_ref {
            let unknown = || DescribeError::NoField {
                name: name.to_owned(),
                field: reference.resource.clone(),
            };
            let spec = &self.pod.spec;
            let mut containers = spec.init_containers.iter().chain(&spec.containers);
            let container = match reference.container_name.as_str() {
                "" => Some(self.container),
                name => containers.find(|container| container.name == name),
            };
            let value = container.and_then(|of| resource(of, reference, self.facts));
            return value.map(Some).ok_or_else(unknown);
        }
        let (kind, reference, values) = if let Some(reference) = &source.config_map_key_ref {
            (
                "ConfigMap",
                reference,
                self.config_map(&reference.name).await?,
            )
        } else if let Some(reference) = &source.secret_key_ref {
            ("Secret", reference, self.secret(&reference.name).await?)
        } else {
            return Ok(None);
        };
        self.pick(name, kind, reference, values)
    }

    fn pick(
        &self,
        name: &str,
        kind: &'static str,
        reference: &KeyRef,
        values: Option<BTreeMap<String, String>>,
    ) -> Result<Option<String>, DescribeError> {
        let optional = reference.optional == Some(true);
        let key = self.key(&reference.name);
        let name = name.to_owned();
        match values.map(|mut values| values.remove(&reference.key)) {
            Some(Some(value)) => Ok(Some(value)),
            Some(None) | None if optional => Ok(None),
            Some(None) => Err(DescribeError::NoItem {
                kind,
                key,
                item: reference.key.clone(),
                name,
            }),
            None => Err(DescribeError::NoObject { kind, key, name }),
        }
    }

    async fn all_of(&self, source: &EnvFrom) -> Result<BTreeMap<String, String>, DescribeError> {
        let (kind, reference, values) = match (&source.config_map_ref, &source.secret_ref) {
            (Some(reference), _) => (
                "ConfigMap",
                reference,
                self.config_map(&reference.name).await?,
            ),
            (None, Some(reference)) => ("Secret", reference, self.secret(&reference.name).await?),
            (None, None) => return Ok(BTreeMap::new()),
        };
        match values {
            Some(values) => Ok(values),
            None if reference.optional == Some(true) => Ok(BTreeMap::new()),
            None => {
                let key = self.key(&reference.name);
                Err(DescribeError::NoObject {
                    kind,
                    key,
                    name: "envFrom".to_owned(),
                })
            }
        }
    }

    fn key(&self, name: &str) -> Key {
        Key::namespaced(&self.pod.metadata.namespace, name)
    }

    async fn config_map(&self, name: &str) -> Result<Option<BTreeMap<String, String>>, ApiError> {
        Ok(self
            .cluster
            .get::<ConfigMap>(&self.key(name))
            .await?
            .map(|map| map.data))
    }

    async fn secret(&self, name: &str) -> Result<Option<BTreeMap<String, String>>, ApiError> {
        let secret = self.cluster.get::<Secret>(&self.key(name)).await?;
        let text = |value: String| {
            let bytes = base64::engine::general_purpose::STANDARD
                .decode(value)
                .ok()?;
            String::from_utf8(bytes).ok()
        };
        Ok(secret.map(|secret| {
            secret
                .data
                .into_iter()
                .filter_map(|(name, value)| Some((name, text(value)?)))
                .collect()
        }))
    }
}

/// As Kubernetes fills in what isn't said: an image of no certain version is fetched anew.
fn pull(container: &Container) -> Pull {
    let image = &container.image;
    let name = image.rsplit('/').next().unwrap_or(image);
    let floats = !image.contains('@') && (!name.contains(':') || name.ends_with(":latest"));
    match container.image_pull_policy.as_str() {
        "Always" => Pull::Always,
        "Never" => Pull::Never,
        "" if floats => Pull::Always,
        _ => Pull::IfNotPresent,
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EnvFrom {
    prefix: String,
    config_map_ref: Option<WholeRef>,
    secret_ref: Option<WholeRef>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WholeRef {
    name: String,
    optional: Option<bool>,
}

/// Replaces `$(NAME)` by the variable's value; `$$(NAME)` stays as `$(NAME)`, and a name
/// that is not known stays as it is.
pub(super) fn expand(text: &str, env: &[(String, String)]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("$$") {
            out.push('$');
            rest = after;
            continue;
        }
        let reference = rest
            .strip_prefix("$(")
            .and_then(|inner| inner.split_once(')'));
        let value = reference.and_then(|(name, after)| {
            let (_, value) = env.iter().rev().find(|(known, _)| known == name)?;
            Some((value, after))
        });
        match value {
            Some((value, after)) => {
                out.push_str(value);
                rest = after;
            }
            None => {
                out.push('$');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_expanded_as_kubernetes_does() {
        let env = vec![
            ("A".to_owned(), "x".to_owned()),
            ("B".to_owned(), "$(A)".to_owned()),
        ];
        for (text, expanded) in [
            ("$(A)", "x"),
            ("-$(A)-$(A)-", "-x-x-"),
            ("$$(A)", "$(A)"),
            ("$(NONE)", "$(NONE)"),
            ("$A ${A} $", "$A ${A} $"),
            ("$(B)", "$(A)"),
            ("$(A", "$(A"),
        ] {
            assert_eq!(expand(text, &env), expanded, "{text}");
        }
    }
}
