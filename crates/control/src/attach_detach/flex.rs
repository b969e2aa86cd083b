//! FlexVolume: volumes whose drivers are programs where this role runs.
//!
//! What a CSI driver's attacher is elsewhere, attach-detach is here itself: it asks for an attachment
//! as for any other volume, held by a finalizer, calls the driver, and tells of the device on the
//! attachment. So a volume is on record before its driver is called and until it has let go of it,
//! also if its node is deleted meanwhile. The record names driver and volume, which is all that
//! detaching needs; what a driver is told besides is read from the volume. What it was told when it attached is
//! kept in memory for when it is asked to detach, since the volume may be gone by then.
//!
//! Must never: keep anything waiting for a driver but the very volume that it is called for; write
//! down what a driver is told; call a driver for one volume and node twice at a time; touch volumes of
//! drivers that don't attach, or of nodes that attach these by themselves.

use std::{collections::BTreeMap, fmt};

use futures::future::BoxFuture;
use orlop_model::{
    Key, Meta, Node, ObjectRef, Volume, VolumeAttachment, flex, node::AttachedVolume, well_known,
};
use sha2::{Digest, Sha256};

use super::{actual, desired::Wish};

/// The longest path of a device, as the kernel takes it.
pub const LONGEST_DEVICE: usize = 4096;

/// What a driver is known to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ability {
    /// It attaches.
    Attaches,
    /// Its volumes aren't attached: they are their nodes' affair alone.
    LeftToNodes,
}

/// Why a driver has not done what it was asked for. Its words hold no secrets: it is told none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// It isn't there to be asked.
    #[error("{0}")]
    Missing(String),
    /// It was asked, and nobody knows what it has done.
    #[error("{0}")]
    Failed(String),
}

/// What a driver is called for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// The driver, as `vendor/driver`.
    pub driver: String,
    /// Its name of the volume.
    pub volume: String,
    /// The node.
    pub node: String,
    /// What it is told of the volume, as JSON, where that is known.
    pub options: Option<String>,
}

/// Drivers, wherever they are. Each call ends by itself after a while.
pub trait FlexDrivers: fmt::Debug + Send + Sync {
    /// Asks a driver what it does.
    fn ability<'a>(&'a self, driver: &'a str) -> BoxFuture<'a, Result<Ability, Trouble>>;

    /// Has a volume attached, also if it is already, and tells where its device is.
    fn attach<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<String, Trouble>>;

    /// Has a volume detached, also if it is already.
    fn detach<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<(), Trouble>>;

    /// Returns when a driver may have come, or changed, since it last did.
    fn came(&self) -> BoxFuture<'_, ()>;
}

/// The name of the attachment of a volume to a node.
fn attachment_name(unique_name: &str, node: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(unique_name);
    // No name has it.
    hash.update("\0");
    hash.update(node);
    let hex: String = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
    format!("flex-{hex}")
}

/// The record that a volume is attached to a node, or may be. `object` is the volume's, if there is one.
/// It is held from the first: whoever gives it back, it stays until the driver has let go.
pub fn record(unique_name: &str, node: &str, object: Option<&str>) -> VolumeAttachment {
    let name = attachment_name(unique_name, node);
    let mut made = VolumeAttachment {
        metadata: Meta::named(&Key::cluster(&name)),
        ..VolumeAttachment::default()
    };
    let annotation = (well_known::FLEX_VOLUME.to_owned(), unique_name.to_owned());
    made.metadata.annotations = BTreeMap::from([annotation]);
    made.metadata.finalizers = vec![well_known::FLEX_ATTACHED.to_owned()];
    well_known::FLEX_ATTACHER.clone_into(&mut made.spec.attacher);
    node.clone_into(&mut made.spec.node_name);
    // An attachment must name a volume. A pod's own has none, so it names one that nobody has.
    let object = object.map_or(name, str::to_owned);
    made.spec.source.persistent_volume_name = Some(object);
    made
}

/// The unique name of the volume of such a record; none if the attachment is another one.
pub fn unique_name(attachment: &VolumeAttachment) -> Option<&str> {
    if attachment.spec.attacher != well_known::FLEX_ATTACHER {
        return None;
    }
    let name = attachment.metadata.annotation(well_known::FLEX_VOLUME)?;
    flex::parts(name).map(|_| name)
}

/// Whether a node can have this name, as Kubernetes checks it (RFC 1123). A record need not be of one, and
/// what it says becomes words of a program, and parts of a path.
pub fn is_node_name(name: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let plain = |part: &str| {
        let bytes = part.as_bytes();
        let ends = [bytes.first(), bytes.last()];
        ends.iter().all(|end| end.is_some_and(|byte| inner(*byte)))
            && bytes.iter().all(|&byte| inner(byte) || byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(plain)
}

/// Whether an attachment is such a record, and one that this role has made.
pub fn is_ours(attachment: &VolumeAttachment) -> bool {
    let node = &attachment.spec.node_name;
    unique_name(attachment)
        .filter(|_| is_node_name(node))
        .is_some_and(|unique| attachment.metadata.name == attachment_name(unique, node))
}

/// Where an attached volume's device is.
pub fn device(attachment: &VolumeAttachment) -> String {
    let told = &attachment.status.attachment_metadata;
    let found = told.get(well_known::FLEX_DEVICE);
    found
        .filter(|_| unique_name(attachment).is_some())
        .cloned()
        .unwrap_or_default()
}

/// Whether a node attaches such volumes by itself.
pub fn is_left_alone(node: &Node) -> bool {
    let annotation = node.metadata.annotation(well_known::ATTACHES_FLEX);
    !actual::is_managed(node) || annotation.is_some_and(|value| value == "true")
}

/// The volumes that a node was told to have.
pub fn told(node: &Node) -> impl Iterator<Item = &AttachedVolume> {
    let told = node.status.volumes_attached.iter();
    told.filter(|volume| flex::parts(&volume.name).is_some())
}

/// Those that a node uses, or waits to be told of.
pub fn used(node: &Node) -> impl Iterator<Item = &String> {
    let used = node.status.volumes_in_use.iter();
    used.filter(|name| flex::parts(name).is_some())
}

/// Those that a node has by its own word: as it was told, or, if it attaches them by itself, as it uses them.
/// What it was told before it did so is long out of date.
pub fn on_node(node: &Node) -> Vec<String> {
    match is_left_alone(node) {
        true => used(node).cloned().collect(),
        false => told(node).map(|volume| volume.name.clone()).collect(),
    }
}

/// What a driver is told for a pod's wish.
pub fn options(wish: &Wish) -> Option<String> {
    let source = wish.volume.spec.flex_volume.as_ref()?;
    let owner = wish.volume.spec.claim_ref.as_ref().map(ObjectRef::key);
    // A volume says nothing of it; who uses it does.
    let read_only = match wish.inline {
        true => source.read_only,
        false => wish.pod.claims().any(|(volume, key)| {
            let claim = volume.persistent_volume_claim.as_ref();
            owner.as_ref() == Some(&key) && claim.is_some_and(|claim| claim.read_only)
        }),
    };
    let name = &wish.volume.metadata.name;
    text(&flex::options(source, name, read_only, BTreeMap::new()))
}

/// What a driver is told of a volume that no pod is known to want.
pub fn options_of(volume: &Volume) -> Option<String> {
    let source = volume.spec.flex_volume.as_ref()?;
    let name = &volume.metadata.name;
    text(&flex::options(source, name, false, BTreeMap::new()))
}

fn text(options: &BTreeMap<String, String>) -> Option<String> {
    serde_json::to_string(options).ok()
}

/// What a record's next step is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// To call the driver, and tell where the device is.
    Attach,
    /// To call the driver, and let go of the record.
    Detach,
    /// Nothing.
    None,
}

/// Decides what a record's next step is. For one that isn't held no driver is called: somebody has taken it
/// out of our hands, and it could go at any moment.
pub fn step(attachment: &VolumeAttachment) -> Step {
    let meta = &attachment.metadata;
    if !meta.has_finalizer(well_known::FLEX_ATTACHED) {
        return Step::None;
    }
    match (meta.is_deleting(), attachment.status.attached) {
        (true, _) => Step::Detach,
        (false, false) => Step::Attach,
        (false, true) => Step::None,
    }
}
