//! Claims that take what they find, and what becomes of every claim's case.

use super::*;
use crate::binder::explain::{self, Survey};

fn found() -> Vec<Case> {
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
    ]
}

/// `index_test.go`: which volume is the best, where there are several.
fn best() -> Vec<Case> {
    vec![
        case(
            "TestFindingPreboundVolumes: the exact match is another's",
            PLAIN,
            &[
                ("one", |v| {
                    size(v, "1Gi");
                    reserve(v, "");
                    v.spec.claim_ref.as_mut().unwrap().name = "foo".into();
                }),
                ("eight", |v| size(v, "8Gi")),
                ("five", |v| size(v, "5Gi")),
            ],
            Turn::Binds("five", ALL),
        ),
        case(
            "TestFindingPreboundVolumes: too small a one is reserved",
            PLAIN,
            &[
                ("small", |v| {
                    size(v, "1Mi");
                    reserve(v, "");
                }),
                ("one", FREE),
            ],
            Turn::Binds("one", ALL),
        ),
        case(
            "TestFindingPreboundVolumes: one without the access mode is reserved",
            PLAIN,
            &[
                ("unlike", |v| {
                    v.spec.access_modes = vec![AccessMode::ReadOnlyMany];
                    reserve(v, "");
                }),
                ("one", FREE),
            ],
            Turn::Binds("one", ALL),
        ),
        case(
            "TestStorageObjectInUseProtectionFiltering: the smallest is going",
            PLAIN,
            &[
                ("going", |v| {
                    *v = deleting(v.clone());
                    size(v, "1Gi");
                }),
                ("one", FREE),
            ],
            Turn::Binds("one", ALL),
        ),
        case(
            "TestFindingVolumeWithDifferentAccessModes",
            |c| c.spec.access_modes = vec![AccessMode::ReadOnlyMany],
            &[
                ("ebs", FREE),
                ("nfs", |v| {
                    let modes = &mut v.spec.access_modes;
                    modes.extend([AccessMode::ReadOnlyMany, AccessMode::ReadWriteMany]);
                }),
                ("gce", |v| {
                    v.spec.access_modes.push(AccessMode::ReadOnlyMany)
                }),
            ],
            Turn::Binds("gce", ALL),
        ),
        case(
            "successful-match-with-empty-vac",
            |c| c.spec.volume_attributes_class_name = Some(String::new()),
            &[
                ("gold", |v| {
                    v.spec.volume_attributes_class_name = Some("gold".into());
                    size(v, "1Gi");
                }),
                ("plain", FREE),
            ],
            Turn::Binds("plain", ALL),
        ),
        case(
            "successful-match-with-vac",
            |c| c.spec.volume_attributes_class_name = Some("gold".into()),
            &[
                ("plain", |v| size(v, "1Gi")),
                ("gold", |v| {
                    v.spec.volume_attributes_class_name = Some("gold".into());
                }),
            ],
            Turn::Binds("gold", ALL),
        ),
        case(
            "successful-no-match-vac-nonexisting",
            |c| c.spec.volume_attributes_class_name = Some("silver".into()),
            &[("plain", FREE)],
            nothing(),
        ),
    ]
}

#[test]
fn every_numbered_case_of_a_claim_has_its_counterpart() {
    let cases = [found(), best(), named::cases(), classes::cases()];
    for case in cases.into_iter().flatten() {
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
