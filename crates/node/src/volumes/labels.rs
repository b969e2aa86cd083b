//! SELinux: a volume that is mounted with the label of the pod's processes needs no walk through its
//! files. Pure; where the host has no SELinux, no volume has a label.

use std::collections::BTreeSet;

use orlop_host::selinux::Contexts;
use orlop_model::pod::SeLinuxOptions;
use orlop_model::{CsiDriver, Pod, VolumeMode};

use super::Lifetime;

/// Two containers of a pod that can't have one mount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "multiple SELinux labels found: {0}; let all containers that use volume {1:?} have the same \
     seLinuxOptions"
)]
pub(crate) struct Labels(String, String);

/// What is known of a volume that a pod uses.
pub(crate) struct Used<'a> {
    pub(crate) pod: &'a Pod,
    /// The pod's name for the volume.
    pub(crate) name: &'a str,
    pub(crate) mode: VolumeMode,
    pub(crate) lifetime: Lifetime,
    pub(crate) traits: Option<&'a CsiDriver>,
}

/// The label that a volume is to be mounted with, if any.
pub(crate) fn label(host: Option<&Contexts>, used: &Used<'_>) -> Result<Option<String>, Labels> {
    let Some(host) = host else { return Ok(None) };
    let supported = used
        .traits
        .is_some_and(|traits| traits.spec.se_linux_mount == Some(true));
    let context = used.pod.spec.security_context.as_ref();
    let walks = context.and_then(|context| context.se_linux_change_policy.as_deref());
    if !supported
        || used.mode == VolumeMode::Block
        || used.lifetime == Lifetime::Ephemeral
        || walks == Some("Recursive")
    {
        return Ok(None);
    }
    let spec = &used.pod.spec;
    let containers = spec.init_containers.iter().chain(&spec.containers);
    let users = containers.filter(|c| c.volume_mounts.iter().any(|m| m.name == used.name));
    let labels: BTreeSet<Option<String>> = users
        .map(|container| {
            let own = container.security_context.as_ref();
            let own = own.and_then(|context| context.se_linux_options.as_ref());
            let options = own.or_else(|| context?.se_linux_options.as_ref());
            options.and_then(|options| of_files(host, options))
        })
        .collect();
    if labels.len() > 1 {
        let all: Vec<_> = labels.into_iter().map(Option::unwrap_or_default).collect();
        return Err(Labels(all.join(","), used.name.to_owned()));
    }
    Ok(labels.into_iter().next().flatten())
}

/// How the files of such a process are labelled. Without a level the runtime chooses one that nobody
/// else has, and that we can't know.
fn of_files(host: &Contexts, options: &SeLinuxOptions) -> Option<String> {
    if options.level.is_empty() {
        return None;
    }
    let mut parts: Vec<&str> = host.file.splitn(4, ':').collect();
    if !options.user.is_empty() {
        *parts.first_mut()? = &options.user;
    }
    parts.truncate(3);
    parts.push(&options.level);
    Some(parts.join(":"))
}

/// As an option of a mount. Quoted, since levels have commas.
pub(super) fn option(label: &str) -> String {
    format!("context=\"{label}\"")
}

#[cfg(test)]
mod tests {
    use orlop_model::pod::{Container, ContainerSecurityContext, PodSecurityContext, VolumeMount};

    use super::*;

    fn host() -> Contexts {
        Contexts {
            process: "system_u:system_r:container_t:s0".into(),
            file: "system_u:object_r:container_file_t:s0".into(),
        }
    }

    fn options(level: &str) -> SeLinuxOptions {
        SeLinuxOptions {
            level: level.into(),
            ..SeLinuxOptions::default()
        }
    }

    fn container(volume: &str, own: Option<SeLinuxOptions>) -> Container {
        Container {
            volume_mounts: vec![VolumeMount {
                name: volume.into(),
                ..VolumeMount::default()
            }],
            security_context: Some(ContainerSecurityContext {
                se_linux_options: own,
                ..ContainerSecurityContext::default()
            }),
            ..Container::default()
        }
    }

    fn pod(level: &str, policy: Option<&str>, containers: Vec<Container>) -> Pod {
        let mut pod = Pod::default();
        pod.spec.security_context = Some(PodSecurityContext {
            se_linux_options: Some(options(level)),
            se_linux_change_policy: policy.map(str::to_owned),
            ..PodSecurityContext::default()
        });
        pod.spec.containers = containers;
        pod
    }

    fn traits(mount: Option<bool>) -> CsiDriver {
        let mut traits = CsiDriver::default();
        traits.spec.se_linux_mount = mount;
        traits
    }

    #[test]
    fn a_volume_is_mounted_with_its_pods_label_where_host_driver_and_pod_allow_it() {
        const LEVEL: &str = "s0:c1,c2";
        let ours = Some("system_u:object_r:container_file_t:s0:c1,c2");
        let one = || vec![container("data", None)];
        let yes = Some(true);
        type Case = (
            bool,
            Option<bool>,
            Pod,
            VolumeMode,
            Lifetime,
            Option<&'static str>,
        );
        let files = VolumeMode::Filesystem;
        let long = Lifetime::Persistent;
        let cases: [Case; 9] = [
            (true, yes, pod(LEVEL, None, one()), files, long, ours),
            (
                true,
                yes,
                pod(LEVEL, Some("MountOption"), one()),
                files,
                long,
                ours,
            ),
            (false, yes, pod(LEVEL, None, one()), files, long, None),
            (true, None, pod(LEVEL, None, one()), files, long, None),
            (
                true,
                Some(false),
                pod(LEVEL, None, one()),
                files,
                long,
                None,
            ),
            (true, yes, pod("", None, one()), files, long, None),
            (
                true,
                yes,
                pod(LEVEL, Some("Recursive"), one()),
                files,
                long,
                None,
            ),
            (
                true,
                yes,
                pod(LEVEL, None, one()),
                VolumeMode::Block,
                long,
                None,
            ),
            (
                true,
                yes,
                pod(LEVEL, None, one()),
                files,
                Lifetime::Ephemeral,
                None,
            ),
        ];
        for (index, (on, mount, pod, mode, lifetime, wanted)) in cases.into_iter().enumerate() {
            let (host, traits) = (host(), traits(mount));
            let used = Used {
                pod: &pod,
                name: "data",
                mode,
                lifetime,
                traits: Some(&traits),
            };
            let found = label(on.then_some(&host), &used).expect("one label");
            assert_eq!(found.as_deref(), wanted, "case {index}");
        }
    }

    #[test]
    fn containers_that_share_a_volume_share_its_label() {
        let other = || Some(options("s0:c3,c4"));
        let found = |containers| {
            let (host, traits) = (host(), traits(Some(true)));
            let pod = pod("s0:c1,c2", None, containers);
            let used = Used {
                pod: &pod,
                name: "data",
                mode: VolumeMode::Filesystem,
                lifetime: Lifetime::Persistent,
                traits: Some(&traits),
            };
            label(Some(&host), &used)
        };
        let own = "system_u:object_r:container_file_t:s0:c3,c4";
        assert_eq!(
            found(vec![container("data", other())]),
            Ok(Some(own.into()))
        );
        let elsewhere = vec![container("data", None), container("cache", other())];
        assert!(found(elsewhere).is_ok(), "who does not use it has no say");
        let both = found(vec![container("data", None), container("data", other())]);
        let said = both.expect_err("two labels").to_string();
        assert!(
            said.starts_with("multiple SELinux labels found: system_u:"),
            "{said}"
        );
    }

    #[test]
    fn a_label_with_commas_is_one_option() {
        assert_eq!(option("u:r:t:s0:c1,c2"), "context=\"u:r:t:s0:c1,c2\"");
    }
}
