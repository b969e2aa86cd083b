use super::*;

const GI: i64 = 1 << 30;

fn volume(gib: i64, mode: &str, marked: bool) -> Volume {
    let mut body = json!({
        "metadata": {"name": "pv"},
        "spec": {
            "capacity": {"storage": format!("{gib}Gi")},
            "accessModes": [mode],
            "claimRef": {"namespace": "default", "name": "data", "uid": "u"},
        },
    });
    if marked {
        body["metadata"]["annotations"] = json!({PRE_RESIZE_CAPACITY: "1Gi"});
    }
    serde_json::from_value(body).expect("a volume")
}

fn claim(gib: i64, status: Option<&str>) -> Claim {
    let mut body = json!({
        "metadata": {"namespace": "default", "name": "data", "uid": "u"},
        "status": {"phase": "Bound", "capacity": {"storage": format!("{gib}Gi")}},
    });
    if let Some(status) = status {
        body["status"]["allocatedResourceStatuses"] = json!({"storage": status});
    }
    serde_json::from_value(body).expect("a claim")
}

#[test]
fn a_node_waits_for_the_backend_and_for_the_resizers_word() {
    let known = Size::Bytes(GI);
    let cases = [
        (None, Need::Nothing),
        (Some("NodeResizePending"), Need::Claim),
        (Some("NodeResizeInProgress"), Need::Claim),
        // The volume's object has its new size already, the claim does not say so yet.
        (Some("ControllerResizeInProgress"), Need::Nothing),
        (Some("ControllerResizeInfeasible"), Need::Nothing),
        (Some("NodeResizeInfeasible"), Need::Nothing),
        (Some("FromTheFuture"), Need::Nothing),
    ];
    for (status, expected) in cases {
        let found = need(&claim(1, status), &volume(2, "ReadWriteOnce", false), known);
        assert_eq!(found, expected, "{status:?}");
    }
}

#[test]
fn a_node_follows_another_that_was_first() {
    let shared = volume(2, "ReadWriteMany", false);
    let grown = claim(2, None);
    assert_eq!(need(&grown, &shared, Size::Bytes(GI)), Need::Follow);
    assert_eq!(need(&grown, &shared, Size::Bytes(2 * GI)), Need::Nothing);
    assert_eq!(
        need(&grown, &shared, Size::Unknown),
        Need::Follow,
        "an earlier life may have missed it"
    );
    let alone = volume(2, "ReadWriteOnce", false);
    assert_eq!(need(&grown, &alone, Size::Unknown), Need::Nothing);
}

#[test]
fn a_kept_volume_grows_for_its_new_claim() {
    let kept = volume(2, "ReadWriteOnce", true);
    assert_eq!(need(&claim(1, None), &kept, Size::Bytes(GI)), Need::Claim);
    assert_eq!(
        need(&claim(2, None), &kept, Size::Bytes(2 * GI)),
        Need::Nothing
    );
}

#[test]
fn a_claim_of_the_same_name_is_another() {
    let mut namesake = claim(1, Some("NodeResizePending"));
    namesake.metadata.uid = "another".into();
    let found = need(&namesake, &volume(2, "ReadWriteOnce", false), Size::Unknown);
    assert_eq!(found, Need::Nothing);
}
