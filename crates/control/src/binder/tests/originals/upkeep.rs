//! What claims and volumes say of plugins that CSI drivers took over from: the original's
//! `TestModifyDeletionFinalizers` (13-1 to 13-15 there) and `TestAnnealMigrationAnnotations`.

use super::*;

const MINE: &str = well_known::IN_TREE_PROVISIONER;
const THEIRS: &str = well_known::EXTERNAL_PROVISIONER;
const OTHER: &str = "test.volume.kubernetes.io/finalizer";
const MIGRATED: &str = "kubernetes.io/gce-pd";
const DRIVER: &str = "pd.csi.storage.gke.io";
const LEFT_OVER: &str = "kubernetes.io/rbd";

fn note<K: Kind>(object: &mut K, key: &str, value: Option<&str>) {
    if let Some(value) = value {
        let annotations = &mut object.meta_mut().annotations;
        annotations.insert(key.into(), value.into());
    }
}

fn upkeep(volume: Volume) -> volume::Upkeep {
    let mut decision = look(volume, None, Evidence::Live);
    match decision.steps.drain(..).next() {
        Some(volume::Step::KeepUp(upkeep)) => upkeep,
        _ => volume::Upkeep::default(),
    }
}

#[test]
fn a_volume_keeps_the_finalizers_of_whoever_deletes_it_and_of_strangers() {
    use ReclaimPolicy::{Delete, Recycle, Retain};
    type Row<'r> = (
        &'r str,
        Option<&'r str>,
        ReclaimPolicy,
        &'r [&'r str],
        Option<&'r [&'r str]>,
    );
    let left_over = Some(LEFT_OVER);
    let rows: [Row<'_>; 12] = [
        ("13-1", Some("d"), Delete, &[THEIRS], None),
        ("13-2", Some("d"), Delete, &[], None),
        // Nothing of Kubernetes' own deletes volumes here: its finalizer would stay for good.
        (
            "13-3, where the original adds its own",
            left_over,
            Delete,
            &[OTHER],
            None,
        ),
        (
            "13-4, where the original adds its own",
            left_over,
            Delete,
            &[],
            None,
        ),
        ("13-5 and 13-8", left_over, Delete, &[THEIRS], Some(&[])),
        (
            "13-6 and 13-9",
            left_over,
            Delete,
            &[THEIRS, OTHER],
            Some(&[OTHER]),
        ),
        (
            "13-7",
            Some(MIGRATED),
            Delete,
            &[THEIRS, MINE],
            Some(&[THEIRS]),
        ),
        ("13-10", None, Delete, &[THEIRS], None),
        ("13-11 and 13-15", None, Delete, &[], None),
        ("13-12", left_over, Retain, &[], None),
        ("13-13", left_over, Recycle, &[], None),
        ("13-14", left_over, Retain, &[MINE], Some(&[])),
    ];
    for (number, maker, policy, finalizers, then) in rows {
        let (_, mut volume) = bound("data", "vol");
        note(&mut volume, well_known::PROVISIONED_BY, maker);
        if maker == Some(MIGRATED) {
            note(&mut volume, well_known::MIGRATED_TO, Some(DRIVER));
        }
        volume.spec.persistent_volume_reclaim_policy = Some(policy);
        volume.metadata.finalizers = finalizers.iter().map(|f| (*f).to_owned()).collect();
        let kept = upkeep(volume).finalizers;
        let then = then.map(|all| all.iter().map(|f| (*f).to_owned()).collect::<Vec<_>>());
        assert_eq!(kept, then, "{number}");
    }
}

#[test]
fn claim_and_volume_say_which_driver_took_over_and_no_longer_once_none_has() {
    let over = Some(Some(DRIVER));
    for (name, plugin, noted, then) in [
        ("migration on", Some(MIGRATED), None, over),
        ("said already", Some(MIGRATED), Some(DRIVER), None),
        ("migration off", Some(LEFT_OVER), None, None),
        (
            "migration off removes migrated to (rollback)",
            Some(LEFT_OVER),
            Some("rbd.csi.ceph.com"),
            Some(None),
        ),
        (
            "other plugin not affected",
            Some("non-migrated-plugin"),
            None,
            None,
        ),
        ("not dynamically provisioned", None, None, None),
    ] {
        let mut volume = a_volume("vol", "");
        note(&mut volume, well_known::PROVISIONED_BY, plugin);
        note(&mut volume, well_known::MIGRATED_TO, noted);
        assert_eq!(upkeep(volume).migrated_to, then, "{name}, the volume");
        for key in [
            well_known::STORAGE_PROVISIONER,
            well_known::BETA_STORAGE_PROVISIONER,
        ] {
            let mut claim = a_claim("data", "");
            note(&mut claim, key, plugin);
            note(&mut claim, well_known::MIGRATED_TO, noted);
            let steps = claim::decide(&view(claim)).steps;
            let told = steps.into_iter().find_map(|step| match step {
                Step::NoteMigration(driver) => Some(driver),
                _ => None,
            });
            assert_eq!(told, then, "{name}, the claim by {key}");
        }
    }
}
