//! Inline volumes: made for one pod, written in its own specification, and gone with it.
//!
//! The kubelet chooses the id and calls nothing but publish and unpublish. Such a volume is staged
//! right at its target, and its whole life is in two calls: so either may find that a killed driver
//! did half of it already.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use orlop_csi::proto;
use orlop_csi::proto::volume_capability::AccessType;
use orlop_csi::server::CsiError;
use tonic::Code;

use super::stage::{self, StageError};
use super::unpublish::{remove, unmount_and_remove};
use super::{Here, ObserveError};
use crate::local::capability::{
    Access, Capability, CapabilityError, Mode, MountOptions, OptionRefused,
};
use crate::local::fields::FieldError;
use crate::local::node::observe::{Shown, Use};
use crate::local::parameters::{self, Mutable, ParameterError};
use crate::local::pool::StoreError;
use crate::local::pools::{FindError, ReserveError, Volume};
use crate::local::size::{self, SizeError, SizeRange};
use crate::local::volume::{Lifetime, Publication, Staged, VolumeRecord, inline_name};

/// The kubelet's word for a volume that is inline.
const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";
/// The attribute that says how large it is.
const SIZE: &str = "size";
/// The prefix of everything else that the kubelet adds.
const KUBELET_PREFIX: &str = "csi.storage.k8s.io/";

/// Why an inline volume was not made, or is still there.
#[derive(Debug, thiserror::Error)]
pub enum InlineError {
    /// A field is unusable.
    #[error(transparent)]
    Field(#[from] FieldError),
    /// The capability cannot be had.
    #[error("an inline volume cannot be used like this")]
    Capability(#[from] CapabilityError),
    /// A device cannot be written into a pod.
    #[error("an inline volume is a file system, never a device")]
    Block,
    /// A mount option is not allowed.
    #[error("an inline volume cannot be mounted like this")]
    Option(#[from] OptionRefused),
    /// An attribute is not known.
    #[error("a volume attribute cannot be used")]
    Attribute(#[from] ParameterError),
    /// Its size is not one.
    #[error("volume attribute \"size\" cannot be {0:?}; use bytes, or a quantity such as 1Gi")]
    NotASize(String),
    /// Its size cannot be had.
    #[error("an inline volume of this size cannot be had")]
    Size(#[from] SizeError),
    /// Its id belongs to a volume that is not inline.
    #[error("volume {id:?} is not inline")]
    NotInline {
        /// The id.
        id: String,
    },
    /// Its record is damaged.
    #[error(transparent)]
    Broken(FindError),
    /// No pool of the node has that name.
    #[error("this node has no such pool")]
    NoSuchPool,
    /// No pool has room.
    #[error("no pool of this node has room for the volume")]
    Space(#[source] ReserveError),
    /// The pool's disk refused.
    #[error("could not make or remove the volume")]
    Store(#[from] StoreError),
    /// It could not be mounted.
    #[error(transparent)]
    Stage(#[from] StageError),
    /// Its state could not be seen, or its devices not be given back.
    #[error("could not release the volume")]
    Observe(#[from] ObserveError),
    /// The target holds something that is not ours.
    #[error("the target path holds something other than the volume; remove it by hand")]
    Foreign,
    /// The mount or the target could not be taken away.
    #[error("could not take the volume away from its target path")]
    Remove(#[source] io::Error),
}

impl CsiError for InlineError {
    fn code(&self) -> Code {
        match self {
            Self::Field(_)
            | Self::Capability(_)
            | Self::Block
            | Self::Option(_)
            | Self::Attribute(_)
            | Self::NotASize(_)
            | Self::NotInline { .. }
            | Self::NoSuchPool => Code::InvalidArgument,
            Self::Size(_) => Code::OutOfRange,
            Self::Broken(source) => source.code(),
            Self::Space(source) => source.code(),
            Self::Store(source) => source.code(),
            Self::Stage(source) => source.code(),
            Self::Observe(source) => source.code(),
            Self::Foreign => Code::FailedPrecondition,
            Self::Remove(_) => Code::Internal,
        }
    }
}

/// Whether a publication is of an inline volume.
pub(super) fn is_asked_for(context: &BTreeMap<String, String>) -> bool {
    context.get(EPHEMERAL).is_some_and(|value| value == "true")
}

/// Whether an id is one that the kubelet makes for inline volumes: `csi-` and a SHA-256.
pub(super) fn is_kubelets(id: &str) -> bool {
    id.strip_prefix("csi-").is_some_and(|digits| {
        digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// What a pod asks for.
#[derive(Debug, PartialEq, Eq)]
struct Attributes {
    bytes: u64,
    parameters: BTreeMap<String, String>,
    mutable: Mutable,
}

impl Attributes {
    fn parse(context: &BTreeMap<String, String>, smallest: u64) -> Result<Self, InlineError> {
        let mut bytes = size::DEFAULT;
        let (mut class, mut mutable) = (BTreeMap::new(), BTreeMap::new());
        for (key, value) in context {
            match key.as_str() {
                SIZE => {
                    bytes = size::bytes(value)
                        .filter(|bytes| *bytes > 0)
                        .ok_or_else(|| InlineError::NotASize(value.clone()))?;
                }
                "readAheadKiB" => {
                    mutable.insert(key.clone(), value.clone());
                }
                key if key.starts_with(KUBELET_PREFIX) => {}
                _ => {
                    class.insert(key.clone(), value.clone());
                }
            }
        }
        let range = SizeRange::parse(&proto::CapacityRange {
            required_bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
            limit_bytes: 0,
        })?;
        Ok(Self {
            bytes: range.choose(smallest)?,
            parameters: parameters::parse(&class)?,
            mutable: Mutable::parse(&mutable)?,
        })
    }
}

/// Makes the volume unless it is there, and mounts it at its target.
pub(super) fn publish(
    here: Here<'_>,
    request: &proto::NodePublishVolumeRequest,
    wire: &proto::VolumeCapability,
) -> Result<(), InlineError> {
    let target = here.reach().absolute("target_path", &request.target_path)?;
    let class = parameters::parse(&of_class(&request.volume_context))?;
    let default = parameters::file_system(&class).unwrap_or(here.pools.default_fs());
    let capability = Capability::parse(wire, default)?;
    let (Access::Mount(kind), Some(AccessType::Mount(mount))) =
        (capability.access, &wire.access_type)
    else {
        return Err(InlineError::Block);
    };
    let mut options = MountOptions::parse(&mount.mount_flags, kind)?;
    options.restrictions.read_only |= request.readonly || capability.mode == Mode::SingleNodeReader;
    let attributes = Attributes::parse(&request.volume_context, kind.smallest())?;
    parameters::mkfs_options(&attributes.parameters, kind)?;
    let wanted = stage::Wanted {
        staged: Staged {
            path: target,
            publication: Publication {
                capability,
                read_only: options.restrictions.read_only,
            },
        },
        options: Some(options),
    };
    let mut volume = find_or_make(here, &request.volume_id, attributes)?;
    let staged = stage::stage_at(here, &mut volume, &wanted);
    if staged.is_err() {
        // The kubelet may never ask again: what nobody has seen is taken back, as far as it goes.
        let _ = end(here, &volume);
    }
    Ok(staged?)
}

fn of_class(context: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let ours = |key: &str| !key.starts_with(KUBELET_PREFIX) && key != SIZE && key != "readAheadKiB";
    context
        .iter()
        .filter(|(key, _)| ours(key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

fn find_or_make(
    here: Here<'_>,
    kubelet_id: &str,
    attributes: Attributes,
) -> Result<Volume, InlineError> {
    match here.find(kubelet_id) {
        Ok(volume) if volume.record.lifetime == Lifetime::Inline => return Ok(volume),
        Ok(_) => {
            return Err(InlineError::NotInline {
                id: kubelet_id.to_owned(),
            });
        }
        // The pod is new to this boot: whatever a pool that cannot be read has is not its volume.
        Err(FindError::Unknown { .. } | FindError::Away { .. }) => {}
        Err(broken @ FindError::Broken { .. }) => return Err(InlineError::Broken(broken)),
    }
    let Attributes {
        bytes,
        parameters,
        mutable,
    } = attributes;
    let allocation = parameters::allocation(&parameters);
    let mut refusal = InlineError::NoSuchPool;
    for home in here
        .pools
        .candidates(here.node, parameters::pool(&parameters).as_ref())
    {
        let space = match here.pools.reserve(&home, bytes, allocation) {
            Ok(space) => space,
            Err(error) => {
                refusal = InlineError::Space(error);
                continue;
            }
        };
        let name = inline_name(kubelet_id);
        let record = VolumeRecord {
            parameters,
            allocation,
            read_ahead_kib: mutable.read_ahead_kib,
            lifetime: Lifetime::Inline,
            ..VolumeRecord::blank(&name, here.pools.next_serial(), bytes)
        };
        let volume = Volume { home, record };
        here.pools.create(&volume, space)?;
        return Ok(volume);
    }
    Err(refusal)
}

/// Unmounts the volume, and removes it with its target.
pub(super) fn unpublish(here: Here<'_>, volume: &Volume, target: &Path) -> Result<(), InlineError> {
    let found = Use::observe(here.pools, volume)?;
    match found.shown_at(target)? {
        Shown::Volume => unmount_and_remove(here, target).map_err(InlineError::Remove)?,
        Shown::Nothing => {}
        Shown::Plain(_) => remove(here, target).map_err(InlineError::Remove)?,
        Shown::Foreign | Shown::Unreachable => return Err(InlineError::Foreign),
    }
    end(here, volume)
}

/// Removes the volume, unless it is still mounted somewhere.
fn end(here: Here<'_>, volume: &Volume) -> Result<(), InlineError> {
    let found = Use::observe(here.pools, volume)?;
    // A device without a mount goes by itself, though perhaps not at once: others look at devices.
    if found.is_mounted() {
        return Ok(());
    }
    found.release_devices()?;
    Ok(here.pools.remove(volume)?)
}

/// Removes what is left of the target of a volume that is gone already.
pub(super) fn forget(here: Here<'_>, target: &Path) -> Result<(), InlineError> {
    remove(here, target).map_err(InlineError::Remove)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::room::Allocation;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn what_the_pod_writes_is_understood_and_the_kubelets_words_are_left_out() {
        let context = map(&[
            (EPHEMERAL, "true"),
            ("csi.storage.k8s.io/pod.name", "p"),
            ("size", "2Gi"),
            ("allocation", "thick"),
            ("readAheadKiB", "64"),
        ]);
        assert!(is_asked_for(&context));
        let parsed = Attributes::parse(&context, size::SMALLEST).unwrap();
        assert_eq!(parsed.bytes, 2 << 30);
        assert_eq!(
            parameters::allocation(&parsed.parameters),
            Allocation::Thick
        );
        assert_eq!(parsed.mutable.read_ahead_kib, Some(64));
    }

    #[test]
    fn attributes_that_mean_nothing_are_refused() {
        for (key, value) in [
            ("size", "big"),
            ("size", "0"),
            ("sise", "1Gi"),
            ("pool", "../x"),
        ] {
            let refused = Attributes::parse(&map(&[(key, value)]), size::SMALLEST).unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{key}={value}");
        }
    }

    #[test]
    fn the_kubelets_ids_are_recognised() {
        assert!(is_kubelets(&format!("csi-{}", "0a".repeat(32))));
        for id in ["csi-", "csi-1", "v-00", "pvc-1"] {
            assert!(!is_kubelets(id), "{id}");
        }
    }
}
