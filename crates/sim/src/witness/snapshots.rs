//! The rules about snapshots. Pure.

use orlop_model::{
    VolumeGroupSnapshotContent, VolumeSnapshot, VolumeSnapshotContent, snapshot::DeletionPolicy,
    well_known,
};

use super::{Facts, Objects};
use crate::backend::Breach;

fn breach(rule: &'static str, what: String) -> Vec<Breach> {
    vec![Breach { rule, what }]
}

/// I14: a content stands behind every snapshot that is cut, can't go, and says so.
pub(super) fn cut(objects: &Objects, name: &str) -> Vec<Breach> {
    let uid = name.strip_prefix("snapshot-").unwrap_or(name);
    let mut contents = objects.contents.values();
    let content = contents.find(|content| content.spec.volume_snapshot_ref.uid == uid);
    let Some(content) = content else {
        return breach(
            "I14",
            format!("CreateSnapshot {name} that no content records"),
        );
    };
    let meta = &content.metadata;
    let recorded = content.handle().is_some()
        || (meta
            .annotation(well_known::SNAPSHOT_BEING_CREATED)
            .is_some()
            && meta.has_finalizer(well_known::SNAPSHOT_CONTENT_BOUND));
    if recorded {
        return Vec::new();
    }
    breach(
        "I14",
        format!("CreateSnapshot {name}, but its content doesn't say so"),
    )
}

/// I14: the same for a group.
pub(super) fn cut_group(objects: &Objects, name: &str) -> Vec<Breach> {
    let uid = name.strip_prefix("groupsnapshot-").unwrap_or(name);
    let mut contents = objects.group_contents.values();
    let content = contents.find(|content| content.spec.volume_group_snapshot_ref.uid == uid);
    let recorded = content.is_some_and(|content| {
        let meta = &content.metadata;
        let begun = meta.annotation(well_known::GROUP_SNAPSHOT_BEING_CREATED);
        content.handle().is_some()
            || (begun.is_some() && meta.has_finalizer(well_known::GROUP_SNAPSHOT_CONTENT_BOUND))
    });
    if recorded {
        return Vec::new();
    }
    let what = format!("CreateVolumeGroupSnapshot {name} that no content records");
    breach("I14", what)
}

/// I03 and I04: only what nobody has, nobody uses and nobody wants to keep is deleted.
pub(super) fn uncut(objects: &Objects, facts: &Facts, id: &str) -> Vec<Breach> {
    if !facts.snapshots.contains(id) {
        // Asked once more, for what is gone.
        return Vec::new();
    }
    let mut contents = objects.contents.values();
    let Some(content) = contents.find(|content| content.handle() == Some(id)) else {
        return breach("I04", format!("DeleteSnapshot {id} of no content"));
    };
    let meta = &content.metadata;
    let mut breaches = Vec::new();
    if content.spec.deletion_policy != DeletionPolicy::Delete {
        breaches.extend(breach(
            "I03",
            format!("DeleteSnapshot {id}, but it is kept"),
        ));
    }
    if !meta.is_deleting()
        || meta
            .annotation(well_known::SNAPSHOT_BEING_DELETED)
            .is_none()
    {
        let what = format!("DeleteSnapshot {id} while its content stays");
        breaches.extend(breach("I04", what));
    }
    let owner = objects.snapshots.get(&content.owner());
    if let Some(owner) = owner.filter(|owner| content.is_bound_to(owner)) {
        if !owner.metadata.is_deleting() {
            let what = format!("DeleteSnapshot {id} while its snapshot stands");
            breaches.extend(breach("I04", what));
        }
        let source = well_known::SNAPSHOT_SOURCE_PROTECTION;
        if owner.metadata.has_finalizer(source) {
            let what = format!("DeleteSnapshot {id} while a volume is made from it");
            breaches.extend(breach("I04", what));
        }
    }
    breaches
}

/// I03 and I04: the same for a group.
pub(super) fn uncut_group(objects: &Objects, facts: &Facts, id: &str) -> Vec<Breach> {
    if !facts.groups.contains(id) {
        return Vec::new();
    }
    let mut contents = objects.group_contents.values();
    let Some(content) = contents.find(|content| content.handle() == Some(id)) else {
        return breach(
            "I04",
            format!("DeleteVolumeGroupSnapshot {id} of no content"),
        );
    };
    if content.spec.deletion_policy != DeletionPolicy::Delete {
        let what = format!("DeleteVolumeGroupSnapshot {id}, but it is kept");
        return breach("I03", what);
    }
    let owner = objects.groups.get(&content.owner());
    if owner.is_some_and(|owner| content.is_bound_to(owner) && !owner.metadata.is_deleting()) {
        let what = format!("DeleteVolumeGroupSnapshot {id} while its group stands");
        return breach("I04", what);
    }
    Vec::new()
}

fn both_ways(content: &VolumeSnapshotContent, snapshot: &VolumeSnapshot) -> bool {
    content.is_bound_to(snapshot)
        && snapshot.bound_content() == Some(content.metadata.name.as_str())
}

/// I14 and I17: what a volume is made from is bound both ways, and kept while that goes on.
pub(super) fn restore(objects: &Objects, id: &str) -> Vec<Breach> {
    let mut contents = objects.contents.values();
    let content = contents.find(|content| content.handle() == Some(id));
    let owner = content.and_then(|content| objects.snapshots.get(&content.owner()));
    let bound = content
        .zip(owner)
        .is_some_and(|(content, owner)| both_ways(content, owner));
    if !bound {
        let what = format!("a volume is made from {id}, which is not bound both ways");
        return breach("I17", what);
    }
    let kept = owner.is_some_and(|owner| {
        let source = well_known::SNAPSHOT_SOURCE_PROTECTION;
        owner.metadata.has_finalizer(source)
    });
    if kept {
        return Vec::new();
    }
    breach(
        "I14",
        format!("a volume is made from {id}, but nothing keeps it"),
    )
}

/// I05: a snapshot that is to be deleted is so before its object goes, whoever knew its id.
pub(super) fn content_gone(facts: &Facts, content: &VolumeSnapshotContent) -> Vec<Breach> {
    if content.spec.deletion_policy != DeletionPolicy::Delete {
        return Vec::new();
    }
    let made = format!("snap-snapshot-{}", content.spec.volume_snapshot_ref.uid);
    let left = [content.handle(), Some(made.as_str())];
    let left = left
        .into_iter()
        .flatten()
        .find(|id| facts.snapshots.contains(*id));
    match left {
        Some(id) => {
            let name = &content.metadata.name;
            breach("I05", format!("{name} is gone while {id} exists"))
        }
        None => Vec::new(),
    }
}

/// I05: the same for a group.
pub(super) fn group_content_gone(
    facts: &Facts,
    content: &VolumeGroupSnapshotContent,
) -> Vec<Breach> {
    if content.spec.deletion_policy != DeletionPolicy::Delete {
        return Vec::new();
    }
    let uid = &content.spec.volume_group_snapshot_ref.uid;
    let made = format!("group-groupsnapshot-{uid}");
    let left = [content.handle(), Some(made.as_str())];
    let left = left
        .into_iter()
        .flatten()
        .find(|id| facts.groups.contains(*id));
    match left {
        Some(id) => {
            let name = &content.metadata.name;
            breach("I05", format!("{name} is gone while {id} exists"))
        }
        None => Vec::new(),
    }
}

/// I28: a group is ready only with all its members.
pub(super) fn groups(objects: &Objects) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let ready = objects.groups.values().filter(|group| group.is_ready());
    for group in ready.filter(|group| !group.metadata.is_deleting()) {
        let uid = &group.metadata.uid;
        let content = group.bound_content();
        let content = content.and_then(|name| objects.group_contents.get(name));
        let wanted = content.map_or(0, |content| content.members().len());
        let members = objects.snapshots.values().filter(|snapshot| {
            let mut owners = snapshot.metadata.owner_references.iter();
            owners.any(|owner| owner.uid == *uid)
        });
        let there = members.count();
        if there < wanted {
            let name = &group.metadata.name;
            let what = format!("group {name} is ready with {there} of {wanted} members");
            breaches.extend(breach("I28", what));
        }
    }
    breaches
}
