use std::{collections::BTreeMap, sync::Arc, time::Duration};

use orlop_model::{
    Claim, Pod, StatefulSet,
    workload::{Amount, ClaimRetention, Ordinals, PodManagement, Retention},
};
use serde_json::json;

use super::claims::{self, owners};
use super::*;
use crate::fixtures::{deleting, now, object, pod, stateful_set, unready};
use crate::pods::controller_reference;

fn revision(name: &str) -> Revision {
    let template = stateful_set("web").spec.template;
    Revision {
        name: name.into(),
        template,
    }
}

fn claim(set: &StatefulSet, ordinal: i32) -> Arc<Claim> {
    let template = &set.spec.volume_claim_templates[0];
    let mut claim: Claim = object(claims::claim(set, ("data", template), ordinal));
    claim.metadata.uid = format!("uid-{}", claim.metadata.name);
    Arc::new(claim)
}

struct World {
    set: StatefulSet,
    pods: Vec<Arc<Pod>>,
    claims: BTreeMap<String, Arc<Claim>>,
    update: &'static str,
}

impl World {
    /// A set with these pods and the claims of its first five.
    fn with(set: &StatefulSet, ordinals: &[i32]) -> Self {
        let claims = (0..5).map(|n| claim(set, n));
        Self {
            set: set.clone(),
            pods: ordinals.iter().map(|n| Arc::new(pod(set, *n))).collect(),
            claims: claims.map(|c| (c.metadata.name.clone(), c)).collect(),
            update: "one",
        }
    }

    fn decide(&self) -> Decision {
        decide(&View {
            set: &self.set,
            current: &revision("one"),
            update: &revision(self.update),
            collisions: 0,
            pods: &self.pods,
            claims: &self.claims,
            now: now(),
        })
    }

    /// The steps in short: `+web-0` for a pod made, `-web-0` for one deleted.
    fn steps(&self) -> Vec<String> {
        let name = |body: &serde_json::Value| body["metadata"]["name"].as_str().unwrap().to_owned();
        let short = |step: Step| match step {
            Step::CreateClaim { claim, .. } => format!("+{}", name(&claim)),
            Step::CreatePod(pod) => {
                let revision = &pod["metadata"]["labels"]["controller-revision-hash"];
                format!("+{}@{}", name(&pod), revision.as_str().unwrap())
            }
            Step::Refuse { pod, .. } => format!("!{pod}"),
            Step::DeletePod(pod) => format!("-{}", pod.metadata.name),
            Step::LabelPod(pod, _) => format!("~{}", pod.metadata.name),
            Step::SetOwners(claim, owners) => {
                let kinds: Vec<_> = owners.iter().map(|owner| owner.kind.clone()).collect();
                format!("{}:{}", claim.metadata.name, kinds.join("+"))
            }
        };
        self.decide().steps.into_iter().map(short).collect()
    }
}

fn parallel(set: &mut StatefulSet) {
    set.spec.pod_management_policy = PodManagement::Parallel;
}

#[test]
fn pods_come_one_after_the_other_each_with_its_claim_first() {
    let set = stateful_set("web");
    let mut world = World::with(&set, &[]);
    world.claims.clear();
    assert_eq!(world.steps(), ["+data-web-0", "+web-0@one"]);
    world = World::with(&set, &[0]);
    assert_eq!(world.steps(), ["+web-1@one"]);
    world.pods[0] = unready(&world.pods[0]);
    assert_eq!(world.steps(), [""; 0]);
    world.pods[0] = Arc::new(deleting(pod(&set, 0)));
    assert_eq!(world.steps(), [""; 0]);
    assert_eq!(World::with(&set, &[0, 1, 2]).steps(), [""; 0]);
}

#[test]
fn parallel_pods_come_and_go_at_once() {
    let mut set = stateful_set("web");
    parallel(&mut set);
    let world = World::with(&set, &[1]);
    assert_eq!(world.steps(), ["+web-0@one", "+web-2@one"]);
    let world = World::with(&set, &[0, 1, 2, 3, 4]);
    assert_eq!(world.steps(), ["-web-4", "-web-3"]);
}

#[test]
fn pods_go_from_the_highest_and_only_while_the_others_work() {
    let set = stateful_set("web");
    let mut world = World::with(&set, &[0, 1, 2, 3, 4]);
    assert_eq!(world.steps(), ["-web-4"]);
    world.pods[4] = Arc::new(deleting(pod(&set, 4)));
    assert_eq!(world.steps(), [""; 0]);
    world.pods.pop();
    assert_eq!(world.steps(), ["-web-3"]);
    world.pods[1] = unready(&world.pods[1]);
    assert_eq!(world.steps(), [""; 0]);
    // The first that doesn't work may go though it doesn't; a higher one waits for it.
    let mut world = World::with(&set, &[0, 1, 2, 3, 4]);
    world.pods[4] = unready(&world.pods[4]);
    assert_eq!(world.steps(), ["-web-4"]);
    world.pods[3] = unready(&world.pods[3]);
    assert_eq!(world.steps(), [""; 0]);
}

#[test]
fn numbers_start_where_the_set_says() {
    let mut set = stateful_set("web");
    set.spec.ordinals = Some(Ordinals { start: 2 });
    parallel(&mut set);
    let world = World::with(&set, &[1, 2]);
    assert_eq!(world.steps(), ["+web-3@one", "+web-4@one", "-web-1"]);
}

#[test]
fn a_new_template_reaches_the_highest_first_and_stops_at_the_partition() {
    let mut set = stateful_set("web");
    let mut world = World::with(&set, &[0, 1, 2]);
    world.update = "two";
    assert_eq!(world.steps(), ["-web-2"]);
    world.pods[2] = Arc::new(deleting(pod(&set, 2)));
    assert_eq!(world.steps(), [""; 0]);
    world.pods.pop();
    assert_eq!(world.steps(), ["+web-2@two"]);
    let mut newer = pod(&set, 2);
    let label = "controller-revision-hash".to_owned();
    newer.metadata.labels.insert(label, "two".into());
    world.pods.push(Arc::new(newer));
    assert_eq!(world.steps(), ["-web-1"]);
    let rolling = set.spec.update_strategy.rolling_update.as_mut().unwrap();
    rolling.partition = 2;
    world.set = set.clone();
    assert_eq!(world.steps(), [""; 0]);
    let status = world.decide().status;
    assert_eq!((status.current_replicas, status.updated_replicas), (2, 1));
    assert_eq!(status.current_revision, "one");
    // A pod below the partition comes back as it was.
    world.pods.remove(1);
    assert_eq!(world.steps(), ["+web-1@one"]);
}

#[test]
fn as_many_are_replaced_at_a_time_as_may_be_missing() {
    let mut set = stateful_set("web");
    let rolling = set.spec.update_strategy.rolling_update.as_mut().unwrap();
    rolling.max_unavailable = Some(Amount::Number(2));
    parallel(&mut set);
    let mut world = World::with(&set, &[0, 1, 2]);
    world.update = "two";
    assert_eq!(world.steps(), ["-web-2", "-web-1"]);
    world.pods[0] = unready(&world.pods[0]);
    assert_eq!(world.steps(), ["-web-2", "-web-0"]);
}

#[test]
fn on_delete_waits_for_the_user() {
    let mut set = stateful_set("web");
    set.spec.update_strategy.type_ = "OnDelete".into();
    set.spec.update_strategy.rolling_update = None;
    let mut world = World::with(&set, &[0, 1, 2]);
    world.update = "two";
    assert_eq!(world.steps(), [""; 0]);
    world.pods.remove(1);
    assert_eq!(world.steps(), ["+web-1@two"]);
}

#[test]
fn a_pod_that_ended_is_deleted_and_comes_back() {
    let set = stateful_set("web");
    let mut world = World::with(&set, &[0]);
    let mut ended = pod(&set, 0);
    ended.status.phase = Some(orlop_model::PodPhase::Failed);
    world.pods[0] = Arc::new(ended);
    assert_eq!(world.steps(), ["-web-0"]);
}

#[test]
fn a_pod_counts_once_it_was_ready_for_long_enough() {
    let mut set = stateful_set("web");
    set.spec.min_ready_seconds = 90;
    let decision = World::with(&set, &[0]).decide();
    assert_eq!(decision.steps, []);
    assert_eq!(decision.again, Some(Duration::from_secs(30)));
    let status = decision.status;
    assert_eq!((status.ready_replicas, status.available_replicas), (1, 0));
}

#[test]
fn a_pod_waits_for_a_claim_that_is_going() {
    let set = stateful_set("web");
    let mut world = World::with(&set, &[]);
    let going = Arc::new(deleting((*claim(&set, 0)).clone()));
    world.claims.insert("data-web-0".into(), going);
    assert_eq!(world.steps(), ["!web-0"]);
    // Nor does it take one that goes with an earlier pod of its name.
    let mut tied = (*claim(&set, 0)).clone();
    tied.metadata.owner_references = vec![controller_reference(&pod(&set, 0))];
    world.claims.insert("data-web-0".into(), Arc::new(tied));
    assert_eq!(world.steps(), ["!web-0"]);
}

#[test]
fn a_claim_has_the_labels_of_template_and_selector() {
    let set = stateful_set("web");
    let claim = claim(&set, 1);
    assert_eq!(claim.metadata.name, "data-web-1");
    assert_eq!(claim.metadata.labels["app"], "web");
    assert_eq!(claim.metadata.labels["kept"], "yes");
    assert_eq!(claim.metadata.owner_references, []);
    assert_eq!(claim.requested_bytes(), 1 << 30);
}

#[test]
fn claims_go_with_whom_the_policy_says() {
    use Retention::{Delete, Retain};
    // (when deleted, when scaled), the owner of a kept pod's claim, of a condemned pod's claim
    for (when_deleted, when_scaled, kept, condemned) in [
        (Retain, Retain, "", ""),
        (Delete, Retain, "StatefulSet", "StatefulSet"),
        (Retain, Delete, "", "Pod"),
        (Delete, Delete, "StatefulSet", "Pod"),
    ] {
        let bare = stateful_set("web");
        let mut set = bare.clone();
        set.spec.persistent_volume_claim_retention_policy = Some(ClaimRetention {
            when_deleted,
            when_scaled,
        });
        for (ordinal, wanted) in [(0, kept), (7, condemned)] {
            let pod = pod(&set, ordinal);
            let mut have = (*claim(&bare, ordinal)).clone();
            if let Some(owners) = owners(&set, &pod, &have) {
                have.metadata.owner_references = owners;
            }
            let kinds: Vec<_> = have.metadata.owner_references.iter().collect();
            let kinds = kinds.iter().map(|owner| owner.kind.as_str());
            assert_eq!(kinds.collect::<Vec<_>>().join("+"), wanted);
            assert_eq!(owners(&set, &pod, &have), None, "it is settled");
            // A policy that is taken back takes its owners back.
            let back = owners(&bare, &pod, &have);
            assert_eq!(back, (!wanted.is_empty()).then(Vec::new));
        }
    }
}

#[test]
fn another_controllers_claim_is_left_to_it() {
    let mut set = stateful_set("web");
    set.spec.persistent_volume_claim_retention_policy = Some(ClaimRetention {
        when_deleted: Retention::Delete,
        when_scaled: Retention::Delete,
    });
    let mut foreign = (*claim(&stateful_set("web"), 0)).clone();
    foreign.metadata.owner_references = vec![controller_reference(&stateful_set("other"))];
    assert_eq!(owners(&set, &pod(&set, 0), &foreign), None);
    // And one that goes with an earlier set of the same name is going.
    let mut earlier = controller_reference(&set);
    earlier.uid = "earlier".into();
    foreign.metadata.owner_references = vec![earlier];
    assert_eq!(owners(&set, &pod(&set, 0), &foreign), None);
}

#[test]
fn owners_are_on_the_claim_before_its_pod_goes() {
    let mut set = stateful_set("web");
    set.spec.persistent_volume_claim_retention_policy = Some(ClaimRetention {
        when_deleted: Retention::Retain,
        when_scaled: Retention::Delete,
    });
    let world = World::with(&set, &[0, 1, 2, 3]);
    assert_eq!(world.steps(), ["data-web-3:Pod", "-web-3"]);
}

#[test]
fn a_pod_has_its_identity_and_its_own_volumes() {
    let mut set = stateful_set("web");
    set.spec.template["spec"]["volumes"] = json!([
        {"name": "data", "emptyDir": {}}, {"name": "cache", "emptyDir": {}},
    ]);
    let revision = Revision {
        name: "web-x".into(),
        template: set.spec.template.clone(),
    };
    let pod = super::identity::pod(&set, 2, &revision);
    assert_eq!(pod["spec"]["hostname"], "web-2");
    assert_eq!(pod["spec"]["subdomain"], "web");
    assert_eq!(
        pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"],
        "2"
    );
    assert_eq!(pod["metadata"]["labels"]["app"], "web");
    assert_eq!(
        pod["spec"]["volumes"],
        json!([
            {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-2"}},
            {"name": "cache", "emptyDir": {}},
        ])
    );
    let ordinal = |name: &str| super::identity::ordinal(&set, name);
    assert_eq!(ordinal("web-12"), Some(12));
    for other in ["web", "web-", "web-x", "web-01", "other-1", "web-1-1"] {
        assert_eq!(ordinal(other), None, "{other}");
    }
}
