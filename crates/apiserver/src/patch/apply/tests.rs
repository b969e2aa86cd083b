#![expect(
    clippy::needless_pass_by_value,
    reason = "literals are passed as they are written"
)]

use super::*;
use crate::kinds;
use proptest::prelude::*;

const EARLY: &str = "2026-03-01T10:00:00Z";
const LATE: &str = "2026-03-01T11:00:00Z";

fn kind(api_version: &str, name: &str) -> &'static KindInfo {
    kinds::by_kind(api_version, name).expect("a served kind")
}

fn pod() -> &'static KindInfo {
    kind("v1", "Pod")
}

fn as_manager<'a>(manager: &'a str, now: &'a str) -> ApplyOptions<'a> {
    ApplyOptions {
        manager,
        force: false,
        subresource: None,
        now,
    }
}

fn config(spec: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
}

fn apply(current: Option<&Value>, applied: &Value, manager: &str) -> Value {
    server_side_apply(pod(), current, applied, as_manager(manager, EARLY)).expect("no conflict")
}

fn refusal(current: Option<&Value>, applied: &Value, manager: &str) -> String {
    server_side_apply(pod(), current, applied, as_manager(manager, EARLY))
        .expect_err("refused")
        .to_string()
}

fn entry<'a>(object: &'a Value, manager: &str) -> Option<&'a Value> {
    let entries = object["metadata"]["managedFields"].as_array()?;
    entries.iter().find(|entry| entry["manager"] == manager)
}

fn fields<'a>(object: &'a Value, manager: &str) -> &'a Value {
    &entry(object, manager).expect(manager)["fieldsV1"]
}

#[test]
fn a_first_apply_creates_the_object_and_owns_what_it_says() {
    let applied = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "p", "namespace": "d", "labels": {"app": "x"}, "finalizers": ["a/b"],
        },
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "containers": [{
                "name": "c", "image": "i", "command": ["x", "y"],
                "ports": [{"containerPort": 80}],
                "securityContext": {},
            }],
        },
    });
    let result = apply(None, &applied, "me");
    assert_eq!(without_record(&result), applied);
    assert_eq!(
        *entry(&result, "me").expect("mine"),
        json!({
            "manager": "me", "operation": "Apply", "apiVersion": "v1", "time": EARLY,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {
                    "f:labels": {"f:app": {}},
                    "f:finalizers": {"v:\"a/b\"": {}},
                },
                "f:spec": {
                    "f:nodeSelector": {},
                    "f:containers": {"k:{\"name\":\"c\"}": {
                        ".": {}, "f:name": {}, "f:image": {}, "f:command": {},
                        "f:securityContext": {},
                        "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {
                            ".": {}, "f:containerPort": {},
                        }},
                    }},
                },
            },
        })
    );
}

#[test]
fn applying_the_same_again_changes_nothing_not_even_the_time() {
    let applied = config(json!({"containers": [{"name": "c", "image": "i"}]}));
    let once = apply(None, &applied, "me");
    let again = server_side_apply(pod(), Some(&once), &applied, as_manager("me", LATE));
    assert_eq!(again.expect("no conflict"), once);
}

#[test]
fn a_field_no_longer_applied_is_removed() {
    let first = apply(
        None,
        &config(json!({"nodeName": "n", "containers": [
            {"name": "a", "image": "1", "env": [{"name": "X"}]}, {"name": "b"},
        ]})),
        "me",
    );
    let second = apply(
        Some(&first),
        &config(json!({"containers": [{"name": "a"}]})),
        "me",
    );
    assert_eq!(second["spec"], json!({"containers": [{"name": "a"}]}));
}

#[test]
fn what_others_own_or_wrote_survives_its_removal_here() {
    let mine = config(json!({"containers": [{"name": "a", "image": "1"}], "nodeName": "n"}));
    let first = apply(None, &mine, "me");
    // Another applies one of the same fields with the same value: shared.
    let shared = apply(Some(&first), &config(json!({"nodeName": "n"})), "other");
    // A controller writes a field of its own into my container.
    let mut written = shared.clone();
    written["spec"]["containers"][0]["tty"] = true.into();
    let update = UpdateOptions {
        manager: "robot",
        subresource: None,
        now: LATE,
    };
    track_update(pod(), Some(&shared), &mut written, update);

    let fewer = apply(
        Some(&written),
        &config(json!({"containers": [{"name": "a"}]})),
        "me",
    );
    assert_eq!(
        fewer["spec"],
        json!({"nodeName": "n", "containers": [{"name": "a", "tty": true}]})
    );
    // Withdrawing a list element takes along what others wrote into it.
    let gone = apply(Some(&fewer), &config(json!({})), "me");
    assert_eq!(gone["spec"], json!({"nodeName": "n"}));
    assert!(entry(&gone, "robot").is_none());
    assert!(entry(&gone, "other").is_some());
}

#[test]
fn changing_anothers_field_is_a_conflict_that_names_both() {
    let first = apply(
        None,
        &config(json!({"nodeName": "n", "hostname": "h"})),
        "other",
    );
    let one = refusal(Some(&first), &config(json!({"nodeName": "m"})), "me");
    assert_eq!(
        one,
        "Apply failed with 1 conflict: conflict with \"other\": .spec.nodeName"
    );
    let both = config(json!({"nodeName": "m", "hostname": "g"}));
    assert_eq!(
        refusal(Some(&first), &both, "me"),
        "Apply failed with 2 conflicts: conflicts with \"other\":\n- .spec.hostname\n- .spec.nodeName"
    );
}

#[test]
fn a_conflict_with_an_update_names_version_and_subresource() {
    let mut updated = json!({"metadata": {"name": "p"}, "status": {"phase": "Running"}});
    let status = UpdateOptions {
        manager: "node",
        subresource: Some("status"),
        now: EARLY,
    };
    track_update(pod(), None, &mut updated, status);
    let applied = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
                         "status": {"phase": "Failed"}});
    let options = ApplyOptions {
        subresource: Some("status"),
        ..as_manager("me", LATE)
    };
    let error = server_side_apply(pod(), Some(&updated), &applied, options).expect_err("conflict");
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"node\" with subresource \"status\" \
         using v1: .status.phase"
    );
}

#[test]
fn force_takes_the_field() {
    let first = apply(
        None,
        &config(json!({"nodeName": "n", "hostname": "h"})),
        "other",
    );
    let options = ApplyOptions {
        force: true,
        ..as_manager("me", LATE)
    };
    let mine = config(json!({"nodeName": "m"}));
    let second = server_side_apply(pod(), Some(&first), &mine, options).expect("forced");
    assert_eq!(second["spec"], json!({"nodeName": "m", "hostname": "h"}));
    assert_eq!(
        *fields(&second, "other"),
        json!({"f:spec": {"f:hostname": {}}})
    );
    assert_eq!(
        *fields(&second, "me"),
        json!({"f:spec": {"f:nodeName": {}}})
    );
}

#[test]
fn agreeing_on_a_value_is_no_conflict() {
    let first = apply(None, &config(json!({"nodeName": "n"})), "other");
    let second = apply(Some(&first), &config(json!({"nodeName": "n"})), "me");
    assert!(entry(&second, "other").is_some() && entry(&second, "me").is_some());
}

#[test]
fn keyed_lists_merge_by_all_keys_and_keep_order() {
    let port = |number: u16, protocol: &str, name: &str| json!({"containerPort": number, "protocol": protocol, "name": name});
    let one = |ports: Vec<Value>| config(json!({"containers": [{"name": "c", "ports": ports}]}));
    let first = apply(
        None,
        &one(vec![port(53, "UDP", "a"), port(80, "TCP", "b")]),
        "other",
    );
    let second = apply(Some(&first), &one(vec![port(53, "TCP", "c")]), "me");
    assert_eq!(
        second["spec"]["containers"][0]["ports"],
        json!([
            port(53, "UDP", "a"),
            port(80, "TCP", "b"),
            port(53, "TCP", "c")
        ])
    );
    // Left out, the protocol is TCP: the same element.
    let defaulted = one(vec![json!({"containerPort": 53, "name": "c"})]);
    let third = apply(Some(&second), &defaulted, "me");
    assert_eq!(
        third["spec"]["containers"][0]["ports"]
            .as_array()
            .expect("list")
            .len(),
        3
    );
}

#[test]
fn the_applied_order_rules_shared_elements() {
    let names = |object: &Value| -> Vec<String> {
        object["spec"]["containers"]
            .as_array()
            .expect("list")
            .iter()
            .map(|c| c["name"].as_str().expect("name").to_owned())
            .collect()
    };
    let with = |names: &[&str]| {
        config(json!({"containers": names.iter().map(|n| json!({"name": n})).collect::<Vec<_>>()}))
    };
    for (live, applied, expected) in [
        (vec!["a", "b"], vec!["c"], vec!["a", "b", "c"]),
        (vec!["a", "b"], vec!["c", "a"], vec!["c", "a", "b"]),
        (vec!["a", "b"], vec!["b", "a"], vec!["b", "a"]),
        (vec!["x", "a"], vec!["c", "a"], vec!["x", "c", "a"]),
        (vec!["a", "x", "b"], vec!["b", "a"], vec!["x", "b", "a"]),
        (vec!["a", "x", "b"], vec!["a", "b"], vec!["a", "x", "b"]),
    ] {
        let first = apply(None, &with(&live), "other");
        assert_eq!(names(&apply(Some(&first), &with(&applied), "me")), expected);
    }
}

#[test]
fn sets_grow_and_shrink_by_element() {
    let with = |finalizers: Value| {
        json!({"apiVersion": "v1", "kind": "Pod",
               "metadata": {"name": "p", "finalizers": finalizers}})
    };
    let first = apply(None, &with(json!(["a"])), "one");
    let second = apply(Some(&first), &with(json!(["b", "c"])), "two");
    assert_eq!(second["metadata"]["finalizers"], json!(["a", "b", "c"]));
    let third = apply(Some(&second), &with(json!(["c"])), "two");
    assert_eq!(third["metadata"]["finalizers"], json!(["a", "c"]));
}

#[test]
fn an_atomic_map_is_owned_as_a_whole() {
    let first = apply(
        None,
        &config(json!({"nodeSelector": {"a": "1", "b": "2"}})),
        "me",
    );
    let second = apply(
        Some(&first),
        &config(json!({"nodeSelector": {"b": "3"}})),
        "me",
    );
    assert_eq!(second["spec"]["nodeSelector"], json!({"b": "3"}));
    let conflict = refusal(
        Some(&second),
        &config(json!({"nodeSelector": {"c": "4"}})),
        "x",
    );
    assert!(
        conflict.ends_with("conflict with \"me\": .spec.nodeSelector"),
        "{conflict}"
    );
}

#[test]
fn the_status_resource_and_the_main_one_own_apart() {
    let applied = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"nodeName": "n"}, "status": {"phase": "Running"},
    });
    let main = apply(None, &applied, "me");
    assert_eq!(*fields(&main, "me"), json!({"f:spec": {"f:nodeName": {}}}));
    let options = ApplyOptions {
        subresource: Some("status"),
        ..as_manager("me", EARLY)
    };
    let status = server_side_apply(pod(), Some(&main), &applied, options).expect("applied");
    let entries = status["metadata"]["managedFields"]
        .as_array()
        .expect("list");
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[1]["subresource"], "status");
    assert_eq!(entries[1]["fieldsV1"], json!({"f:status": {"f:phase": {}}}));
}

#[test]
fn an_object_without_a_record_belonged_to_whoever_was_before() {
    let current = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "uid": "u"},
                         "spec": {"nodeName": "n"}});
    let error = refusal(Some(&current), &config(json!({"nodeName": "m"})), "me");
    assert_eq!(
        error,
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .spec.nodeName"
    );
    let agreed = apply(Some(&current), &config(json!({"nodeName": "n"})), "me");
    assert_eq!(agreed["metadata"]["uid"], "u");
}

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// What `kubectl apply` leaves behind when it creates an object.
fn applied_client_side(config: &Value) -> Value {
    let mut object = config.clone();
    object["metadata"]["annotations"] = json!({ANNOTATION: format!("{config}\n")});
    update(None, object, "kubectl-client-side-apply", EARLY)
}

#[test]
fn kubectl_may_go_over_from_client_side_to_server_side_apply() {
    let live = applied_client_side(&config(json!({"nodeName": "n", "hostname": "h"})));
    let changed = config(json!({"nodeName": "m", "hostname": "h"}));
    let conflict = refusal(Some(&live), &changed, "another");
    assert!(conflict.contains(".spec.nodeName"), "{conflict}");
    let result = apply(Some(&live), &changed, "kubectl");
    assert_eq!(result["spec"]["nodeName"], "m");
    let text = result["metadata"]["annotations"][ANNOTATION]
        .as_str()
        .expect("kept");
    assert_eq!(serde_json::from_str::<Value>(text).expect("JSON"), changed);
}

#[test]
fn what_was_changed_since_client_side_apply_is_a_conflict() {
    let live = applied_client_side(&config(json!({"nodeName": "n"})));
    let mut moved = live.clone();
    moved["spec"]["nodeName"] = "o".into();
    let moved = update(Some(&live), moved, "robot", LATE);
    let conflict = refusal(Some(&moved), &config(json!({"nodeName": "m"})), "kubectl");
    assert_eq!(
        conflict,
        "Apply failed with 1 conflict: conflict with \"robot\" using v1: .spec.nodeName"
    );
}

#[test]
fn configurations_that_do_not_fit_are_refused() {
    let bad = |value: Value| refusal(None, &value, "me");
    let unknown = bad(config(json!({"nodename": "n"})));
    assert_eq!(
        unknown,
        "failed to create typed patch object (/p; /v1, Kind=Pod): \
         .spec.nodename: field not declared in schema"
    );
    let twice = bad(config(
        json!({"containers": [{"name": "a"}, {"name": "a"}]}),
    ));
    assert!(
        twice.ends_with(".spec.containers: duplicate entries for key [name=\"a\"]"),
        "{twice}"
    );
    let version = bad(json!({"apiVersion": "v2", "kind": "Pod", "metadata": {"name": "p"}}));
    assert!(version.starts_with("Incorrect version specified in apply patch."));
    let record = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"managedFields": [{}]}});
    assert_eq!(bad(record), "metadata.managedFields must be nil");
}

fn update(before: Option<&Value>, mut after: Value, manager: &str, now: &str) -> Value {
    track_update(
        pod(),
        before,
        &mut after,
        UpdateOptions {
            manager,
            subresource: None,
            now,
        },
    );
    after
}

#[test]
fn a_created_object_belongs_to_its_creator() {
    let created = update(
        None,
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "d", "uid": "u", "labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c"}]},
            "status": {"phase": "Pending"},
        }),
        "kubectl-create",
        EARLY,
    );
    assert_eq!(
        *entry(&created, "kubectl-create").expect("mine"),
        json!({
            "manager": "kubectl-create", "operation": "Update", "apiVersion": "v1", "time": EARLY,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
                "f:spec": {
                    // Every pod has the list, so nobody sets it as such.
                    "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}}},
                },
            },
        })
    );
}

#[test]
fn an_update_takes_what_it_changes_and_frees_what_it_removes() {
    let first = update(
        None,
        json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n", "hostname": "h"}}),
        "one",
        EARLY,
    );
    let mut changed = first.clone();
    changed["spec"] = json!({"nodeName": "m"});
    let second = update(Some(&first), changed, "two", LATE);
    // A spec is always there, so that nobody owns it as such.
    assert_eq!(entry(&second, "one"), None);
    assert_eq!(
        *fields(&second, "two"),
        json!({"f:spec": {"f:nodeName": {}}})
    );
    assert_eq!(entry(&second, "two").expect("theirs")["time"], LATE);
}

#[test]
fn an_update_that_changes_nothing_leaves_the_record_alone() {
    let first = update(
        None,
        json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n"}}),
        "one",
        EARLY,
    );
    // A client that drops the record on the way keeps it all the same.
    assert_eq!(
        update(Some(&first), without_record(&first), "two", LATE),
        first
    );
}

#[test]
fn a_single_empty_entry_starts_a_new_record() {
    let first = update(
        None,
        json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n"}}),
        "one",
        EARLY,
    );
    let mut reset = first.clone();
    reset["metadata"]["managedFields"] = json!([{}]);
    let second = update(Some(&first), reset, "two", LATE);
    assert!(second["metadata"].get("managedFields").is_none());
}

#[test]
fn many_updaters_are_merged_oldest_first() {
    let mut object = json!({"metadata": {"name": "p", "annotations": {}}});
    for n in 10..25 {
        let mut next = object.clone();
        next["metadata"]["annotations"][format!("a{n}")] = "x".into();
        object = update(
            Some(&object),
            next,
            &format!("m{n}"),
            &format!("2026-03-01T10:00:{n}Z"),
        );
    }
    let entries = object["metadata"]["managedFields"]
        .as_array()
        .expect("list");
    assert_eq!(entries.len(), 10);
    let old = fields(&object, "ancient-changes");
    for n in 10..16 {
        assert!(
            old["f:metadata"]["f:annotations"][format!("f:a{n}")].is_object(),
            "{n}"
        );
    }
    assert!(entry(&object, "m24").is_some());
}

/// Configurations over a small alphabet, so that they meet often.
fn any_config() -> impl Strategy<Value = Value> {
    let env = prop::collection::btree_map("[a-b]", "[x-y]", 0..3);
    let container = (env, prop::option::of("[x-y]"));
    (
        prop::collection::btree_map("[a-c]", container, 0..3),
        prop::collection::btree_set("[a-c]", 0..3),
        prop::collection::btree_map("[a-b]", "[x-y]", 0..2),
        prop::option::of("[x-y]"),
    )
        .prop_map(|(containers, finalizers, labels, node)| {
            let mut spec = json!({});
            if let Some(node) = node {
                spec["nodeName"] = node.into();
            }
            let containers: Vec<Value> = containers
                .into_iter()
                .map(|(name, (env, image))| {
                    let mut container = json!({"name": name});
                    let env: Vec<Value> = env
                        .into_iter()
                        .map(|(name, value)| json!({"name": name, "value": value}))
                        .collect();
                    if !env.is_empty() {
                        container["env"] = env.into();
                    }
                    if let Some(image) = image {
                        container["image"] = image.into();
                    }
                    container
                })
                .collect();
            if !containers.is_empty() {
                spec["containers"] = containers.into();
            }
            let mut config = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
            if !finalizers.is_empty() {
                config["metadata"]["finalizers"] = json!(finalizers);
            }
            if !labels.is_empty() {
                config["metadata"]["labels"] = json!(labels);
            }
            if spec != json!({}) {
                config["spec"] = spec;
            }
            config
        })
}

fn forced(current: Option<&Value>, applied: &Value, manager: &str) -> Value {
    let options = ApplyOptions {
        force: true,
        ..as_manager(manager, EARLY)
    };
    server_side_apply(pod(), current, applied, options).expect("forced")
}

proptest! {
    #[test]
    fn applying_twice_is_applying_once(live in any_config(), mine in any_config()) {
        let live = forced(None, &live, "other");
        let once = forced(Some(&live), &mine, "me");
        prop_assert_eq!(&forced(Some(&once), &mine, "me"), &once);
    }

    #[test]
    fn what_is_applied_is_there(live in any_config(), mine in any_config()) {
        let live = forced(None, &live, "other");
        let result = forced(Some(&live), &mine, "me");
        let shape = schema().of(pod());
        let wanted = fields_of(&shape, &mine).expect("valid");
        let there = fields_of(&shape, &without_record(&result)).expect("valid");
        prop_assert!(wanted.difference(&there).is_empty());
    }

    #[test]
    fn a_sole_manager_has_exactly_what_was_applied_last(a in any_config(), b in any_config()) {
        let first = forced(None, &a, "me");
        let second = forced(Some(&first), &b, "me");
        let fresh = forced(None, &b, "me");
        let shape = schema().of(pod());
        let fields = |object: &Value| fields_of(&shape, &without_record(object)).expect("valid");
        prop_assert_eq!(fields(&second), fields(&fresh));
    }

    #[test]
    fn withdrawing_leaves_the_others_what_they_applied(a in any_config(), b in any_config()) {
        let bare = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}});
        let first = forced(None, &a, "other");
        // Only configurations that agree: conflicts are another law.
        if let Ok(both) = server_side_apply(pod(), Some(&first), &b, as_manager("me", EARLY)) {
            let after = forced(Some(&both), &bare, "me");
            let shape = schema().of(pod());
            let fields = |object: &Value| fields_of(&shape, &without_record(object)).expect("valid");
            prop_assert_eq!(fields(&after), fields(&first));
            prop_assert!(entry(&after, "me").is_none());
        }
    }

    #[test]
    fn the_record_reads_back_as_it_was_written(mine in any_config()) {
        let result = forced(None, &mine, "me");
        if let Some(managers) = Managers::of(&result) {
            let mut copy = without_record(&result);
            managers.store(&mut copy);
            prop_assert_eq!(copy, result);
        }
    }

    #[test]
    fn every_written_field_has_an_owner(a in any_config(), b in any_config()) {
        let first = update(None, a, "one", EARLY);
        let mut next = b;
        next["metadata"]["managedFields"] = first["metadata"]["managedFields"].clone();
        let second = update(Some(&first), next, "two", LATE);
        let shape = schema().of(pod());
        let all = fields_of(&shape, &without_record(&second)).expect("valid")
            .difference(&FieldSet::of_fields(&UNOWNED));
        let owned = Managers::of(&second).unwrap_or_default().shares.values()
            .fold(FieldSet::default(), |owned, share| owned.union(&share.fields));
        prop_assert!(all.difference(&owned).is_empty(), "{:?}", all.difference(&owned).paths());
    }

    /// Whoever leaves the record out has it read and written anew.
    #[test]
    fn a_record_is_amended_as_if_all_of_it_were_read(
        (a, b, c) in (any_config(), any_config(), any_config()), same in any::<bool>()
    ) {
        let next = |object: &Value, before: &Value| {
            let mut next = object.clone();
            next["metadata"]["managedFields"] = before["metadata"]["managedFields"].clone();
            next
        };
        let first = forced(None, &a, "applies");
        let second = update(Some(&first), next(&b, &first), "one", EARLY);
        let third = update(Some(&second), next(&c, &second), "two", EARLY);
        let who = if same { "one" } else { "three" };
        let amended = update(Some(&third), next(&a, &third), who, LATE);
        let anew = update(Some(&third), without_record(&a), who, LATE);
        prop_assert_eq!(amended, anew);
    }
}
