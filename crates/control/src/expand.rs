//! Tells who makes a claim's volume larger.
//!
//! Nobody here does: a CSI driver's volumes grow by its resizer, and no plugin of Kubernetes'
//! own that could do it is left. This role says so at the claim, and where a CSI driver took
//! over from such a plugin it names that driver for its resizer. FlexVolume drivers are programs of
//! the nodes: the goal is put on record, and the node that has the volume does the rest.

use orlop_model::{
    Claim, ClaimPhase, Key, Kind, Quantity, ResizeStatus, Volume, migration, resize, well_known,
};
use orlop_runtime::{
    ApiError, Cache, Change, Clock, Cluster, EventType, Outcome, Patch, Process, Queue, Recorder,
    work,
};
use serde_json::json;

use crate::turn;

/// The component that this role's events name.
pub const COMPONENT: &str = "volume_expand";

/// How many claims are worked on at once.
const AT_ONCE: usize = 5;

/// What a claim that shall grow needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Whether nobody is known who could do it.
    pub warning: bool,
    /// What a person is told.
    pub message: String,
    /// The resizer that must be named at the claim.
    pub resizer: Option<&'static str>,
    /// Whether the node that has the volume is to make it larger.
    pub by_node: bool,
}

/// Whether a claim shall be larger than it is.
pub fn grows(claim: &Claim) -> bool {
    claim.phase() == ClaimPhase::Bound && claim.requested_bytes() > claim.capacity_bytes()
}

/// Decides about a claim and the volume that it names; `None` if nothing is to be done.
pub fn decide(claim: &Claim, volume: &Volume) -> Option<Decision> {
    let owner = volume.spec.claim_ref.as_ref()?;
    let unfinished = volume
        .metadata
        .annotations
        .contains_key(well_known::PRE_RESIZE_CAPACITY);
    let wanted = grows(claim) || claim.phase() == ClaimPhase::Bound && unfinished;
    if owner.uid != claim.metadata.uid || !wanted {
        return None;
    }
    let driver = migration::source(volume).map(|source| source.driver.clone());
    if let Some(plugin) = driver.and_then(|driver| migration::plugin_of(&driver))
        && let Some(driver) = migration::driver_of(plugin)
        && volume.spec.csi.is_none()
    {
        let named = claim.metadata.annotation(well_known::STORAGE_RESIZER);
        return Some(Decision {
            warning: false,
            message: format!(
                "CSI migration enabled for {plugin}; waiting for external resizer to expand the \
                 pvc"
            ),
            resizer: (named != Some(driver)).then_some(driver),
            by_node: false,
        });
    }
    if volume.spec.flex_volume.is_some() {
        return Some(Decision {
            warning: false,
            message: "waiting for the node of a pod that uses it to expand this PVC".to_owned(),
            resizer: None,
            by_node: true,
        });
    }
    let waiting = "waiting for an external controller to expand this PVC";
    let driven = volume.spec.csi.is_some();
    let name = &volume.metadata.name;
    Some(Decision {
        warning: !driven,
        message: match driven {
            true => waiting.to_owned(),
            false => format!(
                "{waiting}; volume \"{name}\" is no CSI driver's, so that somebody must make it \
                 larger by hand"
            ),
        },
        resizer: None,
        by_node: false,
    })
}

#[derive(Clone)]
struct Expand {
    cluster: Cluster,
    recorder: Recorder,
    queue: Queue<Key>,
    claims: Cache<Claim>,
    volumes: Cache<Volume>,
    clock: Clock,
}

/// Starts the role.
pub fn start(process: &Process) {
    let role = Expand {
        cluster: process.cluster.clone(),
        recorder: process.recorder(COMPONENT),
        queue: Queue::new(turn::backoff()),
        claims: process.cache(),
        volumes: process.cache(),
        clock: process.clock,
    };
    process.spawn("expand", role.run());
}

impl Expand {
    async fn run(self) {
        self.claims.synced().await;
        self.volumes.synced().await;
        let queue = self.queue.clone();
        self.claims.subscribe(move |change| {
            if let Change::Applied { old, new } = change {
                // Once for each wish: while one is fulfilled, the claim changes often.
                let same =
                    |old: &Claim| grows(old) && old.requested_bytes() == new.requested_bytes();
                if grows(new) && !old.is_some_and(|old| same(old)) {
                    queue.add(new.key());
                }
            }
        });
        let queue = self.queue.clone();
        work(queue, AT_ONCE, |key| self.turn(key)).await;
    }

    async fn turn(&self, key: Key) -> Outcome {
        let told = self.tell(&key).await;
        told.map_or_else(|error| turn::retry(&error), |()| Outcome::Done)
    }

    async fn tell(&self, key: &Key) -> Result<(), ApiError> {
        let Some(claim) = self.claims.get(key) else {
            return Ok(());
        };
        let Some(volume) = self.volumes.named(&claim.spec.volume_name) else {
            return Ok(());
        };
        let Some(decision) = decide(&claim, &volume) else {
            return Ok(());
        };
        if decision.by_node {
            self.hand_over(&claim, &volume).await?;
        }
        let type_ = match decision.warning {
            true => EventType::Warning,
            false => EventType::Normal,
        };
        self.recorder
            .say(&*claim, type_, "ExternalExpanding", decision.message);
        if let Some(resizer) = decision.resizer {
            let note = json!({"metadata": {"annotations": {well_known::STORAGE_RESIZER: resizer}}});
            let patch = Patch::merge_on(&*claim, note);
            self.claims.absorb(self.cluster.patch(key, &patch).await?);
        }
        Ok(())
    }
}

impl Expand {
    /// Puts the goal on record, the volume first: a node goes by what the volume says.
    async fn hand_over(&self, claim: &Claim, volume: &Volume) -> Result<(), ApiError> {
        let goal = Quantity::bytes(claim.requested_bytes());
        if volume.capacity_bytes() < claim.requested_bytes() {
            let larger = json!({"spec": {"capacity": {"storage": goal}}});
            let patch = Patch::merge_on(volume, larger);
            let key = volume.key();
            self.volumes.absorb(self.cluster.patch(&key, &patch).await?);
        }
        let told = claim.resize_status().is_some();
        if told && claim.allocated_bytes() == Some(claim.requested_bytes()) {
            return Ok(());
        }
        let mut status = resize::begun(&goal, self.clock.now_seconds());
        let pending = ResizeStatus::NodeResizePending;
        status["allocatedResourceStatuses"] = json!({"storage": pending});
        let patch = Patch::strategic_on(claim, json!({"status": status}));
        let written = self.cluster.patch_status(&claim.key(), &patch).await?;
        self.claims.absorb(written);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use orlop_model::volume::HostPathSource;

    use super::*;
    use crate::fixtures::bound;

    fn grown() -> (Claim, Volume) {
        let (mut claim, volume) = bound("data", "vol");
        claim.status.capacity = claim.spec.resources.requests.clone();
        claim.spec.resources.requests = serde_json::from_value(json!({"storage": "5Gi"})).unwrap();
        (claim, volume)
    }

    #[test]
    fn a_drivers_volume_is_its_resizers() {
        let (claim, volume) = grown();
        let decision = decide(&claim, &volume).unwrap();
        let text = "waiting for an external controller to expand this PVC";
        assert_eq!((decision.warning, decision.message.as_str()), (false, text));
        assert_eq!(decision.resizer, None);
    }

    #[test]
    fn a_volume_that_nobody_makes_larger_is_told_of() {
        let (claim, mut volume) = grown();
        volume.spec.csi = None;
        volume.spec.host_path = Some(HostPathSource::default());
        let decision = decide(&claim, &volume).unwrap();
        assert!(decision.warning);
        let text = "waiting for an external controller to expand this PVC; volume \"vol\"";
        assert!(decision.message.starts_with(text), "{}", decision.message);
    }

    #[test]
    fn a_flexvolume_is_made_larger_by_its_node() {
        let (claim, mut volume) = grown();
        volume.spec.csi = None;
        volume.spec.flex_volume = Some(Default::default());
        let decision = decide(&claim, &volume).unwrap();
        assert!(decision.by_node && !decision.warning);
    }

    #[test]
    fn a_migrated_plugins_claim_names_the_drivers_resizer() {
        let (mut claim, mut volume) = grown();
        volume.spec.csi = None;
        let disk = json!({"volumeID": "vol-1"});
        volume.spec.aws_elastic_block_store = serde_json::from_value(disk).unwrap();
        let decision = decide(&claim, &volume).unwrap();
        assert_eq!(decision.resizer, Some("ebs.csi.aws.com"));
        assert_eq!(
            decision.message,
            "CSI migration enabled for kubernetes.io/aws-ebs; waiting for external resizer to \
             expand the pvc"
        );
        let annotations = &mut claim.metadata.annotations;
        let resizer = "ebs.csi.aws.com";
        annotations.insert(well_known::STORAGE_RESIZER.into(), resizer.into());
        assert_eq!(decide(&claim, &volume).unwrap().resizer, None);
    }

    /// The original's "if pv has pre-resize capacity annotation": the claim has its size, and the
    /// volume says that it is not done.
    #[test]
    fn a_growth_that_is_not_done_is_told_of_as_one_that_begins() {
        let (mut claim, mut volume) = grown();
        claim.status.capacity = claim.spec.resources.requests.clone();
        assert_eq!(decide(&claim, &volume), None);
        let annotations = &mut volume.metadata.annotations;
        annotations.insert(well_known::PRE_RESIZE_CAPACITY.into(), "1Gi".into());
        assert!(decide(&claim, &volume).is_some_and(|decision| !decision.warning));
        // "when pvc has no PV binding"
        volume.spec.claim_ref = None;
        assert_eq!(decide(&claim, &volume), None);
    }

    #[test]
    fn nothing_is_said_of_a_claim_that_does_not_grow_or_has_not_that_volume() {
        let (claim, volume) = bound("data", "vol");
        let mut small = claim;
        small.status.capacity = small.spec.resources.requests.clone();
        assert_eq!(decide(&small, &volume), None);
        let (mut claim, mut volume) = grown();
        volume.spec.claim_ref.as_mut().unwrap().uid = "another".into();
        assert_eq!(decide(&claim, &volume), None);
        claim.status.phase = Some(ClaimPhase::Lost);
        assert!(!grows(&claim));
    }
}
