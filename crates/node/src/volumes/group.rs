//! A pod's group as the owner of its volumes' files.
//!
//! Some drivers do it while they mount; for others the node walks through the volume after it was
//! published, and the pod starts when that is done. A walk that was cut short by a crash is
//! repeated and finds most of its work done. One that hangs is given up with its volume.

use std::sync::Arc;
use std::time::Duration;

use orlop_csi::DriverInfo;
use orlop_csi::client::NodeCapability;
use orlop_host::group::{self, Access, Applied, Progress, Wanted, When};
use orlop_model::volume::CsiSource;
use orlop_model::{AccessMode, CsiDriver, VolumeMode};
use orlop_runtime::EventType;
use tracing::warn;

use super::csi::{Cause, Published, Trouble};
use super::{DeviceKey, Grouped, Lifetime, Volumes, Want};
use crate::layout::PodUid;
use crate::workers::Errand;

/// When people are told that it takes its time, and how often they are told how far it is.
const FIRST_WORD: Duration = Duration::from_secs(10);
const NEXT_WORD: Duration = Duration::from_secs(60);

/// The group that the node itself has to give a volume's files to. Pure.
pub(super) fn wanted(
    want: &Want,
    source: &CsiSource,
    traits: Option<&CsiDriver>,
) -> Option<(Wanted, When)> {
    let context = want.pod.spec.security_context.as_ref()?;
    let group = u32::try_from(context.fs_group?).ok()?;
    let read_only = want.read_only || source.read_only;
    if read_only || want.volume.volume_mode() == VolumeMode::Block {
        return None;
    }
    let policy = traits.and_then(|traits| traits.spec.fs_group_policy.as_deref());
    let applies = match policy {
        Some("None") => false,
        Some("File") => true,
        // The API's default, also for a driver that nobody has described.
        _ => !source.fs_type.is_empty() && is_one_nodes(want),
    };
    let when = match context.fs_group_change_policy.as_deref() {
        Some("OnRootMismatch") => When::OnRootMismatch,
        _ => When::Always,
    };
    let access = Access::ReadWrite;
    applies.then_some((Wanted { group, access }, when))
}

/// Whether one node alone writes to the volume.
fn is_one_nodes(want: &Want) -> bool {
    let once = |mode: &AccessMode| {
        matches!(
            mode,
            AccessMode::ReadWriteOnce | AccessMode::ReadWriteOncePod
        )
    };
    want.lifetime == Lifetime::Ephemeral || want.volume.spec.access_modes.iter().any(once)
}

impl Volumes {
    /// What is to be done about a volume's group once it is published.
    pub(super) fn grouped(&self, key: &DeviceKey, want: &Want, info: &DriverInfo) -> Grouped {
        // Containers are started when their volumes are ready: where one runs, it was done.
        if want.in_use || info.node_can(NodeCapability::VolumeMountGroup) {
            return Grouped::Settled;
        }
        let traits = self.parts.csi_drivers.named(&key.driver);
        let source = want.volume.spec.csi.as_ref();
        match source.and_then(|source| wanted(want, source, traits.as_deref())) {
            Some((wanted, when)) => Grouped::Open { wanted, when },
            None => Grouped::Settled,
        }
    }

    /// Gives a published volume's files to the pod's group.
    pub(super) async fn own(&self, key: &DeviceKey, pod: &PodUid) -> Result<(), Trouble> {
        let found = self.look(key, |device| {
            let publication = device.publications.get(pod)?;
            let Grouped::Open { wanted, when } = publication.group else {
                return None;
            };
            let want = device.wants.get(pod)?.clone();
            Some((device.shape.clone(), want, (wanted, when)))
        });
        let Some((shape, want, policy)) = found else {
            return Ok(());
        };
        let published = Published {
            key,
            shape: &shape,
            pod,
            volume: &want.volume.metadata.name,
        };
        let trouble = |cause| Trouble {
            doing: "MountVolume.SetUp failed",
            cause,
        };
        self.walk(&published, &want, policy).await.map_err(trouble)
    }

    async fn walk(
        &self,
        published: &Published<'_>,
        want: &Arc<Want>,
        policy: (Wanted, When),
    ) -> Result<(), Cause> {
        let Published { key, pod, .. } = *published;
        let path = self.target(published);
        let progress = Arc::new(Progress::default());
        let errand = Errand {
            volume: key.unique_name(),
            doing: "give its files to the pod's group",
            patience: self.parts.patience,
            pulse: {
                let progress = progress.clone();
                Some(Arc::new(move || progress.seen()))
            },
            back: self.look_again(key),
        };
        let work = {
            let (path, progress) = (path.clone(), progress.clone());
            move || group::apply(&path, policy, group::usual_threads(), &progress)
        };
        let walk = self.parts.workers.run(errand, work);
        tokio::pin!(walk);
        let mut word = FIRST_WORD;
        let applied = loop {
            tokio::select! {
                applied = &mut walk => break applied?,
                () = want.given_up.notified() => progress.stop(),
                () = tokio::time::sleep(word) => {
                    let shown = path.strip_prefix(self.parts.layout.pods());
                    let message = format!(
                        "Setting volume ownership for {}, processed {} files.",
                        shown.unwrap_or(&path).display(),
                        progress.seen(),
                    );
                    let reason = "VolumePermissionChangeInProgress";
                    self.parts.recorder.say(&*want.pod, EventType::Warning, reason, message);
                    word = NEXT_WORD;
                }
            }
        };
        match applied.map_err(|source| Cause::Group {
            volume: key.handle.clone(),
            source,
        })? {
            Applied::Before | Applied::Stopped => {}
            Applied::Walked(walked) => {
                if let Some((path, error)) = walked.example {
                    let (path, refused) = (path.display(), walked.refused);
                    warn!(%path, refused, %error, "some files could not be given to a group");
                }
            }
        }
        self.note(key, |device| {
            if let Some(publication) = device.publications.get_mut(pod) {
                publication.group = Grouped::Settled;
            }
        });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use orlop_model::pod::PodSecurityContext;
    use orlop_model::{Pod, Volume};

    use super::*;

    fn want(fs_group: Option<i64>, modes: &[AccessMode]) -> Want {
        let mut pod = Pod::default();
        pod.spec.security_context = Some(PodSecurityContext {
            fs_group,
            ..PodSecurityContext::default()
        });
        let mut volume = Volume::default();
        volume.spec.access_modes = modes.to_vec();
        Want {
            pod: Arc::new(pod),
            volume: Arc::new(volume),
            ..Want::default()
        }
    }

    #[test]
    fn the_drivers_policy_decides_who_gets_the_groups_files() {
        use AccessMode::{ReadWriteMany, ReadWriteOnce, ReadWriteOncePod};
        let traits = |policy: &str| {
            let mut traits = CsiDriver::default();
            traits.spec.fs_group_policy = Some(policy.to_owned());
            traits
        };
        let none = Some(traits("None"));
        let file = Some(traits("File"));
        let usual = Some(traits("ReadWriteOnceWithFSType"));
        for (policy, fs_type, mode, applies) in [
            (&none, "ext4", ReadWriteOnce, false),
            (&file, "", ReadWriteMany, true),
            (&file, "ext4", ReadWriteOnce, true),
            (&usual, "ext4", ReadWriteOnce, true),
            (&usual, "ext4", ReadWriteOncePod, true),
            (&usual, "", ReadWriteOnce, false),
            (&usual, "ext4", ReadWriteMany, false),
            (&None, "ext4", ReadWriteOnce, true),
            (&None, "", ReadWriteOnce, false),
        ] {
            let source = CsiSource {
                fs_type: fs_type.to_owned(),
                ..CsiSource::default()
            };
            let want = want(Some(7), &[mode]);
            let found = wanted(&want, &source, policy.as_ref());
            assert_eq!(found.is_some(), applies, "{policy:?} {fs_type:?} {mode:?}");
        }
    }

    #[test]
    fn only_a_pod_with_a_group_and_a_volume_it_may_write_to_need_it() {
        let source = CsiSource {
            fs_type: "ext4".into(),
            ..CsiSource::default()
        };
        let modes = [AccessMode::ReadWriteOnce];
        assert!(wanted(&want(None, &modes), &source, None).is_none());
        let (wish, when) = wanted(&want(Some(7), &modes), &source, None).expect("a group");
        assert_eq!((wish.group, when), (7, When::Always));
        let read_only = Want {
            read_only: true,
            ..want(Some(7), &modes)
        };
        assert!(wanted(&read_only, &source, None).is_none());
        let source = CsiSource {
            read_only: true,
            ..source
        };
        assert!(wanted(&want(Some(7), &modes), &source, None).is_none());
        let mut block = want(Some(7), &modes);
        Arc::make_mut(&mut block.volume).spec.volume_mode = Some(VolumeMode::Block);
        assert!(wanted(&block, &CsiSource::default(), None).is_none());
    }
}
