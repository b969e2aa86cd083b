use std::sync::Arc;

use serde_json::{Value, json};

use super::*;

/// A claim that asks for a class, has one, and is on its way to one.
fn claim(asked: Option<&str>, has: Option<&str>, begun: Option<(&str, &str)>) -> Claim {
    let mut body: Value = json!({
        "metadata": {"namespace": "default", "name": "data", "uid": "u"},
        "spec": {"volumeName": "pv", "volumeAttributesClassName": asked},
        "status": {"phase": "Bound", "currentVolumeAttributesClassName": has},
    });
    if let Some((status, target)) = begun {
        body["status"]["modifyVolumeStatus"] =
            json!({"status": status, "targetVolumeAttributesClassName": target});
    }
    serde_json::from_value(body).expect("a claim")
}

fn decided(claim: &Claim, setback: Option<Setback<String>>) -> String {
    decided_with(None, claim, setback)
}

/// As [`decided`], with a volume whose object tells of a class.
fn decided_with(told: Option<&str>, claim: &Claim, setback: Option<Setback<String>>) -> String {
    let volume: Volume = serde_json::from_value(json!({
        "metadata": {"name": "pv"},
        "spec": {
            "volumeAttributesClassName": told,
            "claimRef": {"namespace": "default", "name": "data", "uid": "u"},
            "csi": {"driver": "d", "volumeHandle": "h"},
        },
    }))
    .expect("a volume");
    let class = |name: &str| {
        let driver_name = match name {
            "gold" | "silver" => "d",
            "foreign" => "other",
            _ => return None,
        };
        Some(Arc::new(VolumeAttributesClass {
            driver_name: driver_name.into(),
            ..VolumeAttributesClass::default()
        }))
    };
    let view = View {
        driver: "d",
        claim,
        volume: Some(&volume),
        class,
        setback,
    };
    match decide(&view) {
        Step::Leave => "nothing".into(),
        Step::Wait { class } => format!("wait for {class}"),
        Step::Refuse { class } => format!("refuse {class}"),
        Step::Cancel => "cancel".into(),
        Step::Settle { class } => format!("settle {class}"),
        Step::Later(_) => "later".into(),
        Step::Modify(goal) => match goal.intent {
            Intent::ToRecord => format!("record {}", goal.name),
            Intent::OnRecord => format!("repeat {}", goal.name),
            Intent::ToRepair => format!("repair {}", goal.name),
        },
    }
}

#[test]
fn a_change_that_the_volume_tells_of_is_not_made_again_for_a_claim_that_goes() {
    let (gold, silver) = (Some("gold"), Some("silver"));
    let progress = Some(("InProgress", "gold"));
    let going = |has| {
        let mut claim = claim(gold, has, progress);
        claim.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH);
        claim
    };
    for (told, has, step) in [
        (gold, None, "settle gold"),
        (gold, silver, "settle gold"),
        // A call for another class may have come in between.
        (gold, gold, "repeat gold"),
        (silver, silver, "repeat gold"),
        (None, None, "repeat gold"),
    ] {
        assert_eq!(
            decided_with(told, &going(has), None),
            step,
            "{told:?} {has:?}"
        );
    }
    assert_eq!(
        decided_with(gold, &claim(gold, None, progress), None),
        "repeat gold"
    );
}

#[test]
fn a_change_that_may_be_under_way_is_finished_before_another_begins() {
    let (gold, silver) = (Some("gold"), Some("silver"));
    let progress = Some(("InProgress", "gold"));
    let cases = [
        (None, None, None, "nothing"),
        (Some(""), None, None, "nothing"),
        (gold, gold, None, "nothing"),
        (gold, None, None, "record gold"),
        (gold, silver, None, "record gold"),
        (gold, silver, progress, "repeat gold"),
        (silver, silver, progress, "repeat gold"),
        (None, silver, progress, "repeat gold"),
        (Some("iron"), None, None, "wait for iron"),
        (Some("iron"), None, Some(("Pending", "iron")), "nothing"),
        (Some("tin"), None, Some(("Pending", "iron")), "wait for tin"),
        (gold, None, Some(("Pending", "gold")), "record gold"),
        (silver, silver, Some(("Pending", "iron")), "cancel"),
        (None, silver, Some(("Infeasible", "gold")), "cancel"),
        (silver, silver, Some(("Infeasible", "gold")), "cancel"),
        (silver, None, Some(("Infeasible", "gold")), "record silver"),
        (Some("foreign"), None, None, "refuse foreign"),
        (gold, None, Some(("FromTheFuture", "x")), "nothing"),
    ];
    for (asked, has, begun, expected) in cases {
        let decided = decided(&claim(asked, has, begun), None);
        assert_eq!(decided, expected, "{asked:?} {has:?} {begun:?}");
    }
}

#[test]
fn a_change_that_failed_for_good_gives_way_to_what_is_asked_now() {
    let failed = |verdict, rest| {
        Some(Setback {
            goal: "gold".to_owned(),
            verdict,
            rest: Duration::from_secs(rest),
        })
    };
    let progress = Some(("InProgress", "gold"));
    let silver = claim(Some("silver"), None, progress);
    assert_eq!(decided(&silver, failed(Verdict::Final, 0)), "record silver");
    let gone = claim(None, None, progress);
    assert_eq!(decided(&gone, failed(Verdict::Final, 0)), "cancel");
    let again = claim(Some("gold"), None, Some(("Infeasible", "gold")));
    assert_eq!(decided(&again, failed(Verdict::Infeasible, 9)), "later");
    assert_eq!(
        decided(&again, failed(Verdict::Infeasible, 0)),
        "record gold"
    );
}

#[test]
fn what_a_late_call_changed_is_changed_back() {
    let (gold, silver) = (Some("gold"), Some("silver"));
    let settled = claim(silver, silver, None);
    assert_eq!(decided_with(silver, &settled, None), "nothing");
    assert_eq!(decided_with(gold, &settled, None), "repair silver");
    let begun = claim(silver, silver, Some(("InProgress", "gold")));
    assert_eq!(decided_with(silver, &begun, None), "repeat gold");
}
