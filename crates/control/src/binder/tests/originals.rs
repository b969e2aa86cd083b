//! The numbered cases of the original's own unit tests, each with its counterpart.
//!
//! | original | here |
//! |---|---|
//! | 1-1..1-18 (a claim that takes what it finds) | `claims` |
//! | 13-1..13-5, 14-1..14-12 (a claim with a class, or with a mode) | `classes` |
//! | 2-1..2-13 (a claim that names a volume) | `named` |
//! | 3-1..3-7 (a claim that was bound) | `named` |
//! | 4-1..4-12, 14-13..14-14-1 (a volume) | `volumes` |
//! | 5-2..5-4, and what the others end with | `ends`; 5-5..5-8 (how long it took) in `metrics`, 5-9 in `upkeep` |
//! | 6-1..6-14, 7-1 (recycle) | `volumes` for who is to be scrubbed, `recycle/tests.rs` for how |
//! | 8-1..8-13, 9-1 (delete) | `volumes`; 8-1, 8-2, 8-5, 9-1 need an in-tree deleter, and there is none left |
//! | 10-1, 10-2 (many turns) | `ends`, `a_crash_after_any_write_changes_nothing_in_the_end` |
//! | 11-2, 11-14..11-18, 11-21, 11-22, 11-24 (provision) | `classes`; the rest of 11 needs an in-tree provisioner |
//! | 12-1..12-4 (provision, many turns) | `a_crash_after_any_write_…`, "provisioned for the claim" |
//! | 13-1..13-15 of `pv_controller_test.go` (finalizers), and migration's annotations | `upkeep` |
//! | 15-1..15-7 (a class that is given afterwards) | `defaults` |
//! | `index_test.go` (which volume is the best) | `claims`, and `matching` of the model |
//!
//! Where the original retries every 15 s, this binder waits for a change; where the original
//! says nothing to a claim whose volume is missing (2-1, 2-2), this one says so.

use orlop_model::AccessMode;

use super::*;

mod claims;
mod classes;
mod defaults;
mod ends;
mod named;
mod upkeep;
mod volumes;

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

/// A case in a world where nothing else is.
fn case(
    number: &'static str,
    claim: Change<Claim>,
    volumes: &'static [(&'static str, Change<Volume>)],
    turn: Turn,
) -> Case {
    Case {
        number,
        claim,
        volumes,
        world: AS_IT_IS,
        turn,
    }
}

fn nothing() -> Turn {
    Turn::Waits("FailedBinding", false)
}

fn mismatch() -> Turn {
    Turn::Waits("VolumeMismatch", true)
}

const WHOLE_BIND_BUT_RESERVING: [Step; 3] = [
    Step::MarkVolumeBound,
    Step::PointClaim,
    Step::MarkClaimBound,
];
const CLAIMS_HALF: [Step; 2] = [Step::PointClaim, Step::MarkClaimBound];
