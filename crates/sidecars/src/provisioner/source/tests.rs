use orlop_model::{
    Resources,
    snapshot::{ContentStatus, SnapshotStatus},
    volume::CsiSource,
};

use super::*;

const GIB: i64 = 1 << 30;

fn new_claim(source: Value) -> Claim {
    let mut claim = Claim::default();
    claim.metadata.name = "new".into();
    claim.metadata.namespace = "ns".into();
    claim.spec.data_source = Some(source);
    claim.spec.resources.requests = Resources::of_storage(Quantity::bytes(GIB));
    claim
}

fn snapshot_ref(name: &str) -> Value {
    json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": name})
}

fn claim_ref(name: &str) -> Value {
    json!({"kind": "PersistentVolumeClaim", "name": name})
}

#[test]
fn a_claim_is_filled_by_the_driver_or_by_somebody_else() {
    let in_ns = |name: &str| Key::namespaced("ns", name);
    let populated = json!({"apiGroup": "x.io", "kind": "Image", "name": "i"});
    let other_group = json!({"apiGroup": "x.io", "kind": "VolumeSnapshot", "name": "s"});
    let foreign_claim = json!({"apiGroup": "x.io", "kind": "PersistentVolumeClaim", "name": "c"});
    let nameless = json!({"kind": "PersistentVolumeClaim"});
    let cases = [
        (
            snapshot_ref("s"),
            Ok(Wish::From(Origin::Snapshot(in_ns("s")))),
        ),
        (claim_ref("c"), Ok(Wish::From(Origin::Claim(in_ns("c"))))),
        (populated, Ok(Wish::Populated)),
        (foreign_claim, Ok(Wish::Populated)),
        (
            other_group,
            Err(SourceError::WrongGroup { got: "x.io".into() }),
        ),
        (nameless, Err(SourceError::NoName)),
    ];
    for (source, expected) in cases {
        assert_eq!(
            wish(&new_claim(source.clone()), false),
            expected,
            "{source}"
        );
        // The newer field says the same.
        let mut claim = new_claim(Value::Null);
        claim.spec.data_source = None;
        claim.spec.data_source_ref = Some(source.clone());
        assert_eq!(wish(&claim, false), expected, "{source}");
    }
    assert_eq!(wish(&Claim::default(), false), Ok(Wish::Empty));
}

#[test]
fn another_namespace_is_named_only_where_that_is_turned_on() {
    let mut claim = new_claim(Value::Null);
    let mut source = snapshot_ref("s");
    source["namespace"] = json!("prod");
    claim.spec.data_source_ref = Some(source);
    let refused = SourceError::OtherNamespace("prod".into());
    assert_eq!(wish(&claim, false), Err(refused));
    let there = Origin::Snapshot(Key::namespaced("prod", "s"));
    assert_eq!(wish(&claim, true), Ok(Wish::From(there)));
}

#[test]
fn a_source_is_needed_until_the_volume_is_on_record_or_unwanted() {
    let claim = new_claim(claim_ref("c"));
    let origin = Some(Origin::Claim(Key::namespaced("ns", "c")));
    assert_eq!(needed(&claim), origin);
    let mut bound = claim.clone();
    bound.spec.volume_name = "v".into();
    assert_eq!(needed(&bound), None);
    let mut deleted = claim;
    deleted.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(needed(&deleted), None);
    deleted.metadata.finalizers.push(PROVISIONING.into());
    assert_eq!(needed(&deleted), origin, "the driver may be at it");
}

#[test]
fn what_was_asked_for_is_remembered_in_words() {
    for content in [Content::Volume("v".into()), Content::Snapshot("s\"".into())] {
        assert_eq!(Content::of_text(&content.to_text()), Some(content));
    }
    for text in ["", "{}", "[]", r#"{"volume":7}"#] {
        assert_eq!(Content::of_text(text), None, "{text}");
    }
}

fn bound() -> (Claim, Volume) {
    let mut claim = Claim::default();
    claim.metadata.name = "c".into();
    claim.metadata.namespace = "ns".into();
    claim.metadata.uid = "uc".into();
    claim.spec.volume_name = "pv".into();
    claim.status.phase = Some(ClaimPhase::Bound);
    claim.status.capacity = Resources::of_storage(Quantity::bytes(GIB));
    let mut volume = Volume::default();
    volume.metadata.name = "pv".into();
    volume.spec.claim_ref = Some(claim.reference());
    volume.spec.csi = Some(CsiSource {
        driver: "d".into(),
        volume_handle: "h".into(),
        ..CsiSource::default()
    });
    (claim, volume)
}

#[test]
fn a_clone_takes_only_what_is_bound_to_its_source_and_of_the_same_driver() {
    type Spoil = fn(&mut Claim, &mut Volume, &mut Claim);
    let new = new_claim(claim_ref("c"));
    let (claim, volume) = bound();
    let cloned = of_claim(&new, "d", &claim, Some(&volume));
    assert_eq!(cloned, Ok(Content::Volume("h".into())));
    let missing = of_claim(&new, "d", &claim, None);
    assert_eq!(missing, Err(SourceError::Missing("PV pv".into())));
    let spoils: [(Spoil, &str); 9] = [
        (
            |c, _, _| c.status.phase = Some(ClaimPhase::Pending),
            "must have a status of Bound",
        ),
        (
            |c, _, _| c.status.phase = Some(ClaimPhase::Lost),
            "must have a status of Bound",
        ),
        (
            |c, _, _| c.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH),
            "being deleted",
        ),
        (|_, v, _| v.spec.csi = None, "not a CSI volume"),
        (
            |_, v, _| v.spec.csi.as_mut().unwrap().driver = "other".into(),
            "belongs to driver other",
        ),
        (|_, v, _| v.spec.claim_ref = None, "not bound to claim"),
        (
            |_, v, _| v.spec.claim_ref.as_mut().unwrap().uid = "stranger".into(),
            "not bound to claim",
        ),
        (
            |_, v, _| v.spec.volume_mode = Some(VolumeMode::Block),
            "same volume mode",
        ),
        (
            |_, _, new| new.spec.resources.requests = Resources::of_storage(Quantity::bytes(1)),
            "less than the size",
        ),
    ];
    for (spoil, words) in spoils {
        let (mut claim, mut volume) = bound();
        let mut new = new.clone();
        spoil(&mut claim, &mut volume, &mut new);
        let error = of_claim(&new, "d", &claim, Some(&volume)).expect_err(words);
        assert!(error.to_string().contains(words), "{error}");
    }
}

fn cut() -> (VolumeSnapshot, VolumeSnapshotContent) {
    let mut snapshot = VolumeSnapshot::default();
    snapshot.metadata.name = "s".into();
    snapshot.metadata.namespace = "ns".into();
    snapshot.metadata.uid = "us".into();
    snapshot.status = Some(SnapshotStatus {
        bound_volume_snapshot_content_name: Some("content".into()),
        ready_to_use: Some(true),
        restore_size: Some(Quantity::bytes(GIB)),
        ..SnapshotStatus::default()
    });
    let mut content = VolumeSnapshotContent::default();
    content.metadata.name = "content".into();
    content.spec.driver = "d".into();
    content.spec.volume_snapshot_ref = snapshot.reference();
    content.spec.source_volume_mode = Some(VolumeMode::Filesystem);
    content.status = Some(ContentStatus {
        snapshot_handle: Some("h".into()),
        ..ContentStatus::default()
    });
    (snapshot, content)
}

#[test]
fn a_restore_takes_only_what_is_bound_both_ways_ready_and_of_the_same_driver() {
    type Spoil = fn(&mut VolumeSnapshot, &mut VolumeSnapshotContent, &mut Claim);
    let new = new_claim(snapshot_ref("s"));
    let (snapshot, content) = cut();
    let restored = of_snapshot(&new, "d", &snapshot, Some(&content), ModeGuard::On);
    assert_eq!(restored, Ok(Content::Snapshot("h".into())));
    let missing = of_snapshot(&new, "d", &snapshot, None, ModeGuard::On);
    assert_eq!(missing, Err(SourceError::SnapshotUnbound("s".into())));
    let spoils: [(Spoil, &str); 9] = [
        (
            |s, _, _| s.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH),
            "being deleted",
        ),
        (|s, _, _| s.status = None, "not bound"),
        (
            |s, _, _| s.status.as_mut().unwrap().ready_to_use = Some(false),
            "not Ready",
        ),
        (|_, c, _| c.metadata.name = "another".into(), "not bound"),
        (
            |_, c, _| c.spec.volume_snapshot_ref.uid = "stranger".into(),
            "not bound",
        ),
        (
            |_, c, _| c.spec.volume_snapshot_ref.namespace = "prod".into(),
            "not bound",
        ),
        (
            |_, c, _| c.spec.driver = "other".into(),
            "belongs to driver other",
        ),
        (
            |_, c, _| c.status.as_mut().unwrap().snapshot_handle = None,
            "not bound",
        ),
        (
            |_, _, new| new.spec.resources.requests = Resources::of_storage(Quantity::bytes(1)),
            "requested volume size 1 is less than the size 1073741824 for the source snapshot s",
        ),
    ];
    for (spoil, words) in spoils {
        let (mut snapshot, mut content) = cut();
        let mut new = new.clone();
        spoil(&mut snapshot, &mut content, &mut new);
        let error = of_snapshot(&new, "d", &snapshot, Some(&content), ModeGuard::On);
        let error = error.expect_err(words);
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_snapshot_of_files_becomes_a_device_only_with_permission() {
    let mut new = new_claim(snapshot_ref("s"));
    new.spec.volume_mode = Some(VolumeMode::Block);
    let (snapshot, mut content) = cut();
    let restore = |content: &VolumeSnapshotContent, guard| {
        of_snapshot(&new, "d", &snapshot, Some(content), guard)
    };
    let refused = restore(&content, ModeGuard::On).expect_err("nobody allowed it");
    assert!(
        refused.to_string().contains("does not have permission"),
        "{refused}"
    );
    let good = Ok(Content::Snapshot("h".into()));
    assert_eq!(restore(&content, ModeGuard::Off), good);
    for (word, allowed) in [("false", false), ("yes", false), ("true", true)] {
        let annotation = (ALLOW_MODE_CHANGE.to_owned(), word.to_owned());
        content.metadata.annotations = [annotation].into();
        assert_eq!(restore(&content, ModeGuard::On).is_ok(), allowed, "{word}");
    }
    content.metadata.annotations.clear();
    content.spec.source_volume_mode = None;
    assert_eq!(
        restore(&content, ModeGuard::On),
        good,
        "an old content knows no mode"
    );
}
