#![expect(
    clippy::needless_pass_by_value,
    reason = "literals are passed as they are written"
)]

use super::*;
use crate::kinds;
use proptest::prelude::*;
use serde_json::json;

fn pod() -> &'static KindInfo {
    kinds::by_kind("v1", "Pod").expect("a served kind")
}

fn patched(current: Value, patch: Value) -> Value {
    strategic(pod(), &current, &patch).expect("a valid patch")
}

#[test]
fn containers_merge_by_name_and_new_ones_come_first() {
    let current = json!({"spec": {"containers": [
        {"name": "a", "image": "a:1", "args": ["x"]}, {"name": "b", "image": "b:1"},
    ]}});
    let patch = json!({"spec": {"containers": [
        {"name": "b", "image": "b:2"}, {"name": "c", "image": "c:1"},
    ]}});
    assert_eq!(
        patched(current, patch),
        json!({"spec": {"containers": [
            {"name": "a", "image": "a:1", "args": ["x"]},
            {"name": "b", "image": "b:2"},
            {"name": "c", "image": "c:1"},
        ]}})
    );
    let current = json!({"spec": {"containers": [{"name": "a"}]}});
    let patch = json!({"spec": {"containers": [{"name": "z"}]}});
    assert_eq!(
        patched(current, patch)["spec"]["containers"],
        json!([{"name": "z"}, {"name": "a"}])
    );
}

#[test]
fn deeper_lists_merge_by_their_own_keys() {
    let current = json!({"spec": {"containers": [{
        "name": "a",
        "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}],
        "ports": [{"containerPort": 80, "name": "web"}],
        "volumeMounts": [{"mountPath": "/a", "name": "v"}],
        "command": ["old"],
    }]}});
    let patch = json!({"spec": {"containers": [{
        "name": "a",
        "env": [{"name": "Y", "value": "3"}],
        "ports": [{"containerPort": 80, "protocol": "UDP"}],
        "volumeMounts": [{"mountPath": "/a", "readOnly": true}],
        "command": ["new"],
    }]}});
    assert_eq!(
        patched(current, patch)["spec"]["containers"][0],
        json!({
            "name": "a",
            "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "3"}],
            "ports": [{"containerPort": 80, "name": "web", "protocol": "UDP"}],
            "volumeMounts": [{"mountPath": "/a", "name": "v", "readOnly": true}],
            "command": ["new"],
        })
    );
}

#[test]
fn tolerations_are_replaced_and_finalizers_added() {
    let current = json!({
        "metadata": {"finalizers": ["a", "b"]},
        "spec": {"tolerations": [{"key": "x"}]},
    });
    let patch = json!({
        "metadata": {"finalizers": ["b", "c"]},
        "spec": {"tolerations": [{"key": "y"}]},
    });
    assert_eq!(
        patched(current, patch),
        json!({
            "metadata": {"finalizers": ["a", "b", "c"]},
            "spec": {"tolerations": [{"key": "y"}]},
        })
    );
}

#[test]
fn conditions_merge_by_type_and_null_removes() {
    let current = json!({"status": {"phase": "Pending", "message": "m", "conditions": [
        {"type": "Ready", "status": "False", "reason": "r"},
    ]}});
    let patch = json!({"status": {"message": null, "conditions": [
        {"type": "Ready", "status": "True", "reason": null}, {"type": "New", "status": "True"},
    ]}});
    assert_eq!(
        patched(current, patch),
        json!({"status": {"phase": "Pending", "conditions": [
            {"type": "Ready", "status": "True"}, {"type": "New", "status": "True"},
        ]}})
    );
}

#[test]
fn an_element_is_deleted_by_directive() {
    let current = json!({"spec": {"volumes": [{"name": "a"}, {"name": "b"}]}});
    let patch = json!({"spec": {"volumes": [{"name": "a", "$patch": "delete"}]}});
    assert_eq!(
        patched(current, patch),
        json!({"spec": {"volumes": [{"name": "b"}]}})
    );
}

#[test]
fn a_list_or_map_is_replaced_by_directive() {
    let current = json!({
        "metadata": {"labels": {"a": "1"}},
        "spec": {"volumes": [{"name": "a", "emptyDir": {}}]},
    });
    let patch = json!({
        "metadata": {"labels": {"$patch": "replace", "b": "2"}},
        "spec": {"volumes": [{"$patch": "replace"}, {"name": "b"}]},
    });
    assert_eq!(
        patched(current.clone(), patch),
        json!({"metadata": {"labels": {"b": "2"}}, "spec": {"volumes": [{"name": "b"}]}})
    );
    let patch = json!({"metadata": {"labels": {"$patch": "delete"}}});
    assert_eq!(patched(current, patch)["metadata"], json!({"labels": {}}));
}

/// What `kubectl apply` sends when the volume's source changes.
#[test]
fn retained_keys_drop_the_other_members_of_a_union() {
    let current = json!({"spec": {"volumes": [
        {"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}},
    ]}});
    let patch = json!({"spec": {
        "$setElementOrder/volumes": [{"name": "v"}, {"name": "w"}],
        "volumes": [{
            "$retainKeys": ["name", "hostPath"], "name": "v", "hostPath": {"path": "/d"},
            "emptyDir": null,
        }],
    }});
    assert_eq!(
        patched(current, patch),
        json!({"spec": {"volumes": [
            {"name": "v", "hostPath": {"path": "/d"}}, {"name": "w", "emptyDir": {}},
        ]}})
    );
}

#[test]
fn primitives_are_deleted_by_directive() {
    let current = json!({"metadata": {"finalizers": ["a", "b", "c"]}});
    let patch = json!({"metadata": {
        "$deleteFromPrimitiveList/finalizers": ["a"],
        "$setElementOrder/finalizers": ["c", "b", "d"],
        "finalizers": ["d"],
    }});
    let finalizers = &patched(current, patch)["metadata"]["finalizers"];
    assert_eq!(*finalizers, json!(["c", "b", "d"]));
}

#[test]
fn order_is_set_and_the_servers_own_elements_keep_their_place() {
    let current = json!({"spec": {"containers": [
        {"name": "a"}, {"name": "injected"}, {"name": "b"},
    ]}});
    let patch = json!({"spec": {
        "$setElementOrder/containers": [{"name": "a"}, {"name": "c"}, {"name": "b"}],
        "containers": [{"name": "c", "image": "i"}],
    }});
    let names: Vec<_> = patched(current, patch)["spec"]["containers"]
        .as_array()
        .expect("list")
        .iter()
        .map(|c| c["name"].clone())
        .collect();
    assert_eq!(names, ["a", "c", "injected", "b"]);
}

#[test]
fn directives_leave_no_trace_where_there_was_nothing() {
    let patch = json!({"spec": {
        "$setElementOrder/volumes": [{"name": "v"}],
        "volumes": [{"name": "v", "$retainKeys": ["name", "emptyDir"], "emptyDir": {}, "x": null}],
    }});
    assert_eq!(
        patched(json!({}), patch),
        json!({"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}})
    );
}

#[test]
fn patches_that_make_no_sense_are_refused() {
    for patch in [
        json!({"spec": {"containers": [{"image": "no key"}]}}),
        json!({"spec": {"containers": ["text"]}}),
        json!({"spec": {"$patch": "explode"}}),
        json!({"spec": {"volumes": [{"name": "v", "$retainKeys": ["name"], "emptyDir": {}}]}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}}),
        json!([]),
    ] {
        assert!(strategic(pod(), &json!({}), &patch).is_err(), "{patch}");
    }
}

/// Pods whose keyed lists have distinct keys.
fn any_pod() -> impl Strategy<Value = Value> {
    let env = prop::collection::btree_map("[a-c]", "[x-z]", 0..3);
    let container = (env, prop::option::of("[x-z]"));
    let containers = prop::collection::btree_map("[a-d]", container, 0..4);
    let finalizers = prop::collection::btree_set("[a-d]", 0..3);
    (containers, finalizers, prop::option::of("[a-c]")).prop_map(
        |(containers, finalizers, node)| {
            let containers: Vec<Value> = containers
                .into_iter()
                .map(|(name, (env, image))| {
                    let env: Vec<Value> = env
                        .into_iter()
                        .map(|(name, value)| json!({"name": name, "value": value}))
                        .collect();
                    let mut container = json!({"name": name, "env": env});
                    if let Some(image) = image {
                        container["image"] = image.into();
                    }
                    container
                })
                .collect();
            let mut pod = json!({
                "metadata": {"finalizers": finalizers}, "spec": {"containers": containers},
            });
            if let Some(node) = node {
                pod["spec"]["nodeName"] = node.into();
            }
            pod
        },
    )
}

proptest! {
    #[test]
    fn applying_a_patch_twice_is_applying_it_once(current in any_pod(), patch in any_pod()) {
        let once = strategic(pod(), &current, &patch).expect("valid");
        let twice = strategic(pod(), &once, &patch).expect("valid");
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn an_object_patched_with_itself_stays_as_it_is(current in any_pod()) {
        prop_assert_eq!(strategic(pod(), &current, &current).expect("valid"), current);
    }

    #[test]
    fn nothing_is_lost_without_a_directive(current in any_pod(), patch in any_pod()) {
        let after = strategic(pod(), &current, &patch).expect("valid");
        let names = |pod: &Value| pod["spec"]["containers"].as_array().expect("list").iter()
            .map(|c| c["name"].to_string()).collect::<std::collections::BTreeSet<_>>();
        prop_assert!(names(&after).is_superset(&names(&current)));
        prop_assert!(names(&after).is_superset(&names(&patch)));
    }
}

#[test]
fn a_patch_that_deletes_the_whole_object_is_refused() {
    let current = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n"}});
    for directive in ["delete", "replace"] {
        let refused = strategic(pod(), &current, &json!({"$patch": directive}));
        assert_eq!(
            refused.expect_err("no name is left").to_string(),
            "the name of the object (a based on URL) was undeterminable: name must be provided"
        );
    }
    let kept = json!({"$patch": "replace", "metadata": {"name": "a"}});
    assert_eq!(patched(current, kept), json!({"metadata": {"name": "a"}}));
}

#[test]
fn long_lists_take_time_in_proportion_to_their_length() {
    let environment = |from: usize| {
        let env: Vec<Value> = (from..from + 20_000)
            .map(|n| json!({"name": format!("n{n}"), "value": from}))
            .collect();
        json!({"metadata": {"finalizers": (from..from + 20_000).map(|n| format!("a/{n}")).collect::<Vec<_>>()},
            "spec": {"containers": [{"name": "c", "env": env}]}})
    };
    let (current, mut patch) = (environment(0), environment(10_000));
    let order: Vec<Value> = (0..30_000)
        .rev()
        .map(|n| json!({"name": format!("n{n}")}))
        .collect();
    patch["spec"]["containers"][0]["$setElementOrder/env"] = order.into();
    patch["metadata"]["$deleteFromPrimitiveList/finalizers"] =
        (0..5_000).map(|n| format!("a/{n}")).collect();
    // What the machine does besides doesn't count.
    let used = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let begin = used();
    let merged = patched(current, patch);
    let took = used() - begin;
    assert_eq!(
        merged["metadata"]["finalizers"].as_array().map(Vec::len),
        Some(25_000)
    );
    let env = merged["spec"]["containers"][0]["env"]
        .as_array()
        .expect("a list");
    assert_eq!((env.len(), &env[0]["name"]), (30_000, &json!("n29999")));
    assert!(took.tv_sec < 5, "it took {took:?}");
}
