//! What moves a set towards what it wants: pure decisions.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use orlop_model::{
    Claim, OwnerReference, Pod, StatefulSet, well_known,
    workload::{PodManagement, StatefulSetStatus},
};
use serde_json::Value;

use super::claims::{self, Standing, range};
use super::identity;
use crate::pods::{self, Availability};
use crate::turn::sooner;

/// A template and the name by which its pods are marked.
#[derive(Debug, Clone, PartialEq)]
pub struct Revision {
    /// The name.
    pub name: String,
    /// The template.
    pub template: Value,
}

/// What is known of a set.
#[derive(Debug)]
pub struct View<'v> {
    /// The set.
    pub set: &'v StatefulSet,
    /// The template that it had.
    pub current: &'v Revision,
    /// The template that it has now.
    pub update: &'v Revision,
    /// How often a revision's name was taken.
    pub collisions: i32,
    /// Its pods.
    pub pods: &'v [Arc<Pod>],
    /// Claims of its namespace by name, those of its pods among them.
    pub claims: &'v BTreeMap<String, Arc<Claim>>,
    /// The time.
    pub now: Timestamp,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// A claim for a pod.
    CreateClaim {
        /// The claim.
        claim: Value,
        /// The pod's name.
        pod: String,
    },
    /// A pod.
    CreatePod(Value),
    /// A pod can't be made yet.
    Refuse {
        /// The pod's name.
        pod: String,
        /// Why.
        why: String,
    },
    /// A pod that has ended, is one too many, or has an old template.
    DeletePod(Arc<Pod>),
    /// Labels that a pod lost.
    LabelPod(Arc<Pod>, Vec<(&'static str, String)>),
    /// With whom a claim goes.
    SetOwners(Arc<Claim>, Vec<OwnerReference>),
}

/// What to do, what to say, and when to look again.
#[derive(Debug)]
pub struct Decision {
    /// In this order; what follows one that failed is not done.
    pub steps: Vec<Step>,
    /// The set's status.
    pub status: StatefulSetStatus,
    /// When time alone changes something.
    pub again: Option<Duration>,
}

/// Decides about a set.
pub fn decide(view: &View<'_>) -> Decision {
    let mut deciding = Deciding {
        view,
        steps: Vec::new(),
        again: None,
    };
    if !view.set.metadata.is_deleting() {
        // Each of them says whether the next may be looked at.
        let _ = deciding.replicas() && deciding.condemned() && deciding.update();
    }
    Decision {
        steps: deciding.steps,
        status: status(view),
        again: deciding.again,
    }
}

struct Deciding<'d, 'v> {
    view: &'d View<'v>,
    steps: Vec<Step>,
    again: Option<Duration>,
}

impl Deciding<'_, '_> {
    fn ordered(&self) -> bool {
        self.view.set.spec.pod_management_policy == PodManagement::OrderedReady
    }

    fn pod(&self, ordinal: i32) -> Option<&Arc<Pod>> {
        let name = identity::pod_name(self.view.set, ordinal);
        let mut pods = self.view.pods.iter();
        pods.find(|pod| pod.metadata.name == name)
    }

    fn is_available(&self, pod: &Pod) -> bool {
        let seconds = self.view.set.spec.min_ready_seconds;
        pods::availability(pod, seconds, self.view.now) == Availability::Available
            && !pod.metadata.is_deleting()
    }

    /// Whether a pod is there, is the new one and works; also notes when it will.
    fn settled(&mut self, pod: &Pod) -> bool {
        let seconds = self.view.set.spec.min_ready_seconds;
        match pods::availability(pod, seconds, self.view.now) {
            Availability::Available => !pod.metadata.is_deleting(),
            Availability::Unready => false,
            Availability::Soon(wait) => {
                self.again = sooner(self.again, Some(wait));
                false
            }
        }
    }

    /// Every number has its pod; in order, each waits for those before it.
    fn replicas(&mut self) -> bool {
        let set = self.view.set;
        for ordinal in range(set) {
            let pod = self.pod(ordinal).cloned();
            let goes_on = match &pod {
                None => self.make(ordinal),
                Some(pod) if pod.is_finished() => {
                    if !pod.metadata.is_deleting() {
                        self.steps.push(Step::DeletePod(pod.clone()));
                    }
                    false
                }
                Some(pod) => self.keep(ordinal, pod),
            };
            if self.ordered() && !goes_on {
                return false;
            }
        }
        true
    }

    /// Makes a pod, its claims first.
    fn make(&mut self, ordinal: i32) -> bool {
        let set = self.view.set;
        let name = identity::pod_name(set, ordinal);
        match self.standing(ordinal, None) {
            Standing::Going(claim) => {
                let why = format!("pvc {claim} is being deleted");
                self.steps.push(Step::Refuse { pod: name, why });
            }
            Standing::Missing(claims) => {
                self.claim(claims, &name);
                let pod = identity::pod(set, ordinal, self.revision_of(ordinal));
                self.steps.push(Step::CreatePod(pod));
            }
        }
        false
    }

    fn standing(&self, ordinal: i32, pod: Option<&Pod>) -> Standing {
        let get = |name: &str| self.view.claims.get(name).map(Arc::as_ref);
        claims::standing(self.view.set, ordinal, pod, get)
    }

    fn claim(&mut self, claims: Vec<Value>, pod: &str) {
        let steps = claims.into_iter().map(|claim| Step::CreateClaim {
            claim,
            pod: pod.to_owned(),
        });
        self.steps.extend(steps);
    }

    /// The template of a pod that has to be made.
    fn revision_of(&self, ordinal: i32) -> &Revision {
        let view = self.view;
        let strategy = &view.set.spec.update_strategy;
        let index = ordinal - range(view.set).start;
        let old = match &strategy.rolling_update {
            Some(rolling) => index < rolling.partition,
            None => strategy.type_ == "RollingUpdate" && index < view.set.status.current_replicas,
        };
        if old { view.current } else { view.update }
    }

    /// Keeps a pod what it was made as; says whether it works.
    fn keep(&mut self, ordinal: i32, pod: &Arc<Pod>) -> bool {
        let set = self.view.set;
        if pod
            .status
            .phase
            .is_none_or(|phase| phase == orlop_model::PodPhase::Pending)
            && !pod.metadata.is_deleting()
            && let Standing::Missing(claims) = self.standing(ordinal, Some(pod))
        {
            self.claim(claims, &pod.metadata.name);
        }
        self.own(ordinal, pod);
        if !identity::is_labelled(set, ordinal, pod) && !pod.metadata.is_deleting() {
            let labels = identity::labels(set, ordinal).to_vec();
            self.steps.push(Step::LabelPod(pod.clone(), labels));
        }
        self.settled(pod)
    }

    /// Says of a pod's claims with whom they go.
    fn own(&mut self, ordinal: i32, pod: &Pod) {
        let set = self.view.set;
        for (template, _) in identity::templates(set) {
            let name = identity::claim_name(set, template, ordinal);
            let Some(claim) = self.view.claims.get(&name) else {
                continue;
            };
            if let Some(owners) = claims::owners(set, pod, claim) {
                self.steps.push(Step::SetOwners(claim.clone(), owners));
            }
        }
    }

    /// Pods that are too many go, the highest first.
    fn condemned(&mut self) -> bool {
        let set = self.view.set;
        let range = range(set);
        let mut condemned: Vec<(i32, Arc<Pod>)> = self
            .view
            .pods
            .iter()
            .filter_map(|pod| Some((identity::ordinal(set, &pod.metadata.name)?, pod.clone())))
            .filter(|(ordinal, _)| !range.contains(ordinal))
            .collect();
        condemned.sort_by_key(|(ordinal, _)| std::cmp::Reverse(*ordinal));
        for (ordinal, pod) in &condemned {
            // Before the pod goes: whether its claims go with it must survive a crash.
            self.own(*ordinal, pod);
        }
        // A pod that doesn't work may go if it is the first of those.
        let broken = condemned
            .iter()
            .rev()
            .find(|(_, pod)| !self.is_available(pod));
        let broken = broken.map(|(ordinal, _)| *ordinal);
        for (ordinal, pod) in &condemned {
            let going = pod.metadata.is_deleting();
            if self.ordered() {
                if !going && (self.settled(pod) || broken == Some(*ordinal)) {
                    self.steps.push(Step::DeletePod(pod.clone()));
                }
                return false;
            }
            if !going {
                self.steps.push(Step::DeletePod(pod.clone()));
            }
        }
        true
    }

    /// Pods with an old template go, the highest first, as many at a time as may be missing.
    fn update(&mut self) -> bool {
        let view = self.view;
        let strategy = &view.set.spec.update_strategy;
        if strategy.type_ == "OnDelete" {
            return true;
        }
        let range = range(view.set);
        let wanted = i32::try_from(range.len()).unwrap_or(i32::MAX);
        let (partition, most) = match &strategy.rolling_update {
            None => (0, 1),
            Some(rolling) => {
                let most = rolling.max_unavailable.as_ref();
                (
                    rolling.partition,
                    most.map_or(1, |most| most.down(wanted)).max(1),
                )
            }
        };
        let missing = range
            .clone()
            .filter(|ordinal| self.pod(*ordinal).is_none_or(|pod| !self.is_available(pod)))
            .count();
        let mut left = most - i32::try_from(missing).unwrap_or(i32::MAX);
        let mut outdated: Vec<Arc<Pod>> = Vec::new();
        for ordinal in range.clone().rev() {
            if ordinal - range.start < partition {
                break;
            }
            let Some(pod) = self.pod(ordinal) else {
                continue;
            };
            let marked = pod.metadata.labels.get(well_known::REVISION_HASH);
            if marked != Some(&view.update.name) && !pod.metadata.is_deleting() {
                outdated.push(pod.clone());
            }
        }
        for pod in outdated {
            // What doesn't work is missing already.
            if !self.is_available(&pod) {
                self.steps.push(Step::DeletePod(pod));
            } else if left > 0 {
                left -= 1;
                self.steps.push(Step::DeletePod(pod));
            }
        }
        true
    }
}

fn status(view: &View<'_>) -> StatefulSetStatus {
    let set = view.set;
    let mut status = StatefulSetStatus {
        observed_generation: set.metadata.generation,
        current_revision: view.current.name.clone(),
        update_revision: view.update.name.clone(),
        collision_count: Some(view.collisions),
        ..StatefulSetStatus::default()
    };
    for pod in view.pods {
        status.replicas += 1;
        if pods::is_ready(pod) {
            status.ready_replicas += 1;
            let seconds = set.spec.min_ready_seconds;
            if pods::availability(pod, seconds, view.now) == Availability::Available {
                status.available_replicas += 1;
            }
        }
        let revision = pod.metadata.labels.get(well_known::REVISION_HASH);
        if !pod.metadata.is_deleting() {
            status.current_replicas += i32::from(revision == Some(&view.current.name));
            status.updated_replicas += i32::from(revision == Some(&view.update.name));
        }
    }
    // All have the new template: it is the present one from now on.
    if set.spec.update_strategy.type_ != "OnDelete"
        && status.updated_replicas == status.replicas
        && status.ready_replicas == status.replicas
    {
        status.current_replicas = status.updated_replicas;
        status.current_revision = status.update_revision.clone();
    }
    status
}
