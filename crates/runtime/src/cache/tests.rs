use std::sync::Mutex;

use orlop_model::Pod;

use super::*;

fn pod(name: &str, revision: u64, node: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = name.into();
    pod.metadata.namespace = "ns".into();
    pod.metadata.uid = format!("uid-{name}");
    pod.metadata.resource_version = revision.to_string();
    pod.spec.node_name = node.into();
    pod
}

fn shared(name: &str, revision: u64, node: &str) -> Arc<Pod> {
    Arc::new(pod(name, revision, node))
}

fn by_node(pod: &Pod) -> Vec<String> {
    vec![pod.spec.node_name.clone()]
}

#[test]
fn an_older_version_never_replaces_a_newer_one() {
    let cache = Cache::new();
    cache.put(&shared("a", 5, "n1"));
    cache.absorb(pod("a", 7, "n2"));
    cache.put(&shared("a", 6, "n1"));
    assert_eq!(
        cache
            .get(&Key::namespaced("ns", "a"))
            .unwrap()
            .spec
            .node_name,
        "n2"
    );
}

#[test]
fn a_late_answer_does_not_bring_a_deleted_object_back() {
    let cache = Cache::new();
    cache.put(&shared("a", 5, "n1"));
    cache.remove(&Key::namespaced("ns", "a"));
    cache.advance(9);
    cache.absorb(pod("a", 7, "n1"));
    assert!(cache.is_empty());
}

#[test]
fn an_index_follows_every_change() {
    let cache = Cache::new();
    cache.put(&shared("a", 1, "n1"));
    let index = cache.index("node", by_node);
    cache.put(&shared("b", 2, "n1"));
    assert_eq!(index.get("n1").len(), 2);
    cache.put(&shared("a", 3, "n2"));
    assert_eq!(index.get("n1").len(), 1);
    assert_eq!(index.get("n2").len(), 1);
    cache.remove(&Key::namespaced("ns", "b"));
    assert!(index.get("n1").is_empty());
}

#[test]
fn a_relist_tells_of_what_vanished() {
    let cache = Cache::new();
    cache.put(&shared("a", 1, "n1"));
    cache.put(&shared("b", 2, "n1"));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    cache.subscribe(move |change| {
        let verb = if matches!(change, Change::Deleted(_)) {
            "-"
        } else {
            "+"
        };
        log.lock()
            .unwrap()
            .push(format!("{verb}{}", change.object().metadata.name));
    });
    cache.replace(&[shared("b", 2, "n1"), shared("c", 3, "n1")], 3);
    assert_eq!(*seen.lock().unwrap(), ["+a", "+b", "-a", "+b", "+c"]);
}

#[test]
fn an_object_that_took_anothers_name_unseen_is_told_as_an_end_and_a_beginning() {
    let cache = Cache::new();
    cache.put(&shared("a", 1, "n1"));
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    cache.subscribe(move |change| {
        let line = match change {
            Change::Deleted(old) => format!("-{}", old.spec.node_name),
            Change::Applied { old: None, new } => format!("+{}", new.spec.node_name),
            Change::Applied { new, .. } => format!("~{}", new.spec.node_name),
        };
        log.lock().unwrap().push(line);
    });
    let mut another = pod("a", 5, "n2");
    another.metadata.uid = "another".into();
    cache.replace(&[Arc::new(another)], 5);
    assert_eq!(*seen.lock().unwrap(), ["+n1", "-n1", "+n2"]);
}

#[test]
fn a_scan_goes_in_order_within_its_prefix_and_stops_when_told() {
    let cache = Cache::new();
    for (revision, (name, node)) in [("a", "x/3"), ("b", "x/1"), ("c", "y/2"), ("d", "x/2")]
        .into_iter()
        .enumerate()
    {
        cache.put(&shared(name, revision as u64 + 1, node));
    }
    let index = cache.index("node", by_node);
    let mut seen = Vec::new();
    let all = index.scan("x/2", "x/", |pod| {
        seen.push(pod.metadata.name.clone());
        std::ops::ControlFlow::<()>::Continue(())
    });
    assert_eq!((seen, all), (vec!["d".to_owned(), "a".to_owned()], None));
    let first = index.scan("x/", "x/", |pod| {
        std::ops::ControlFlow::Break(pod.metadata.name.clone())
    });
    assert_eq!(first.as_deref(), Some("b"));
}

#[test]
fn what_is_told_to_be_gone_is_not_brought_back_by_a_watch_that_is_behind() {
    let cache = Cache::<Pod>::new();
    let mut old = pod("a", 5, "n1");
    old.metadata.uid = "0a1b2c3d-4e5f-6789-abcd-ef0123456789".to_owned();
    cache.end_of(&old.metadata.uid);
    cache.put(&Arc::new(old));
    assert!(cache.is_empty());
    cache.put(&shared("a", 6, "n1"));
    assert_eq!(cache.len(), 1, "another of its name");
}

#[test]
fn what_nothing_holds_any_more_is_gone_for_good() {
    let cache = Cache::<Pod>::new();
    let uid = "0a1b2c3d-4e5f-6789-abcd-ef0123456789";
    let at = |revision, finalizers: &[&str]| {
        let mut pod = pod("a", revision, "n1");
        pod.metadata.uid = uid.to_owned();
        pod.metadata.deletion_timestamp = Some("2026-01-01T00:00:00Z".parse().expect("a time"));
        pod.metadata.finalizers = finalizers.iter().map(|f| (*f).to_owned()).collect();
        pod
    };
    cache.put(&Arc::new(at(5, &["one", "other"])));
    cache.absorb_or_end(at(7, &["other"]));
    assert_eq!(cache.len(), 1);
    assert!(!cache.saw_end_of(uid));
    cache.absorb_or_end(at(9, &[]));
    assert!(cache.is_empty() && cache.saw_end_of(uid));
    cache.put(&Arc::new(at(6, &["other"])));
    assert!(cache.is_empty(), "a late event brings it back");
    cache.put(&shared("a", 11, "n1"));
    assert_eq!(cache.len(), 1, "another of its name");
}

#[test]
fn the_last_of_each_group_is_found() {
    let cache = Cache::new();
    let index = cache.index("node", by_node);
    for (name, node) in [
        ("a", "x/1"),
        ("b", "x/3"),
        ("c", "x/2"),
        ("d", "y/1"),
        ("e", "y/1"),
    ] {
        cache.put(&shared(name, 1, node));
    }
    let lasts = |most| {
        let lasts = index.lasts(|value| &value[..2], most);
        let names = lasts.iter().map(|pod| pod.metadata.name.clone());
        names.collect::<Vec<_>>()
    };
    assert_eq!(lasts(9), ["b", "e"]);
    assert_eq!(lasts(1), ["b"]);
}
