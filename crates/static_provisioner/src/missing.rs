//! Volumes whose disks are not where they were found.
//!
//! Where a mount is gone its folder is left, and what pods write there fills the node's own disk
//! without a word. So a volume that nobody has goes, as if its disk had never been found, and
//! comes again with the disk; and of one that somebody has, everybody concerned is told.

use orlop_model::{Key, Volume, VolumeMode, VolumePhase, well_known};

use crate::disks::What;

/// What a volume needs after a look at its disk's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// Nothing: its disk is there, or its cleaning tells what is wrong.
    Nothing,
    /// It shall say that its path is a mount point.
    Mark,
    /// It goes.
    Withdraw,
    /// A person has to mount the disk.
    Tell(Missing),
}

/// That the disk of a claimed volume is missing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "nothing is mounted at {path}, where the disk of volume {volume} belongs, which claim {claim} \
     has; mount it there, or a pod may write to the node's own disk"
)]
pub struct Missing {
    /// Where it was found.
    pub path: String,
    /// The volume.
    pub volume: String,
    /// The claim that has it, or is to have it.
    pub claim: Key,
}

/// Judges a volume of this node by what is in its disk's place now.
pub fn judge(volume: &Volume, there: Option<&What>) -> Need {
    match there {
        Some(What::Mount { .. }) if volume.volume_mode() == VolumeMode::Filesystem => {
            let marked = volume.metadata.annotation(well_known::LOCAL_MOUNT_POINT);
            match marked {
                None => Need::Mark,
                Some(_) => Need::Nothing,
            }
        }
        Some(What::Mount { .. } | What::Device { .. }) => Need::Nothing,
        None | Some(What::Folder | What::Other) => without_disk(volume),
    }
}

fn without_disk(volume: &Volume) -> Need {
    if volume.metadata.is_deleting() {
        return Need::Nothing;
    }
    match (volume.phase(), &volume.spec.claim_ref) {
        (VolumePhase::Released | VolumePhase::Failed, _) => Need::Nothing,
        // Also one that a person reserved: that would go with it.
        (VolumePhase::Pending | VolumePhase::Available | VolumePhase::Bound, Some(claim)) => {
            let path = volume.spec.local.as_ref().map(|local| local.path.clone());
            Need::Tell(Missing {
                path: path.unwrap_or_default(),
                volume: volume.metadata.name.clone(),
                claim: claim.key(),
            })
        }
        (VolumePhase::Pending | VolumePhase::Available | VolumePhase::Bound, None) => {
            Need::Withdraw
        }
    }
}

#[cfg(test)]
mod tests {
    use orlop_model::Kind;
    use serde_json::{Value, json};

    use super::*;

    fn volume(phase: &str, claim: &Value) -> Volume {
        let volume = json!({
            "metadata": {"name": "v"},
            "spec": {"local": {"path": "/mnt/a"}, "claimRef": claim},
            "status": {"phase": phase},
        });
        Volume::decode(volume.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_free_volume_without_its_disk_goes_and_one_that_somebody_has_is_told() {
        let claim = json!({"namespace": "d", "name": "c", "uid": "u"});
        let by_name = json!({"namespace": "d", "name": "c"});
        let told = Need::Tell(Missing {
            path: "/mnt/a".into(),
            volume: "v".into(),
            claim: Key::namespaced("d", "c"),
        });
        for there in [None, Some(What::Folder), Some(What::Other)] {
            let judged = |phase, claim| judge(&volume(phase, claim), there.as_ref());
            assert_eq!(judged("Available", &Value::Null), Need::Withdraw);
            assert_eq!(judged("Available", &by_name), told);
            assert_eq!(judged("Available", &claim), told);
            assert_eq!(judged("Bound", &claim), told);
            assert_eq!(judged("Released", &claim), Need::Nothing);
        }
        let free = volume("Available", &Value::Null);
        let device = What::Device { bytes: 1 };
        assert_eq!(judge(&free, Some(&device)), Need::Nothing);
    }

    #[test]
    fn a_volume_that_does_not_say_so_yet_is_marked_as_a_mount_point() {
        let mut bound = volume("Bound", &json!({"namespace": "d", "name": "c", "uid": "u"}));
        let mount = What::Mount { bytes: 1 };
        assert_eq!(judge(&bound, Some(&mount)), Need::Mark);
        let annotations = &mut bound.metadata.annotations;
        annotations.insert(well_known::LOCAL_MOUNT_POINT.into(), "true".into());
        assert_eq!(judge(&bound, Some(&mount)), Need::Nothing);
    }
}
