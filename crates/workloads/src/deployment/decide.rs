//! What moves a deployment towards its template and its number: pure decisions.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use orlop_model::{Deployment, ReplicaSet, well_known, workload::DeploymentStatus};
use serde_json::{Value, json};

use super::progress::{self, New};
use super::scale::{self, size, wanted};
use crate::{names, pods::controller_reference};

/// Annotations that are a ReplicaSet's or a deployment's own.
const OWN: [&str; 5] = [
    well_known::LAST_APPLIED,
    well_known::DEPLOYMENT_REVISION,
    well_known::DEPLOYMENT_REVISIONS,
    well_known::DESIRED_REPLICAS,
    well_known::MAX_REPLICAS,
];
/// How many letters the list of earlier revisions may have.
const LONGEST_HISTORY: usize = 2000;

/// What is known of a deployment.
#[derive(Debug)]
pub struct View<'v> {
    /// The deployment.
    pub deployment: &'v Deployment,
    /// Its ReplicaSets.
    pub sets: &'v [Arc<ReplicaSet>],
    /// The uids of ReplicaSets some of whose pods may still run.
    pub running: &'v [String],
    /// The time.
    pub now: Timestamp,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// The ReplicaSet of the present template.
    Create {
        /// The ReplicaSet.
        set: Value,
        /// Its size.
        size: i32,
    },
    /// Annotations and the waiting time of the present template's ReplicaSet.
    Refresh {
        /// The ReplicaSet.
        set: Arc<ReplicaSet>,
        /// What it lacks.
        annotations: BTreeMap<String, String>,
    },
    /// A ReplicaSet's size.
    Scale {
        /// The ReplicaSet.
        set: Arc<ReplicaSet>,
        /// From this size.
        from: i32,
        /// To this one.
        to: i32,
        /// By what it was chosen.
        annotations: BTreeMap<String, String>,
    },
    /// A ReplicaSet that is older than history goes back.
    Delete(Arc<ReplicaSet>),
}

/// What to do, what to say, and when to look again.
#[derive(Debug)]
pub struct Decision {
    /// In this order; what follows one that failed is not done.
    pub steps: Vec<Step>,
    /// The deployment's status.
    pub status: DeploymentStatus,
    /// The number of the present template.
    pub revision: Option<String>,
    /// When time alone changes something.
    pub again: Option<Duration>,
}

/// A template without the label that tells its pods apart.
fn plain(template: &Value) -> Value {
    let mut template = template.clone();
    let labels = template.pointer_mut("/metadata/labels");
    if let Some(labels) = labels.and_then(Value::as_object_mut) {
        labels.remove(well_known::TEMPLATE_HASH);
    }
    template
}

/// Whether a ReplicaSet is of a deployment's present template.
pub(super) fn is_present(deployment: &Deployment, set: &ReplicaSet) -> bool {
    plain(&set.spec.template) == plain(&deployment.spec.template)
}

/// Decides about a deployment.
pub fn decide(view: &View<'_>) -> Decision {
    let deployment = view.deployment;
    let mut sets = view.sets.to_vec();
    sets.sort_by_key(|set| (set.metadata.creation_timestamp, set.metadata.name.clone()));
    // The oldest, should there be several.
    let new = sets.iter().position(|set| is_present(deployment, set));
    let new = new.map(|at| sets.remove(at));
    let deciding = Deciding {
        view,
        new: new.as_ref(),
        old: &sets,
    };
    let mut steps = Vec::new();
    if !deployment.metadata.is_deleting() {
        let refresh = deciding.refresh();
        // What follows is decided on the version that this one makes.
        if refresh.is_empty() {
            steps = deciding.steps();
        } else {
            steps = refresh;
        }
    }
    let named = match (&new, steps.first()) {
        (_, Some(Step::Create { set, .. })) => New::Made(
            set["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        ),
        (Some(new), _) => New::Found(new.metadata.name.clone()),
        (None, _) => New::Absent,
    };
    let (status, again) = progress::status(deployment, (new.as_ref(), &sets), &named, view.now);
    let revision = match steps.first() {
        Some(Step::Create { .. }) => Some(deciding.next_revision().to_string()),
        _ => new.as_ref().and_then(|new| {
            let revision = new.metadata.annotation(well_known::DEPLOYMENT_REVISION);
            revision.map(str::to_owned)
        }),
    };
    Decision {
        steps,
        status,
        revision,
        again,
    }
}

struct Deciding<'d> {
    view: &'d View<'d>,
    new: Option<&'d Arc<ReplicaSet>>,
    old: &'d [Arc<ReplicaSet>],
}

impl Deciding<'_> {
    fn steps(&self) -> Vec<Step> {
        let deployment = self.view.deployment;
        if deployment.spec.paused || scale::was_rescaled(deployment, self.view.sets) {
            let sizes = scale::rescaled(deployment, self.new, self.old);
            let shared = sizes.len() > 1;
            let sizes = sizes.into_iter();
            let mut steps: Vec<Step> = sizes
                .filter_map(|(set, to)| self.resize(&set, to, shared))
                .collect();
            if deployment.spec.paused {
                steps.extend(self.forgotten());
            }
            return steps;
        }
        let mut steps = match scale::is_rolling(deployment) {
            true => self.roll(),
            false => self.recreate(),
        };
        let (status, _) = progress::status(
            deployment,
            (self.new, self.old),
            &New::Absent,
            self.view.now,
        );
        if steps.is_empty() && progress::is_complete(deployment, &status) {
            steps.extend(self.forgotten());
        }
        steps
    }

    /// All old pods go, then the new ones come.
    fn recreate(&self) -> Vec<Step> {
        let down: Vec<Step> = self
            .old
            .iter()
            .filter_map(|set| self.resize(set, 0, false))
            .collect();
        if !down.is_empty() {
            return down;
        }
        let runs = |set: &Arc<ReplicaSet>| self.view.running.contains(&set.metadata.uid);
        if self.old.iter().any(runs) {
            return Vec::new();
        }
        let wanted = wanted(self.view.deployment);
        match self.new {
            None => vec![self.create()],
            Some(new) => self.resize(new, wanted, false).into_iter().collect(),
        }
    }

    /// New pods come as far as there may be more, old ones go as far as some may be missing.
    fn roll(&self) -> Vec<Step> {
        let deployment = self.view.deployment;
        let Some(new) = self.new else {
            return vec![self.create()];
        };
        let wanted = wanted(deployment);
        let grown = match size(new) > wanted {
            true => wanted,
            false => scale::new_size(deployment, self.view.sets, size(new)),
        };
        if let Some(step) = self.resize(new, grown, false) {
            return vec![step];
        }
        let at_least = wanted - scale::missing(deployment);
        let all: i32 = self.view.sets.iter().map(|set| size(set)).sum();
        let coming = size(new) - new.status.available_replicas;
        let mut may_go = all - at_least - coming;
        if may_go <= 0 {
            return Vec::new();
        }
        let mut sizes: Vec<(&Arc<ReplicaSet>, i32)> =
            self.old.iter().map(|set| (set, size(set))).collect();
        // Those that don't work first: nobody misses them.
        for (set, size) in &mut sizes {
            let broken = (*size - set.status.available_replicas).clamp(0, may_go);
            *size -= broken;
            may_go -= broken;
        }
        let available: i32 = self
            .view
            .sets
            .iter()
            .map(|set| set.status.available_replicas)
            .sum();
        let mut spare = (available - at_least).max(0);
        for (_, size) in &mut sizes {
            let fewer = (*size).min(spare);
            *size -= fewer;
            spare -= fewer;
        }
        sizes
            .into_iter()
            .filter_map(|(set, to)| self.resize(set, to, false))
            .collect()
    }

    fn resize(&self, set: &Arc<ReplicaSet>, to: i32, annotate: bool) -> Option<Step> {
        let annotations = self.sizes();
        let from = size(set);
        let told = annotations
            .iter()
            .all(|(name, value)| set.metadata.annotations.get(name) == Some(value));
        (from != to || annotate && !told).then(|| Step::Scale {
            set: set.clone(),
            from,
            to,
            annotations,
        })
    }

    fn sizes(&self) -> BTreeMap<String, String> {
        let deployment = self.view.deployment;
        let wanted = wanted(deployment);
        let most = wanted + scale::surge(deployment);
        BTreeMap::from([
            (well_known::DESIRED_REPLICAS.to_owned(), wanted.to_string()),
            (well_known::MAX_REPLICAS.to_owned(), most.to_string()),
        ])
    }

    fn next_revision(&self) -> i64 {
        let revisions = self.old.iter().map(|set| revision(set));
        revisions.max().unwrap_or(0) + 1
    }

    /// The ReplicaSet of the present template.
    fn create(&self) -> Step {
        let deployment = self.view.deployment;
        let collisions = deployment.status.collision_count.unwrap_or(0);
        let hash = names::hash(&plain(&deployment.spec.template), collisions);
        let mut template = deployment.spec.template.clone();
        template["metadata"]["labels"][well_known::TEMPLATE_HASH] = hash.as_str().into();
        let mut selector = deployment.spec.selector.clone();
        let label = well_known::TEMPLATE_HASH.to_owned();
        selector.match_labels.insert(label, hash.clone());
        let mut annotations = self.inherited();
        annotations.extend(self.sizes());
        let number = self.next_revision().to_string();
        annotations.insert(well_known::DEPLOYMENT_REVISION.to_owned(), number);
        let size = scale::new_size(deployment, self.view.sets, 0);
        let set = json!({
            "metadata": {
                "name": names::revision(&deployment.metadata.name, &hash),
                "namespace": deployment.metadata.namespace,
                "labels": template["metadata"]["labels"],
                "annotations": annotations,
                "ownerReferences": [controller_reference(deployment)],
            },
            "spec": {
                "replicas": size,
                "minReadySeconds": deployment.spec.min_ready_seconds,
                "selector": selector,
                "template": template,
            },
        });
        Step::Create { set, size }
    }

    /// The deployment's annotations that are its ReplicaSets', too.
    fn inherited(&self) -> BTreeMap<String, String> {
        let mut annotations = self.view.deployment.metadata.annotations.clone();
        annotations.retain(|name, _| !OWN.contains(&name.as_str()));
        annotations
    }

    /// Makes the present template's ReplicaSet the newest, and gives it what it lacks.
    fn refresh(&self) -> Vec<Step> {
        let Some(new) = self.new else {
            return Vec::new();
        };
        let mut annotations = self.inherited();
        let next = self.next_revision();
        let own = revision(new);
        if own < next {
            let number = next.to_string();
            annotations.insert(well_known::DEPLOYMENT_REVISION.to_owned(), number);
            if own > 0 {
                let name = well_known::DEPLOYMENT_REVISIONS;
                let before = new.metadata.annotation(name);
                annotations.insert(name.to_owned(), remembered(before, own));
            }
        }
        annotations.retain(|name, value| new.metadata.annotations.get(name) != Some(value));
        let waits = new.spec.min_ready_seconds != self.view.deployment.spec.min_ready_seconds;
        if annotations.is_empty() && !waits {
            return Vec::new();
        }
        vec![Step::Refresh {
            set: new.clone(),
            annotations,
        }]
    }

    /// Old ReplicaSets beyond those that history keeps.
    fn forgotten(&self) -> Vec<Step> {
        let limit = self.view.deployment.spec.revision_history_limit;
        let limit = usize::try_from(limit.unwrap_or(i32::MAX)).unwrap_or(0);
        let mut old: Vec<&Arc<ReplicaSet>> = self.old.iter().collect();
        old.retain(|set| !set.metadata.is_deleting());
        old.sort_by_key(|set| revision(set));
        let count = old.len().saturating_sub(limit);
        let at_rest = |set: &Arc<ReplicaSet>| {
            size(set) == 0
                && set.status.replicas == 0
                && set.metadata.generation <= set.status.observed_generation
        };
        let oldest = old.into_iter().take(count).filter(|set| at_rest(set));
        oldest.cloned().map(Step::Delete).collect()
    }
}

/// The number of the template that a ReplicaSet stands for.
fn revision(set: &ReplicaSet) -> i64 {
    let revision = set.metadata.annotation(well_known::DEPLOYMENT_REVISION);
    revision.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The list of earlier revisions with another one, without the oldest if it gets too long.
fn remembered(before: Option<&str>, own: i64) -> String {
    let own = own.to_string();
    let mut all: Vec<&str> = before.unwrap_or("").split(',').collect();
    all.retain(|number| !number.is_empty());
    all.push(&own);
    while all.len() > 1 && all.join(",").len() > LONGEST_HISTORY {
        all.remove(0);
    }
    all.join(",")
}
