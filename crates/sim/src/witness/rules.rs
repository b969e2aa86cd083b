//! The rules, each as a function of what is and what is about to be. Pure.

use std::collections::BTreeMap;

use orlop_model::{
    Claim, ModifyStatus, Pod, ReclaimPolicy, ResizeStatus, Volume, VolumeAttachment, VolumePhase,
    well_known,
};

use super::{Facts, Objects};
use crate::backend::Breach;
use crate::driver;

fn breach(rule: &'static str, what: String) -> Vec<Breach> {
    vec![Breach { rule, what }]
}

/// I14: a claim stands behind every volume that is made, and says so by its finalizer; or its object
/// does already, and a call is repeated whose answer was worth nothing.
pub(super) fn create(objects: &Objects, name: &str) -> Vec<Breach> {
    let uid = name.strip_prefix("pvc-").unwrap_or(name);
    let mut volumes = objects.volumes.values();
    if volumes.any(|volume| volume.metadata.name == name && !volume.metadata.is_deleting()) {
        return Vec::new();
    }
    match objects
        .claims
        .values()
        .find(|claim| claim.metadata.uid == uid)
    {
        None => breach("I14", format!("CreateVolume {name}, but its claim is gone")),
        Some(claim) if !claim.metadata.has_finalizer(well_known::PROVISIONING) => breach(
            "I14",
            format!("CreateVolume {name}, but its claim doesn't say so"),
        ),
        Some(_) => Vec::new(),
    }
}

/// I14: what is cloned is kept while that goes on.
pub(super) fn clone(objects: &Objects, source: &str) -> Vec<Breach> {
    let mut volumes = objects.volumes.values();
    let owner = volumes
        .find(|volume| handle(volume) == Some(source))
        .and_then(|volume| volume.spec.claim_ref.as_ref());
    let claim = owner.and_then(|owner| objects.claims.get(&owner.key()));
    match claim {
        Some(claim) if claim.metadata.has_finalizer(well_known::CLONE_PROTECTION) => Vec::new(),
        _ => breach("I14", format!("{source} is cloned, but nothing keeps it")),
    }
}

/// I03 and I04: only what nobody has, and nobody wants to keep, is deleted.
pub(super) fn delete(objects: &Objects, id: &str) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let volume = objects
        .volumes
        .values()
        .find(|volume| handle(volume) == Some(id));
    let owner = match volume {
        Some(volume) => {
            let name = &volume.metadata.name;
            if volume.reclaim_policy() != ReclaimPolicy::Delete {
                breaches.extend(breach(
                    "I03",
                    format!("DeleteVolume {id}, but {name} is kept"),
                ));
            }
            let mut attachments = objects.attachments.values();
            if let Some(attachment) = attachments.find(|a| a.volume_name() == name) {
                let at = &attachment.spec.node_name;
                let what = format!("DeleteVolume {id} while an attachment to {at} stands");
                breaches.extend(breach("I04", what));
            }
            volume
                .spec
                .claim_ref
                .as_ref()
                .map(|claim| claim.uid.clone())
        }
        // Made, but never recorded: the one who undoes it may do so while the claim goes.
        None => None,
    };
    if let Some(uid) = owner
        && let Some(claim) = objects
            .claims
            .values()
            .find(|claim| claim.metadata.uid == uid)
    {
        let what = format!(
            "DeleteVolume {id} while claim {} stands",
            claim.metadata.name
        );
        breaches.extend(breach("I04", what));
    }
    if volume.is_none()
        && let Some(uid) = id.strip_prefix("vol-pvc-")
        && let Some(claim) = objects
            .claims
            .values()
            .find(|claim| claim.metadata.uid == uid)
        && !claim.metadata.is_deleting()
    {
        let what = format!(
            "DeleteVolume {id} while claim {} wants it",
            claim.metadata.name
        );
        breaches.extend(breach("I04", what));
    }
    breaches
}

/// I29: a volume that is scrubbed for the next one is given on only after the pod that is on
/// record at it has ended well.
pub(super) fn given_on(objects: &Objects, facts: &Facts, before: &Volume) -> Vec<Breach> {
    let name = &before.metadata.name;
    let owner = |volume: &Volume| {
        volume
            .spec
            .claim_ref
            .as_ref()
            .map(|claim| claim.uid.clone())
    };
    let used = matches!(before.phase(), VolumePhase::Released | VolumePhase::Failed);
    let after = objects.volumes.get(name).and_then(owner);
    let kept = after == owner(before);
    if before.reclaim_policy() != ReclaimPolicy::Recycle || !used || kept {
        return Vec::new();
    }
    let scrubber = before.metadata.annotation(well_known::RECYCLER);
    match scrubber.is_some_and(|uid| facts.succeeded.contains(uid)) {
        true => Vec::new(),
        false => breach("I29", format!("{name} is given on unscrubbed")),
    }
}

/// I29: nothing is scrubbed that a claim has.
pub(super) fn scrub(objects: &Objects, pod: &Pod) -> Vec<Breach> {
    let name = pod.metadata.name.strip_prefix("recycler-for-");
    let volume = name.and_then(|name| objects.volumes.get(name));
    let owner = volume.and_then(|volume| volume.spec.claim_ref.as_ref());
    let claims = &objects.claims;
    let has = owner.and_then(|owner| claims.values().find(|c| c.metadata.uid == owner.uid));
    match has {
        // Before it is placed it does nothing.
        Some(claim) if pod.is_placed() && !pod.is_finished() => {
            let what = format!(
                "{} is scrubbed while {} has it",
                name.unwrap_or_default(),
                claim.metadata.name
            );
            breach("I29", what)
        }
        _ => Vec::new(),
    }
}

/// I14: an attachment object with the attacher's finalizer stands behind every attachment.
pub(super) fn attach(objects: &Objects, id: &str, node: &str) -> Vec<Breach> {
    let finalizer = well_known::attacher_finalizer(driver::NAME);
    let recorded = objects.attachments.values().any(|attachment| {
        let volume = objects.volumes.get(attachment.volume_name());
        attachment.spec.node_name == node
            && volume.and_then(handle) == Some(id)
            && attachment.metadata.has_finalizer(&finalizer)
    });
    if recorded {
        return Vec::new();
    }
    breach(
        "I14",
        format!("ControllerPublishVolume {id} to {node} that no attachment records"),
    )
}

fn claim_of<'a>(objects: &'a Objects, id: &str) -> Option<&'a Claim> {
    let mut volumes = objects.volumes.values();
    let volume = volumes.find(|volume| handle(volume) == Some(id))?;
    let owner = volume.spec.claim_ref.as_ref()?;
    let mut claims = objects.claims.values();
    claims.find(|claim| claim.metadata.uid == owner.uid)
}

/// I14: the size that the backend is asked for stands on the claim.
pub(super) fn expand(objects: &Objects, id: &str, bytes: i64) -> Vec<Breach> {
    let recorded = claim_of(objects, id).is_some_and(|claim| {
        claim.allocated_bytes() == Some(bytes) && claim.resize_status().is_some()
    });
    if recorded {
        return Vec::new();
    }
    let what = format!("ControllerExpandVolume {id} to {bytes}, which no claim records");
    breach("I14", what)
}

/// I14: that the backend is asked for other attributes stands on the claim.
pub(super) fn modify(objects: &Objects, id: &str) -> Vec<Breach> {
    let status = claim_of(objects, id).and_then(|claim| claim.status.modify_volume_status.as_ref());
    if status.is_some_and(|status| status.status == ModifyStatus::InProgress) {
        return Vec::new();
    }
    let what = format!("ControllerModifyVolume {id}, which no claim records");
    breach("I14", what)
}

/// I13 and I14: a node acts when the backend's part is over, and says so first.
pub(super) fn expand_on_node(objects: &Objects, id: &str) -> Vec<Breach> {
    let status = claim_of(objects, id).and_then(Claim::resize_status);
    match status {
        // After the end of a lost call, or for a claim that another node finished.
        None | Some(ResizeStatus::NodeResizeInProgress) => Vec::new(),
        Some(status) => breach("I13", format!("NodeExpandVolume {id} while {status:?}")),
    }
}

/// I13: a claim has what is there, and never less than before.
pub(super) fn claim_size(
    objects: &Objects,
    facts: &Facts,
    before: Option<&Claim>,
    claim: &Claim,
) -> Vec<Breach> {
    let (name, has) = (&claim.metadata.name, claim.capacity_bytes());
    let mut breaches = Vec::new();
    let had = before.map_or(0, Claim::capacity_bytes);
    if has < had {
        breaches.extend(breach("I13", format!("claim {name} had {had}, now {has}")));
    }
    let volume = objects.volumes.get(&claim.spec.volume_name);
    let there = volume
        .and_then(handle)
        .and_then(|id| facts.file_systems.get(id));
    if let Some(there) = there
        && has > *there
    {
        let what = format!("claim {name} says {has}, but there are {there}");
        breaches.extend(breach("I13", what));
    }
    breaches
}

/// I25: a node says that it uses a volume before it does.
pub(super) fn stage(objects: &Objects, id: &str, node: &str) -> Vec<Breach> {
    let name = well_known::unique_volume_name(driver::NAME, id);
    match objects.nodes.get(node) {
        Some(says) if !says.status.volumes_in_use.contains(&name) => breach(
            "I25",
            format!("NodeStageVolume {id} on {node}, which doesn't say that it uses it"),
        ),
        // One whose object was deleted has nowhere to say it.
        _ => Vec::new(),
    }
}

/// I30: nothing is started of a pod that is gone.
pub(super) fn start(objects: &Objects, uid: &str) -> Vec<Breach> {
    match objects.pods.values().any(|pod| pod.metadata.uid == uid) {
        true => Vec::new(),
        false => breach("I30", format!("a container of {uid} starts, which is gone")),
    }
}

/// I08: nothing is taken from a pod that runs.
pub(super) fn unpublish(facts: &Facts, path: &str) -> Vec<Breach> {
    match facts.running.iter().find(|uid| path.contains(uid.as_str())) {
        Some(uid) => breach(
            "I08",
            format!("NodeUnpublishVolume {path} while pod {uid} runs"),
        ),
        None => Vec::new(),
    }
}

/// I05: a volume that is to be deleted is so before its object goes.
pub(super) fn volume_gone(facts: &Facts, volume: &Volume) -> Vec<Breach> {
    match handle(volume) {
        Some(id)
            if volume.reclaim_policy() == ReclaimPolicy::Delete && facts.volumes.contains(id) =>
        {
            breach(
                "I05",
                format!("{} is gone while {id} exists", volume.metadata.name),
            )
        }
        _ => Vec::new(),
    }
}

/// I27: an attachment's object goes only after the attachment itself.
pub(super) fn attachment_gone(
    objects: &Objects,
    facts: &Facts,
    attachment: &VolumeAttachment,
) -> Vec<Breach> {
    let node = &attachment.spec.node_name;
    let volume = objects.volumes.get(attachment.volume_name());
    let finalizer = well_known::attacher_finalizer(driver::NAME);
    let asked = attachment.metadata.has_finalizer(&finalizer) || attachment.status.attached;
    let Some(id) = volume.and_then(handle) else {
        if !asked {
            // Nobody was ever asked to attach it.
            return Vec::new();
        }
        let what = format!("an attachment to {node} outlived its volume's object");
        return breach("I27", what);
    };
    if facts.attached.contains(&(id.to_owned(), node.clone())) {
        return breach(
            "I27",
            format!("an attachment to {node} is gone while {id} is attached"),
        );
    }
    Vec::new()
}

/// I01 and I02: one claim, one volume, each pointing at the other.
pub(super) fn bindings(objects: &Objects) -> Vec<Breach> {
    let mut breaches = Vec::new();
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for volume in objects.volumes.values() {
        let Some(claim) = volume
            .spec
            .claim_ref
            .as_ref()
            .filter(|claim| !claim.uid.is_empty())
        else {
            continue;
        };
        let name = volume.metadata.name.as_str();
        if let Some(other) = owners.insert(claim.uid.as_str(), name) {
            let what = format!("{other} and {name} both belong to claim {}", claim.name);
            breaches.extend(breach("I02", what));
        }
    }
    let mut taken: BTreeMap<&str, &str> = BTreeMap::new();
    for claim in objects
        .claims
        .values()
        .filter(|claim| claim.is_fully_bound())
    {
        let (name, volume) = (
            claim.metadata.name.as_str(),
            claim.spec.volume_name.as_str(),
        );
        if let Some(other) = taken.insert(volume, name) {
            breaches.extend(breach(
                "I01",
                format!("{other} and {name} are both bound to {volume}"),
            ));
        }
        let owner = objects
            .volumes
            .get(volume)
            .and_then(|volume| volume.spec.claim_ref.as_ref());
        if let Some(owner) = owner
            && owner.uid != claim.metadata.uid
        {
            let what = format!(
                "{name} is bound to {volume}, which belongs to {}",
                owner.name
            );
            breaches.extend(breach("I01", what));
        }
    }
    breaches
}

fn handle(volume: &Volume) -> Option<&str> {
    let csi = volume
        .spec
        .csi
        .as_ref()
        .filter(|csi| csi.driver == driver::NAME)?;
    Some(&csi.volume_handle)
}
