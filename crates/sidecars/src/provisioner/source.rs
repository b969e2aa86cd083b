//! What a new volume is filled with: another claim's volume, or a snapshot.
//!
//! Pure. Nothing is believed by name alone: snapshot and content, claim and volume must name
//! each other, uid included, and be of this driver. Otherwise a claim could be filled with
//! what belongs to somebody else.

use std::fmt;

use orlop_csi::proto::{
    VolumeContentSource,
    volume_content_source::{SnapshotSource, Type, VolumeSource},
};
use orlop_model::{
    Claim, ClaimPhase, Key, Kind, Quantity, Volume, VolumeMode, VolumeSnapshot,
    VolumeSnapshotContent,
    well_known::{ALLOW_MODE_CHANGE, PROVISIONING},
};
use serde_json::{Value, json};

/// An object that volumes are filled from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Origin {
    /// A claim, to be cloned.
    Claim(Key),
    /// A snapshot, to be restored.
    Snapshot(Key),
}

impl Origin {
    pub(super) fn key(&self) -> &Key {
        match self {
            Self::Claim(key) | Self::Snapshot(key) => key,
        }
    }

    /// API group and kind, as references name them.
    pub(super) fn kind(&self) -> (&'static str, &'static str) {
        match self {
            Self::Claim(_) => (Claim::GROUP, Claim::KIND),
            Self::Snapshot(_) => (VolumeSnapshot::GROUP, VolumeSnapshot::KIND),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind().1, self.key())
    }
}

/// What a claim asks to be filled with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wish {
    /// Nothing.
    Empty,
    /// By the driver, from this.
    From(Origin),
    /// By somebody else: a kind that no driver knows.
    Populated,
}

/// Why a claim can't be filled as it asks.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SourceError {
    /// The reference has no name.
    #[error("the data source of the claim has no name")]
    NoName,
    /// A VolumeSnapshot, but not Kubernetes' own.
    #[error(
        "the PVC source does not belong to the right APIGroup. Expected {expected}, Got {got}",
        expected = VolumeSnapshot::GROUP
    )]
    WrongGroup {
        /// The group that it names.
        got: String,
    },
    /// Another namespace, while that is turned off.
    #[error(
        "the data source is in namespace {0}; sources in other namespaces need the feature gate \
         CrossNamespaceVolumeDataSource"
    )]
    OtherNamespace(String),
    /// Another namespace, which did not agree.
    #[error("accessing {origin} from namespace {namespace} is not allowed by any ReferenceGrant")]
    NotGranted {
        /// What is asked for.
        origin: String,
        /// The claim's namespace.
        namespace: String,
    },
    /// The source isn't there.
    #[error("{0} does not exist; it is waited for")]
    Missing(String),
    /// The source is going away.
    #[error("{0} is currently being deleted")]
    Deleted(String),
    /// The claim has no volume yet.
    #[error(
        "the PVC DataSource {name} must have a status of Bound. Got {phase:?}; it is waited for"
    )]
    Unbound {
        /// The claim.
        name: String,
        /// Its phase.
        phase: ClaimPhase,
    },
    /// Claim and volume don't name each other.
    #[error("volume {volume} is not bound to claim {claim}; it can not be cloned")]
    NotItsVolume {
        /// The volume.
        volume: String,
        /// The claim.
        claim: String,
    },
    /// No driver can clone it for us.
    #[error("the source PV {0} is not a CSI volume")]
    NotCsi(String),
    /// Somebody else's.
    #[error(
        "{what} belongs to driver {of}, not to {driver}; make the claim anew, of a class of driver {of}"
    )]
    OtherDriver {
        /// What.
        what: String,
        /// Whose it is.
        of: String,
        /// Who was asked.
        driver: String,
    },
    /// Files from a device, or the other way round.
    #[error(
        "the source PVC and destination PVCs must have the same volume mode for cloning. \
         Source is {source_mode:?}, but new PVC requested {wanted:?}; make the claim anew"
    )]
    OtherMode {
        /// The source's.
        source_mode: VolumeMode,
        /// The claim's.
        wanted: VolumeMode,
    },
    /// A snapshot of the other mode, without its administrator's word.
    #[error(
        "requested volume {claim} modifies the mode of the source volume but does not have \
         permission to do so. {ALLOW_MODE_CHANGE} annotation is not present on snapshotcontent \
         {content}; set it there to \"true\", or make the claim anew"
    )]
    ModeChange {
        /// The claim.
        claim: String,
        /// The content.
        content: String,
    },
    /// It wouldn't fit.
    #[error(
        "requested volume size {asked} is less than the size {least} for the source {what}; make the \
         claim anew, with at least as much"
    )]
    TooSmall {
        /// What the claim asks for.
        asked: i64,
        /// What it needs.
        least: i64,
        /// The source.
        what: String,
    },
    /// Snapshot and content don't name each other.
    #[error("snapshot {0} not bound; it is waited for, and its own status and events tell more")]
    SnapshotUnbound(String),
    /// The cut isn't done.
    #[error("snapshot {0} is not Ready; it is waited for, and its own status and events tell more")]
    NotReady(String),
}

/// What a claim asks to be filled with; `across` if other namespaces may be named.
pub(super) fn wish(claim: &Claim, across: bool) -> Result<Wish, SourceError> {
    let spec = &claim.spec;
    let Some(source) = spec.data_source_ref.as_ref().or(spec.data_source.as_ref()) else {
        return Ok(Wish::Empty);
    };
    let text = |field: &str| source[field].as_str().unwrap_or_default();
    let own = claim.metadata.namespace.as_str();
    let namespace = match text("namespace") {
        "" => own,
        named => named,
    };
    let key = Key::namespaced(namespace, text("name"));
    let origin = match (text("kind"), text("apiGroup")) {
        (VolumeSnapshot::KIND, VolumeSnapshot::GROUP) => Origin::Snapshot(key),
        (VolumeSnapshot::KIND, got) => {
            let got = got.to_owned();
            return Err(SourceError::WrongGroup { got });
        }
        (Claim::KIND, Claim::GROUP) => Origin::Claim(key),
        _ => return Ok(Wish::Populated),
    };
    if origin.key().name.is_empty() {
        return Err(SourceError::NoName);
    }
    if namespace != own && !across {
        return Err(SourceError::OtherNamespace(namespace.to_owned()));
    }
    Ok(Wish::From(origin))
}

/// The object that a claim still needs for its volume: it isn't bound, and wanted or perhaps
/// being made.
pub(super) fn needed(claim: &Claim) -> Option<Origin> {
    let open = claim.spec.volume_name.is_empty();
    let wanted = !claim.metadata.is_deleting() || claim.metadata.has_finalizer(PROVISIONING);
    match wish(claim, true) {
        Ok(Wish::From(origin)) if open && wanted => Some(origin),
        _ => None,
    }
}

/// Who needs a source: while it stays, whoever wants to be made from it. While it is being
/// deleted nobody begins with it any more, so only those whose volume is perhaps being made.
pub(super) fn needs(claim: &Claim, origin: &Origin, source: Source) -> bool {
    let begun = claim.metadata.has_finalizer(PROVISIONING);
    (begun || source == Source::Stays) && needed(claim).as_ref() == Some(origin)
}

/// Whether a source is being deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Stays,
    Goes,
}

impl Source {
    pub(super) fn of<K: Kind>(object: &K) -> Self {
        match object.meta().is_deleting() {
            true => Self::Goes,
            false => Self::Stays,
        }
    }
}

/// The content in the driver's words: whatever is needed to ask again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// That of a volume.
    Volume(String),
    /// That of a snapshot.
    Snapshot(String),
}

impl Content {
    pub(super) fn to_proto(&self) -> VolumeContentSource {
        let r#type = match self.clone() {
            Self::Volume(volume_id) => Type::Volume(VolumeSource { volume_id }),
            Self::Snapshot(snapshot_id) => Type::Snapshot(SnapshotSource { snapshot_id }),
        };
        VolumeContentSource {
            r#type: Some(r#type),
        }
    }

    /// For the claim, beside the intent.
    pub(super) fn to_text(&self) -> String {
        match self {
            Self::Volume(handle) => json!({"volume": handle}),
            Self::Snapshot(handle) => json!({"snapshot": handle}),
        }
        .to_string()
    }

    pub(super) fn of_text(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let field = |name: &str| value[name].as_str().map(str::to_owned);
        let volume = field("volume").map(Self::Volume);
        volume.or_else(|| field("snapshot").map(Self::Snapshot))
    }
}

/// Checks a claim and its volume as the source of another claim's.
pub(super) fn of_claim(
    new: &Claim,
    driver: &str,
    source: &Claim,
    volume: Option<&Volume>,
) -> Result<Content, SourceError> {
    let name = source.metadata.name.clone();
    if source.phase() != ClaimPhase::Bound {
        let phase = source.phase();
        return Err(SourceError::Unbound { name, phase });
    }
    if source.metadata.is_deleting() {
        return Err(SourceError::Deleted(format!("the PVC DataSource {name}")));
    }
    let wanted = &source.spec.volume_name;
    let volume = volume.ok_or_else(|| SourceError::Missing(format!("PV {wanted}")))?;
    let csi = volume.spec.csi.as_ref();
    let csi = csi.ok_or_else(|| SourceError::NotCsi(wanted.clone()))?;
    if csi.driver != driver {
        return Err(SourceError::OtherDriver {
            what: format!("the source PVC {name}"),
            of: csi.driver.clone(),
            driver: driver.to_owned(),
        });
    }
    let owner = volume.spec.claim_ref.as_ref();
    if !owner.is_some_and(|o| o.uid == source.metadata.uid && o.key() == source.key()) {
        return Err(SourceError::NotItsVolume {
            volume: wanted.clone(),
            claim: name,
        });
    }
    let (source_mode, mode) = (volume.volume_mode(), new.volume_mode());
    if source_mode != mode {
        return Err(SourceError::OtherMode {
            source_mode,
            wanted: mode,
        });
    }
    fits(new, source.capacity_bytes(), || format!("PVC {name}"))?;
    Ok(Content::Volume(csi.volume_handle.clone()))
}

/// Whether a snapshot may be restored as the other mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ModeGuard {
    /// Only with its administrator's word.
    On,
    /// Always.
    Off,
}

/// Checks a snapshot and its content as a claim's source.
pub(super) fn of_snapshot(
    new: &Claim,
    driver: &str,
    snapshot: &VolumeSnapshot,
    content: Option<&VolumeSnapshotContent>,
    guard: ModeGuard,
) -> Result<Content, SourceError> {
    let name = &snapshot.metadata.name;
    if snapshot.metadata.is_deleting() {
        return Err(SourceError::Deleted(format!("snapshot {name}")));
    }
    let unbound = || SourceError::SnapshotUnbound(name.clone());
    let content = content
        .filter(|c| snapshot.bound_content() == Some(c.metadata.name.as_str()))
        .filter(|c| c.is_bound_to(snapshot))
        .ok_or_else(unbound)?;
    if content.spec.driver != driver {
        return Err(SourceError::OtherDriver {
            what: format!("snapshot {name}"),
            of: content.spec.driver.clone(),
            driver: driver.to_owned(),
        });
    }
    if !snapshot.is_ready() {
        return Err(SourceError::NotReady(name.clone()));
    }
    let changed = content.spec.source_volume_mode;
    let changed = changed.is_some_and(|mode| mode != new.volume_mode());
    let allowed = content.metadata.annotation(ALLOW_MODE_CHANGE) == Some("true");
    if changed && !allowed && guard == ModeGuard::On {
        return Err(SourceError::ModeChange {
            claim: new.key().to_string(),
            content: content.metadata.name.clone(),
        });
    }
    let status = snapshot.status.as_ref();
    let least = status.and_then(|s| s.restore_size.as_ref());
    let least = least.map_or(0, Quantity::value);
    fits(new, least, || format!("snapshot {name}"))?;
    let handle = content.handle().filter(|handle| !handle.is_empty());
    let handle = handle.ok_or_else(unbound)?;
    Ok(Content::Snapshot(handle.to_owned()))
}

fn fits(new: &Claim, least: i64, what: impl FnOnce() -> String) -> Result<(), SourceError> {
    let asked = new.requested_bytes();
    if asked < least {
        return Err(SourceError::TooSmall {
            asked,
            least,
            what: what(),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
