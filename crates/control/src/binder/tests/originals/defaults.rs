//! Claims that said nothing about a class: the original's set 15.

use orlop_model::class::default_class;

use super::*;

fn marked(name: &str, made: &str) -> StorageClass {
    let mut class = class(name, "Immediate");
    class.metadata.creation_timestamp = Some(made.parse().unwrap());
    let annotations = &mut class.metadata.annotations;
    annotations.insert(well_known::IS_DEFAULT_CLASS.into(), "true".into());
    class
}

#[test]
fn the_newest_default_class_is_the_default_class_and_of_equals_the_first_by_name() {
    // 15-2, and a class that is marked by its beta name.
    let (old, new) = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z");
    let named = |classes: &[StorageClass]| default_class(classes).map(|c| c.metadata.name.clone());
    let plain = class("a", "Immediate");
    let mut beta = marked("c", new);
    beta.metadata.annotations.clear();
    let annotations = &mut beta.metadata.annotations;
    annotations.insert(well_known::BETA_IS_DEFAULT_CLASS.into(), "true".into());
    let mut almost = marked("d", new);
    let annotations = &mut almost.metadata.annotations;
    annotations.insert(well_known::IS_DEFAULT_CLASS.into(), "yes".into());
    assert_eq!(named(&[]), None);
    assert_eq!(named(&[plain.clone(), almost]), None);
    let (gold, silver) = (marked("gold", old), marked("silver", new));
    assert_eq!(
        named(&[plain, gold.clone(), silver.clone()]).as_deref(),
        Some("silver")
    );
    assert_eq!(
        named(&[silver, marked("gold", new)]).as_deref(),
        Some("gold")
    );
    assert_eq!(named(&[gold, beta]).as_deref(), Some("c"));
}

#[test]
fn a_class_is_given_afterwards_only_to_a_claim_that_said_nothing_and_has_nothing() {
    type Row = (&'static str, Change<Claim>, bool, Option<&'static str>);
    let rows: [Row; 7] = [
        ("15-1", |c| c.spec.storage_class_name = None, false, None),
        (
            "15-2 and 15-5",
            |c| c.spec.storage_class_name = None,
            true,
            Some("gold"),
        ),
        (
            "15-3: it was bound",
            |c| {
                was_bound(c);
                c.spec.storage_class_name = None;
            },
            true,
            None,
        ),
        (
            "15-4: it says that it is bound, and names a volume",
            |c| {
                asks_for(c, "gone");
                c.status.phase = Some(ClaimPhase::Bound);
                c.spec.storage_class_name = None;
            },
            true,
            None,
        ),
        ("15-6", |c| of_class(c, "copper"), true, None),
        ("no class is wanted", |c| of_class(c, ""), true, None),
        (
            "15-7: said by the annotation of old",
            |c| {
                c.spec.storage_class_name = None;
                let annotations = &mut c.metadata.annotations;
                annotations.insert(well_known::BETA_STORAGE_CLASS.into(), "copper".into());
            },
            true,
            None,
        ),
    ];
    for (number, change, with_default, given) in rows {
        let mut claim = a_claim("data", "");
        change(&mut claim);
        let mut v = view(claim);
        v.evidence = Evidence::Live;
        if with_default {
            v.default_class = shared(marked("gold", "2026-01-01T00:00:00Z"));
        }
        let takes = claim::decide(&v)
            .steps
            .into_iter()
            .find_map(|step| match step {
                Step::TakeClass(name) => Some(name),
                _ => None,
            });
        assert_eq!(takes.as_deref(), given, "{number}");
    }
}

#[test]
fn a_free_volume_without_a_class_comes_before_the_default_class() {
    let mut claim = a_claim("data", "");
    claim.spec.storage_class_name = None;
    let mut v = view(claim);
    v.candidates = vec![Arc::new(a_volume("vol", ""))];
    v.default_class = shared(marked("gold", "2026-01-01T00:00:00Z"));
    assert_eq!(claim::decide(&v).steps, WHOLE_BIND);
}
