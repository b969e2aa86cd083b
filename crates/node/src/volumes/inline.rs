//! Volumes that are written in a pod's own specification: they live and die with the pod.
//!
//! The pod's words become a volume such as a claim would have had. What brings volumes to
//! pods then needs to know no more of it than its [`Lifetime`]: it is neither attached nor
//! staged, it has no claim to grow with, and the driver is told what it is.

use orlop_model::pod::InlineSource;
use orlop_model::volume::{CsiSource, SecretRef};
use orlop_model::{AccessMode, CsiDriver, Pod, Volume};

use crate::layout::{PodUid, inline_handle};

/// How long a volume lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Lifetime {
    /// Longer than its pods.
    #[default]
    Persistent,
    /// As long as the pod that it is written in.
    Ephemeral,
}

impl Lifetime {
    /// The word of checkpoints and of `volumeLifecycleModes`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Persistent => "Persistent",
            Self::Ephemeral => "Ephemeral",
        }
    }

    /// What a checkpoint says; an old one says nothing.
    pub(crate) fn of_word(word: &str) -> Self {
        if word == Self::Ephemeral.word() {
            Self::Ephemeral
        } else {
            Self::Persistent
        }
    }
}

/// The volume that a pod describes under one of its names.
pub(crate) fn volume(pod: &Pod, uid: &PodUid, name: &str, source: &InlineSource) -> Volume {
    // Only ever a secret of the pod's own namespace, whatever the reference says.
    let secret = source.node_publish_secret_ref.as_ref();
    let secret = secret.map(|reference| SecretRef {
        name: reference.name.clone(),
        namespace: pod.metadata.namespace.clone(),
    });
    let mut volume = Volume::default();
    volume.metadata.name = name.to_owned();
    volume.spec.access_modes = vec![AccessMode::ReadWriteOnce];
    volume.spec.csi = Some(CsiSource {
        driver: source.driver.clone(),
        volume_handle: inline_handle(uid, name),
        read_only: source.read_only,
        fs_type: source.fs_type.clone(),
        volume_attributes: source.volume_attributes.clone(),
        node_publish_secret_ref: secret,
        ..CsiSource::default()
    });
    volume
}

/// A driver has no volumes that live like this.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LifetimeError {
    #[error(
        "volume mode {wanted:?} not supported by driver {driver} (no CSIDriver object); create \
         one that lists it under volumeLifecycleModes"
    )]
    NoObject {
        wanted: &'static str,
        driver: String,
    },
    #[error(
        "volume mode {wanted:?} not supported by driver {driver} (only supports {listed:?}); if \
         the driver can do it, create its CSIDriver anew with it under volumeLifecycleModes"
    )]
    NotListed {
        wanted: &'static str,
        driver: String,
        listed: Vec<String>,
    },
}

/// Whether a driver says that it has volumes that live like this. Pure.
pub(super) fn check(
    lifetime: Lifetime,
    driver: &str,
    traits: Option<&CsiDriver>,
) -> Result<(), LifetimeError> {
    let (wanted, driver) = (lifetime.word(), driver.to_owned());
    // The API's default, also for a driver that nobody has described.
    let default = [Lifetime::Persistent.word().to_owned()];
    let listed = match traits {
        Some(traits) if !traits.spec.volume_lifecycle_modes.is_empty() => {
            &traits.spec.volume_lifecycle_modes[..]
        }
        _ => &default,
    };
    if listed.iter().any(|mode| mode == wanted) {
        return Ok(());
    }
    Err(match traits {
        None => LifetimeError::NoObject { wanted, driver },
        Some(_) => LifetimeError::NotListed {
            wanted,
            driver,
            listed: listed.to_vec(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_words_become_a_volume_of_the_kubelets_handle() {
        let mut pod = Pod::default();
        pod.metadata.namespace = "ours".into();
        let uid = PodUid::new("uid-1").expect("a uid");
        let source: InlineSource = serde_json::from_value(serde_json::json!({
            "driver": "d", "readOnly": true, "fsType": "xfs", "volumeAttributes": {"size": "1Gi"},
            "nodePublishSecretRef": {"name": "key", "namespace": "theirs"},
        }))
        .expect("a source");
        let made = volume(&pod, &uid, "scratch", &source);
        assert_eq!(made.metadata.name, "scratch");
        assert_eq!(made.spec.access_modes, [AccessMode::ReadWriteOnce]);
        let csi = made.spec.csi.expect("a source");
        // printf uid-1scratch | sha256sum
        let handle = "csi-a919eb5a57ed1bf8c61a802fc713b36e9bfa4fbf009dfb5f4206d253a3a3dc32";
        assert_eq!(csi.volume_handle, handle);
        assert!(csi.read_only);
        assert_eq!((&*csi.driver, &*csi.fs_type), ("d", "xfs"));
        assert_eq!(csi.volume_attributes["size"], "1Gi");
        let secret = csi.node_publish_secret_ref.expect("a secret");
        assert_eq!((&*secret.namespace, &*secret.name), ("ours", "key"));
    }

    #[test]
    fn only_a_driver_that_lists_it_has_volumes_that_live_with_a_pod() {
        use Lifetime::{Ephemeral, Persistent};
        let listing = |modes: &[&str]| {
            let mut traits = CsiDriver::default();
            traits.spec.volume_lifecycle_modes = modes.iter().map(|m| (*m).to_owned()).collect();
            traits
        };
        let both = listing(&["Persistent", "Ephemeral"]);
        for (lifetime, traits, fits) in [
            (Ephemeral, None, false),
            (Ephemeral, Some(listing(&[])), false),
            (Ephemeral, Some(listing(&["Persistent"])), false),
            (Ephemeral, Some(listing(&["Ephemeral"])), true),
            (Ephemeral, Some(both.clone()), true),
            (Persistent, None, true),
            (Persistent, Some(listing(&[])), true),
            (Persistent, Some(listing(&["Ephemeral"])), false),
            (Persistent, Some(both), true),
        ] {
            let judged = check(lifetime, "d", traits.as_ref());
            assert_eq!(judged.is_ok(), fits, "{lifetime:?} {traits:?}");
        }
        let told = check(Ephemeral, "d", Some(&listing(&["Persistent"])));
        let told = told.expect_err("not listed").to_string();
        let words =
            r#"volume mode "Ephemeral" not supported by driver d (only supports ["Persistent"])"#;
        assert!(told.starts_with(words), "{told}");
    }
}
