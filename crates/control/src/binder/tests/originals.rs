//! The numbered cases of the original's own unit tests, each with its counterpart.
//!
//! | original | here |
//! |---|---|
//! | 1-1..1-18, 13-1..13-5, 14-1..14-12 (a claim without volume, or with one) | [`claims`] |
//! | 2-1..2-13 (a claim that names a volume) | [`claims`] |
//! | 3-1..3-7 (a claim that was bound) | [`claims`] |
//! | 4-1..4-12, 14-13..14-14-1 (a volume) | [`volumes`] |
//! | 6-1..6-14, 7-1 (recycle) | [`volumes`] for who is to be scrubbed, `recycle/tests.rs` for how |
//! | 8-1..8-13, 9-1 (delete) | [`volumes`]; 8-1, 8-2, 8-5, 9-1 need an in-tree deleter, and there is none left |
//! | 10-1, 10-2 (many turns) | `a_crash_after_any_write_changes_nothing_in_the_end` |
//! | 11-2, 11-14..11-18, 11-21, 11-22, 11-24 (provision) | [`claims`]; the rest of 11 needs an in-tree provisioner |
//! | 12-1..12-4 (provision, many turns) | `a_crash_after_any_write_…`, "provisioned for the claim" |
//!
//! Where the original retries every 15 s, this binder waits for a change; where the original
//! says nothing to a claim whose volume is missing (2-1, 2-2), this one says so.

use orlop_model::AccessMode;

use super::*;
use crate::binder::explain::{self, Survey};

/// What a claim's turn must come to.
enum Turn {
    /// Bound to this volume by all four writes, or what is missing of them.
    Binds(&'static str, &'static [Step]),
    /// It waits, and is told so: the reason, and whether that is a warning.
    Waits(&'static str, bool),
    /// It waits and nothing is said.
    Silent,
}

type Change<K> = fn(&mut K);

struct Case {
    number: &'static str,
    claim: Change<Claim>,
    /// What there is, and the change from a free volume of 2Gi without a class.
    volumes: &'static [(&'static str, Change<Volume>)],
    world: Change<claim::View>,
    turn: Turn,
}

const ALL: &[Step] = &WHOLE_BIND;
const AS_IT_IS: fn(&mut claim::View) = |_| {};
const PLAIN: fn(&mut Claim) = |_| {};
const FREE: fn(&mut Volume) = |_| {};

fn reserve(volume: &mut Volume, uid: &str) {
    volume.spec.claim_ref = Some(ObjectRef {
        uid: uid.into(),
        ..a_claim("data", "").reference()
    });
}

fn size(volume: &mut Volume, size: &str) {
    volume.spec.capacity = serde_json::from_value(json!({ "storage": size })).unwrap();
}

fn asks_for(claim: &mut Claim, name: &str) {
    claim.spec.volume_name = name.into();
}

fn select(claim: &mut Claim) {
    let selector = json!({"matchLabels": {"tier": "t1"}});
    claim.spec.selector = serde_json::from_value(selector).unwrap();
}

fn of_class(claim: &mut Claim, name: &str) {
    claim.spec.storage_class_name = Some(name.into());
}

fn was_bound(claim: &mut Claim) {
    asks_for(claim, "vol");
    let annotations = &mut claim.metadata.annotations;
    annotations.insert(well_known::BIND_COMPLETED.into(), "yes".into());
}

fn claims() -> Vec<Case> {
    let case = |number, claim, volumes, turn| Case {
        number,
        claim,
        volumes,
        world: AS_IT_IS,
        turn,
    };
    let nothing = || Turn::Waits("FailedBinding", false);
    let mismatch = || Turn::Waits("VolumeMismatch", true);
    vec![
        case("1-1", PLAIN, &[("vol", FREE)], Turn::Binds("vol", ALL)),
        case("1-2", PLAIN, &[("vol", |v| size(v, "1Mi"))], nothing()),
        case(
            "1-4",
            PLAIN,
            &[
                ("ten", |v| size(v, "10Gi")),
                ("one", |v| size(v, "1Gi")),
                ("five", |v| size(v, "5Gi")),
            ],
            Turn::Binds("one", ALL),
        ),
        case(
            "1-5",
            PLAIN,
            &[
                ("ten", |v| {
                    size(v, "10Gi");
                    reserve(v, "");
                }),
                ("one", FREE),
            ],
            Turn::Binds("ten", ALL),
        ),
        case(
            "1-6",
            PLAIN,
            &[
                ("ten", |v| {
                    size(v, "10Gi");
                    reserve(v, "uid-data");
                }),
                ("one", FREE),
            ],
            Turn::Binds("ten", &WHOLE_BIND_BUT_RESERVING),
        ),
        case(
            "1-7",
            PLAIN,
            &[("vol", |v| reserve(v, "another"))],
            nothing(),
        ),
        case(
            "1-8",
            PLAIN,
            &[("vol", |v| reserve(v, "uid-data"))],
            Turn::Binds("vol", &WHOLE_BIND_BUT_RESERVING),
        ),
        case(
            "1-9",
            PLAIN,
            &[("vol", |v| {
                reserve(v, "uid-data");
                v.status.phase = Some(VolumePhase::Bound);
            })],
            Turn::Binds("vol", &CLAIMS_HALF),
        ),
        case(
            "1-10",
            |c| {
                was_bound(c);
                c.status.phase = Some(ClaimPhase::Pending);
            },
            &[("vol", |v| {
                reserve(v, "uid-data");
                v.status.phase = Some(VolumePhase::Bound);
            })],
            Turn::Binds("vol", &[Step::MarkClaimBound]),
        ),
        case(
            "1-11",
            select,
            &[
                ("other", FREE),
                ("vol", |v| {
                    v.metadata.labels.insert("tier".into(), "t1".into());
                }),
            ],
            Turn::Binds("vol", ALL),
        ),
        case("1-12", select, &[("vol", FREE)], nothing()),
        Case {
            number: "1-13",
            claim: |c| of_class(c, "wait"),
            volumes: &[("vol", |v| v.spec.storage_class_name = "wait".into())],
            world: |v| v.class = shared(class("wait", "WaitForFirstConsumer")),
            turn: Turn::Waits("WaitForFirstConsumer", false),
        },
        Case {
            number: "1-14 and 1-18",
            claim: |c| of_class(c, "wait"),
            volumes: &[("vol", |v| {
                v.spec.storage_class_name = "wait".into();
                reserve(v, "uid-data");
            })],
            world: |v| v.class = shared(class("wait", "WaitForFirstConsumer")),
            turn: Turn::Binds("vol", &WHOLE_BIND_BUT_RESERVING),
        },
        case(
            "1-15",
            |c| asks_for(c, "ten"),
            &[("ten", |v| size(v, "10Gi")), ("one", FREE)],
            Turn::Binds("ten", ALL),
        ),
        case(
            "1-16",
            |c| {
                asks_for(c, "vol");
                c.spec.access_modes = vec![AccessMode::ReadWriteMany];
            },
            &[("vol", FREE)],
            mismatch(),
        ),
        case(
            "1-17",
            PLAIN,
            &[
                ("pending", |v| v.status.phase = Some(VolumePhase::Pending)),
                ("failed", |v| v.status.phase = Some(VolumePhase::Failed)),
                ("released", |v| v.status.phase = Some(VolumePhase::Released)),
                ("new", |v| v.status.phase = None),
            ],
            nothing(),
        ),
        case("2-1", |c| asks_for(c, "gone"), &[], nothing()),
        case(
            "2-3",
            |c| asks_for(c, "vol"),
            &[("vol", FREE)],
            Turn::Binds("vol", ALL),
        ),
        case(
            "2-4",
            |c| asks_for(c, "vol"),
            &[("vol", |v| reserve(v, ""))],
            Turn::Binds("vol", ALL),
        ),
        case(
            "2-5",
            |c| asks_for(c, "vol"),
            &[("vol", |v| reserve(v, "uid-data"))],
            Turn::Binds("vol", &WHOLE_BIND_BUT_RESERVING),
        ),
        case(
            "2-6",
            |c| asks_for(c, "vol"),
            &[("vol", |v| reserve(v, "another"))],
            Turn::Waits("FailedBinding", true),
        ),
        case(
            "2-7",
            |c| {
                asks_for(c, "vol");
                let annotations = &mut c.metadata.annotations;
                annotations.insert(well_known::BOUND_BY_CONTROLLER.into(), "yes".into());
            },
            &[("vol", |v| reserve(v, "another"))],
            Turn::Waits("FailedBinding", true),
        ),
        case(
            "2-8",
            |c| {
                asks_for(c, "vol");
                select(c);
            },
            &[("vol", FREE)],
            Turn::Binds("vol", ALL),
        ),
        case(
            "2-9",
            |c| asks_for(c, "vol"),
            &[("vol", |v| size(v, "1Mi"))],
            mismatch(),
        ),
        case(
            "2-10 and 14-5-2",
            |c| asks_for(c, "vol"),
            &[("vol", |v| v.spec.storage_class_name = "gold".into())],
            mismatch(),
        ),
        case(
            "2-11",
            |c| {
                asks_for(c, "vol");
                c.spec.volume_attributes_class_name = Some("gold".into());
            },
            &[("vol", FREE)],
            mismatch(),
        ),
        case(
            "2-12",
            |c| {
                asks_for(c, "vol");
                c.spec.volume_attributes_class_name = Some("gold".into());
            },
            &[("vol", |v| {
                v.spec.volume_attributes_class_name = Some("gold".into())
            })],
            Turn::Binds("vol", ALL),
        ),
        case(
            "3-3 and 3-7",
            |c| {
                was_bound(c);
                select(c);
            },
            &[("vol", FREE)],
            Turn::Binds(
                "vol",
                &[
                    Step::ReserveVolume,
                    Step::MarkVolumeBound,
                    Step::MarkClaimBound,
                ],
            ),
        ),
        case(
            "3-3, of a claim that was called lost",
            |c| {
                was_bound(c);
                c.status.phase = Some(ClaimPhase::Lost);
            },
            &[("vol", FREE)],
            Turn::Binds(
                "vol",
                &[
                    Step::ReserveVolume,
                    Step::MarkVolumeBound,
                    Step::MarkClaimBound,
                ],
            ),
        ),
        case(
            "3-5",
            was_bound,
            &[("vol", |v| {
                reserve(v, "uid-data");
                v.status.phase = Some(VolumePhase::Bound);
            })],
            Turn::Binds("vol", &[Step::MarkClaimBound]),
        ),
        case(
            "13-1 and 13-3",
            |c| of_class(c, "gold"),
            &[
                ("one", FREE),
                ("silver", |v| v.spec.storage_class_name = "silver".into()),
                ("ten", |v| {
                    size(v, "10Gi");
                    v.spec.storage_class_name = "gold".into();
                }),
            ],
            Turn::Binds("ten", ALL),
        ),
        case(
            "13-2 and 13-4",
            PLAIN,
            &[
                ("one", |v| v.spec.storage_class_name = "gold".into()),
                ("ten", |v| size(v, "10Gi")),
            ],
            Turn::Binds("ten", ALL),
        ),
        case(
            "13-5",
            |c| c.spec.storage_class_name = None,
            &[("vol", FREE)],
            Turn::Binds("vol", ALL),
        ),
        case(
            "14-1",
            |c| c.spec.volume_mode = Some(VolumeMode::Block),
            &[("vol", |v| v.spec.volume_mode = Some(VolumeMode::Block))],
            Turn::Binds("vol", ALL),
        ),
        case(
            "14-2, and no mode means files",
            |c| c.spec.volume_mode = Some(VolumeMode::Filesystem),
            &[("vol", FREE)],
            Turn::Binds("vol", ALL),
        ),
        case(
            "14-3",
            |c| c.spec.volume_mode = Some(VolumeMode::Block),
            &[("vol", FREE)],
            nothing(),
        ),
        case(
            "14-4",
            PLAIN,
            &[("vol", |v| v.spec.volume_mode = Some(VolumeMode::Block))],
            nothing(),
        ),
        case(
            "14-5, 14-5-1 and 11-14: the class is missing",
            |c| of_class(c, "gold"),
            &[("vol", |v| {
                v.spec.storage_class_name = "gold".into();
                v.spec.volume_mode = Some(VolumeMode::Block);
            })],
            Turn::Waits("ProvisioningFailed", true),
        ),
        case(
            "14-7, 14-10 and 14-12",
            |c| c.spec.volume_mode = Some(VolumeMode::Block),
            &[("vol", |v| {
                reserve(v, "");
                v.spec.volume_mode = Some(VolumeMode::Block);
            })],
            Turn::Binds("vol", ALL),
        ),
        case(
            "14-8",
            |c| asks_for(c, "vol"),
            &[("vol", |v| v.spec.volume_mode = Some(VolumeMode::Block))],
            mismatch(),
        ),
        case(
            "14-8-1",
            PLAIN,
            &[("vol", |v| {
                reserve(v, "");
                v.spec.volume_mode = Some(VolumeMode::Block);
            })],
            nothing(),
        ),
        case(
            "a volume reserved by name that lacks an access mode",
            |c| c.spec.access_modes = vec![AccessMode::ReadWriteMany],
            &[("vol", |v| reserve(v, ""))],
            nothing(),
        ),
        case("11-15", PLAIN, &[], nothing()),
        case(
            "11-16",
            |c| c.spec.storage_class_name = None,
            &[],
            nothing(),
        ),
        Case {
            number: "11-17",
            claim: |c| of_class(c, "c"),
            volumes: &[],
            world: |v| v.class = shared(class("c", "Immediate")),
            turn: Turn::Waits("ExternalProvisioning", false),
        },
        Case {
            number: "11-2 and 11-18",
            claim: |c| of_class(c, "c"),
            volumes: &[],
            world: |v| {
                let mut class = class("c", "Immediate");
                class.provisioner = "kubernetes.io/unknown".into();
                v.class = shared(class);
            },
            turn: Turn::Waits("ProvisioningFailed", true),
        },
        Case {
            number: "11-6 and 11-22",
            claim: |c| of_class(c, "c"),
            volumes: &[("vol", |v| v.spec.storage_class_name = "c".into())],
            world: |v| v.class = shared(class("c", "Immediate")),
            turn: Turn::Binds("vol", ALL),
        },
        Case {
            number: "11-24",
            claim: |c| {
                of_class(c, "wait");
                let annotations = &mut c.metadata.annotations;
                annotations.insert(well_known::SELECTED_NODE.into(), "n1".into());
            },
            volumes: &[("vol", |v| v.spec.storage_class_name = "wait".into())],
            world: |v| v.class = shared(class("wait", "WaitForFirstConsumer")),
            turn: Turn::Waits("ExternalProvisioning", false),
        },
        case(
            "a claim that is deleted while it asks for a free volume",
            |c| {
                *c = deleting(c.clone());
                asks_for(c, "vol");
            },
            &[("vol", FREE)],
            Turn::Silent,
        ),
    ]
}

const WHOLE_BIND_BUT_RESERVING: [Step; 3] = [
    Step::MarkVolumeBound,
    Step::PointClaim,
    Step::MarkClaimBound,
];
const CLAIMS_HALF: [Step; 2] = [Step::PointClaim, Step::MarkClaimBound];

#[test]
fn every_numbered_case_of_a_claim_has_its_counterpart() {
    for case in claims() {
        let number = case.number;
        let mut claim = a_claim("data", "");
        (case.claim)(&mut claim);
        let volumes = case.volumes.iter().map(|(name, change)| {
            let mut volume = a_volume(name, "");
            change(&mut volume);
            Arc::new(volume)
        });
        let volumes: Vec<Arc<Volume>> = volumes.collect();
        let named = volumes
            .iter()
            .find(|v| v.metadata.name == claim.spec.volume_name);
        let mut v = view(claim);
        v.named = named.cloned();
        v.candidates = volumes;
        (case.world)(&mut v);
        let decision = claim::decide(&v);
        let news = explain::news(&v.claim, &decision.because, &Survey::default());
        match case.turn {
            Turn::Binds(name, steps) => {
                let volume = decision.volume.map(|v| v.metadata.name.clone());
                assert_eq!(volume.as_deref(), Some(name), "{number}");
                assert_eq!(decision.steps, steps, "{number}");
                assert_eq!(news, None, "{number}");
            }
            Turn::Waits(reason, warning) => {
                let news = news.map(|news| (news.reason, news.warning));
                assert_eq!(news, Some((reason, warning)), "{number}");
                assert_eq!(decision.volume, None, "{number}");
            }
            Turn::Silent => assert_eq!((news, decision.steps), (None, vec![]), "{number}"),
        }
    }
}

#[test]
fn a_status_of_an_older_life_is_cleared_while_a_claim_waits() {
    // 1-3, 2-2, 2-9, 2-10: whatever it waits for.
    let waits: [(&str, Change<Claim>); 3] = [
        ("1-3", |_| {}),
        ("2-2", |c| asks_for(c, "gone")),
        ("attributes class", |c| {
            c.status = Default::default();
            c.status.phase = Some(ClaimPhase::Pending);
            c.status.current_volume_attributes_class_name = Some("gold".into());
        }),
    ];
    for (number, change) in waits {
        let mut claim = a_claim("data", "");
        claim.status.phase = Some(ClaimPhase::Bound);
        change(&mut claim);
        let decision = claim::decide(&view(claim));
        assert_eq!(decision.steps, [Step::MarkPending], "{number}");
    }
}

#[test]
fn a_claim_whose_volume_another_has_by_the_binders_word_is_not_unbound() {
    // 2-7 against 2-6.
    let taken = |by_binder: bool| {
        let mut claim = a_claim("data", "");
        claim.status.phase = Some(ClaimPhase::Bound);
        asks_for(&mut claim, "vol");
        if by_binder {
            let annotations = &mut claim.metadata.annotations;
            annotations.insert(well_known::BOUND_BY_CONTROLLER.into(), "yes".into());
        }
        let mut volume = a_volume("vol", "");
        reserve(&mut volume, "another");
        let mut v = view(claim);
        v.named = shared(volume);
        claim::decide(&v).steps
    };
    assert_eq!(taken(false), [Step::MarkPending]);
    assert_eq!(taken(true), []);
}

#[test]
fn a_claim_of_a_migrated_plugin_is_the_csi_drivers() {
    // 11-21 and 11-23.
    let mut migrated = class("c", "Immediate");
    migrated.provisioner = "kubernetes.io/aws-ebs".into();
    let mut v = view(a_claim("data", "c"));
    v.class = shared(migrated);
    let decision = claim::decide(&v);
    let driver = "ebs.csi.aws.com";
    assert_eq!(decision.because, Because::Provisioning(driver.into()));
    assert_eq!(decision.steps, [Step::AskProvisioner(driver.into())]);
    // It was asked by its old name, before the driver took over.
    let note = |name: &str| {
        let annotations = &mut Arc::make_mut(&mut v.claim).metadata.annotations;
        for key in [
            well_known::STORAGE_PROVISIONER,
            well_known::BETA_STORAGE_PROVISIONER,
        ] {
            annotations.insert(key.into(), name.into());
        }
        claim::decide(&v).steps
    };
    let mut note = note;
    let steps = note("kubernetes.io/aws-ebs");
    assert_eq!(steps[0], Step::NoteMigration(Some(driver)));
    assert_eq!(note(driver), []);
}

#[test]
fn a_note_of_a_migration_that_is_over_is_taken_back() {
    let (mut claim, volume) = bound("data", "vol");
    let annotations = &mut claim.metadata.annotations;
    annotations.insert(well_known::STORAGE_PROVISIONER.into(), "d".into());
    annotations.insert(well_known::MIGRATED_TO.into(), "d".into());
    let mut v = view(claim);
    v.named = shared(volume);
    assert_eq!(claim::decide(&v).steps, [Step::NoteMigration(None)]);
}

/// Number, volume, its claim, and what must be done.
type VolumeCase = (&'static str, Change<Volume>, Owner, Vec<volume::Step>);

/// What a volume's turn must come to, once the API server was asked.
fn volumes() -> Vec<VolumeCase> {
    use volume::Step as S;
    let mark = |phase| vec![S::Mark(phase)];
    vec![
        (
            "4-1",
            |v| {
                v.spec.claim_ref = None;
                v.status.phase = Some(VolumePhase::Pending);
            },
            Owner::None,
            mark(VolumePhase::Available),
        ),
        (
            "4-2",
            |v| {
                v.spec.claim_ref.as_mut().unwrap().uid.clear();
                v.status.phase = Some(VolumePhase::Pending);
            },
            Owner::None,
            mark(VolumePhase::Available),
        ),
        (
            "4-3 and 4-4",
            |_| {},
            Owner::None,
            mark(VolumePhase::Released),
        ),
        ("4-5", |_| {}, Owner::Unbound, vec![S::WakeClaim]),
        (
            "4-6",
            |v| v.status.phase = Some(VolumePhase::Available),
            Owner::Bound,
            mark(VolumePhase::Bound),
        ),
        (
            "4-7",
            |v| {
                let annotations = &mut v.metadata.annotations;
                annotations.insert(well_known::BOUND_BY_CONTROLLER.into(), "yes".into());
            },
            Owner::Elsewhere,
            vec![
                S::Release(Forget::Everything),
                S::Mark(VolumePhase::Available),
            ],
        ),
        (
            "4-8",
            |_| {},
            Owner::Elsewhere,
            vec![
                S::Release(Forget::Identity),
                S::Mark(VolumePhase::Available),
            ],
        ),
        (
            "4-9, 4-12 and 8-7",
            |v| v.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Delete),
            Owner::Bound,
            vec![],
        ),
        ("14-14", |_| {}, Owner::Unbound, vec![S::WakeClaim]),
        (
            "14-13",
            |v| v.spec.volume_mode = Some(VolumeMode::Block),
            Owner::Unbound,
            vec![],
        ),
        (
            "6-1, 6-2 and 6-3",
            |v| {
                v.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Recycle);
                v.status.phase = Some(VolumePhase::Released);
            },
            Owner::None,
            vec![S::Recycle],
        ),
        (
            "7-1: what failed is tried again",
            |v| {
                v.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Recycle);
                v.status.phase = Some(VolumePhase::Failed);
            },
            Owner::None,
            vec![S::Recycle],
        ),
        (
            "6-9: its claim exists",
            |v| v.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Recycle),
            Owner::Bound,
            vec![],
        ),
        (
            "6-8: it waits for a claim that comes",
            |v| {
                v.spec.claim_ref.as_mut().unwrap().uid.clear();
                v.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Recycle);
            },
            Owner::None,
            mark(VolumePhase::Available),
        ),
        (
            "8-10-1: provisioned by somebody else",
            |v| {
                v.spec.csi = None;
                v.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Delete);
                v.status.phase = Some(VolumePhase::Released);
                let annotations = &mut v.metadata.annotations;
                annotations.insert(well_known::PROVISIONED_BY.into(), "vendor.com/x".into());
            },
            Owner::None,
            vec![],
        ),
        (
            "8-10-2: a CSI driver's, made by hand",
            |v| {
                v.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Delete);
                v.status.phase = Some(VolumePhase::Released);
            },
            Owner::None,
            vec![],
        ),
        (
            "8-10-3: a CSI driver took over",
            |v| {
                v.spec.csi = None;
                v.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Delete);
                v.status.phase = Some(VolumePhase::Released);
                let annotations = &mut v.metadata.annotations;
                let maker = "kubernetes.io/gce-pd";
                annotations.insert(well_known::PROVISIONED_BY.into(), maker.into());
                let driver = "pd.csi.storage.gke.io";
                annotations.insert(well_known::MIGRATED_TO.into(), driver.into());
            },
            Owner::None,
            vec![],
        ),
        (
            "8-12: two were provisioned for one claim",
            |v| {
                v.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Delete);
                let annotations = &mut v.metadata.annotations;
                annotations.insert(well_known::PROVISIONED_BY.into(), "d".into());
            },
            Owner::Elsewhere,
            mark(VolumePhase::Released),
        ),
        (
            "8-13: it is being deleted",
            |v| {
                *v = deleting(v.clone());
                v.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Delete);
                v.status.phase = Some(VolumePhase::Released);
            },
            Owner::None,
            vec![],
        ),
    ]
}

/// The claim that a volume names.
enum Owner {
    None,
    Unbound,
    Bound,
    Elsewhere,
}

#[test]
fn every_numbered_case_of_a_volume_has_its_counterpart() {
    for (number, change, owner, steps) in volumes() {
        let (mut claim, mut volume) = bound("data", "vol");
        change(&mut volume);
        let owner = match owner {
            Owner::None => None,
            Owner::Bound => Some(claim),
            Owner::Unbound => {
                claim.spec.volume_name.clear();
                Some(claim)
            }
            Owner::Elsewhere => {
                claim.spec.volume_name = "another".into();
                Some(claim)
            }
        };
        assert_eq!(look(volume, owner, Evidence::Live).steps, steps, "{number}");
    }
}

#[test]
fn a_volume_that_nobody_deletes_says_so() {
    // 4-10, 8-3, 8-4 and 6-10.
    let cases: [(&str, Change<Volume>, &str, &str); 4] = [
        (
            "no plugin",
            |_| {},
            "VolumeFailedDelete",
            "no deletable volume plugin matched",
        ),
        (
            "a plugin that is gone",
            |v| {
                let annotations = &mut v.metadata.annotations;
                annotations.insert(
                    well_known::PROVISIONED_BY.into(),
                    "kubernetes.io/rbd".into(),
                );
            },
            "VolumeFailedDelete",
            "no volume plugin matched name: kubernetes.io/rbd",
        ),
        (
            "a folder",
            |v| {
                v.spec.host_path = serde_json::from_value(json!({"path": "/srv/a"})).unwrap();
            },
            "VolumeFailedDelete",
            "empty /srv/a by hand",
        ),
        (
            "6-10",
            |v| v.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Unknown),
            "VolumeUnknownReclaimPolicy",
            "Volume has unrecognized PersistentVolumeReclaimPolicy",
        ),
    ];
    for (name, change, reason, text) in cases {
        let (_, mut volume) = bound("data", "vol");
        volume.spec.csi = None;
        volume.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Delete);
        volume.status.phase = Some(VolumePhase::Released);
        change(&mut volume);
        let steps = look(volume.clone(), None, Evidence::Cached).steps;
        let [volume::Step::MarkFailed(news)] = steps.as_slice() else {
            panic!("{name}: {steps:?}");
        };
        assert_eq!(news.reason, reason, "{name}");
        assert!(news.message.contains(text), "{name}: {}", news.message);
        // It is told once, and a person sees it until they act.
        volume.status.phase = Some(VolumePhase::Failed);
        let steps = look(volume, None, Evidence::Cached).steps;
        assert_eq!(steps, [], "{name}");
    }
}

#[test]
fn a_volume_is_scrubbed_only_on_the_servers_word() {
    let (_, mut volume) = bound("data", "vol");
    volume.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Recycle);
    for phase in [
        VolumePhase::Released,
        VolumePhase::Failed,
        VolumePhase::Bound,
    ] {
        volume.status.phase = Some(phase);
        let cached = look(volume.clone(), None, Evidence::Cached);
        assert!(cached.needs_live_evidence(), "{phase:?}");
        assert_eq!(cached.steps, [], "{phase:?}");
    }
}

#[test]
fn the_finalizers_of_a_made_volume_say_who_deletes_it() {
    let keep_up = |maker: &str, policy: ReclaimPolicy, finalizers: &[&str]| {
        let (claim, mut volume) = bound("data", "vol");
        let annotations = &mut volume.metadata.annotations;
        annotations.insert(well_known::PROVISIONED_BY.into(), maker.into());
        volume.metadata.finalizers = finalizers.iter().map(ToString::to_string).collect();
        volume.spec.persistent_volume_reclaim_policy = Some(policy);
        match look(volume, Some(claim), Evidence::Cached).steps.as_slice() {
            [] => None,
            [volume::Step::KeepUp(upkeep)] => Some(upkeep.clone()),
            other => panic!("{other:?}"),
        }
    };
    let (mine, theirs) = (
        well_known::IN_TREE_PROVISIONER,
        well_known::EXTERNAL_PROVISIONER,
    );
    let delete = ReclaimPolicy::Delete;
    let migrated = keep_up("kubernetes.io/cinder", delete, &["other", mine]).unwrap();
    assert_eq!(migrated.migrated_to, Some(Some("cinder.csi.openstack.org")));
    assert_eq!(migrated.finalizers, Some(vec!["other".to_owned()]));
    let left_over = keep_up("kubernetes.io/host-path", delete, &[mine, theirs]).unwrap();
    assert_eq!(left_over.finalizers, Some(vec![mine.to_owned()]));
    let kept = keep_up("kubernetes.io/host-path", ReclaimPolicy::Retain, &[mine]).unwrap();
    assert_eq!(kept.finalizers, Some(vec![]));
    assert_eq!(
        keep_up("d", delete, &[theirs]),
        None,
        "the driver's business"
    );
}
