//! Makes the CreateVolume call of a claim ready: what it is made up from is read here.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use orlop_csi::{
    CallError, Driver,
    client::ControllerCapability,
    proto::{CreateVolumeRequest, GetCapacityRequest, Topology},
};
use orlop_model::{Claim, StorageClass, VolumeAttributesClass};
use orlop_runtime::{ApiError, Cluster};

use super::{
    Config,
    attributes::AttributesClasses,
    intent, migration,
    parameters::Parameters,
    places::Places,
    request::{Ask, Plan, Refusal},
    source::{Content, SourceError},
    sources::{self, Found, Sources},
    topology::{Segment, TopologyError},
    volume::AnswerError,
};
use crate::{
    credentials::{self, CredentialsError},
    patience::Setback,
};

/// What calls are made ready with.
pub(super) struct Prepare {
    pub(super) cluster: Cluster,
    pub(super) driver: Driver,
    pub(super) name: String,
    /// `None` for a driver whose volumes are the same everywhere.
    pub(super) places: Option<Places>,
    pub(super) sources: Arc<Sources>,
    pub(super) attributes: AttributesClasses,
    /// This node's place; node deployment only.
    pub(super) here: Segment,
    pub(super) config: Config,
    pub(super) plans: Plans,
}

/// The calls whose outcome isn't known, by claim uid: a repetition must carry the same
/// arguments even if nodes and labels changed since. Lost in a crash; what can't be found
/// out again is on the claim too.
#[derive(Default)]
pub(super) struct Plans(Mutex<BTreeMap<String, Arc<Plan>>>);

impl Plans {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Plan>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn remember(&self, claim: &Claim, plan: Arc<Plan>) {
        self.lock().insert(claim.metadata.uid.clone(), plan);
    }

    pub(super) fn forget(&self, claim: &Claim) {
        self.lock().remove(&claim.metadata.uid);
    }

    fn of(&self, claim: &Claim) -> Option<Arc<Plan>> {
        self.lock().get(&claim.metadata.uid).cloned()
    }
}

/// A call that can be made.
pub(super) struct Ready {
    pub(super) plan: Arc<Plan>,
    pub(super) request: CreateVolumeRequest,
    /// What must be kept before that.
    pub(super) keep: Option<Found>,
}

/// Why no call could be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unready {
    #[error(transparent)]
    Driver(#[from] CallError),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Topology(#[from] TopologyError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Answer(#[from] AnswerError),
    #[error("VolumeAttributesClass {0} does not exist; create it or choose another")]
    NoAttributesClass(String),
    #[error("what the volume is made from could not be read")]
    Api(#[from] ApiError),
}

impl From<sources::Failure> for Unready {
    fn from(failure: sources::Failure) -> Self {
        match failure {
            sources::Failure::Source(error) => Self::Source(error),
            sources::Failure::Api(error) => Self::Api(error),
        }
    }
}

impl Unready {
    /// What kind of failure it is.
    pub(super) fn setback(&self) -> Setback {
        match self {
            Self::Driver(error) => Setback::of_call(error),
            Self::Refused(_) => Setback::Infeasible,
            Self::Api(error) => Setback::of_api(error),
            Self::Answer(_) => Setback::Uncertain,
            Self::Topology(_)
            | Self::Credentials(_)
            | Self::Source(_)
            | Self::NoAttributesClass(_) => Setback::Waiting,
        }
    }
}

impl Prepare {
    /// The call and its credentials.
    pub(super) async fn call(&self, claim: &Claim, class: &StorageClass) -> Result<Ready, Unready> {
        let (plan, keep) = match self.plans.of(claim) {
            Some(plan) => (plan, None),
            None => self.plan(claim, class).await?,
        };
        let secret = plan.provision_secret.as_ref();
        let secrets = credentials::referenced(&self.cluster, secret).await?;
        let mut request = plan.request.clone();
        request.secrets = secrets.into_request();
        Ok(Ready {
            plan,
            request,
            keep,
        })
    }

    /// Whether the driver says that the claim's volume fits where it is; a driver that
    /// doesn't say is believed to have room.
    pub(super) async fn has_room(
        &self,
        claim: &Claim,
        class: &StorageClass,
    ) -> Result<bool, Unready> {
        let info = self.driver.info().await?;
        if !info.can(ControllerCapability::GetCapacity) {
            return Ok(true);
        }
        let class = migration::translate(class, &self.name).map_err(Refusal::from)?;
        let parameters = Parameters::parse(&class.parameters).map_err(Refusal::from)?;
        let place = self.here.clone();
        let request = GetCapacityRequest {
            parameters: parameters.driver,
            accessible_topology: (!place.is_empty()).then_some(Topology { segments: place }),
            ..GetCapacityRequest::default()
        };
        let room = self.driver.get_capacity(request).await?;
        let largest = room.maximum_volume_size.unwrap_or(room.available_capacity);
        Ok(claim.requested_bytes() <= largest.min(room.available_capacity))
    }

    async fn plan(
        &self,
        claim: &Claim,
        class: &StorageClass,
    ) -> Result<(Arc<Plan>, Option<Found>), Unready> {
        let driver = self.driver.info().await?;
        let class = migration::translate(class, &self.name).map_err(Refusal::from)?;
        let class = &*class;
        let place = match &self.places {
            None => None,
            Some(places) => places.requirement(&self.name, &self.config, claim, class)?,
        };
        let (content, keep) = self.content(claim).await?;
        let attributes = self.attributes(claim).await?;
        let ask = Ask {
            driver: &driver,
            config: &self.config,
            claim,
            class,
            place,
            content,
            attributes: attributes.as_ref(),
        };
        Ok((Arc::new(ask.plan()?), keep))
    }

    /// What the driver was asked for wins: its source may be gone since.
    async fn content(&self, claim: &Claim) -> Result<(Option<Content>, Option<Found>), Unready> {
        if let Some(asked) = intent::content(claim) {
            return Ok((Some(asked), None));
        }
        let found = self.sources.find(claim).await?;
        Ok(found.map_or((None, None), |(content, keep)| (Some(content), Some(keep))))
    }

    async fn attributes(&self, claim: &Claim) -> Result<Option<VolumeAttributesClass>, Unready> {
        let name = claim.spec.volume_attributes_class_name.as_deref();
        let Some(name) = name.filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let found = self.attributes.get(name).await?;
        let missing = || Unready::NoAttributesClass(name.to_owned());
        found.ok_or_else(missing).map(Some)
    }
}
