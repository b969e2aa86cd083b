//! What claim and volume say in the end: who made the binding, and what the claim got.

use super::*;

/// Number, claim, volume, and then: whether the volume and whether the claim says that the binder
/// made the binding, and the size that the claim has.
type End = (
    &'static str,
    Change<Claim>,
    Change<Volume>,
    (bool, bool),
    &'static str,
);

fn by_binder(volume: &mut Volume) {
    let annotations = &mut volume.metadata.annotations;
    annotations.insert(well_known::BOUND_BY_CONTROLLER.into(), "yes".into());
}

fn pointed_by_binder(claim: &mut Claim) {
    was_bound(claim);
    let annotations = &mut claim.metadata.annotations;
    annotations.insert(well_known::BOUND_BY_CONTROLLER.into(), "yes".into());
}

fn ends() -> Vec<End> {
    vec![
        ("1-1, 5-2 and 10-1", PLAIN, FREE, (true, true), "2Gi"),
        (
            "5-2-2",
            PLAIN,
            |v| v.status.phase = None,
            (true, true),
            "2Gi",
        ),
        (
            "5-2-3: its file system is still the old one",
            |c| c.status.capacity = a_volume("v", "").spec.capacity,
            |v| {
                let annotations = &mut v.metadata.annotations;
                annotations.insert(well_known::PRE_RESIZE_CAPACITY.into(), "1Gi".into());
            },
            (true, true),
            "1Gi",
        ),
        (
            "1-5, 1-14 and 14-7",
            PLAIN,
            |v| {
                size(v, "10Gi");
                reserve(v, "");
            },
            (false, true),
            "10Gi",
        ),
        (
            "1-6, 1-18",
            PLAIN,
            |v| reserve(v, "uid-data"),
            (false, true),
            "2Gi",
        ),
        (
            "1-8: the binder died after its first write",
            PLAIN,
            |v| {
                reserve(v, "uid-data");
                by_binder(v);
            },
            (true, true),
            "2Gi",
        ),
        (
            "1-15, 2-3, 2-8, 14-9 and 14-11",
            |c| asks_for(c, "vol"),
            |v| size(v, "10Gi"),
            (true, false),
            "10Gi",
        ),
        (
            "2-4: claim and volume name each other",
            |c| asks_for(c, "vol"),
            |v| reserve(v, ""),
            (false, false),
            "2Gi",
        ),
        (
            "2-5",
            |c| asks_for(c, "vol"),
            |v| reserve(v, "uid-data"),
            (false, false),
            "2Gi",
        ),
        ("3-3", pointed_by_binder, FREE, (true, true), "2Gi"),
        (
            "3-5: neither was the binder's",
            was_bound,
            |v| reserve(v, "uid-data"),
            (false, false),
            "2Gi",
        ),
    ]
}

#[test]
fn what_a_person_wrote_stays_known_as_theirs_and_the_claim_has_what_it_got() {
    let of_binder = well_known::BOUND_BY_CONTROLLER;
    for (number, change_claim, change_volume, made_by_binder, size) in ends() {
        let mut world = World::default();
        let (mut claim, mut volume) = (a_claim("data", ""), a_volume("vol", ""));
        change_claim(&mut claim);
        change_volume(&mut volume);
        let (claim_key, volume_key) = (claim.key(), volume.key());
        world.add_claim(claim);
        world.add_volume(volume);
        world.settle(false);
        let (claim, volume) = (&world.claims[&claim_key], &world.volumes[&volume_key]);
        let marked = (
            volume.metadata.annotations.contains_key(of_binder),
            claim.metadata.annotations.contains_key(of_binder),
        );
        assert_eq!(marked, made_by_binder, "{number}");
        assert_eq!(claim.phase(), ClaimPhase::Bound, "{number}");
        assert_eq!(volume.phase(), VolumePhase::Bound, "{number}");
        assert!(claim.bind_completed(), "{number}");
        let got = claim.status.capacity.storage().unwrap().to_string();
        assert_eq!(got, size, "{number}");
        assert_eq!(
            claim.status.access_modes, volume.spec.access_modes,
            "{number}"
        );
    }
}

#[test]
fn a_claim_is_told_the_attributes_class_of_its_volume() {
    // 2-12.
    let mut world = World::default();
    let (mut claim, mut volume) = (a_claim("data", ""), a_volume("vol", ""));
    asks_for(&mut claim, "vol");
    let gold = Some("gold".to_owned());
    claim.spec.volume_attributes_class_name.clone_from(&gold);
    volume.spec.volume_attributes_class_name.clone_from(&gold);
    let key = claim.key();
    world.add_claim(claim);
    world.add_volume(volume);
    world.settle(false);
    let status = &world.claims[&key].status;
    assert_eq!(status.current_volume_attributes_class_name, gold);
}

#[test]
fn of_two_volumes_that_two_binders_gave_one_claim_the_other_is_free_again() {
    // 10-2, and 8-11 and 8-12 where both were made for the claim.
    for made in [false, true] {
        let mut world = World::default();
        let (claim, mine) = bound("data", "mine");
        let mut spare = mine.clone();
        spare.metadata.name = "spare".into();
        for volume in [mine, spare] {
            let mut volume = volume;
            by_binder(&mut volume);
            if made {
                let annotations = &mut volume.metadata.annotations;
                annotations.insert(well_known::PROVISIONED_BY.into(), "d".into());
                volume.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Delete);
            }
            world.add_volume(volume);
        }
        world.add_claim(claim);
        world.settle(true);
        let of = |name: &str| world.volumes[&Key::cluster(name)].clone();
        let (mine, spare) = (of("mine"), of("spare"));
        assert_eq!(mine.phase(), VolumePhase::Bound);
        assert_eq!(spare.spec.claim_ref.is_some(), made);
        let then = match made {
            true => VolumePhase::Released,
            false => VolumePhase::Available,
        };
        assert_eq!(spare.phase(), then, "made for the claim: {made}");
    }
}

#[test]
fn a_claim_loses_its_volume_and_a_volume_its_claim() {
    // 5-3 and 5-4.
    let mut world = World::default();
    let (claim, volume) = bound("data", "vol");
    let (claim_key, volume_key) = (claim.key(), volume.key());
    world.add_claim(claim);
    world.add_volume(volume);
    let mut without_claim = world.clone();
    without_claim.claims.clear();
    without_claim.settle(false);
    let volume = &without_claim.volumes[&volume_key];
    assert_eq!(volume.phase(), VolumePhase::Released);
    assert!(
        volume.spec.claim_ref.is_some(),
        "a person sees whose it was"
    );
    world.volumes.clear();
    world.settle(false);
    assert_eq!(world.claims[&claim_key].phase(), ClaimPhase::Lost);
}
