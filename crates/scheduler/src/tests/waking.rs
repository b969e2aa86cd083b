//! Which changes bring a refused pod another look. Most rows are those of the original's tables (the
//! hints of VolumeBinding, VolumeZone, NodeVolumeLimits and VolumeRestrictions); where ours differs, the
//! row says why.

use orlop_model::{CsiDriver, CsiNode, CsiStorageCapacity};

use super::*;
use crate::waking::{News, Refused, Why};

fn refused(pod: Pod, why: Why) -> Refused {
    let set = |name: &str| BTreeSet::from([name.to_owned()]);
    Refused {
        pod: Arc::new(pod),
        why,
        classes: set("late"),
        drivers: set("d"),
        named: set("told"),
    }
}

fn by_nodes(reasons: &[Reason]) -> Refused {
    let why = Why::Nodes(reasons.iter().cloned().collect());
    refused(pod("p", &["data"]), why)
}

/// Whether it is news at all, and if so, whether it wakes.
fn wakes(news: Option<News<'_>>, refused: &Refused) -> bool {
    news.is_some_and(|news| news.wakes(refused))
}

fn csi_node(drivers: &[(&str, Option<i32>)]) -> CsiNode {
    let drivers: Vec<Value> = drivers
        .iter()
        .map(|(name, count)| json!({"name": name, "nodeID": "n", "allocatable": {"count": count}}))
        .collect();
    object(json!({"metadata": {"name": "n1"}, "spec": {"drivers": drivers}}))
}

#[test]
fn a_node_that_bears_more_volumes_wakes_whom_the_limit_kept_away() {
    let pod = by_nodes(&[Reason::VolumeCount]);
    for (name, old, new, expected) in [
        ("limit raised", Some(Some(1)), Some(2), true),
        ("limit decreased", Some(Some(2)), Some(1), false),
        ("limit unchanged", Some(Some(1)), Some(1), false),
        ("there is no limit any more", Some(Some(1)), None, true),
        ("there is one now", Some(None), Some(1), false),
        ("driver registered", None, Some(1), true),
    ] {
        let old = old.map(|count| csi_node(&[("d", count)]));
        let new = csi_node(&[("d", new)]);
        let news = News::of_csi_node(old.as_ref(), &new);
        assert_eq!(wakes(news, &pod), expected, "{name}");
    }
    // The original wakes for every driver.
    let (old, new) = (csi_node(&[("e", Some(1))]), csi_node(&[("e", Some(2))]));
    assert!(!wakes(News::of_csi_node(Some(&old), &new), &pod));
}

#[test]
fn a_driver_that_came_to_a_node_wakes_whom_its_absence_kept_away() {
    let pod = by_nodes(&[Reason::NoDriver("d".into())]);
    let (none, other) = (csi_node(&[]), csi_node(&[("e", None)]));
    let there = csi_node(&[("d", None)]);
    for (old, new, expected) in [
        (None, &there, true),
        (Some(&none), &there, true),
        (Some(&there), &there, false),
        (None, &none, false),
        (Some(&none), &other, false),
        (Some(&there), &none, false),
    ] {
        let news = News::of_csi_node(old, new);
        assert_eq!(wakes(news, &pod), expected, "{old:?} {new:?}");
    }
}

#[test]
fn a_class_wakes_whom_it_may_help() {
    let waits = |name: &str| -> StorageClass {
        object(json!({"metadata": {"name": name}, "provisioner": "d",
                      "volumeBindingMode": "WaitForFirstConsumer"}))
    };
    let mut elsewhere = waits("late");
    elsewhere.allowed_topologies = object::<StorageClass>(json!({
        "metadata": {"name": "late"}, "provisioner": "d", "allowedTopologies": [
            {"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}]}))
    .allowed_topologies;
    let mut grows = waits("late");
    grows.allow_volume_expansion = Some(true);
    let (class, other) = (waits("late"), waits("other"));
    let no_volume = by_nodes(&[Reason::NoVolume]);
    let unbound = refused(pod("p", &["data"]), Why::Claims(Unready::Unbound));
    for (name, old, new, pod, expected) in [
        ("created", None, &class, &no_volume, true),
        // The original: every class.
        ("another created", None, &other, &no_volume, false),
        (
            "topologies changed",
            Some(&class),
            &elsewhere,
            &no_volume,
            true,
        ),
        ("nothing changed", Some(&class), &class, &no_volume, false),
        (
            "something else changed",
            Some(&class),
            &grows,
            &no_volume,
            false,
        ),
        ("created, and waits for a pod", None, &class, &unbound, true),
        (
            "another, and waits for a pod",
            None,
            &other,
            &unbound,
            false,
        ),
    ] {
        assert_eq!(wakes(News::of_class(old, new), pod), expected, "{name}");
    }
    let zone = by_nodes(&[Reason::Zone]);
    assert!(!wakes(News::of_class(None, &class), &zone));
}

fn capacity(left: Option<&str>, most: Option<&str>) -> CsiStorageCapacity {
    object(json!({
        "metadata": {"name": "c", "namespace": "ns"}, "storageClassName": "late",
        "capacity": left, "maximumVolumeSize": most,
    }))
}

#[test]
fn more_room_wakes_whom_too_little_kept_away() {
    let pod = by_nodes(&[Reason::NoSpace]);
    for (name, old, new, expected) in [
        ("capacity set", (None, None), (Some("1"), None), true),
        ("maximum set", (None, None), (None, Some("1")), true),
        ("capacity grew", (Some("1"), None), (Some("2"), None), true),
        (
            "maximum unset",
            (Some("5"), Some("1")),
            (Some("5"), None),
            true,
        ),
        (
            "maximum grew",
            (Some("5"), Some("1")),
            (Some("5"), Some("2")),
            true,
        ),
        (
            "nothing changed",
            (Some("5"), Some("1")),
            (Some("5"), Some("1")),
            false,
        ),
        (
            "the same, as maximum",
            (Some("5"), None),
            (Some("5"), Some("5")),
            false,
        ),
        (
            "capacity shrank",
            (Some("2"), None),
            (Some("1"), None),
            false,
        ),
        (
            "maximum shrank",
            (Some("5"), Some("2")),
            (Some("5"), Some("1")),
            false,
        ),
        // Ours takes off what is on its way: what is left counts, whatever one volume may take.
        (
            "more of the same size",
            (Some("4"), Some("2")),
            (Some("5"), Some("2")),
            true,
        ),
    ] {
        let (old, new) = (capacity(old.0, old.1), capacity(new.0, new.1));
        let news = News::of_capacity(Some(&old), &new, false);
        assert_eq!(wakes(news, &pod), expected, "{name}");
    }
    let room = capacity(Some("1"), None);
    assert!(wakes(News::of_capacity(None, &room, false), &pod), "new");
    let less = capacity(Some("0"), None);
    let news = || News::of_capacity(Some(&room), &less, true);
    assert!(wakes(news(), &pod), "what was made is counted no longer");
    assert!(!wakes(
        news(),
        &by_nodes(&[Reason::NoVolume, Reason::Affinity])
    ));
    let mut elsewhere = by_nodes(&[Reason::NoSpace]);
    elsewhere.classes = BTreeSet::from(["other".to_owned()]);
    assert!(!wakes(news(), &elsewhere), "of another class");
}

#[test]
fn a_driver_that_asks_for_less_wakes_whom_it_kept_away() {
    let driver = |name: &str, counts: Option<bool>, demands: Option<bool>| -> CsiDriver {
        object(json!({"metadata": {"name": name}, "spec": {
            "storageCapacity": counts, "preventPodSchedulingIfMissing": demands}}))
    };
    let no_space = by_nodes(&[Reason::NoSpace]);
    let d = |counts| driver("d", counts, None);
    for (name, old, new, expected) in [
        (
            "other driver",
            driver("e", Some(true), None),
            driver("e", None, None),
            false,
        ),
        ("was unset", d(None), d(Some(false)), false),
        ("was off", d(Some(false)), d(Some(true)), false),
        ("is unset", d(Some(true)), d(None), true),
        ("is on", d(Some(true)), d(Some(true)), false),
        ("is off", d(Some(true)), d(Some(false)), true),
    ] {
        let news = News::of_driver(Some(&old), Some(&new));
        assert_eq!(wakes(news, &no_space), expected, "{name}");
    }
    let counted = d(Some(true));
    assert!(
        wakes(News::of_driver(Some(&counted), None), &no_space),
        "gone"
    );
    assert!(
        !wakes(News::of_driver(None, Some(&counted)), &no_space),
        "new"
    );
    let absent = by_nodes(&[Reason::NoDriver("d".into())]);
    let (wants, eased) = (driver("d", None, Some(true)), driver("d", None, None));
    assert!(wakes(News::of_driver(Some(&wants), Some(&eased)), &absent));
}

#[test]
fn a_free_volume_wakes_whom_nothing_was_found_for() {
    let pod = by_nodes(&[Reason::NoVolume]);
    let free = volume("v", "1Gi", "n1");
    let edit = |change: fn(&mut Volume)| {
        let mut volume = free.clone();
        change(&mut volume);
        volume
    };
    let pending = edit(|v| v.status = Default::default());
    let taken = edit(|v| v.spec.claim_ref = Some(claim("other", "1Gi").reference()));
    let larger = edit(|v| v.spec.capacity = volume("v", "2Gi", "n1").spec.capacity);
    let labelled = edit(|v| {
        v.metadata.labels.insert("a".into(), "b".into());
    });
    let noted = edit(|v| {
        v.metadata.annotations.insert("a".into(), "b".into());
    });
    let other = edit(|v| v.spec.storage_class_name = "other".into());
    for (name, old, new, expected) in [
        ("new", None, &free, true),
        ("not available yet", None, &pending, false),
        ("available by now", Some(&pending), &free, true),
        ("given back", Some(&taken), &free, true),
        ("taken", Some(&free), &taken, false),
        ("larger", Some(&free), &larger, true),
        ("with other labels", Some(&free), &labelled, true),
        ("with a note", Some(&free), &noted, false),
        ("of another class", None, &other, false),
    ] {
        assert_eq!(wakes(News::of_volume(old, new), &pod), expected, "{name}");
    }
    // A volume that is there needs no room and no driver.
    for reason in [Reason::NoSpace, Reason::NoDriver("d".into())] {
        assert!(wakes(News::of_volume(None, &free), &by_nodes(&[reason])));
    }
    for reason in [Reason::VolumeAffinity, Reason::ClaimInUse, Reason::Taint] {
        assert!(!wakes(News::of_volume(None, &free), &by_nodes(&[reason])));
    }
}

/// A pod that leaves, and whether that wakes one that was refused.
#[test]
fn a_pod_that_leaves_wakes_those_in_whose_way_it_was() {
    let none = BTreeSet::new();
    let with = |name: &str, volume: Value| -> Pod {
        let mut pod = pod(name, &[]);
        pod.spec.volumes = object::<Pod>(json!({"metadata": {"name": "x"},
            "spec": {"volumes": [volume]}}))
        .spec
        .volumes;
        pod
    };
    let gce = |disk: &str| json!({"name": "v", "gcePersistentDisk": {"pdName": disk}});
    let aws = |disk: &str| json!({"name": "v", "awsElasticBlockStore": {"volumeID": disk}});
    let rbd = |image: &str| json!({"name": "v", "rbd": {"monitors": ["m"], "image": image}});
    let iscsi =
        |iqn: &str| json!({"name": "v", "iscsi": {"targetPortal": "p", "iqn": iqn, "lun": 0}});
    let disks: [&dyn Fn(&str) -> Value; 4] = [&gce, &aws, &rbd, &iscsi];
    for disk in disks {
        let why = Why::Nodes(BTreeSet::from([Reason::DiskConflict]));
        let waits = refused(with("p", disk("foo")), why);
        for (left, expected) in [("foo", true), ("bar", false)] {
            let left = with("other", disk(left));
            let news = News::Left {
                pod: &left,
                given_back: &none,
            };
            assert_eq!(news.wakes(&waits), expected, "{left:?}");
        }
    }
    let empty_dir = with("other", json!({"name": "v", "emptyDir": {}}));
    let mut elsewhere = pod("other", &["data"]);
    elsewhere.metadata.namespace = "elsewhere".into();
    for (name, reason, left, expected) in [
        (
            "same claim",
            Reason::ClaimInUse,
            pod("other", &["data"]),
            true,
        ),
        (
            "another claim",
            Reason::ClaimInUse,
            pod("other", &["more"]),
            false,
        ),
        ("another's claim", Reason::ClaimInUse, elsewhere, false),
        (
            "it had a claim",
            Reason::VolumeCount,
            pod("other", &["more"]),
            true,
        ),
        (
            "it had an old disk",
            Reason::VolumeCount,
            with("other", gce("x")),
            true,
        ),
        (
            "it had no volume",
            Reason::VolumeCount,
            pod("other", &[]),
            false,
        ),
        ("none that counts", Reason::VolumeCount, empty_dir, false),
        ("it took a place", Reason::Pods, pod("other", &[]), true),
        (
            "a processor",
            Reason::Resource("cpu".into()),
            pod("other", &[]),
            true,
        ),
        (
            "nothing of it",
            Reason::VolumeAffinity,
            pod("other", &["data"]),
            false,
        ),
        (
            "its claim was to go elsewhere",
            Reason::NoVolume,
            pod("other", &["data"]),
            true,
        ),
        (
            "another's claim was",
            Reason::NoVolume,
            pod("other", &["more"]),
            false,
        ),
    ] {
        let news = News::Left {
            pod: &left,
            given_back: &none,
        };
        assert_eq!(news.wakes(&by_nodes(&[reason])), expected, "{name}");
    }
}

/// Not in the original's tables: there a promise is a pod that is assumed, and ends as a pod does.
#[test]
fn what_a_pod_gives_back_unused_wakes_those_who_could_use_it() {
    let other = pod("other", &["more"]);
    for (class, reason, expected) in [
        ("late", Reason::NoVolume, true),
        ("late", Reason::NoSpace, true),
        ("late", Reason::Zone, false),
        ("other", Reason::NoVolume, false),
        ("other", Reason::NoSpace, false),
    ] {
        let given_back = BTreeSet::from([class.to_owned()]);
        let news = News::Left {
            pod: &other,
            given_back: &given_back,
        };
        let told = news.wakes(&by_nodes(std::slice::from_ref(&reason)));
        assert_eq!(told, expected, "{class} {reason:?}");
    }
}

#[test]
fn a_detached_volume_wakes_whom_the_limit_of_its_driver_kept_away() {
    for (driver, reason, expected) in [
        ("d", Reason::VolumeCount, true),
        ("e", Reason::VolumeCount, false),
        ("d", Reason::NoVolume, false),
    ] {
        let pod = by_nodes(std::slice::from_ref(&reason));
        assert_eq!(
            News::Detached(driver).wakes(&pod),
            expected,
            "{driver} {reason:?}"
        );
    }
}

#[test]
fn a_node_wakes_by_what_is_new_of_it() {
    let node = node("n1");
    let mut labelled = node.clone();
    labelled.metadata.labels.insert("zone".into(), "a".into());
    let mut cordoned = node.clone();
    cordoned.spec.unschedulable = true;
    let mut noted = node.clone();
    noted.metadata.annotations.insert("beat".into(), "1".into());
    let of_labels = [
        Reason::Affinity,
        Reason::VolumeAffinity,
        Reason::Zone,
        Reason::NoVolume,
        Reason::NoSpace,
    ];
    let of_state = [
        Reason::NotReady,
        Reason::Unschedulable,
        Reason::Taint,
        Reason::Pods,
        Reason::Resource("cpu".into()),
    ];
    let of_others = [Reason::DiskConflict, Reason::VolumeCount];
    let all = of_labels.iter().chain(&of_state).chain(&of_others);
    for reason in all {
        let pod = by_nodes(std::slice::from_ref(reason));
        assert!(wakes(News::of_node(None, &node), &pod), "{reason:?}");
        let told = wakes(News::of_node(Some(&node), &labelled), &pod);
        assert_eq!(told, of_labels.contains(reason), "{reason:?}");
        let told = wakes(News::of_node(Some(&cordoned), &node), &pod);
        assert_eq!(told, of_state.contains(reason), "{reason:?}");
        assert!(!wakes(News::of_node(Some(&node), &noted), &pod));
    }
    // It is in use wherever the pod would go; the original looks again all the same.
    let in_use = by_nodes(&[Reason::ClaimInUse]);
    assert!(!wakes(News::of_node(None, &node), &in_use));
    // Where there was no node, any is news.
    assert!(wakes(News::of_node(None, &node), &by_nodes(&[])));
}

/// Claims bring their pods a turn by themselves: see `turns::watching`.
#[test]
fn a_pod_whose_claims_are_unready_is_woken_by_nothing_but_these() {
    let missing = refused(
        pod("p", &["data"]),
        Why::Claims(Unready::Missing("data".into())),
    );
    let (node, free) = (node("n1"), volume("v", "1Gi", "n1"));
    assert!(!wakes(News::of_node(None, &node), &missing));
    assert!(!wakes(News::of_volume(None, &free), &missing));
    let unbound = refused(pod("p", &["data"]), Why::Claims(Unready::Unbound));
    assert!(!wakes(News::of_volume(None, &free), &unbound));
}

#[test]
fn whatever_changes_while_a_pod_is_looked_at_brings_another_look() {
    let looking = Refused::looking(Arc::new(pod("p", &[])));
    assert!(News::Detached("e").wakes(&looking));
    assert!(News::Room("other").wakes(&looking));
}

#[test]
fn a_refusal_is_kept_with_all_that_news_may_bear_on() {
    let mut v = view(pod("p", &["data"]), vec![late(claim("data", "1Gi"), "d")]);
    v.nodes[0].node = Arc::new(object(json!({"metadata": {"name": "n1"}})));
    let Decision::Refuse(refusal) = decide(&View {
        nodes: v.nodes[..1].to_vec(),
        ..v.clone()
    }) else {
        panic!("a node that isn't ready took a pod");
    };
    let kept = Refused::of(&v, &refusal);
    assert_eq!(kept.why, Why::Nodes(BTreeSet::from([Reason::NotReady])));
    assert_eq!(kept.classes, BTreeSet::from(["late".to_owned()]));
    assert_eq!(kept.drivers, BTreeSet::from(["d".to_owned()]));
}

#[test]
fn a_promise_to_a_pod_that_is_ending_is_given_back_unless_it_was_kept() {
    let mut ledger = Ledger::default();
    let mut pod = pod("p", &["data"]);
    ledger.promise(&pod, "n1".into(), Vec::new());
    pod.metadata.deletion_timestamp = Some("2026-01-01T00:00:00Z".parse().unwrap());
    let mut kept = pod.clone();
    assert!(ledger.see(&pod).is_some());
    assert_eq!(ledger.tally("n1"), Tally::default());
    kept.metadata.name = "kept".into();
    ledger.promise(&kept, "n1".into(), Vec::new());
    ledger.note_placed(&kept.key());
    assert!(ledger.see(&kept).is_none(), "the API server has it there");
    assert_eq!(ledger.tally("n1").pods, 1);
}

#[test]
fn who_was_told_of_a_volume_looks_again_when_it_is_taken_or_goes() {
    let pod = by_nodes(&[Reason::NoVolume]);
    let taken = |v: &mut Volume| v.spec.claim_ref = Some(claim("other", "1Gi").reference());
    let going = |v: &mut Volume| {
        v.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH);
    };
    let noted = |v: &mut Volume| {
        v.metadata.annotations.insert("note".into(), "x".into());
    };
    type Alter = fn(&mut Volume);
    let changes: [(&str, Alter, bool); 3] = [
        ("taken", taken, true),
        ("going", going, true),
        ("noted", noted, false),
    ];
    for (what, change, expected) in changes {
        for (name, told) in [("told", true), ("untold", false)] {
            let mut old = volume(name, "1Gi", "n1");
            old.status.phase = Some(orlop_model::VolumePhase::Available);
            let mut new = old.clone();
            change(&mut new);
            let news = News::of_volume(Some(&old), &new);
            assert_eq!(wakes(news, &pod), expected && told, "{name} {what}");
        }
    }
}
