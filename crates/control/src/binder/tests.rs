//! The rows of the state machines, and what a crash after any write leads to.

mod by_hand;
mod originals;

use std::{collections::BTreeMap, sync::Arc};

use orlop_model::{
    Claim, ClaimPhase, Key, Kind, ObjectRef, ReclaimPolicy, StorageClass, Volume, VolumeMode,
    VolumePhase, well_known,
};
use serde_json::{Value, json};

use super::{
    claim::{self, Because, Step},
    volume::{self, Forget},
    write::{Half, Party, Write},
};
use crate::{
    Evidence,
    fixtures::{bound, claim as a_claim, class, deleting, volume as a_volume},
};

fn view(claim: Claim) -> claim::View {
    claim::View {
        claim: Arc::new(claim),
        named: None,
        candidates: Vec::new(),
        class: None,
        default_class: None,
        emptied: Vec::new(),
        unplaced_pods: Vec::new(),
        evidence: Evidence::Cached,
    }
}

fn shared<K>(object: K) -> Option<Arc<K>> {
    Some(Arc::new(object))
}

const WHOLE_BIND: [Step; 4] = [
    Step::ReserveVolume,
    Step::MarkVolumeBound,
    Step::PointClaim,
    Step::MarkClaimBound,
];

#[test]
fn a_claim_is_bound_by_four_writes_and_the_volume_is_first() {
    let mut v = view(a_claim("data", "c"));
    v.candidates = vec![Arc::new(a_volume("vol", "c"))];
    let decision = claim::decide(&v);
    assert_eq!(decision.steps, WHOLE_BIND);
    assert_eq!(decision.volume.unwrap().metadata.name, "vol");
}

#[test]
fn a_bind_goes_on_where_it_was() {
    let claim = a_claim("data", "c");
    let mut volume = a_volume("vol", "c");
    volume.spec.claim_ref = Some(claim.reference());
    let mut v = view(claim);
    v.candidates = vec![Arc::new(volume.clone())];
    assert_eq!(claim::decide(&v).steps, WHOLE_BIND[1..]);
    volume.status.phase = Some(VolumePhase::Bound);
    v.candidates = vec![Arc::new(volume)];
    assert_eq!(claim::decide(&v).steps, WHOLE_BIND[2..]);
    let (mut done, volume) = bound("data", "vol");
    done.status.phase = Some(ClaimPhase::Pending);
    let mut v = view(done.clone());
    v.named = shared(volume);
    assert_eq!(claim::decide(&v).steps, WHOLE_BIND[3..]);
    done.status.phase = Some(ClaimPhase::Bound);
    v.claim = Arc::new(done);
    assert_eq!(claim::decide(&v).steps, []);
}

/// Every row of the claim's part that waits or asks.
#[test]
fn a_claim_without_volume_waits_for_the_right_thing() {
    type Case = (&'static str, fn(&mut claim::View), Because, Vec<Step>);
    let asks = |name: &str| vec![Step::AskProvisioner(name.into())];
    let provisioner = "driver.example";
    let cases: Vec<Case> = vec![
        (
            "immediate class",
            |v| v.class = shared(class("c", "Immediate")),
            Because::Provisioning(provisioner.into()),
            asks(provisioner),
        ),
        (
            "late class",
            |v| v.class = shared(class("c", "WaitForFirstConsumer")),
            Because::NoConsumer { pods: vec![] },
            vec![],
        ),
        (
            "late class, pod waits",
            |v| {
                v.class = shared(class("c", "WaitForFirstConsumer"));
                v.unplaced_pods = vec!["web".into()];
            },
            Because::NoConsumer {
                pods: vec!["web".into()],
            },
            vec![],
        ),
        (
            "late class, node selected",
            |v| {
                v.class = shared(class("c", "WaitForFirstConsumer"));
                let claim = Arc::make_mut(&mut v.claim);
                let annotations = &mut claim.metadata.annotations;
                annotations.insert(well_known::SELECTED_NODE.into(), "n1".into());
            },
            Because::Provisioning(provisioner.into()),
            asks(provisioner),
        ),
        (
            "late class, a free volume fits: still the scheduler's choice",
            |v| {
                v.class = shared(class("c", "WaitForFirstConsumer"));
                v.candidates = vec![Arc::new(a_volume("vol", "c"))];
            },
            Because::NoConsumer { pods: vec![] },
            vec![],
        ),
        (
            "class missing",
            |_| {},
            Because::NoSuchClass("c".into()),
            vec![],
        ),
        (
            "volumes made by hand",
            |v| {
                let mut class = class("c", "Immediate");
                class.provisioner = well_known::NO_PROVISIONER.into();
                v.class = shared(class);
            },
            Because::NoProvisioner(well_known::NO_PROVISIONER.into()),
            vec![],
        ),
        (
            "no class wanted",
            |v| Arc::make_mut(&mut v.claim).spec.storage_class_name = Some(String::new()),
            Because::NothingFits,
            vec![],
        ),
        (
            "no class said, no default",
            |v| Arc::make_mut(&mut v.claim).spec.storage_class_name = None,
            Because::NothingFits,
            vec![],
        ),
        (
            "no class said, a default",
            |v| {
                Arc::make_mut(&mut v.claim).spec.storage_class_name = None;
                v.default_class = shared(class("std", "Immediate"));
            },
            Because::DefaultClass,
            vec![Step::TakeClass("std".into())],
        ),
        (
            "being deleted",
            |v| {
                v.claim = Arc::new(deleting(a_claim("data", "c")));
                v.candidates = vec![Arc::new(a_volume("vol", "c"))];
            },
            Because::Deleting,
            vec![],
        ),
        (
            "status left from an older life",
            |v| {
                Arc::make_mut(&mut v.claim).status.phase = Some(ClaimPhase::Bound);
                v.class = shared(class("c", "WaitForFirstConsumer"));
            },
            Because::NoConsumer { pods: vec![] },
            vec![Step::MarkPending],
        ),
    ];
    for (name, change, because, steps) in cases {
        let mut v = view(a_claim("data", "c"));
        change(&mut v);
        let decision = claim::decide(&v);
        assert_eq!(decision.because, because, "{name}");
        assert_eq!(decision.steps, steps, "{name}");
    }
}

#[test]
fn a_provisioner_that_was_asked_is_not_asked_again() {
    let mut claim = a_claim("data", "c");
    for key in [
        well_known::STORAGE_PROVISIONER,
        well_known::BETA_STORAGE_PROVISIONER,
    ] {
        let annotations = &mut claim.metadata.annotations;
        annotations.insert(key.into(), "driver.example".into());
    }
    let mut v = view(claim);
    v.class = shared(class("c", "Immediate"));
    assert_eq!(claim::decide(&v).steps, []);
}

#[test]
fn a_claim_that_names_a_volume_gets_that_or_none() {
    type Case = (&'static str, fn(&mut Volume), bool);
    let cases: [Case; 5] = [
        ("free", |_| {}, true),
        ("too small", |v| v.spec.capacity = Default::default(), false),
        (
            "reserved by name",
            |v| {
                v.spec.claim_ref = Some(ObjectRef {
                    namespace: "ns".into(),
                    name: "data".into(),
                    ..ObjectRef::default()
                });
            },
            true,
        ),
        (
            "an older claim of the same name",
            |v| {
                v.spec.claim_ref = Some(ObjectRef {
                    uid: "other".into(),
                    ..a_claim("data", "c").reference()
                });
            },
            false,
        ),
        (
            "another's, by the binder",
            |v| {
                v.spec.claim_ref = Some(a_claim("other", "c").reference());
                let annotations = &mut v.metadata.annotations;
                annotations.insert(well_known::BOUND_BY_CONTROLLER.into(), "yes".into());
            },
            false,
        ),
    ];
    for (name, change, binds) in cases {
        let mut claim = a_claim("data", "c");
        claim.spec.volume_name = "vol".into();
        let mut volume = a_volume("vol", "c");
        change(&mut volume);
        let mut v = view(claim);
        v.named = shared(volume);
        let decision = claim::decide(&v);
        assert_eq!(decision.because == Because::Fits, binds, "{name}");
        assert_eq!(!decision.steps.is_empty(), binds, "{name}");
    }
    let mut claim = a_claim("data", "c");
    claim.spec.volume_name = "gone".into();
    assert_eq!(claim::decide(&view(claim)).because, Because::NoSuchVolume);
}

#[test]
fn a_claim_is_called_lost_only_on_the_servers_word() {
    type Case = (&'static str, fn(&mut claim::View), Because);
    let cases: [Case; 3] = [
        (
            "reference",
            |v| Arc::make_mut(&mut v.claim).spec.volume_name.clear(),
            Because::LostReference,
        ),
        ("volume", |v| v.named = None, Because::LostVolume),
        (
            "misbound",
            |v| {
                let mut volume = a_volume("vol", "c");
                volume.spec.claim_ref = Some(a_claim("other", "c").reference());
                v.named = shared(volume);
            },
            Because::Misbound,
        ),
    ];
    for (name, change, because) in cases {
        let (claim, volume) = bound("data", "vol");
        let mut v = view(claim);
        v.named = shared(volume);
        change(&mut v);
        let cached = claim::decide(&v);
        assert!(cached.needs_live_evidence(), "{name}");
        assert_eq!(cached.steps, [], "{name}");
        v.evidence = Evidence::Live;
        let live = claim::decide(&v);
        assert_eq!(live.because, because, "{name}");
        assert_eq!(live.steps, [Step::MarkLost], "{name}");
        Arc::make_mut(&mut v.claim).status.phase = Some(ClaimPhase::Lost);
        assert_eq!(claim::decide(&v).steps, [], "{name}: it is told once");
    }
}

#[test]
fn a_bound_claim_whose_volume_forgot_it_is_bound_again() {
    let (claim, mut volume) = bound("data", "vol");
    volume.spec.claim_ref = None;
    volume.status.phase = Some(VolumePhase::Available);
    let mut v = view(claim);
    v.named = shared(volume);
    assert_eq!(claim::decide(&v).steps, WHOLE_BIND[..2]);
}

fn look(volume: Volume, owner: Option<Claim>, evidence: Evidence) -> volume::Decision {
    volume::decide(&volume::View {
        volume: Arc::new(volume),
        owner: owner.map(Arc::new),
        evidence,
    })
}

#[test]
fn a_volume_says_who_has_it() {
    let mark = |phase| vec![volume::Step::Mark(phase)];
    let mut new = a_volume("vol", "c");
    new.status.phase = Some(VolumePhase::Pending);
    let available = mark(VolumePhase::Available);
    assert_eq!(look(new.clone(), None, Evidence::Cached).steps, available);
    new.spec.claim_ref = Some(ObjectRef {
        uid: String::new(),
        ..a_claim("data", "c").reference()
    });
    assert_eq!(look(new, None, Evidence::Cached).steps, available);
    let (claim, mut volume) = bound("data", "vol");
    volume.status.phase = Some(VolumePhase::Pending);
    let steps = look(volume.clone(), Some(claim.clone()), Evidence::Cached).steps;
    assert_eq!(steps, mark(VolumePhase::Bound));
    let mut unbound = claim;
    unbound.spec.volume_name.clear();
    let steps = look(volume.clone(), Some(unbound.clone()), Evidence::Cached).steps;
    assert_eq!(steps, [volume::Step::WakeClaim]);
    unbound.spec.volume_mode = Some(VolumeMode::Block);
    let decision = look(volume, Some(unbound), Evidence::Cached);
    assert_eq!(decision.because, volume::Because::WrongMode);
}

#[test]
fn a_volume_is_released_only_on_the_servers_word() {
    let (_, volume) = bound("data", "vol");
    let cached = look(volume.clone(), None, Evidence::Cached);
    assert!(cached.needs_live_evidence());
    assert_eq!(cached.steps, []);
    let live = look(volume, None, Evidence::Live);
    assert_eq!(live.steps, [volume::Step::Mark(VolumePhase::Released)]);
}

#[test]
fn a_released_volume_is_its_policys_business() {
    type Case = (&'static str, fn(&mut Volume), bool);
    let cases: [Case; 3] = [
        ("retain", |_| {}, false),
        (
            "delete, a driver's",
            |v| v.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Delete),
            false,
        ),
        (
            "delete, nobody's",
            |v| {
                v.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Delete);
                v.spec.csi = None;
            },
            true,
        ),
    ];
    for (name, change, fails) in cases {
        let (_, mut volume) = bound("data", "vol");
        volume.status.phase = Some(VolumePhase::Released);
        change(&mut volume);
        let steps = look(volume, None, Evidence::Cached).steps;
        let failed = matches!(steps.as_slice(), [volume::Step::MarkFailed(_)]);
        assert_eq!(failed, fails, "{name}");
        assert_eq!(steps.is_empty(), !fails, "{name}");
    }
}

#[test]
fn a_volume_whose_claim_went_elsewhere_is_let_go() {
    let (mut claim, mut volume) = bound("data", "vol");
    claim.spec.volume_name = "another".into();
    let forget = |volume: &Volume| {
        let cached = look(volume.clone(), Some(claim.clone()), Evidence::Cached);
        assert!(cached.needs_live_evidence());
        look(volume.clone(), Some(claim.clone()), Evidence::Live).steps
    };
    let available = volume::Step::Mark(VolumePhase::Available);
    let steps = forget(&volume);
    assert_eq!(
        steps,
        [volume::Step::Release(Forget::Identity), available.clone()]
    );
    let annotations = &mut volume.metadata.annotations;
    annotations.insert(well_known::BOUND_BY_CONTROLLER.into(), "yes".into());
    let steps = forget(&volume);
    assert_eq!(
        steps,
        [volume::Step::Release(Forget::Everything), available]
    );
    let annotations = &mut volume.metadata.annotations;
    annotations.insert(well_known::PROVISIONED_BY.into(), "driver.example".into());
    volume.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Delete);
    let steps = forget(&volume);
    assert_eq!(steps, [volume::Step::Mark(VolumePhase::Released)]);
}

/// An API server of the smallest kind, a provisioner, and the binder's turns on them.
#[derive(Clone, Default)]
struct World {
    claims: BTreeMap<Key, Claim>,
    volumes: BTreeMap<Key, Volume>,
    classes: Vec<StorageClass>,
    writes: usize,
    /// The binder dies after this many writes.
    crash_after: Option<usize>,
    /// A volume went and came again: until all has settled, claims may name what isn't theirs.
    made_again: bool,
}

struct Crashed;

impl World {
    fn add_claim(&mut self, claim: Claim) {
        self.claims.insert(claim.key(), claim);
    }

    fn add_volume(&mut self, volume: Volume) {
        self.volumes.insert(volume.key(), volume);
    }

    fn write<K: Kind>(&mut self, seen: &K, write: &Write) -> Result<K, Crashed> {
        let mut body: Value = seen.encode().unwrap();
        let halves = write.body.as_object().unwrap();
        assert_eq!(halves.contains_key("status"), write.half == Half::Status);
        json_patch::merge(&mut body, &write.body);
        self.writes += 1;
        body["metadata"]["resourceVersion"] = json!(self.writes.to_string());
        Ok(K::decode(body.to_string().as_bytes()).unwrap())
    }

    fn commit_claim(&mut self, claim: &Claim, write: &Write) -> Result<Claim, Crashed> {
        let new = self.write(claim, write)?;
        self.add_claim(new.clone());
        self.check();
        self.may_crash().map(|()| new)
    }

    fn commit_volume(&mut self, volume: &Volume, write: &Write) -> Result<Volume, Crashed> {
        let new = self.write(volume, write)?;
        self.add_volume(new.clone());
        self.check();
        self.may_crash().map(|()| new)
    }

    fn may_crash(&mut self) -> Result<(), Crashed> {
        if self.crash_after == Some(self.writes) {
            return Err(Crashed);
        }
        Ok(())
    }

    /// Never two owners: two claims don't point to one volume, and a claim that points to
    /// a volume is named by it.
    fn check(&self) {
        let mut owned = BTreeMap::new();
        let lost = |c: &Claim| c.phase() == ClaimPhase::Lost;
        let bound = self.claims.values().filter(|c| c.is_fully_bound());
        for claim in bound.filter(|c| !lost(c)) {
            let name = claim.spec.volume_name.clone();
            // Somebody may have taken it away; that is not for the binder to prevent.
            let Some(volume) = self.volumes.get(&Key::cluster(&name)) else {
                continue;
            };
            if self.made_again {
                continue;
            }
            let owner = volume.spec.claim_ref.as_ref().unwrap();
            assert_eq!(owner.uid, claim.metadata.uid);
            assert_eq!(owned.insert(name, claim.key()), None);
        }
    }

    fn class_of(&self, claim: &Claim) -> Option<Arc<StorageClass>> {
        let class = self
            .classes
            .iter()
            .find(|c| claim.class() == Some(&c.metadata.name));
        class.cloned().map(Arc::new)
    }

    fn claim_turn(&mut self, key: &Key) -> Result<(), Crashed> {
        let claim = self.claims[key].clone();
        let view = claim::View {
            named: self
                .volumes
                .get(&Key::cluster(claim.spec.volume_name.as_str()))
                .cloned()
                .map(Arc::new),
            candidates: self.volumes.values().cloned().map(Arc::new).collect(),
            class: self.class_of(&claim),
            default_class: None,
            emptied: Vec::new(),
            unplaced_pods: Vec::new(),
            evidence: Evidence::Live,
            claim: Arc::new(claim),
        };
        let decision = claim::decide(&view);
        let mut claim = view.claim;
        let mut volume = decision.volume;
        for step in &decision.steps {
            let write = step.write(&claim, volume.as_deref()).unwrap();
            match write.of {
                Party::Claim => claim = Arc::new(self.commit_claim(&claim, &write)?),
                Party::Volume => {
                    let seen = volume.clone().unwrap();
                    volume = Some(Arc::new(self.commit_volume(&seen, &write)?));
                }
            }
        }
        Ok(())
    }

    fn volume_turn(&mut self, key: &Key) -> Result<(), Crashed> {
        let mut volume = self.volumes[key].clone();
        let named = volume.spec.claim_ref.clone().unwrap_or_default();
        let owner = self.claims.get(&named.key()).cloned();
        let owner = owner.filter(|c| c.metadata.uid == named.uid);
        for step in look(volume.clone(), owner, Evidence::Live).steps {
            if let Some(write) = step.write() {
                volume = self.commit_volume(&volume, &write)?;
            }
        }
        Ok(())
    }

    /// Makes what the claims ask for, as a provisioner would.
    fn provision(&mut self) {
        for claim in self.claims.clone().values() {
            let name = format!("pvc-{}", claim.metadata.uid);
            let wanted = claim.provisioner().is_some() && claim.spec.volume_name.is_empty();
            if wanted && !self.volumes.contains_key(&Key::cluster(name.as_str())) {
                let mut volume = a_volume(&name, claim.class().unwrap());
                volume.status.phase = Some(VolumePhase::Pending);
                volume.spec.claim_ref = Some(claim.reference());
                volume.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Delete);
                let annotations = &mut volume.metadata.annotations;
                annotations.insert(well_known::PROVISIONED_BY.into(), "driver.example".into());
                self.add_volume(volume);
            }
        }
    }

    /// Turns until nothing moves, whoever comes first.
    fn settle(&mut self, volumes_first: bool) {
        for _ in 0..50 {
            let before = self.writes;
            let mut keys: Vec<(bool, Key)> = Vec::new();
            keys.extend(self.claims.keys().map(|k| (!volumes_first, k.clone())));
            let volumes = self.volumes.keys().map(|k| (volumes_first, k.clone()));
            keys.extend(volumes);
            keys.sort_by_key(|(first, _)| !first);
            for (_, key) in keys {
                // A crash ends the turn; the next one is a new process's.
                let _ = match key.namespace.is_empty() {
                    true => self.volume_turn(&key),
                    false => self.claim_turn(&key),
                };
            }
            self.provision();
            if self.writes == before {
                return;
            }
        }
        panic!("the binder doesn't settle");
    }

    /// What must be the same however often the binder died.
    fn end(&self) -> Value {
        let mut end = json!({"claims": self.claims.values().collect::<Vec<_>>(),
                             "volumes": self.volumes.values().collect::<Vec<_>>()});
        strip_versions(&mut end);
        end
    }
}

fn strip_versions(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.remove("resourceVersion");
            map.values_mut().for_each(strip_versions);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_versions),
        _ => {}
    }
}

type Scenario = (&'static str, fn(&mut World), fn(&World));

fn scenarios() -> Vec<Scenario> {
    vec![
        (
            "one claim, two volumes",
            |w| {
                w.add_claim(a_claim("data", ""));
                w.add_volume(a_volume("a", ""));
                w.add_volume(a_volume("b", ""));
            },
            |w| {
                let claim = &w.claims[&Key::namespaced("ns", "data")];
                assert_eq!(claim.phase(), ClaimPhase::Bound);
                assert_eq!(claim.spec.volume_name, "a");
                let free = &w.volumes[&Key::cluster("b")];
                assert_eq!(free.phase(), VolumePhase::Available);
                assert_eq!(free.spec.claim_ref, None);
            },
        ),
        (
            "two claims, one volume",
            |w| {
                w.add_claim(a_claim("one", ""));
                w.add_claim(a_claim("two", ""));
                w.add_volume(a_volume("a", ""));
            },
            |w| {
                let bound = w.claims.values().filter(|c| c.phase() == ClaimPhase::Bound);
                assert_eq!(bound.count(), 1);
            },
        ),
        (
            "provisioned for the claim",
            |w| {
                w.classes.push(class("c", "Immediate"));
                w.add_claim(a_claim("data", "c"));
            },
            |w| {
                let claim = &w.claims[&Key::namespaced("ns", "data")];
                assert_eq!(claim.phase(), ClaimPhase::Bound);
                assert_eq!(claim.status.capacity.storage().unwrap().to_string(), "2Gi");
                assert_eq!(w.volumes.len(), 1);
            },
        ),
        (
            "reserved by a person, for a claim that comes",
            |w| {
                let mut volume = a_volume("a", "");
                volume.spec.claim_ref = Some(ObjectRef {
                    uid: String::new(),
                    resource_version: String::new(),
                    ..a_claim("data", "").reference()
                });
                w.add_volume(volume);
                w.add_claim(a_claim("data", ""));
            },
            |w| {
                let volume = &w.volumes[&Key::cluster("a")];
                assert_eq!(volume.phase(), VolumePhase::Bound);
                assert!(!volume.bound_by_controller(), "a person made this binding");
            },
        ),
        (
            "a claim bound to one of two volumes that name it",
            |w| {
                let (claim, volume) = bound("data", "mine");
                let mut spare = a_volume("spare", "c");
                spare.spec.claim_ref = Some(claim.reference());
                let annotations = &mut spare.metadata.annotations;
                annotations.insert(well_known::BOUND_BY_CONTROLLER.into(), "yes".into());
                w.add_claim(claim);
                w.add_volume(volume);
                w.add_volume(spare);
            },
            |w| {
                let spare = &w.volumes[&Key::cluster("spare")];
                assert_eq!(spare.spec.claim_ref, None);
                assert_eq!(spare.phase(), VolumePhase::Available);
            },
        ),
    ]
}

#[test]
fn a_crash_after_any_write_changes_nothing_in_the_end() {
    for (name, build, check) in scenarios() {
        for volumes_first in [false, true] {
            let mut start = World::default();
            build(&mut start);
            let mut whole = start.clone();
            whole.settle(volumes_first);
            check(&whole);
            assert!(whole.writes > 0, "{name} does nothing");
            for crash in 1..=whole.writes {
                let mut world = start.clone();
                world.crash_after = Some(crash);
                world.settle(volumes_first);
                check(&world);
                assert_eq!(
                    world.end(),
                    whole.end(),
                    "{name}, crash after write {crash}"
                );
            }
        }
    }
}

#[test]
fn a_deleted_claim_releases_its_volume_and_a_new_one_of_its_name_does_not_get_it() {
    let mut world = World::default();
    world.add_claim(a_claim("data", ""));
    world.add_volume(a_volume("a", ""));
    world.settle(false);
    let key = Key::namespaced("ns", "data");
    let mut again = a_claim("data", "");
    again.metadata.uid = "second".into();
    world.claims.remove(&key);
    world.add_claim(again);
    world.settle(false);
    assert_eq!(world.claims[&key].phase(), ClaimPhase::Pending);
    let volume = &world.volumes[&Key::cluster("a")];
    assert_eq!(volume.phase(), VolumePhase::Released);
    assert_eq!(volume.spec.claim_ref.as_ref().unwrap().uid, "uid-data");
}

#[test]
fn the_intent_of_a_provisioner_goes_with_the_volume_that_came_of_it() {
    let mut claim = a_claim("data", "c");
    claim.metadata.finalizers = vec!["other".into(), well_known::PROVISIONING.into()];
    let note = |claim: &mut Claim, key: &str| {
        claim.metadata.annotations.insert(key.into(), "x".into());
    };
    note(&mut claim, well_known::PROVISIONING_PLACE);
    note(&mut claim, well_known::GIVES_WAY);
    let mut made = a_volume("pvc-uid-data", "c");
    made.spec.claim_ref = Some(claim.reference());
    let point = |claim: &Claim, volume: &Volume| {
        let write = Step::PointClaim.write(claim, Some(volume)).unwrap();
        write.body["metadata"].clone()
    };
    let meta = point(&claim, &made);
    assert_eq!(meta["finalizers"], json!(["other"]));
    assert_eq!(
        meta["annotations"][well_known::PROVISIONING_PLACE],
        Value::Null
    );
    assert_eq!(meta["annotations"][well_known::GIVES_WAY], Value::Null);

    // Another volume says nothing of the call that may be under way.
    let mut another = a_volume("by-hand", "c");
    another.spec.claim_ref = Some(claim.reference());
    assert_eq!(point(&claim, &another).get("finalizers"), None);
    // What it was filled from must be let go of first.
    note(&mut claim, well_known::PROVISIONING_SOURCE);
    assert_eq!(point(&claim, &made).get("finalizers"), None);
}

/// kubernetes#23886: a volume goes under its claim, another claim comes, and then a volume of the
/// old one's name.
#[test]
fn a_volume_that_was_made_again_has_one_owner() {
    for (volumes_first, noticed) in [(false, true), (true, true), (false, false), (true, false)] {
        let mut world = World::default();
        world.add_claim(a_claim("old", ""));
        world.add_volume(a_volume("a", ""));
        world.settle(volumes_first);
        world.volumes.remove(&Key::cluster("a"));
        world.add_claim(a_claim("new", ""));
        if noticed {
            world.settle(volumes_first);
            let old = &world.claims[&Key::namespaced("ns", "old")];
            assert_eq!(old.phase(), ClaimPhase::Lost);
        }
        world.made_again = true;
        let mut again = a_volume("a", "");
        again.metadata.uid = "second".into();
        world.add_volume(again);
        world.settle(volumes_first);
        let owner = world.volumes[&Key::cluster("a")].spec.claim_ref.clone();
        let owner = owner.expect("somebody has it");
        let bound = world.claims.values();
        let bound: Vec<&Claim> = bound.filter(|c| c.phase() == ClaimPhase::Bound).collect();
        assert_eq!(bound.len(), 1, "volumes first: {volumes_first}");
        assert_eq!(bound[0].metadata.uid, owner.uid);
        assert_eq!(bound[0].spec.volume_name, "a");
    }
}
