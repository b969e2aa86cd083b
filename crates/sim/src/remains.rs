//! What is left at the end of a run, in words that are the same in every run: objects,
//! volumes of the backend, files of the nodes.

use std::path::{Path, PathBuf};

use crate::witness::Objects;
use crate::world::World;

/// Where a node keeps what belongs to volumes.
const FOLDERS: [&str; 2] = ["pods", STAGED];
/// Here each driver has a folder of its own that may stay.
const STAGED: &str = "plugins/kubernetes.io/csi";

/// What is left, one thing per line; nodes keep their files below `root`.
pub fn of(world: &World, root: &Path) -> String {
    let mut lines = world.witness().objects(objects);
    world.driver().look(|backend| {
        let volumes = backend.volumes().iter();
        lines.extend(volumes.map(|(id, volume)| {
            let (attached, nodes) = (&volume.attached, &volume.nodes);
            let (bytes, files) = (volume.bytes, volume.file_system);
            let source = volume.order.source.iter();
            let mut filled: String = source.map(|source| format!(", from {source}")).collect();
            if !volume.attributes.is_empty() {
                filled += &format!(", with {:?}", volume.attributes);
            }
            format!(
                "backend {id}: {bytes} bytes, {files} of files{filled}, attached {attached:?}, \
                 on nodes {nodes:?}"
            )
        }));
    });
    world.driver().look(|backend| {
        let snapshots = backend.snapshots().iter();
        lines.extend(snapshots.map(|(id, cut)| format!("backend {id}: {cut:?}")));
        let groups = backend.groups().iter();
        lines.extend(groups.map(|(id, members)| format!("backend {id}: {members:?}")));
    });
    for node in entries(root) {
        for folder in FOLDERS {
            files(&node.join(folder), root, &mut lines);
        }
    }
    world.witness().without_uids(lines.join("\n"))
}

fn objects(objects: &Objects) -> Vec<String> {
    let mut lines = Vec::new();
    for (key, claim) in &objects.claims {
        let meta = &claim.metadata;
        let size = (claim.capacity_bytes(), claim.resize_status());
        let state = (claim.phase(), &meta.finalizers, meta.is_deleting(), size);
        lines.push(format!(
            "claim {key} {state:?} -> {}",
            claim.spec.volume_name
        ));
        let status = &claim.status;
        if let Some(class) = &status.current_volume_attributes_class_name {
            lines.push(format!("claim {key} has attributes {class}"));
        }
        if let Some(change) = &status.modify_volume_status {
            lines.push(format!("claim {key} is being changed: {change:?}"));
        }
    }
    for (name, volume) in &objects.volumes {
        let meta = &volume.metadata;
        let marked = meta.annotation(orlop_model::well_known::PRE_RESIZE_CAPACITY);
        let size = (volume.capacity_bytes(), marked);
        let state = (volume.phase(), &meta.finalizers, meta.is_deleting(), size);
        let owner = volume.spec.claim_ref.as_ref().map(|claim| &claim.uid);
        lines.push(format!("volume {name} {state:?} -> {owner:?}"));
        if let Some(class) = &volume.spec.volume_attributes_class_name {
            lines.push(format!("volume {name} has attributes {class}"));
        }
    }
    for attachment in objects.attachments.values() {
        let state = (attachment.status.attached, &attachment.metadata.finalizers);
        let (volume, node) = (attachment.volume_name(), &attachment.spec.node_name);
        lines.push(format!("attachment of {volume} to {node} {state:?}"));
        let status = &attachment.status;
        for error in [&status.attach_error, &status.detach_error] {
            lines.extend(
                error
                    .iter()
                    .map(|error| format!("  says {}", error.message)),
            );
        }
    }
    for (key, pod) in &objects.pods {
        let (phase, node) = (pod.status.phase, &pod.spec.node_name);
        lines.push(format!("pod {key} {phase:?} on {node}"));
    }
    for (key, snapshot) in &objects.snapshots {
        let (meta, bound) = (&snapshot.metadata, snapshot.bound_content());
        let state = (snapshot.is_ready(), &meta.finalizers, meta.is_deleting());
        lines.push(format!("snapshot {key} {state:?} -> {bound:?}"));
        lines.extend(snapshot.error_message().map(|why| format!("  says {why}")));
    }
    for (name, content) in &objects.contents {
        let (meta, owner) = (&content.metadata, content.owner());
        let marks: Vec<&String> = meta.annotations.keys().collect();
        let state = (content.is_ready(), &meta.finalizers, content.handle());
        lines.push(format!("content {name} {state:?} {marks:?} -> {owner}"));
        lines.extend(content.error_message().map(|why| format!("  says {why}")));
    }
    for (key, group) in &objects.groups {
        let (meta, bound) = (&group.metadata, group.bound_content());
        let state = (group.is_ready(), &meta.finalizers, meta.is_deleting());
        lines.push(format!("group {key} {state:?} -> {bound:?}"));
    }
    for (name, content) in &objects.group_contents {
        let (meta, owner) = (&content.metadata, content.owner());
        let marks: Vec<&String> = meta.annotations.keys().collect();
        let state = (content.is_ready(), &meta.finalizers, content.handle());
        lines.push(format!(
            "group content {name} {state:?} {marks:?} -> {owner}"
        ));
    }
    // Their names are random.
    let told = objects.capacities.values().map(|told| {
        let (class, place) = (&told.storage_class_name, &told.node_topology);
        format!("room of {class} at {place:?}: {:?}", told.capacity)
    });
    let mut told: Vec<String> = told.collect();
    told.sort();
    lines.extend(told);
    for (name, node) in &objects.nodes {
        let (used, attached) = (&node.status.volumes_in_use, &node.status.volumes_attached);
        if !used.is_empty() || !attached.is_empty() {
            lines.push(format!("node {name} uses {used:?}, has {attached:?}"));
        }
    }
    lines
}

fn files(folder: &Path, root: &Path, lines: &mut Vec<String>) {
    for path in entries(folder) {
        if !folder.ends_with(STAGED) {
            lines.push(format!(
                "file {}",
                path.strip_prefix(root).unwrap_or(&path).display()
            ));
        }
        if path.is_dir() {
            files(&path, root, lines);
        }
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(read) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<_> = read
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .collect();
    paths.sort();
    paths
}
