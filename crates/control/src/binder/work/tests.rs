//! What a search costs.

use orlop_model::{Kind as _, Quantity, Resources, VolumePhase};
use serde_json::json;

use super::*;
use crate::fixtures::{claim as a_claim, object, unanswered, volume as a_volume};

fn alone() -> (Process, Binder) {
    let process = unanswered();
    let binder = Binder::new(&process, Config::default());
    (process, binder)
}

/// Volumes of many sizes and three classes, each with a label of its own.
fn fill(binder: &Binder, from: usize, to: usize) {
    const SIZES: usize = 50;
    let models: Vec<Volume> = (0..SIZES)
        .map(|size| {
            let mut volume = a_volume("model", "");
            let size = json!({"spec": {"capacity": {"storage": format!("{}Gi", 10 + size)}}});
            volume.spec.capacity = object::<Volume>(size).spec.capacity;
            volume
        })
        .collect();
    for number in from..to {
        let mut volume = models[number % SIZES].clone();
        volume.metadata.name = format!("vol-{number:06}");
        volume.metadata.resource_version = (number + 1).to_string();
        volume.spec.storage_class_name = ["", "fast", "slow"][number % 3].into();
        let labels = &mut volume.metadata.labels;
        labels.insert("disk".into(), format!("d{number}"));
        labels.insert("zone".into(), "z".into());
        binder.volumes.absorb(volume);
    }
}

fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    let kilobytes = line.split_whitespace().nth(1).unwrap();
    kilobytes.parse::<usize>().unwrap() * 1024
}

#[tokio::test]
async fn a_search_costs_the_same_however_many_volumes_there_are() {
    // ORLOP_VOLUMES=100000 for the size that counts; filling the caches takes the time.
    let many = std::env::var("ORLOP_VOLUMES").map_or(20_000, |n| n.parse().unwrap());
    let (process, binder) = alone();
    let claim = |class: &str, spec: serde_json::Value| {
        let mut claim = a_claim("data", class);
        let extra = object::<Claim>(json!({ "spec": spec })).spec;
        claim.spec.selector = extra.selector;
        claim.spec.volume_mode = extra.volume_mode;
        if !extra.access_modes.is_empty() {
            claim.spec.access_modes = extra.access_modes;
        }
        if !extra.resources.requests.is_empty() {
            claim.spec.resources = extra.resources;
        }
        claim
    };
    let label = json!({"matchLabels": {"disk": "d301"}});
    let fitting = [
        ("any", claim("fast", json!({}))),
        (
            "large",
            claim(
                "slow",
                json!({"resources": {"requests": {"storage": "55Gi"}}}),
            ),
        ),
        ("labelled", claim("fast", json!({"selector": label}))),
    ];
    let unfitting = [
        (
            "too large",
            claim(
                "fast",
                json!({"resources": {"requests": {"storage": "99Gi"}}}),
            ),
        ),
        ("device", claim("fast", json!({"volumeMode": "Block"}))),
        (
            "shared",
            claim("fast", json!({"accessModes": ["ReadWriteMany"]})),
        ),
        (
            "label that none has",
            claim(
                "fast",
                json!({"selector": {"matchLabels": {"disk": "none"}}}),
            ),
        ),
        ("class that none has", claim("gold", json!({}))),
    ];
    let before = resident();
    let mut count = 0;
    for volumes in [1_000, many] {
        fill(&binder, count, volumes);
        count = volumes;
        for (name, claim) in &fitting {
            let search = binder.search(claim);
            assert!(search.found.is_some(), "{name} among {volumes}");
            assert_eq!(search.looked_at, 1, "{name} among {volumes}");
        }
        for (name, claim) in &unfitting {
            let search = binder.search(claim);
            assert!(search.found.is_none(), "{name} among {volumes}");
            assert_eq!(search.looked_at, 0, "{name} among {volumes}");
        }
        // Also what is told of what there is costs a few looks.
        let largest = binder.free_volumes.lasts(matching::group, 64);
        assert_eq!(largest.len(), 3, "one for each class");
    }
    let each = resident().saturating_sub(before) / count;
    println!("{each} bytes of memory per volume");
    assert!(each < 6 * 1024, "{each} bytes per volume");
    process.kill();
}

#[tokio::test]
async fn what_no_volume_has_of_a_selector_is_found_among_those_that_fit() {
    let (process, binder) = alone();
    fill(&binder, 0, 30);
    let unmet = |class: &str, selector: serde_json::Value| {
        let mut claim = a_claim("data", class);
        claim.spec.selector = serde_json::from_value(selector).unwrap();
        let unmet = binder.unmet(&claim);
        unmet.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let labels = |zone: &str, disk: &str| json!({"matchLabels": {"zone": zone, "disk": disk}});
    assert!(unmet("", labels("z", "d0")).is_empty());
    assert_eq!(unmet("", labels("y", "d0")), ["zone=y"]);
    // That disk is of another class.
    assert_eq!(unmet("", labels("z", "d1")), ["disk=d1"]);
    let two = json!({"matchLabels": {"disk": "d0"}, "matchExpressions": [
        {"key": "disk", "operator": "In", "values": ["d3", "d6"]},
        {"key": "zone", "operator": "DoesNotExist"},
    ]});
    assert_eq!(unmet("", two), ["!zone"]);
    process.kill();
}

#[tokio::test]
async fn a_long_selector_is_explained_by_a_few_looks() {
    let (process, binder) = alone();
    fill(&binder, 0, 3 * (claims::ASKED + 50));
    let of_none = |n| json!({"key": format!("k{n}"), "operator": "Exists"});
    let terms: Vec<_> = (0..5_000).map(of_none).collect();
    let mut claim = a_claim("data", "");
    claim.spec.selector = serde_json::from_value(json!({"matchExpressions": terms})).unwrap();
    // More volumes lack each of them than were asked: nothing is known for sure.
    assert!(binder.unmet(&claim).is_empty());
    assert_eq!(binder.search_among(&claim, 7).looked_at, 7);
    // Labels that are looked up are known not to be there.
    let labels: serde_json::Map<_, _> = (0..5_000).map(|n| (format!("k{n}"), "x".into())).collect();
    claim.spec.selector = serde_json::from_value(json!({ "matchLabels": labels })).unwrap();
    assert_eq!(binder.unmet(&claim).len(), claims::EXPLAINED);
    process.kill();
}

#[tokio::test]
async fn a_look_at_all_claims_of_a_class_lets_others_go_on() {
    let (process, binder) = alone();
    for number in 0..3 {
        let mut claim = a_claim(&format!("data-{number}"), "fast");
        claim.metadata.resource_version = (number + 1).to_string();
        binder.claims.absorb(claim);
    }
    let mut looking = Box::pin(binder.wake_for_volumes("fast"));
    let mut turns = 0;
    while futures::poll!(&mut looking).is_pending() {
        turns += 1;
    }
    assert_eq!(turns, 3);
    drop(looking);
    process.kill();
}

#[tokio::test]
async fn a_free_volume_that_gets_a_label_or_a_class_wakes_the_claims_that_wait() {
    let (process, binder) = alone();
    let seen = Arc::new(a_volume("vol", "fast"));
    let mut labelled = (*seen).clone();
    labelled.metadata.labels.insert("disk".into(), "d".into());
    let mut of_class = (*seen).clone();
    let class = well_known::BETA_STORAGE_CLASS.to_owned();
    of_class.metadata.annotations.insert(class, "slow".into());
    for (now, looks) in [((*seen).clone(), 1), (labelled, 2), (of_class, 3)] {
        // The volume itself, and the shelf of its class if there is news for it.
        let change = Change::Applied {
            old: Some(&seen),
            new: &Arc::new(now),
        };
        binder.volume_changed(&change);
        assert_eq!(binder.queue.depth(), looks);
    }
    process.kill();
}

#[tokio::test]
async fn a_survey_has_what_is_kept_for_nobody_and_the_name_that_was_meant() {
    let (process, binder) = alone();
    fill(&binder, 0, 30);
    for (name, policy) in [("kept", "Retain"), ("going", "Delete")] {
        let mut volume = a_volume(name, "");
        let body = json!({"spec": {"persistentVolumeReclaimPolicy": policy,
                                   "claimRef": {"namespace": "ns", "name": "gone", "uid": "u"}}});
        let spec = object::<Volume>(body).spec;
        volume.spec.claim_ref = spec.claim_ref;
        volume.spec.persistent_volume_reclaim_policy = spec.persistent_volume_reclaim_policy;
        volume.status.phase = Some(VolumePhase::Released);
        binder.volumes.absorb(volume);
    }
    let mut claim = a_claim("data", "");
    claim.spec.volume_name = "vol-00007".into();
    let view = binder.claim_view(Arc::new(claim), None, crate::Evidence::Cached);
    let survey = binder.survey(&view);
    let released = survey.released.iter().map(|v| v.metadata.name.as_str());
    assert_eq!(released.collect::<Vec<_>>(), ["kept"]);
    assert_eq!(survey.meant.as_deref(), Some("vol-000007"));
    process.kill();
}

#[tokio::test]
async fn what_keeps_a_claim_waiting_is_said_again_before_its_event_is_swept() {
    let (process, binder) = alone();
    let mut claim = a_claim("data", "misspelt");
    claim.metadata.resource_version = "1".into();
    claim.status.phase = Some(orlop_model::ClaimPhase::Pending);
    let key = claim.key();
    binder.claims.absorb(claim);
    let turn = tokio::time::timeout(Duration::from_secs(10), binder.claim_turn(&key));
    let outcome = turn.await.unwrap().unwrap();
    assert_eq!(outcome, Outcome::After(claims::REMINDER));
    process.kill();
}

#[tokio::test]
async fn a_claim_is_told_anew_when_the_volume_that_its_event_names_is_taken_or_gone() {
    let (process, binder) = alone();
    let mut volume = a_volume("small", "none");
    volume.spec.capacity = Resources::of_storage(Quantity::bytes(1));
    binder.volumes.absorb(volume.clone());
    for (name, class) in [("data", "none"), ("other", "other")] {
        let mut claim = a_claim(name, class);
        claim.metadata.resource_version = "1".into();
        claim.status.phase = Some(orlop_model::ClaimPhase::Pending);
        let key = claim.key();
        binder.claims.absorb(claim);
        binder.claim_turn(&key).await.unwrap();
    }
    let volume = Arc::new(volume);
    let mut taken = (*volume).clone();
    taken.spec.claim_ref = Some(a_claim("owner", "none").reference());
    let mut noted = (*volume).clone();
    noted.metadata.annotations.insert("note".into(), "x".into());
    // The volume itself and its owner have a look, too.
    let (taken, noted) = (Arc::new(taken), Arc::new(noted));
    let old = Some(&volume);
    for (change, looks) in [
        (Change::Applied { old, new: &noted }, 1),
        (Change::Applied { old, new: &taken }, 3),
        (Change::Deleted(&volume), 3),
    ] {
        binder.volume_changed(&change);
        assert_eq!(binder.queue.depth(), looks);
    }
    process.kill();
}
