use serde_json::{Value, json};

use super::*;
use orlop_model::Kind;

const GUARD: &str = well_known::LOCAL_UNCLEAN;

fn volume(phase: &str, policy: &str, claim: &str) -> Value {
    let mut volume = json!({
        "metadata": {"name": "v", "finalizers": [GUARD]},
        "spec": {"persistentVolumeReclaimPolicy": policy, "local": {"path": "/mnt/a"}},
        "status": {"phase": phase},
    });
    if !claim.is_empty() {
        volume["spec"]["claimRef"] = json!({"name": "c", "namespace": "d", "uid": claim});
    }
    volume
}

fn read(volume: &Value) -> Volume {
    Volume::decode(volume.to_string().as_bytes()).unwrap()
}

fn deleting(mut volume: Value) -> Value {
    volume["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    volume
}

fn unguarded(mut volume: Value) -> Value {
    volume["metadata"]["finalizers"] = json!(["kubernetes.io/pv-protection"]);
    volume
}

fn cleaned(mut volume: Value, claim: &str) -> Value {
    let record = json!({"claim": claim, "done": 1, "of": 1, "clean": true}).to_string();
    volume["metadata"]["annotations"] = json!({well_known::LOCAL_CLEANING: record});
    volume
}

#[test]
fn a_volume_goes_only_when_its_disk_is_clean() {
    use Whose::{Others, Ours, Predecessor};
    let released = || volume("Released", "Delete", "u");
    for (number, (given, whose, expected)) in [
        (volume("Available", "Delete", ""), Ours, Step::Leave),
        (volume("Bound", "Delete", "u"), Ours, Step::Leave),
        (
            unguarded(volume("Available", "Delete", "")),
            Ours,
            Step::Guard,
        ),
        (unguarded(volume("Bound", "Delete", "u")), Ours, Step::Guard),
        // Given back.
        (released(), Ours, Step::Clean),
        (unguarded(released()), Ours, Step::Clean),
        (volume("Failed", "Delete", "u"), Ours, Step::Clean),
        (cleaned(released(), "u"), Ours, Step::Delete),
        // Cleaned of another claim's data than that which it holds now.
        (cleaned(released(), "other"), Ours, Step::Clean),
        (volume("Released", "Retain", "u"), Ours, Step::Leave),
        (volume("Released", "Recycle", "u"), Ours, Step::Recycle),
        // Deleted by a person, early.
        (
            deleting(volume("Available", "Delete", "")),
            Ours,
            Step::LetGo,
        ),
        (deleting(volume("Bound", "Delete", "u")), Ours, Step::Leave),
        (deleting(released()), Ours, Step::Clean),
        (deleting(cleaned(released(), "u")), Ours, Step::LetGo),
        (
            deleting(volume("Released", "Retain", "u")),
            Ours,
            Step::LetGo,
        ),
        (deleting(unguarded(released())), Ours, Step::Leave),
        // The node was made anew.
        (volume("Available", "Delete", ""), Predecessor, Step::Delete),
        (volume("Available", "Retain", ""), Predecessor, Step::Leave),
        (
            volume("Available", "Delete", "u"),
            Predecessor,
            Step::Orphaned,
        ),
        (volume("Bound", "Delete", "u"), Predecessor, Step::Orphaned),
        (released(), Predecessor, Step::Clean),
        (cleaned(released(), "u"), Predecessor, Step::Delete),
        // Somebody else's.
        (released(), Others, Step::Leave),
        (deleting(released()), Others, Step::Leave),
    ]
    .into_iter()
    .enumerate()
    {
        assert_eq!(
            decide(&read(&given), whose),
            expected,
            "row {number}: {given}"
        );
    }
}
