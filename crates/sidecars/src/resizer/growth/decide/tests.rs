use serde_json::{Value, json};

use super::*;

const GI: i64 = 1 << 30;

fn claim(asked: i64, has: i64, allocated: Option<i64>, status: Option<&str>) -> Claim {
    let mut body: Value = json!({
        "metadata": {"namespace": "default", "name": "data", "uid": "u"},
        "spec": {
            "volumeName": "pv",
            "resources": {"requests": {"storage": format!("{asked}Gi")}},
        },
        "status": {"phase": "Bound", "capacity": {"storage": format!("{has}Gi")}},
    });
    if let Some(allocated) = allocated {
        body["status"]["allocatedResources"]["storage"] = json!(format!("{allocated}Gi"));
    }
    if let Some(status) = status {
        body["status"]["allocatedResourceStatuses"]["storage"] = json!(status);
    }
    serde_json::from_value(body).expect("a claim")
}

fn volume(made: i64) -> Volume {
    let body = json!({
        "metadata": {"name": "pv"},
        "spec": {
            "capacity": {"storage": format!("{made}Gi")},
            "claimRef": {"namespace": "default", "name": "data", "uid": "u"},
            "csi": {"driver": "d", "volumeHandle": "h"},
        },
    });
    serde_json::from_value(body).expect("a volume")
}

fn setback(gib: i64, verdict: Verdict, rest: u64) -> Setback<i64> {
    Setback {
        goal: gib * GI,
        verdict,
        rest: Duration::from_secs(rest),
    }
}

/// What is decided, in words: `nothing`, `tidy`, `later`, `record 2` or `repeat 2`.
fn decided(
    claim: &Claim,
    volume: &Volume,
    ability: Ability,
    setback: Option<Setback<i64>>,
) -> String {
    let step = decide(&View {
        driver: "d",
        ability,
        claim,
        volume: Some(volume),
        of_plugin: false,
        setback,
    });
    match step {
        Step::Leave => "nothing".into(),
        Step::Tidy(_) => "tidy".into(),
        Step::Later(_) => "later".into(),
        Step::Grow(goal) => {
            let verb = match goal.intent {
                Intent::ToRecord => "record",
                Intent::OnRecord => "repeat",
            };
            format!("{verb} {}", goal.bytes / GI)
        }
    }
}

const PROGRESS: Option<&str> = Some("ControllerResizeInProgress");
const INFEASIBLE: Option<&str> = Some("ControllerResizeInfeasible");
const PENDING: Option<&str> = Some("NodeResizePending");
const ON_NODE: Option<&str> = Some("NodeResizeInProgress");
const NODE_INFEASIBLE: Option<&str> = Some("NodeResizeInfeasible");

#[test]
fn what_was_begun_comes_first_and_a_second_thought_only_when_nothing_is_under_way() {
    // asked, has, allocated, status, volume, what is decided
    let cases = [
        // Nothing is asked for.
        (1, 1, None, None, 1, "nothing"),
        (1, 2, None, None, 2, "nothing"),
        (2, 2, Some(2), None, 2, "nothing"),
        // Growth begins, also a second one.
        (2, 1, None, None, 1, "record 2"),
        (3, 2, Some(2), None, 2, "record 3"),
        // The outcome is unknown: the same size again, whatever is asked now.
        (2, 1, Some(2), PROGRESS, 1, "repeat 2"),
        (5, 1, Some(2), PROGRESS, 1, "repeat 2"),
        (2, 1, Some(5), PROGRESS, 1, "repeat 5"),
        (1, 1, Some(5), PROGRESS, 1, "repeat 5"),
        // The volume's object says so already, the claim does not: still the same.
        (2, 1, Some(2), PROGRESS, 2, "repeat 2"),
        // Never possible: the user may ask for less, or for more.
        (9, 1, Some(9), INFEASIBLE, 1, "repeat 9"),
        (2, 1, Some(9), INFEASIBLE, 1, "record 2"),
        (12, 1, Some(9), INFEASIBLE, 1, "record 12"),
        // The node is at it.
        (2, 1, Some(2), PENDING, 2, "nothing"),
        (2, 1, Some(2), ON_NODE, 2, "nothing"),
        (5, 1, Some(2), PENDING, 2, "nothing"),
        (5, 1, Some(2), ON_NODE, 2, "nothing"),
        // Its volume's object was never written.
        (5, 1, Some(2), PENDING, 1, "repeat 2"),
        // The node can't: it is told to try again, at the size that the backend has.
        (2, 1, Some(2), NODE_INFEASIBLE, 2, "repeat 2"),
        (2, 1, Some(5), NODE_INFEASIBLE, 5, "repeat 5"),
        (9, 1, Some(5), NODE_INFEASIBLE, 5, "repeat 5"),
        // Whoever wrote that knows more.
        (2, 1, Some(2), Some("FromTheFuture"), 1, "nothing"),
    ];
    for (asked, has, allocated, status, made, expected) in cases {
        let claim = claim(asked, has, allocated, status);
        let decided = decided(&claim, &volume(made), Ability::Controller, None);
        assert_eq!(
            decided, expected,
            "{asked} {has} {allocated:?} {status:?} {made}"
        );
    }
}

#[test]
fn a_size_that_failed_for_good_gives_way_to_what_is_asked_now() {
    let mut lowered = claim(2, 1, Some(9), PROGRESS);
    let decide = |claim: &Claim, s| decided(claim, &volume(1), Ability::Controller, Some(s));
    assert_eq!(decide(&lowered, setback(9, Verdict::Final, 0)), "record 2");
    assert_eq!(decide(&lowered, setback(9, Verdict::InUse, 0)), "record 2");
    assert_eq!(
        decide(&lowered, setback(7, Verdict::Final, 0)),
        "repeat 9",
        "another size's failure says nothing"
    );
    lowered = claim(9, 1, Some(9), PROGRESS);
    assert_eq!(decide(&lowered, setback(9, Verdict::Final, 0)), "repeat 9");
}

#[test]
fn an_infeasible_size_rests_until_another_is_asked_for() {
    let decide = |asked, s| {
        let claim = claim(asked, 1, Some(9), INFEASIBLE);
        decided(&claim, &volume(1), Ability::Controller, Some(s))
    };
    assert_eq!(decide(9, setback(9, Verdict::Infeasible, 10)), "later");
    assert_eq!(decide(9, setback(9, Verdict::Infeasible, 0)), "repeat 9");
    assert_eq!(decide(3, setback(9, Verdict::Infeasible, 10)), "record 3");
}

#[test]
fn a_node_that_can_not_is_asked_again_slowly() {
    let claim = claim(5, 1, Some(5), NODE_INFEASIBLE);
    let rests = Some(setback(5, Verdict::Infeasible, 10));
    assert_eq!(
        decided(&claim, &volume(5), Ability::Controller, rests),
        "later"
    );
}

#[test]
fn without_a_backend_the_node_takes_any_second_thought() {
    let lowered = claim(3, 1, Some(9), NODE_INFEASIBLE);
    let decided = decided(&lowered, &volume(9), Ability::NodeOnly, None);
    assert_eq!(decided, "record 3");
}

#[test]
fn the_mark_of_a_missing_nodes_part_goes_when_it_is_over() {
    let mut marked = volume(2);
    let annotations = &mut marked.metadata.annotations;
    annotations.insert(PRE_RESIZE_CAPACITY.into(), "1Gi".into());
    let decide = |claim: &Claim| decided(claim, &marked, Ability::Controller, None);
    assert_eq!(decide(&claim(2, 1, Some(2), PENDING)), "nothing");
    assert_eq!(decide(&claim(2, 2, Some(2), None)), "tidy");
}

#[test]
fn only_our_own_bound_volumes_grow() {
    let growing = claim(2, 1, None, None);
    let leave = |claim: &Claim, volume: Option<&Volume>, driver: &'static str| {
        let step = decide(&View {
            driver,
            ability: Ability::Controller,
            claim,
            volume,
            of_plugin: false,
            setback: None,
        });
        step == Step::Leave
    };
    assert!(!leave(&growing, Some(&volume(1)), "d"));
    assert!(leave(&growing, Some(&volume(1)), "other"));
    assert!(leave(&growing, None, "d"));
    let mut pending = growing.clone();
    pending.status.phase = Some(ClaimPhase::Pending);
    assert!(leave(&pending, Some(&volume(1)), "d"));
    let mut namesake = growing.clone();
    namesake.metadata.uid = "another".into();
    assert!(leave(&namesake, Some(&volume(1)), "d"));
    let mut not_csi = volume(1);
    not_csi.spec.csi = None;
    assert!(leave(&growing, Some(&not_csi), "d"));
    let mut free = volume(1);
    free.spec.claim_ref = None;
    assert!(leave(&growing, Some(&free), "d"));
}

#[test]
fn a_plugins_volume_grows_only_by_the_driver_that_was_named_for_it() {
    let mut growing = claim(2, 1, None, None);
    let volume = volume(1);
    let step = |claim: &Claim| {
        let step = decide(&View {
            driver: "d",
            ability: Ability::Controller,
            claim,
            volume: Some(&volume),
            of_plugin: true,
            setback: None,
        });
        matches!(step, Step::Grow(goal) if goal.of_plugin)
    };
    assert!(!step(&growing));
    let annotations = &mut growing.metadata.annotations;
    annotations.insert(STORAGE_RESIZER.into(), "kubernetes.io/old".into());
    assert!(!step(&growing));
    let annotations = &mut growing.metadata.annotations;
    annotations.insert(STORAGE_RESIZER.into(), "d".into());
    assert!(step(&growing));
}
