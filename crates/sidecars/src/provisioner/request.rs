//! The CreateVolume call of a claim: everything but the values of its secrets.

use orlop_csi::{
    DriverInfo,
    client::{ControllerCapability, PluginService},
    proto::{CapacityRange, CreateVolumeRequest, TopologyRequirement},
};
use orlop_model::{
    AccessMode, Claim, Key, Kind, Quantity, StorageClass, VolumeAttributesClass, VolumeMode,
    volume::SecretRef, well_known::CSI_PARAMETER_PREFIX,
};

use super::{
    Config,
    parameters::{ParameterError, Parameters, Purpose, Subject},
    source::Content,
    topology::Segment,
};
use crate::capability::{self, AccessError, Shape, SingleNode};

/// The call, and what the volume object will say of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    /// Without secrets.
    pub(super) request: CreateVolumeRequest,
    pub(super) fs_type: String,
    /// What it is filled with.
    pub(super) content: Option<Content>,
    pub(super) attributes_class: Option<String>,
    pub(super) readonly: bool,
    pub(super) provision_secret: Option<SecretRef>,
    pub(super) controller_publish_secret: Option<SecretRef>,
    pub(super) node_stage_secret: Option<SecretRef>,
    pub(super) node_publish_secret: Option<SecretRef>,
    pub(super) controller_expand_secret: Option<SecretRef>,
    pub(super) node_expand_secret: Option<SecretRef>,
    pub(super) controller_modify_secret: Option<SecretRef>,
}

impl Plan {
    /// Where the volume shall be first of all; nothing if that is all the same.
    pub(super) fn place(&self) -> Segment {
        let place = self.request.accessibility_requirements.as_ref();
        let first = place.and_then(|place| place.preferred.first());
        first
            .map(|first| first.segments.clone())
            .unwrap_or_default()
    }
}

/// Why a claim can't be asked for, before the driver was.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// Nothing to call.
    #[error("driver {0} can not create volumes: it lacks the CREATE_DELETE_VOLUME capability")]
    NotSupported(String),
    /// Selectors choose among volumes that exist.
    #[error(
        "claim Selector is not supported: it chooses among volumes that are there; make the claim anew \
         without it"
    )]
    Selector,
    /// The driver can't fill volumes that way.
    #[error("CSI driver does not support {what}: capability {lacks} is not supported")]
    Content {
        /// What was asked for.
        what: &'static str,
        /// What it would take.
        lacks: &'static str,
    },
    /// The driver can't change attributes.
    #[error(
        "CSI driver does not support VolumeAttributesClass: capability MODIFY_VOLUME is not \
         supported"
    )]
    Attributes,
    /// A performance class of another driver.
    #[error(
        "VAC {class} referenced in PVC is for driver {of} which does not match driver name \
         {driver}; choose one of this driver"
    )]
    AttributesOfAnother {
        /// The class.
        class: String,
        /// Whose it is.
        of: String,
        /// Who was asked.
        driver: String,
    },
    /// No size.
    #[error("the claim asks for no storage; set spec.resources.requests.storage")]
    NoSize,
    /// The access modes make no sense.
    #[error("the access modes can not be asked for: {0}")]
    Access(String),
    /// The class's parameters make no sense.
    #[error(transparent)]
    Parameters(#[from] ParameterError),
}

impl From<AccessError> for Refusal {
    fn from(error: AccessError) -> Self {
        Self::Access(error.to_string())
    }
}

/// What a call is made up from.
pub(super) struct Ask<'a> {
    pub(super) driver: &'a DriverInfo,
    pub(super) config: &'a Config,
    pub(super) claim: &'a Claim,
    pub(super) class: &'a StorageClass,
    pub(super) place: Option<TopologyRequirement>,
    pub(super) content: Option<Content>,
    pub(super) attributes: Option<&'a VolumeAttributesClass>,
}

impl Ask<'_> {
    pub(super) fn plan(self) -> Result<Plan, Refusal> {
        let Self {
            driver,
            config,
            claim,
            class,
            place,
            content,
            attributes,
        } = self;
        check(driver, claim)?;
        check_content(driver, content.as_ref())?;
        check_attributes(driver, attributes)?;
        let mut parameters = Parameters::parse(&class.parameters)?;
        let name = config.volume_name(claim);
        let fs_type = match claim.volume_mode() {
            VolumeMode::Block => String::new(),
            VolumeMode::Filesystem => parameters
                .fs_type
                .take()
                .unwrap_or_else(|| config.default_fs_type.clone()),
        };
        let key = claim.key();
        let subject = Subject::of(&name, &key, claim);
        let secret = |purpose| parameters.secret(purpose, &subject);
        let (provision_secret, controller_publish_secret, node_stage_secret) = (
            secret(Purpose::Provision)?,
            secret(Purpose::ControllerPublish)?,
            secret(Purpose::NodeStage)?,
        );
        let (node_publish_secret, controller_expand_secret, node_expand_secret) = (
            secret(Purpose::NodePublish)?,
            secret(Purpose::ControllerExpand)?,
            secret(Purpose::NodeExpand)?,
        );
        let controller_modify_secret = secret(Purpose::ControllerModify)?;
        let shape = Shape {
            mode: claim.volume_mode(),
            fs_type: &fs_type,
            mount_options: &class.mount_options,
        };
        let mut driver_parameters = parameters.driver;
        if config.extra_create_metadata {
            let metadata = [
                ("pvc/name", &key.name),
                ("pvc/namespace", &key.namespace),
                ("pv/name", &name),
            ];
            for (end, value) in metadata {
                driver_parameters.insert(format!("{CSI_PARAMETER_PREFIX}{end}"), value.clone());
            }
        }
        let request = CreateVolumeRequest {
            capacity_range: Some(CapacityRange {
                required_bytes: claim.requested_bytes(),
                limit_bytes: limit(claim),
            }),
            volume_capabilities: capabilities(&claim.spec.access_modes, driver, &shape)?,
            parameters: driver_parameters,
            accessibility_requirements: place
                .filter(|_| driver.serves(PluginService::VolumeAccessibilityConstraints)),
            volume_content_source: content.as_ref().map(Content::to_proto),
            mutable_parameters: attributes.map_or_else(Default::default, |a| a.parameters.clone()),
            name,
            ..CreateVolumeRequest::default()
        };
        let read_only_everywhere = claim.spec.access_modes == [AccessMode::ReadOnlyMany];
        Ok(Plan {
            request,
            fs_type,
            content,
            attributes_class: attributes.map(|a| a.metadata.name.clone()),
            readonly: config.controller_publish_readonly && read_only_everywhere,
            provision_secret,
            controller_publish_secret,
            node_stage_secret,
            node_publish_secret,
            controller_expand_secret,
            node_expand_secret,
            controller_modify_secret,
        })
    }
}

fn check(driver: &DriverInfo, claim: &Claim) -> Result<(), Refusal> {
    if !driver.can(ControllerCapability::CreateDeleteVolume) {
        return Err(Refusal::NotSupported(driver.name.clone()));
    }
    if claim.spec.selector.is_some() {
        return Err(Refusal::Selector);
    }
    if claim.requested_bytes() <= 0 {
        return Err(Refusal::NoSize);
    }
    Ok(())
}

fn check_content(driver: &DriverInfo, content: Option<&Content>) -> Result<(), Refusal> {
    let (needs, what, lacks) = match content {
        None => return Ok(()),
        Some(Content::Volume(_)) => (ControllerCapability::CloneVolume, "clone", "CLONE_VOLUME"),
        Some(Content::Snapshot(_)) => (
            ControllerCapability::CreateDeleteSnapshot,
            "snapshot restore",
            "CREATE_DELETE_SNAPSHOT",
        ),
    };
    if driver.can(needs) {
        return Ok(());
    }
    Err(Refusal::Content { what, lacks })
}

fn check_attributes(
    driver: &DriverInfo,
    attributes: Option<&VolumeAttributesClass>,
) -> Result<(), Refusal> {
    let Some(class) = attributes else {
        return Ok(());
    };
    if class.driver_name != driver.name {
        return Err(Refusal::AttributesOfAnother {
            class: class.metadata.name.clone(),
            of: class.driver_name.clone(),
            driver: driver.name.clone(),
        });
    }
    if !driver.can(ControllerCapability::ModifyVolume) {
        return Err(Refusal::Attributes);
    }
    Ok(())
}

fn limit(claim: &Claim) -> i64 {
    let limit = claim.spec.resources.limits.storage();
    limit.map_or(0, Quantity::value)
}

/// One capability per access mode: the volume must be usable in each way.
fn capabilities(
    modes: &[AccessMode],
    driver: &DriverInfo,
    shape: &Shape<'_>,
) -> Result<Vec<orlop_csi::proto::VolumeCapability>, AccessError> {
    if modes.is_empty() {
        return Err(AccessError::None);
    }
    let single = SingleNode::of(driver);
    modes
        .iter()
        .map(|mode| Ok(shape.with(capability::mode(&[*mode], single)?)))
        .collect()
}

/// The secret for deleting a volume, from its class: for volumes whose own annotations
/// don't name one.
pub(super) fn deletion_secret(
    class: &StorageClass,
    volume_name: &str,
    claim: &Key,
) -> Result<Option<SecretRef>, ParameterError> {
    let subject = Subject {
        volume_name,
        claim,
        annotations: None,
    };
    Parameters::parse(&class.parameters)?.secret(Purpose::Provision, &subject)
}

#[cfg(test)]
mod tests;
