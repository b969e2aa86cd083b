//! What a driver has that nobody owns, and who owns what the driver does not have.
//!
//! Only looks. A volume that nobody owns may be anybody's: it is for people to delete it.

use std::collections::BTreeSet;

use orlop_model::{
    Claim, Volume, VolumeGroupSnapshotContent, VolumeSnapshotContent, well_known::PROVISIONING,
};

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Leaks {
    /// Ids of the driver's volumes that no PersistentVolume names.
    pub volumes_without_owner: Vec<String>,
    /// PersistentVolumes, and the ids they name, that the driver does not have.
    pub owners_without_volume: Vec<(String, String)>,
    /// Ids of the driver's snapshots that no content names, neither one's own nor a group's.
    pub snapshots_without_owner: Vec<String>,
    /// VolumeSnapshotContents, and the ids they name, that the driver does not have.
    pub owners_without_snapshot: Vec<(String, String)>,
    /// Ids of volumes that belong to one pod and have no object of their own.
    pub inline_volumes: Vec<String>,
    /// Claims whose volume is being made, or may have been: some of the volumes without an
    /// owner may be theirs.
    pub claims_in_progress: Vec<String>,
}

impl Leaks {
    /// Whether there is nothing to do for anybody.
    pub fn is_clean(&self) -> bool {
        self.volumes_without_owner.is_empty()
            && self.owners_without_volume.is_empty()
            && self.snapshots_without_owner.is_empty()
            && self.owners_without_snapshot.is_empty()
    }
}

/// Ids that a driver lists, before and after the objects were read: what came or went in between
/// is no finding.
#[derive(Debug, Clone, Default)]
pub struct Twice {
    /// The first time.
    pub before: BTreeSet<String>,
    /// The second time.
    pub after: BTreeSet<String>,
}

impl Twice {
    fn lasting(&self) -> impl Iterator<Item = &String> {
        self.before.intersection(&self.after)
    }

    fn never(&self, id: &str) -> bool {
        !self.before.contains(id) && !self.after.contains(id)
    }
}

/// Everything that is compared. What the driver does not list is `None`.
#[derive(Debug, Default)]
pub struct View<'a> {
    /// The driver's name.
    pub driver: &'a str,
    /// The driver's volumes.
    pub volumes: Option<Twice>,
    /// The driver's snapshots.
    pub snapshots: Option<Twice>,
    /// All PersistentVolumes, those of other drivers too.
    pub owners: &'a [Volume],
    /// All VolumeSnapshotContents, those of other drivers too.
    pub contents: &'a [VolumeSnapshotContent],
    /// All VolumeGroupSnapshotContents, those of other drivers too.
    pub groups: &'a [VolumeGroupSnapshotContent],
    /// All claims.
    pub claims: &'a [Claim],
}

/// Compares.
pub fn compare(view: &View<'_>) -> Leaks {
    let mut leaks = Leaks::default();
    if let Some(volumes) = &view.volumes {
        let owners: Vec<(&str, &str)> = view
            .owners
            .iter()
            .filter_map(|owner| {
                let csi = owner.spec.csi.as_ref()?;
                let ours = csi.driver == view.driver;
                ours.then_some((owner.metadata.name.as_str(), csi.volume_handle.as_str()))
            })
            .collect();
        let (orphans, bereft) = apart(volumes, &owners);
        (leaks.inline_volumes, leaks.volumes_without_owner) =
            orphans.into_iter().partition(|id| is_inline(id));
        leaks.owners_without_volume = bereft;
    }
    if let Some(snapshots) = &view.snapshots {
        let owners: Vec<(&str, &str)> = view
            .contents
            .iter()
            .filter(|content| content.spec.driver == view.driver)
            .filter_map(|content| Some((content.metadata.name.as_str(), handle(content)?)))
            .collect();
        let (mut orphans, bereft) = apart(snapshots, &owners);
        // A member whose own content is gone is still the group's, and goes with it.
        let groups = view.groups.iter().filter(|g| g.spec.driver == view.driver);
        let members: BTreeSet<&str> = groups.flat_map(members).collect();
        orphans.retain(|id| !members.contains(id.as_str()));
        (leaks.snapshots_without_owner, leaks.owners_without_snapshot) = (orphans, bereft);
    }
    let busy = view.claims.iter().filter(|claim| {
        claim.provisioner() == Some(view.driver)
            && claim.metadata.finalizers.iter().any(|f| f == PROVISIONING)
    });
    leaks.claims_in_progress = busy.map(|claim| claim.metadata.key().to_string()).collect();
    leaks
}

/// The id of a content's snapshot: the one that was made for it, or that it was made for.
fn handle(content: &VolumeSnapshotContent) -> Option<&str> {
    let made = content
        .status
        .as_ref()
        .and_then(|status| status.snapshot_handle.as_deref());
    made.or(content.spec.source.snapshot_handle.as_deref())
}

/// The ids of a group's snapshots: those that were made for it, and those that it was made for.
fn members(group: &VolumeGroupSnapshotContent) -> impl Iterator<Item = &str> {
    let made = group.members().iter().map(|m| m.snapshot_handle.as_str());
    let given = group.spec.source.group_snapshot_handles.iter();
    made.chain(given.flat_map(|g| g.volume_snapshot_handles.iter().map(String::as_str)))
}

/// What nobody owns, and who owns what is not there.
fn apart(listed: &Twice, owners: &[(&str, &str)]) -> (Vec<String>, Vec<(String, String)>) {
    let owned: BTreeSet<&str> = owners.iter().map(|(_, id)| *id).collect();
    let orphans = listed.lasting().filter(|id| !owned.contains(id.as_str()));
    let bereft = owners.iter().filter(|(_, id)| listed.never(id));
    (
        orphans.cloned().collect(),
        bereft
            .map(|(name, id)| ((*name).to_owned(), (*id).to_owned()))
            .collect(),
    )
}

/// Whether an id is one that the kubelet makes for a pod's own volume.
fn is_inline(id: &str) -> bool {
    id.strip_prefix("csi-")
        .is_some_and(|hash| hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use orlop_model::Kind;

    fn ids(ids: &[&str]) -> BTreeSet<String> {
        ids.iter().map(|id| (*id).to_owned()).collect()
    }

    fn still(all: &[&str]) -> Option<Twice> {
        Some(Twice {
            before: ids(all),
            after: ids(all),
        })
    }

    fn read<K: Kind>(object: &serde_json::Value) -> K {
        K::decode(object.to_string().as_bytes()).unwrap_or_else(|error| panic!("{error}"))
    }

    fn volume(name: &str, driver: &str, id: &str) -> Volume {
        read(&serde_json::json!({
            "metadata": {"name": name}, "spec": {"csi": {"driver": driver, "volumeHandle": id}},
        }))
    }

    fn content(
        name: &str,
        driver: &str,
        made: Option<&str>,
        given: Option<&str>,
    ) -> VolumeSnapshotContent {
        let mut content = serde_json::json!({
            "metadata": {"name": name},
            "spec": {
                "driver": driver, "deletionPolicy": "Delete", "source": {},
                "volumeSnapshotRef": {"name": "s", "namespace": "default"},
            },
        });
        if let Some(given) = given {
            content["spec"]["source"]["snapshotHandle"] = given.into();
        }
        if let Some(made) = made {
            content["status"]["snapshotHandle"] = made.into();
        }
        read(&content)
    }

    #[test]
    fn volumes_and_their_owners_are_compared_within_one_driver() {
        let owners = [
            volume("a", "d", "1"),
            volume("b", "d", "gone"),
            volume("c", "other", "elsewhere"),
        ];
        let inline = format!("csi-{}", "0f".repeat(32));
        let leaks = compare(&View {
            driver: "d",
            volumes: still(&["1", "2", "csi-2", &inline]),
            owners: &owners,
            ..View::default()
        });
        assert_eq!(leaks.volumes_without_owner, ["2", "csi-2"]);
        assert_eq!(
            leaks.owners_without_volume,
            [("b".to_owned(), "gone".to_owned())]
        );
        assert_eq!(leaks.inline_volumes, [inline]);
        assert!(!leaks.is_clean());
    }

    #[test]
    fn what_comes_or_goes_meanwhile_is_no_finding() {
        let owners = [volume("new", "d", "new"), volume("old", "d", "old")];
        let leaks = compare(&View {
            driver: "d",
            volumes: Some(Twice {
                before: ids(&["old", "deleted"]),
                after: ids(&["new", "being-made"]),
            }),
            owners: &owners,
            ..View::default()
        });
        assert!(leaks.is_clean(), "{leaks:?}");
    }

    #[test]
    fn snapshots_are_owned_by_contents_of_either_kind() {
        let contents = [
            content("made", "d", Some("1"), None),
            content("given", "d", None, Some("2")),
            content("lost", "d", Some("3"), None),
            content("not-yet", "d", None, None),
            content("foreign", "other", Some("9"), None),
        ];
        let leaks = compare(&View {
            driver: "d",
            snapshots: still(&["1", "2", "4"]),
            contents: &contents,
            ..View::default()
        });
        assert_eq!(leaks.snapshots_without_owner, ["4"]);
        assert_eq!(
            leaks.owners_without_snapshot,
            [("lost".to_owned(), "3".to_owned())]
        );
    }

    fn group(driver: &str, made: &[&str], given: &[&str]) -> VolumeGroupSnapshotContent {
        let made: Vec<_> = made
            .iter()
            .map(|id| serde_json::json!({"volumeHandle": "v", "snapshotHandle": id}))
            .collect();
        read(&serde_json::json!({
            "metadata": {"name": "g"},
            "spec": {
                "driver": driver, "deletionPolicy": "Delete",
                "source": {"groupSnapshotHandles": {
                    "volumeGroupSnapshotHandle": "g", "volumeSnapshotHandles": given,
                }},
                "volumeGroupSnapshotRef": {"name": "g", "namespace": "default"},
            },
            "status": {"volumeSnapshotInfoList": made},
        }))
    }

    #[test]
    fn snapshots_of_a_group_are_the_groups_when_their_own_contents_are_gone() {
        let groups = [
            group("d", &["1"], &[]),
            group("d", &[], &["2"]),
            group("other", &["3"], &[]),
        ];
        let leaks = compare(&View {
            driver: "d",
            snapshots: still(&["1", "2", "3"]),
            groups: &groups,
            ..View::default()
        });
        assert_eq!(leaks.snapshots_without_owner, ["3"]);
        assert!(leaks.owners_without_snapshot.is_empty());
    }

    #[test]
    fn what_a_driver_does_not_list_is_not_missed() {
        let leaks = compare(&View {
            driver: "d",
            owners: &[volume("a", "d", "1")],
            ..View::default()
        });
        assert!(leaks.is_clean());
    }

    #[test]
    fn claims_that_are_being_provisioned_are_named() {
        let claim: Claim = read(&serde_json::json!({
            "metadata": {
                "name": "data", "namespace": "default", "finalizers": [PROVISIONING],
                "annotations": {"volume.kubernetes.io/storage-provisioner": "d"},
            },
        }));
        let leaks = compare(&View {
            driver: "d",
            claims: &[claim],
            ..View::default()
        });
        assert_eq!(leaks.claims_in_progress, ["default/data"]);
        assert!(leaks.is_clean());
    }
}
