//! What is known: the caches, and what is looked up in them.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use orlop_model::{
    Claim, CsiDriver, CsiNode, Node, Pod, Volume, VolumeAttachment, access, flex as flex_names,
    matching, migration, network_disk, pod, volume::CsiSource,
};
use orlop_runtime::{Cache, Index, Process};

mod names;

use names::Names;

use super::super::{
    actual, by_word,
    desired::{self, Wish, Wishes},
    flex,
};

/// The caches and their indexes.
#[derive(Clone)]
pub(in super::super) struct Known {
    pub(in super::super) pods: Cache<Pod>,
    pub(in super::super) claims: Cache<Claim>,
    pub(in super::super) volumes: Cache<Volume>,
    pub(super) nodes: Cache<Node>,
    pub(super) drivers: Cache<CsiDriver>,
    pub(super) csi_nodes: Cache<CsiNode>,
    pub(in super::super) attachments: Cache<VolumeAttachment>,
    pods_by_claim: Index<Pod>,
    pub(super) pods_by_node: Index<Pod>,
    pods_by_inline: Index<Pod>,
    volumes_by_claim: Index<Volume>,
    attachments_by_volume: Index<VolumeAttachment>,
    attachments_by_inline: Index<VolumeAttachment>,
    pub(super) attachments_by_node: Index<VolumeAttachment>,
    nodes_by_disk: Index<Node>,
    nodes_by_flex: Index<Node>,
    named: Arc<Mutex<Names>>,
}

/// Some storage, and all that concerns it.
pub(in super::super) struct Unit {
    pub(super) exclusive: bool,
    /// Also of nodes that are gone or do it themselves.
    pub(in super::super) wishes: Vec<Wish>,
    pub(super) attachments: Vec<Arc<VolumeAttachment>>,
}

fn volume_of(attachment: &VolumeAttachment) -> Vec<String> {
    if flex::unique_name(attachment).is_some() {
        return Vec::new();
    }
    let name = &attachment.spec.source.persistent_volume_name;
    name.iter().cloned().collect()
}

fn inline_of(attachment: &VolumeAttachment) -> Vec<String> {
    let flex = flex::unique_name(attachment).map(str::to_owned);
    let found = flex.or_else(|| inline_csi(attachment).map(unique));
    found.into_iter().collect()
}

fn inline_csi(attachment: &VolumeAttachment) -> Option<&CsiSource> {
    let spec = attachment.spec.source.inline_volume_spec.as_ref()?;
    spec.csi.as_ref()
}

fn unique(csi: &CsiSource) -> String {
    orlop_model::well_known::unique_volume_name(&csi.driver, &csi.volume_handle)
}

fn node_of(attachment: &VolumeAttachment) -> Vec<String> {
    vec![attachment.spec.node_name.clone()]
}

fn own_volumes(pod: &Pod) -> Vec<String> {
    let namespace = &pod.metadata.namespace;
    let volumes = pod.spec.volumes.iter();
    volumes
        .filter_map(|volume| by_word::own(volume, namespace)?.unique_name())
        .collect()
}

impl Known {
    pub(super) fn new(process: &Process) -> Self {
        let pods = process.cache::<Pod>();
        let volumes = process.cache::<Volume>();
        let attachments = process.cache::<VolumeAttachment>();
        let nodes = process.cache::<Node>();
        Self {
            claims: process.cache(),
            drivers: process.cache(),
            csi_nodes: process.cache(),
            pods_by_claim: pods.index(pod::BY_CLAIM, pod::claims_used),
            pods_by_node: pods.index(pod::BY_NODE, pod::node_used),
            pods_by_inline: pods.index("attach-detach/inline", own_volumes),
            volumes_by_claim: volumes.index(matching::BY_CLAIMANT, matching::claimant),
            attachments_by_volume: attachments.index("attach-detach/volume", volume_of),
            attachments_by_inline: attachments.index("attach-detach/inline", inline_of),
            attachments_by_node: attachments.index("attach-detach/node", node_of),
            nodes_by_disk: nodes.index("attach-detach/disk", by_word::on_node),
            nodes_by_flex: nodes.index("attach-detach/flex", flex::on_node),
            nodes,
            named: Arc::default(),
            pods,
            volumes,
            attachments,
        }
    }

    pub(super) async fn synced(&self) {
        self.pods.synced().await;
        self.claims.synced().await;
        self.volumes.synced().await;
        self.nodes.synced().await;
        self.drivers.synced().await;
        self.csi_nodes.synced().await;
        self.attachments.synced().await;
    }

    fn named(&self) -> MutexGuard<'_, Names> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a volume, and tells what storage it names.
    pub(super) fn note(&self, volume: &Volume) -> Option<String> {
        let unique = volume.unique_name()?;
        let name = volume.metadata.name.clone();
        self.named().note(&unique).insert(name);
        Some(unique)
    }

    pub(super) fn forget(&self, unique: &str) {
        self.named().forget(unique);
    }

    /// Whether some FlexVolume of a driver is wanted or attached.
    pub(super) fn has_any_of(&self, driver: &str) -> bool {
        let first = flex_names::unique_name(driver, "");
        let named = self.named();
        let mut from = named.from(&first);
        from.next().is_some_and(|unique| unique.starts_with(&first))
    }

    /// All storage that is wanted or attached.
    pub(in super::super) fn all(&self) -> Vec<String> {
        self.named().from("").cloned().collect()
    }

    /// Whether the volume is wanted or attached, or may be.
    pub(super) fn concerns(&self, volume: &Volume) -> bool {
        let name = &volume.metadata.name;
        let owner = volume.spec.claim_ref.as_ref();
        let used = |key: String| !self.pods_by_claim.get(&key).is_empty();
        owner.is_some_and(|owner| used(owner.key().to_string()))
            || !self.attachments_by_volume.get(name).is_empty()
    }

    /// The nodes with attachments of what a volume of this name named before.
    pub(super) fn nodes_with_former(&self, volume: &Volume) -> Vec<String> {
        let attached = self.attachments_by_volume.get(&volume.metadata.name);
        let former = attached.into_iter().filter(|attachment| {
            let now = self.source_of(attachment).map(|csi| unique(&csi));
            !now.is_some_and(|unique| actual::is_of(attachment, &unique))
        });
        former.map(|former| former.spec.node_name.clone()).collect()
    }

    /// The storage that a pod wants.
    pub(super) fn storage_of(&self, pod: &Pod) -> Vec<String> {
        let claims = pod.claims().map(|(_, key)| key.to_string());
        let volumes = claims.flat_map(|key| self.volumes_by_claim.get(&key));
        let mut all: Vec<String> = volumes.filter_map(|volume| self.note(&volume)).collect();
        let own = own_volumes(pod);
        for unique in &own {
            self.named().note(unique);
        }
        all.extend(own);
        all
    }

    /// What an attachment attaches, in its driver's words.
    fn source_of(&self, attachment: &VolumeAttachment) -> Option<CsiSource> {
        if let Some(csi) = inline_csi(attachment) {
            return Some(csi.clone());
        }
        let volume = self.volumes.named(attachment.volume_name())?;
        migration::source(&volume).map(std::borrow::Cow::into_owned)
    }

    /// Whether an attachment is of a plugin's volume in whose place its driver is.
    pub(super) fn is_migrated(&self, attachment: &VolumeAttachment) -> bool {
        let volume = || self.volumes.named(attachment.volume_name());
        attachment.spec.source.inline_volume_spec.is_some()
            || volume().is_some_and(|volume| volume.spec.csi.is_none())
    }

    /// The storage of an attachment, as long as that is known.
    pub(in super::super) fn storage(&self, attachment: &VolumeAttachment) -> Option<String> {
        let flex = flex::unique_name(attachment).map(str::to_owned);
        flex.or_else(|| {
            let named = self.source_of(attachment).map(|csi| unique(&csi));
            let now = named.filter(|unique| actual::is_of(attachment, unique));
            now.or_else(|| self.former_storage(attachment))
        })
    }

    /// The storage of an attachment whose volume is gone, or was made anew for other storage: the node
    /// still knows it, or another volume names it.
    fn former_storage(&self, attachment: &VolumeAttachment) -> Option<String> {
        // Others' say nothing by their names.
        if !actual::is_ours(attachment) {
            return None;
        }
        let named = self.named().storage_of_orphan(attachment);
        named.or_else(|| {
            let node = self.nodes.named(&attachment.spec.node_name);
            actual::listed_name(attachment, node.as_deref())
        })
    }

    /// An attachment is gone.
    pub(super) fn gone(&self, attachment: &VolumeAttachment) {
        self.named().gone(attachment);
    }

    /// Takes note of an attachment: whoever names its storage later has to know of it, also if its own
    /// volume names other storage by then.
    pub(super) fn note_attached(&self, attachment: &VolumeAttachment) -> Option<String> {
        let unique = self.storage(attachment)?;
        if let Some(name) = &attachment.spec.source.persistent_volume_name
            && actual::parts(&unique).is_some()
        {
            self.named().note(&unique).insert(name.clone());
        }
        Some(unique)
    }

    /// Whether its driver wants the storage attached at all.
    pub(in super::super) fn is_attachable(&self, driver: &str) -> bool {
        let driver = self.drivers.named(driver);
        driver.is_none_or(|driver| driver.attach_required())
    }

    /// All that concerns some storage.
    pub(in super::super) fn unit(&self, unique: &str) -> Unit {
        let names = self.named().of(unique);
        let volumes = names.iter().filter_map(|name| self.volumes.named(name));
        // An object may have been made anew, for other storage.
        let volumes: Vec<Arc<Volume>> = volumes
            .map(migration::in_the_drivers_words)
            .filter(|volume| volume.unique_name().as_deref() == Some(unique))
            .collect();
        let mut wishes: Vec<Wish> = volumes.iter().flat_map(|v| self.wishers(v)).collect();
        wishes.extend(self.own(unique));
        let mut attachments = self.attachments_by_inline.get(unique);
        for name in &names {
            let mut attached = self.attachments_by_volume.get(name);
            // Those of what the volume named before it was made anew hold nothing of this.
            if actual::parts(unique).is_some() {
                attached.retain(|attachment| actual::is_of(attachment, unique));
            }
            attachments.extend(attached);
        }
        // Also those to the same storage, made when its object had another name.
        if let Some((driver, handle)) = actual::parts(unique) {
            let nodes: BTreeSet<&String> = wishes.iter().map(|w| &w.pod.spec.node_name).collect();
            attachments.extend(nodes.into_iter().filter_map(|node| {
                let name = actual::attachment_name(driver, handle, node);
                self.attachments.named(&name)
            }));
        }
        if network_disk::plugin(unique).is_some() {
            attachments.extend(self.words_for(unique, &wishes));
        }
        if flex_names::parts(unique).is_some() {
            attachments.extend(self.off_record(unique, &wishes, &attachments));
        }
        attachments.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        attachments.dedup_by(|a, b| a.metadata.name == b.metadata.name);
        let own = wishes.iter().filter(|wish| wish.inline);
        let mut specs = volumes.iter().chain(own.map(|wish| &wish.volume));
        Unit {
            exclusive: specs.any(|v| !access::allows_many_nodes(&v.spec.access_modes)),
            wishes,
            attachments,
        }
    }

    /// The nodes that may have a disk that they reach by themselves. One whose object is gone took
    /// its list along, and its pods may still run.
    fn words_for(&self, unique: &str, wishes: &[Wish]) -> Vec<Arc<VolumeAttachment>> {
        let nodes = self.nodes_by_disk.get(unique).into_iter();
        let wanted = |node: &Node| {
            let mut wishes = wishes.iter();
            wishes.any(|wish| wish.pod.spec.node_name == node.metadata.name)
        };
        let holders = nodes.filter(|node| by_word::holds(node, unique, wanted(node)));
        let holders = holders.map(|node| node.metadata.name.clone());
        let pods = wishes.iter().map(|wish| wish.pod.spec.node_name.clone());
        let lost = pods.filter(|node| self.nodes.named(node).is_none());
        holders
            .chain(lost)
            .map(|node| Arc::new(by_word::standing(unique, &node)))
            .collect()
    }

    /// The nodes that may have a FlexVolume of which we have no record: those that somebody before us has
    /// told so, and those that attach it by themselves as long as a pod there wants it. One whose object is
    /// gone may have been either.
    fn off_record(
        &self,
        unique: &str,
        wishes: &[Wish],
        records: &[Arc<VolumeAttachment>],
    ) -> Vec<Arc<VolumeAttachment>> {
        let nodes = self.nodes_by_flex.get(unique).into_iter();
        let names = nodes.map(|node| node.metadata.name.clone());
        let pods = wishes.iter().map(|wish| wish.pod.spec.node_name.clone());
        let theirs = pods.filter(|node| {
            let node = self.nodes.named(node);
            node.is_none_or(|node| flex::is_left_alone(&node))
        });
        names
            .chain(theirs)
            .filter(|node| !records.iter().any(|a| a.spec.node_name == *node))
            .map(|node| Arc::new(by_word::standing(unique, &node)))
            .collect()
    }

    /// The record of a FlexVolume on a node.
    pub(super) fn flex_record(&self, unique: &str, node: &str) -> Option<Arc<VolumeAttachment>> {
        let mut records = self.attachments_by_inline.get(unique).into_iter();
        records.find(|record| record.spec.node_name == node)
    }

    /// The object of a FlexVolume, unless it is a pod's own.
    pub(super) fn flex_object(&self, unique: &str) -> Option<String> {
        let (_, name) = flex_names::parts(unique)?;
        let volume = self.volumes.named(name)?;
        (volume.unique_name().as_deref() == Some(unique)).then(|| name.to_owned())
    }

    /// The pods that want a volume on a node.
    fn wishers(&self, volume: &Arc<Volume>) -> Vec<Wish> {
        let claim = volume.spec.claim_ref.as_ref();
        let claim = claim.and_then(|owner| self.claims.get(&owner.key()));
        let Some(claim) = claim.filter(|claim| desired::is_bound(claim, volume)) else {
            return Vec::new();
        };
        let key = orlop_model::Kind::key(&*claim).to_string();
        let pods = self.pods_by_claim.get(&key).into_iter();
        let wish = |pod| Wish {
            pod,
            volume: volume.clone(),
            inline: false,
        };
        pods.filter(|pod| self.wants(pod)).map(wish).collect()
    }

    /// The pods whose own volume it is.
    fn own(&self, unique: &str) -> Vec<Wish> {
        let mut wishes = Vec::new();
        for pod in self.pods_by_inline.get(unique) {
            if !self.wants(&pod) {
                continue;
            }
            let namespace = &pod.metadata.namespace;
            let all = pod.spec.volumes.iter();
            let all = all.filter_map(|volume| by_word::own(volume, namespace));
            let found = all.filter(|volume| volume.unique_name().as_deref() == Some(unique));
            wishes.extend(found.take(1).map(|volume| Wish {
                pod: pod.clone(),
                volume: Arc::new(volume),
                inline: true,
            }));
        }
        wishes
    }

    fn wants(&self, pod: &Pod) -> bool {
        let node = self.nodes.named(&pod.spec.node_name);
        desired::wants(pod, node.as_deref())
    }

    /// Those wishes that are ours to grant: of nodes that exist and leave attaching to us.
    pub(in super::super) fn grantable(&self, wishes: Vec<Wish>) -> Wishes {
        let mut by_node = Wishes::new();
        for wish in wishes {
            let node = self.nodes.named(&wish.pod.spec.node_name);
            let is_flex = wish.volume.spec.flex_volume.is_some();
            let ours = |node: &Node| match is_flex {
                true => !flex::is_left_alone(node),
                false => actual::is_managed(node),
            };
            if node.is_some_and(|node| ours(&node)) {
                let name = wish.pod.spec.node_name.clone();
                by_node.entry(name).or_default().push(wish);
            }
        }
        by_node
    }
}
