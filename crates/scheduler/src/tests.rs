//! Which node a pod gets, in tables; and what a crash after any write leads to.

mod capacities;
mod hints;
mod keeping;
mod limits_of_nodes;
mod old_plugins;
mod originals;
mod waking;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use orlop_model::{
    AccessMode, Claim, Key, Kind, Node, ObjectRef, Pod, StorageClass, Volume, well_known,
};
use serde_json::{Value, json};

use crate::{
    assign::{Decision, NodeFacts, Step, View, decide},
    filter::{self, Tally},
    ledger::{Ledger, Promise},
    limits,
    reason::{Reason, Refusal, Unready},
    volume_binding::{self, ClaimFacts, Supply},
};

#[expect(clippy::needless_pass_by_value, reason = "callers write it in place")]
fn object<K: Kind>(body: Value) -> K {
    K::decode(body.to_string().as_bytes()).unwrap()
}

fn node(name: &str) -> Node {
    object(json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"conditions": [{"type": "Ready", "status": "True"}],
                   "allocatable": {"cpu": "2", "memory": "1Gi", "pods": "2"}},
    }))
}

fn pod(name: &str, claims: &[&str]) -> Pod {
    let volumes: Vec<Value> = claims
        .iter()
        .map(|c| json!({"name": c, "persistentVolumeClaim": {"claimName": c}}))
        .collect();
    object(json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}")},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}],
                 "volumes": volumes},
    }))
}

fn claim(name: &str, size: &str) -> Claim {
    object(json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("uid-{name}"),
                     "resourceVersion": "1"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "late",
                 "resources": {"requests": {"storage": size}}},
        "status": {"phase": "Pending"},
    }))
}

fn class(provisioner: &str) -> StorageClass {
    object(
        json!({"metadata": {"name": "late"}, "provisioner": provisioner,
                  "volumeBindingMode": "WaitForFirstConsumer"}),
    )
}

/// A free volume that only one node reaches.
fn volume(name: &str, size: &str, on: &str) -> Volume {
    object(json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "1"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "late",
                 "capacity": {"storage": size},
                 "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                     {"key": "kubernetes.io/hostname", "operator": "In", "values": [on]}]}]}}},
        "status": {"phase": "Available"},
    }))
}

fn late(claim: Claim, provisioner: &str) -> ClaimFacts {
    ClaimFacts {
        key: claim.key(),
        claim: Some(Arc::new(claim)),
        class: Some(Arc::new(class(provisioner))),
        ..ClaimFacts::default()
    }
}

fn nodes(names: &[&str]) -> Vec<NodeFacts> {
    let facts = |name: &&str| NodeFacts {
        node: Arc::new(node(name)),
        ..NodeFacts::default()
    };
    names.iter().map(facts).collect()
}

fn view(pod: Pod, claims: Vec<ClaimFacts>) -> View {
    View {
        pod: Arc::new(pod),
        claims,
        nodes: nodes(&["n1", "n2"]),
        promise: None,
        overdue: false,
        demanding: BTreeSet::new(),
    }
}

fn promised(decision: &Decision) -> &str {
    match decision {
        Decision::Promise { node, .. } => node,
        other => panic!("not placed: {other:?}"),
    }
}

fn reasons(decision: &Decision) -> BTreeMap<String, Vec<Reason>> {
    match decision {
        Decision::Refuse(Refusal::Nodes { reasons, .. }) => reasons.clone(),
        other => panic!("not refused by nodes: {other:?}"),
    }
}

#[test]
fn each_trait_of_a_node_that_rules_a_pod_out_has_its_reason() {
    type Change = fn(&mut Pod, &mut Node, &mut Tally);
    let cases: Vec<(&str, Change, Vec<Reason>)> = vec![
        ("nothing", |_, _, _| {}, vec![]),
        (
            "not ready",
            |_, n, _| n.status.conditions.clear(),
            vec![Reason::NotReady],
        ),
        (
            "cordoned",
            |_, n, _| n.spec.unschedulable = true,
            vec![Reason::Unschedulable],
        ),
        (
            "tainted",
            |_, n, _| n.spec.taints = taints("NoSchedule"),
            vec![Reason::Taint],
        ),
        (
            "tainted, but only a preference",
            |_, n, _| n.spec.taints = taints("PreferNoSchedule"),
            vec![],
        ),
        (
            "tainted, and tolerated",
            |p, n, _| {
                n.spec.taints = taints("NoSchedule");
                p.spec.tolerations = tolerations("Equal", "v");
            },
            vec![],
        ),
        (
            "tainted, with another value",
            |p, n, _| {
                n.spec.taints = taints("NoSchedule");
                p.spec.tolerations = tolerations("Equal", "w");
            },
            vec![Reason::Taint],
        ),
        (
            "tainted, any value tolerated",
            |p, n, _| {
                n.spec.taints = taints("NoExecute");
                p.spec.tolerations = tolerations("Exists", "");
            },
            vec![],
        ),
        (
            "another label wanted",
            |p, _, _| {
                p.spec.node_selector.insert("zone".into(), "a".into());
            },
            vec![Reason::Affinity],
        ),
        (
            "too many pods, and too little cpu",
            |_, _, t| {
                t.pods = 2;
                t.amounts = filter::Amounts::of_pod(&hungry("1600m"));
            },
            vec![Reason::Pods, Reason::Resource("cpu".into())],
        ),
        (
            "exactly enough",
            |_, _, t| t.amounts = filter::Amounts::of_pod(&hungry("1500m")),
            vec![],
        ),
        (
            "a resource that the node doesn't limit",
            |_, n, _| n.status.allocatable = Default::default(),
            vec![],
        ),
    ];
    for (name, change, expected) in cases {
        let (mut pod, mut node, mut tally) = (pod("p", &[]), node("n1"), Tally::default());
        change(&mut pod, &mut node, &mut tally);
        assert_eq!(filter::check(&pod, &node, &tally), expected, "{name}");
    }
}

fn taints(effect: &str) -> Vec<orlop_model::node::Taint> {
    let taint = json!([{"key": "k", "value": "v", "effect": effect}]);
    serde_json::from_value(taint).unwrap()
}

fn tolerations(operator: &str, value: &str) -> Vec<orlop_model::pod::Toleration> {
    let toleration = json!([{"key": "k", "operator": operator, "value": value}]);
    serde_json::from_value(toleration).unwrap()
}

fn hungry(cpu: &str) -> Pod {
    object(json!({"spec": {"containers": [
        {"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}))
}

#[test]
fn a_pod_goes_where_the_fewest_pods_are() {
    let mut v = view(pod("p", &[]), vec![]);
    assert_eq!(promised(&decide(&v)), "n1", "ties go by name");
    v.nodes[0].tally.pods = 1;
    assert_eq!(promised(&decide(&v)), "n2");
}

#[test]
fn pods_of_others_and_finished_or_going_ones_are_left_alone() {
    let changes: [fn(&mut Pod); 5] = [
        |p| p.spec.scheduling_gates = vec![json!({"name": "later"})],
        |p| p.spec.scheduler_name = "another".into(),
        |p| p.spec.node_name = "n1".into(),
        |p| p.status.phase = Some(orlop_model::PodPhase::Failed),
        |p| p.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH),
    ];
    for change in changes {
        let mut pod = pod("p", &[]);
        change(&mut pod);
        assert_eq!(decide(&view(pod, vec![])), Decision::Leave);
    }
}

#[test]
fn claims_that_are_not_ready_rule_every_node_out() {
    type Case = (&'static str, fn(&mut ClaimFacts), Unready);
    let cases: Vec<Case> = vec![
        (
            "missing",
            |f| f.claim = None,
            Unready::Missing("data".into()),
        ),
        (
            "not made yet",
            |f| {
                f.claim = None;
                f.ephemeral = true;
            },
            Unready::NotMade("data".into()),
        ),
        (
            "somebody else's",
            |f| f.ephemeral = true,
            Unready::NotOurs {
                claim: "ns/data".into(),
                pod: "ns/p".into(),
            },
        ),
        (
            "immediate and unbound",
            |f| f.class = None,
            Unready::Unbound,
        ),
        (
            "asks for a volume by name",
            |f| edit(f, |c| c.spec.volume_name = "v".into()),
            Unready::Unbound,
        ),
        (
            "lost",
            |f| {
                edit(f, |c| {
                    c.spec.volume_name = "v".into();
                    c.status.phase = Some(orlop_model::ClaimPhase::Lost);
                });
            },
            Unready::Lost {
                claim: "data".into(),
                volume: "v".into(),
            },
        ),
        (
            "going",
            |f| {
                edit(f, |c| {
                    c.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH);
                });
            },
            Unready::Deleting("data".into()),
        ),
    ];
    for (name, change, unready) in cases {
        let mut facts = late(claim("data", "1Gi"), "d");
        change(&mut facts);
        let decision = decide(&view(pod("p", &["data"]), vec![facts]));
        assert_eq!(
            decision,
            Decision::Refuse(Refusal::Claims(unready)),
            "{name}"
        );
    }
}

fn edit(facts: &mut ClaimFacts, change: impl Fn(&mut Claim)) {
    change(Arc::make_mut(facts.claim.as_mut().unwrap()));
}

#[test]
fn a_bound_volume_draws_its_pod_to_where_it_is() {
    let bound = |on: &str| {
        let mut facts = late(claim("data", "1Gi"), "d");
        facts.volume = Some(Arc::new(volume("v", "1Gi", on)));
        edit(&mut facts, |c| {
            c.spec.volume_name = "v".into();
            let annotations = &mut c.metadata.annotations;
            annotations.insert(well_known::BIND_COMPLETED.into(), "yes".into());
        });
        facts
    };
    let v = view(pod("p", &["data"]), vec![bound("n2")]);
    assert_eq!(promised(&decide(&v)), "n2");
    let v = view(pod("p", &["data"]), vec![bound("elsewhere")]);
    assert_eq!(reasons(&decide(&v))["n1"], [Reason::VolumeAffinity]);
    let mut gone = bound("n1");
    gone.volume = None;
    let v = view(pod("p", &["data"]), vec![gone]);
    assert_eq!(reasons(&decide(&v))["n1"], [Reason::VolumeGone]);
}

#[test]
fn a_claim_for_one_pod_is_for_one_pod() {
    let mut facts = late(claim("data", "1Gi"), "d");
    edit(&mut facts, |c| {
        c.spec.access_modes = vec![AccessMode::ReadWriteOncePod];
    });
    let v = view(pod("p", &["data"]), vec![facts.clone()]);
    assert_eq!(promised(&decide(&v)), "n1");
    facts.used_by_another = true;
    let v = view(pod("p", &["data"]), vec![facts]);
    assert_eq!(reasons(&decide(&v))["n2"], [Reason::ClaimInUse]);
}

#[test]
fn all_late_claims_of_a_pod_are_served_by_one_node_or_none() {
    let serve = |on_small: &str, on_big: &str| {
        let candidates: Vec<Arc<Volume>> = [
            volume("small", "1Gi", on_small),
            volume("big", "5Gi", on_big),
        ]
        .into_iter()
        .map(Arc::new)
        .collect();
        let facts = [claim("big", "4Gi"), claim("tiny", "1Gi")].map(|c| {
            let mut facts = late(c, well_known::NO_PROVISIONER);
            facts.candidates = candidates.clone();
            facts
        });
        decide(&view(pod("p", &["big", "tiny"]), facts.to_vec()))
    };
    let Decision::Promise { node, plan } = serve("n2", "n2") else {
        panic!("both are on n2");
    };
    assert_eq!(node, "n2");
    let names: Vec<(&str, &str)> = plan
        .iter()
        .map(|(key, supply)| match supply {
            Supply::Reserve(v) => (key.name.as_str(), v.metadata.name.as_str()),
            Supply::Provision => panic!("nobody provisions"),
        })
        .collect();
    assert_eq!(
        names,
        [("tiny", "small"), ("big", "big")],
        "each volume once"
    );
    assert_eq!(reasons(&serve("n1", "n2"))["n1"], [Reason::NoVolume]);
}

#[test]
fn a_volume_can_be_made_only_where_its_class_and_driver_allow() {
    type Case = (&'static str, fn(&mut View), Option<Reason>);
    let cases: Vec<Case> = vec![
        ("anywhere", |_| {}, None),
        (
            "made by hand",
            |v| change_class(v, |c| c.provisioner = well_known::NO_PROVISIONER.into()),
            Some(Reason::NoVolume),
        ),
        (
            "another place allowed",
            |v| {
                change_class(v, |c| {
                    c.allowed_topologies = serde_json::from_value(json!([
                        {"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}
                    ]))
                    .unwrap();
                });
            },
            Some(Reason::NoVolume),
        ),
        (
            "driver not there",
            |v| v.claims[0].driver = Some(driver(false)),
            Some(Reason::NoDriver("d".into())),
        ),
        (
            "driver there",
            |v| {
                v.claims[0].driver = Some(driver(false));
                v.nodes.iter_mut().for_each(register);
            },
            None,
        ),
        (
            "nobody knows how much room there is",
            |v| {
                v.claims[0].driver = Some(driver(true));
                v.nodes.iter_mut().for_each(register);
            },
            Some(Reason::NoSpace),
        ),
        (
            "room in another place",
            |v| {
                v.claims[0].driver = Some(driver(true));
                v.claims[0].capacities = vec![capacity("n9", "9Gi")];
                v.nodes.iter_mut().for_each(register);
            },
            Some(Reason::NoSpace),
        ),
        (
            "too little room",
            |v| {
                v.claims[0].driver = Some(driver(true));
                v.claims[0].capacities = vec![capacity("n1", "1Gi")];
                v.nodes.iter_mut().for_each(register);
            },
            Some(Reason::NoSpace),
        ),
        (
            "room enough",
            |v| {
                v.claims[0].driver = Some(driver(true));
                v.claims[0].capacities = vec![capacity("n1", "2Gi")];
                v.nodes.iter_mut().for_each(register);
            },
            None,
        ),
        (
            "another node was selected before",
            |v| edit(&mut v.claims[0], |c| select(c, "n2")),
            Some(Reason::NoVolume),
        ),
    ];
    for (name, change, expected) in cases {
        let mut v = view(pod("p", &["data"]), vec![late(claim("data", "2Gi"), "d")]);
        v.nodes.truncate(1);
        change(&mut v);
        match expected {
            None => assert_eq!(promised(&decide(&v)), "n1", "{name}"),
            Some(reason) => assert_eq!(reasons(&decide(&v))["n1"], [reason], "{name}"),
        }
    }
}

fn select(claim: &mut Claim, node: &str) {
    let annotations = &mut claim.metadata.annotations;
    annotations.insert(well_known::SELECTED_NODE.into(), node.into());
}

fn change_class(view: &mut View, change: impl Fn(&mut StorageClass)) {
    change(Arc::make_mut(view.claims[0].class.as_mut().unwrap()));
}

fn driver(tells_capacity: bool) -> Arc<orlop_model::CsiDriver> {
    Arc::new(object(json!({"metadata": {"name": "d"},
                           "spec": {"storageCapacity": tells_capacity}})))
}

fn capacity(on: &str, most: &str) -> Arc<orlop_model::CsiStorageCapacity> {
    Arc::new(object(json!({
        "metadata": {"name": "x"}, "storageClassName": "late", "capacity": most,
        "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": on}},
    })))
}

fn register(node: &mut NodeFacts) {
    node.csi_node = Some(Arc::new(object(json!({
        "metadata": {"name": node.node.metadata.name},
        "spec": {"drivers": [{"name": "d", "nodeID": "x", "allocatable": {"count": 2}}]},
    }))));
}

#[test]
fn a_node_never_gets_more_volumes_than_its_driver_bears() {
    let there = |handles: &[&str]| {
        let set = handles.iter().map(|h| (*h).to_owned()).collect();
        limits::Attached::from([("d".to_owned(), set)])
    };
    for (attached, fits) in [
        (there(&[]), true),
        (there(&["a"]), true),
        (there(&["a", "b"]), false),
        (there(&["a", "ns/data"]), true),
    ] {
        let mut v = view(pod("p", &["data"]), vec![late(claim("data", "1Gi"), "d")]);
        v.nodes.truncate(1);
        register(&mut v.nodes[0]);
        v.nodes[0].attached = attached.clone();
        match fits {
            true => assert_eq!(promised(&decide(&v)), "n1", "{attached:?}"),
            false => assert_eq!(reasons(&decide(&v))["n1"], [Reason::VolumeCount]),
        }
    }
}

#[test]
fn a_refusal_reads_as_the_original_writes_it() {
    let by_node = BTreeMap::from([
        ("n1".to_owned(), vec![Reason::Taint]),
        (
            "n2".to_owned(),
            vec![Reason::Resource("cpu".into()), Reason::Pods],
        ),
        ("n3".to_owned(), vec![Reason::Taint]),
    ]);
    assert_eq!(
        nodes_refuse(by_node).message(3),
        "0/3 nodes are available: 1 Insufficient cpu, 1 Too many pods, 2 node(s) had untolerated \
         taint(s)."
    );
    assert_eq!(
        Refusal::Claims(Unready::Unbound).message(1),
        "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
    );
    assert_eq!(
        nodes_refuse(BTreeMap::new()).message(0),
        "no nodes available to schedule pods"
    );
}

fn nodes_refuse(reasons: BTreeMap<String, Vec<Reason>>) -> Refusal {
    Refusal::Nodes {
        reasons,
        hints: Vec::new(),
    }
}

fn promise(node: &str, plan: volume_binding::Plan) -> Promise {
    Promise {
        uid: "uid-p".into(),
        node: node.into(),
        plan,
        told: Default::default(),
        placed: false,
        since: tokio::time::Instant::now(),
    }
}

#[test]
fn a_claim_that_loses_its_node_makes_the_scheduler_think_again() {
    let key = Key::namespaced("ns", "data");
    let mut v = view(pod("p", &["data"]), vec![late(claim("data", "1Gi"), "d")]);
    v.promise = Some(promise("n1", vec![(key.clone(), Supply::Provision)]));
    assert!(matches!(decide(&v), Decision::Prepare { steps, .. } if steps.len() == 1));
    v.promise.as_mut().unwrap().told.insert(key);
    let mut told = v.clone();
    edit(&mut told.claims[0], |c| select(c, "n1"));
    assert!(matches!(decide(&told), Decision::Prepare { steps, .. } if steps.is_empty()));
    let Decision::GiveUp(setback) = decide(&v) else {
        panic!("the provisioner took it back");
    };
    assert_eq!(
        setback.to_string(),
        "running PreBind plugin \"VolumeBinding\": binding volumes: provisioning failed for PVC \
         \"data\". Note: its volume could not be made on n1; \"kubectl describe pvc data\" tells why"
    );
    edit(&mut told.claims[0], |c| select(c, "n2"));
    assert_eq!(decide(&told), Decision::Reconsider);
}

#[test]
fn a_reserved_volume_that_the_node_does_not_reach_is_not_replaced_by_another() {
    let mut facts = late(claim("data", "1Gi"), "d");
    let mut reserved = volume("mine", "1Gi", "n2");
    reserved.spec.claim_ref = Some(facts.claim.as_ref().unwrap().reference());
    facts.candidates = vec![Arc::new(reserved), Arc::new(volume("free", "1Gi", "n1"))];
    let mut v = view(pod("p", &["data"]), vec![facts]);
    assert_eq!(promised(&decide(&v)), "n2");
    v.nodes.truncate(1);
    let refused = decide(&v);
    assert!(matches!(refused, Decision::Refuse(_)), "{refused:?}");
}

#[test]
fn a_promise_counts_until_the_pod_is_placed_or_gone() {
    let mut ledger = Ledger::default();
    let mut pod = pod("p", &["data"]);
    let plan = vec![(
        Key::namespaced("ns", "data"),
        Supply::Reserve(Arc::new(volume("v", "1Gi", "n1"))),
    )];
    ledger.see(&pod);
    ledger.promise(&pod, "n1".into(), plan.clone());
    ledger.see(&pod);
    assert_eq!(ledger.tally("n1").pods, 1);
    let other = Key::namespaced("ns", "other");
    assert!(ledger.is_promised_to_another("v", &other));
    assert!(!ledger.is_promised_to_another("v", &pod.key()));
    pod.spec.node_name = "n1".into();
    ledger.see(&pod);
    ledger.see(&pod);
    assert_eq!(ledger.tally("n1").pods, 1, "told twice, counted once");
    assert!(ledger.promised(&pod.key()).is_none());
    assert!(!ledger.is_promised_to_another("v", &other));
    ledger.forget(&pod.key());
    assert_eq!(ledger.tally("n1"), Tally::default());
    ledger.promise(&pod, "n1".into(), plan);
    ledger.break_promise(&pod.key());
    assert_eq!(ledger.tally("n1"), Tally::default());
    // Another pod of the same name has no claim on the older one's promise.
    ledger.promise(&pod, "n1".into(), Vec::new());
    pod.spec.node_name.clear();
    pod.metadata.uid = "second".into();
    ledger.see(&pod);
    assert!(ledger.promised(&pod.key()).is_none());
    assert_eq!(ledger.tally("n1"), Tally::default());
}

#[test]
fn a_pod_waits_longer_each_time_that_its_volumes_cannot_be_had() {
    let mut ledger = Ledger::default();
    let mut pod = pod("p", &[]);
    let counts: Vec<u32> = (0..3).map(|_| ledger.note_setback(&pod)).collect();
    assert_eq!(counts, [1, 2, 3]);
    pod.metadata.uid = "another of its name".into();
    assert_eq!(ledger.note_setback(&pod), 1);
    pod.spec.node_name = "n1".into();
    ledger.see(&pod);
    assert_eq!(ledger.note_setback(&pod), 1, "it was placed");
}

/// One pod with a claim that a volume serves and one that must be provisioned; a binder and
/// a provisioner that act on what the scheduler writes.
#[derive(Clone)]
struct World {
    pod: Pod,
    claims: BTreeMap<String, Claim>,
    volumes: BTreeMap<String, Volume>,
    ledger: BTreeMap<Key, Promise>,
    writes: usize,
    crash_after: Option<usize>,
}

impl World {
    fn new() -> Self {
        let mut made = claim("made", "1Gi");
        made.spec.storage_class_name = Some("made".into());
        Self {
            pod: pod("p", &["found", "made"]),
            claims: [claim("found", "1Gi"), made]
                .map(|c| (c.metadata.name.clone(), c))
                .into(),
            volumes: [("a", "n2"), ("b", "n2")]
                .map(|(name, on)| (name.to_owned(), volume(name, "1Gi", on)))
                .into(),
            ledger: BTreeMap::new(),
            writes: 0,
            crash_after: None,
        }
    }

    fn view(&self) -> View {
        let facts = self.claims.values().map(|c| {
            let provisioner = match c.metadata.name.as_str() {
                "made" => "d",
                _ => well_known::NO_PROVISIONER,
            };
            let mut facts = late(c.clone(), provisioner);
            facts.volume = self.volumes.get(&c.spec.volume_name).cloned().map(Arc::new);
            facts.candidates = self.volumes.values().cloned().map(Arc::new).collect();
            facts
        });
        View {
            promise: self.ledger.get(&self.pod.key()).cloned(),
            ..view(self.pod.clone(), facts.collect())
        }
    }

    /// A crash loses the ledger and whatever the turn would still have done.
    fn wrote(&mut self) -> bool {
        self.writes += 1;
        let crashed = self.crash_after == Some(self.writes);
        if crashed {
            self.ledger.clear();
        }
        crashed
    }

    fn turn(&mut self) {
        let key = self.pod.key();
        match decide(&self.view()) {
            Decision::Promise { node, plan } => {
                self.ledger.insert(key, promise(&node, plan));
            }
            Decision::Prepare { node, steps } => {
                for step in steps {
                    match step {
                        Step::ReserveVolume { claim, volume } => {
                            let volume = self.volumes.get_mut(&volume.metadata.name).unwrap();
                            volume.spec.claim_ref = Some(claim.reference());
                        }
                        Step::SelectNode { claim } => {
                            let claim = self.claims.get_mut(&claim.metadata.name).unwrap();
                            select(claim, &node);
                        }
                    }
                    if self.wrote() {
                        return;
                    }
                }
            }
            Decision::Place { node } => {
                self.pod.spec.node_name = node;
                self.wrote();
            }
            Decision::Reconsider | Decision::GiveUp(_) => {
                self.ledger.remove(&key);
            }
            Decision::Leave => {}
            Decision::Refuse(refusal) => panic!("{}", refusal.message(2)),
        }
    }

    fn others_act(&mut self) {
        for claim in self.claims.values_mut() {
            let name = format!("pvc-{}", claim.metadata.name);
            if let Some(node) = claim.selected_node() {
                self.volumes.entry(name.clone()).or_insert_with(|| {
                    let mut made = volume(&name, "1Gi", node);
                    made.spec.storage_class_name = "made".into();
                    made.spec.claim_ref = Some(claim.reference());
                    made
                });
            }
            let mine = self.volumes.values().filter(|v| v.is_reserved_for(claim));
            let names: Vec<String> = mine.map(|v| v.metadata.name.clone()).collect();
            assert!(names.len() < 2, "two volumes for one claim");
            if let [name] = names.as_slice() {
                claim.spec.volume_name = name.clone();
                let annotations = &mut claim.metadata.annotations;
                annotations.insert(well_known::BIND_COMPLETED.into(), "yes".into());
            }
        }
    }

    fn settle(&mut self) {
        for round in 0..20 {
            self.turn();
            // The others are slower than the scheduler, sometimes.
            if round % 3 == 2 {
                self.others_act();
            }
        }
    }

    fn check(&self) {
        assert_eq!(self.pod.spec.node_name, "n2");
        assert!(self.claims.values().all(Claim::is_fully_bound));
        let taken = |v: &&Volume| v.spec.claim_ref.is_some();
        assert_eq!(self.volumes.values().filter(taken).count(), 2);
    }
}

#[test]
fn a_pod_and_its_volumes_come_to_the_same_end_whatever_write_a_crash_comes_after() {
    let mut whole = World::new();
    whole.settle();
    whole.check();
    assert_eq!(whole.writes, 3, "reserve, select, place");
    for crash in 1..=whole.writes {
        let mut world = World::new();
        world.crash_after = Some(crash);
        world.settle();
        world.check();
    }
}

#[test]
fn a_name_without_uid_is_made_exact_before_the_pod_is_placed() {
    let mut facts = late(claim("data", "1Gi"), well_known::NO_PROVISIONER);
    let mut reserved = volume("mine", "1Gi", "n1");
    reserved.spec.claim_ref = Some(ObjectRef {
        namespace: "ns".into(),
        name: "data".into(),
        ..ObjectRef::default()
    });
    let supply = Supply::Reserve(Arc::new(reserved.clone()));
    facts.candidates = vec![Arc::new(reserved)];
    let mut v = view(pod("p", &["data"]), vec![facts]);
    v.promise = Some(promise("n1", vec![(Key::namespaced("ns", "data"), supply)]));
    let Decision::Prepare { steps, .. } = decide(&v) else {
        panic!("there is something to write");
    };
    assert!(matches!(steps.as_slice(), [Step::ReserveVolume { .. }]));
}
