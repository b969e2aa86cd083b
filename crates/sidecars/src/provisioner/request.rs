//! The CreateVolume call of a claim: everything but the values of its secrets.

use orlop_csi::{
    DriverInfo,
    client::{ControllerCapability, PluginService},
    proto::{CapacityRange, CreateVolumeRequest, TopologyRequirement},
};
use orlop_model::{
    AccessMode, Claim, Key, Kind, Quantity, StorageClass, VolumeMode, volume::SecretRef,
    well_known::CSI_PARAMETER_PREFIX,
};

use super::{
    Config,
    parameters::{ParameterError, Parameters, Purpose, Subject},
};
use crate::capability::{self, AccessError, Shape, SingleNode};

/// The call, and what the volume object will say of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Plan {
    /// Without secrets.
    pub(super) request: CreateVolumeRequest,
    pub(super) fs_type: String,
    pub(super) provision_secret: Option<SecretRef>,
    pub(super) controller_publish_secret: Option<SecretRef>,
    pub(super) node_stage_secret: Option<SecretRef>,
    pub(super) node_publish_secret: Option<SecretRef>,
    pub(super) controller_expand_secret: Option<SecretRef>,
    pub(super) node_expand_secret: Option<SecretRef>,
}

/// Why a claim can't be asked for, before the driver was.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// Nothing to call.
    #[error("driver {0} can not create volumes: it lacks the CREATE_DELETE_VOLUME capability")]
    NotSupported(String),
    /// Selectors choose among volumes that exist.
    #[error("claim Selector is not supported")]
    Selector,
    /// Filled volumes are not made yet.
    #[error("volumes with a data source ({0}) are not provisioned by this version")]
    DataSource(String),
    /// Performance classes are not handled yet.
    #[error("volumes with a VolumeAttributesClass are not provisioned by this version")]
    AttributesClass,
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
}

impl Ask<'_> {
    pub(super) fn plan(self) -> Result<Plan, Refusal> {
        let Self {
            driver,
            config,
            claim,
            class,
            place,
        } = self;
        check(driver, claim)?;
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
            name,
            ..CreateVolumeRequest::default()
        };
        Ok(Plan {
            request,
            fs_type,
            provision_secret,
            controller_publish_secret,
            node_stage_secret,
            node_publish_secret,
            controller_expand_secret,
            node_expand_secret,
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
    let source = claim.spec.data_source_ref.as_ref();
    if let Some(source) = source.or(claim.spec.data_source.as_ref()) {
        let text = |field: &str| source[field].as_str().unwrap_or("?").to_owned();
        return Err(Refusal::DataSource(format!(
            "{} {}",
            text("kind"),
            text("name")
        )));
    }
    let attributes = claim.spec.volume_attributes_class_name.as_deref();
    if attributes.is_some_and(|name| !name.is_empty()) {
        return Err(Refusal::AttributesClass);
    }
    if claim.requested_bytes() <= 0 {
        return Err(Refusal::NoSize);
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
