#![expect(
    clippy::needless_pass_by_value,
    reason = "literals are passed as they are written"
)]

use super::*;
use crate::kinds;

const NOW: &str = "2026-03-01T12:00:00Z";
const CREATED: &str = "2026-03-01T11:58:30Z";

fn table(api_version: &str, kind: &str, object: &Value) -> Value {
    let kind = kinds::by_kind(api_version, kind).expect("a served kind");
    let now = NOW.parse().expect("a time");
    render(kind, &[object], now, Include::Metadata)
}

/// The row as kubectl prints it with `-o wide`, columns and cells by `|`.
fn printed(api_version: &str, kind: &str, mut object: Value) -> (String, String) {
    object["metadata"]["creationTimestamp"] = CREATED.into();
    let table = table(api_version, kind, &object);
    let columns = table["columnDefinitions"].as_array().expect("columns");
    let cells = table["rows"][0]["cells"].as_array().expect("cells");
    assert_eq!(columns.len(), cells.len(), "{kind}");
    let names = columns.iter().map(|c| at(c, "/name").to_uppercase());
    let cells = cells.iter().map(|cell| match cell {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    });
    (
        names.collect::<Vec<_>>().join("|"),
        cells.collect::<Vec<_>>().join("|"),
    )
}

#[test]
fn ages_are_abbreviated_like_the_originals() {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 3600;
    const DAY: i64 = 24 * HOUR;
    for (seconds, words) in [
        (-2, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (10 * MINUTE + 59, "10m"),
        (179 * MINUTE, "179m"),
        (3 * HOUR, "3h"),
        (7 * HOUR + 59 * MINUTE, "7h59m"),
        (8 * HOUR + 59 * MINUTE, "8h"),
        (47 * HOUR, "47h"),
        (2 * DAY, "2d"),
        (2 * DAY + 5 * HOUR, "2d5h"),
        (8 * DAY + 5 * HOUR, "8d"),
        (729 * DAY, "729d"),
        (730 * DAY, "2y"),
        (731 * DAY, "2y1d"),
        (8 * 365 * DAY + DAY, "8y"),
    ] {
        assert_eq!(age::human(seconds), words, "{seconds}");
    }
    let now = NOW.parse().expect("a time");
    assert_eq!(age::since("", now), "<unknown>");
    assert_eq!(age::since("2026-03-01T11:59:59.5Z", now), "0s");
}

#[test]
fn a_bound_claim_and_its_volume() {
    let claim = json!({
        "metadata": {"name": "data"},
        "spec": {
            "volumeName": "pv-1", "storageClassName": "local", "volumeMode": "Filesystem",
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "status": {
            "phase": "Bound", "capacity": {"storage": "2Gi"},
            "accessModes": ["ReadWriteMany", "ReadWriteOnce", "ReadWriteOnce"],
        },
    });
    assert_eq!(
        printed("v1", "PersistentVolumeClaim", claim),
        (
            "NAME|STATUS|VOLUME|CAPACITY|ACCESS MODES|STORAGECLASS|VOLUMEATTRIBUTESCLASS|AGE|VOLUMEMODE"
                .to_owned(),
            "data|Bound|pv-1|2Gi|RWO,RWX|local|<unset>|90s|Filesystem".to_owned()
        )
    );
    let volume = json!({
        "metadata": {"name": "pv-1"},
        "spec": {
            "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOncePod"],
            "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "local",
            "claimRef": {"namespace": "default", "name": "data"},
            "volumeAttributesClassName": "gold",
        },
        "status": {"phase": "Bound"},
    });
    assert_eq!(
        printed("v1", "PersistentVolume", volume),
        (
            "NAME|CAPACITY|ACCESS MODES|RECLAIM POLICY|STATUS|CLAIM|STORAGECLASS|\
             VOLUMEATTRIBUTESCLASS|REASON|AGE|VOLUMEMODE"
                .to_owned(),
            "pv-1|2Gi|RWOP|Delete|Bound|default/data|local|gold||90s|<unset>".to_owned()
        )
    );
}

#[test]
fn an_unbound_claim_shows_no_size_and_a_deleted_one_terminates() {
    let claim = json!({
        "metadata": {
            "name": "data",
            "annotations": {"volume.beta.kubernetes.io/storage-class": "old"},
        },
        "spec": {"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOnce"]},
        "status": {"phase": "Pending"},
    });
    let (_, cells) = printed("v1", "PersistentVolumeClaim", claim.clone());
    assert_eq!(cells, "data|Pending||||old|<unset>|90s|<unset>");
    let mut leaving = claim;
    leaving["metadata"]["deletionTimestamp"] = NOW.into();
    let (_, cells) = printed("v1", "PersistentVolumeClaim", leaving);
    assert_eq!(cells, "data|Terminating||||old|<unset>|90s|<unset>");
}

#[test]
fn the_storage_group() {
    for (kind, object, columns, cells) in [
        (
            "StorageClass",
            json!({
                "metadata": {
                    "name": "local",
                    "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
                },
                "provisioner": "local.example", "volumeBindingMode": "WaitForFirstConsumer",
            }),
            "NAME|PROVISIONER|RECLAIMPOLICY|VOLUMEBINDINGMODE|ALLOWVOLUMEEXPANSION|AGE",
            "local (default)|local.example|Delete|WaitForFirstConsumer|false|90s",
        ),
        (
            "VolumeAttachment",
            json!({
                "metadata": {"name": "csi-1"},
                "spec": {
                    "attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "pv"},
                },
                "status": {"attached": true},
            }),
            "NAME|ATTACHER|PV|NODE|ATTACHED|AGE",
            "csi-1|a|pv|n|true|90s",
        ),
        (
            "CSIDriver",
            json!({
                "metadata": {"name": "d"},
                "spec": {"attachRequired": false, "volumeLifecycleModes": ["Persistent", "Ephemeral"],
                         "tokenRequests": [{"audience": "a"}, {"audience": "b"}]},
            }),
            "NAME|ATTACHREQUIRED|PODINFOONMOUNT|STORAGECAPACITY|TOKENREQUESTS|REQUIRESREPUBLISH|MODES|AGE",
            "d|false|false|false|a,b|false|Persistent,Ephemeral|90s",
        ),
        (
            "CSINode",
            json!({"metadata": {"name": "n"}, "spec": {"drivers": [{}, {}]}}),
            "NAME|DRIVERS|AGE",
            "n|2|90s",
        ),
        (
            "CSIStorageCapacity",
            json!({"metadata": {"name": "c"}, "storageClassName": "s", "capacity": "10Gi"}),
            "NAME|STORAGECLASSNAME|CAPACITY",
            "c|s|10Gi",
        ),
        (
            "VolumeAttributesClass",
            json!({"metadata": {"name": "gold"}, "driverName": "d"}),
            "NAME|DRIVERNAME|AGE",
            "gold|d|90s",
        ),
    ] {
        let printed = printed("storage.k8s.io/v1", kind, object);
        assert_eq!(printed, (columns.to_owned(), cells.to_owned()), "{kind}");
    }
}

#[test]
fn the_kinds_around_storage() {
    let node = json!({
        "metadata": {"name": "n", "labels": {
            "node-role.kubernetes.io/worker": "", "kubernetes.io/role": "edge",
        }},
        "spec": {"unschedulable": true},
        "status": {
            "conditions": [{"type": "Ready", "status": "Unknown"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1", "kernelVersion": "6.1", "architecture": "amd64"},
        },
    });
    let event = json!({
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{c}"},
        "type": "Normal", "reason": "Started", "message": " up \n", "count": 3,
        "source": {"component": "kubelet", "host": "n"},
        "firstTimestamp": "2026-03-01T11:00:00Z", "lastTimestamp": "2026-03-01T11:59:50Z",
    });
    for (kind, object, cells) in [
        (
            "Node",
            node,
            "n|NotReady,SchedulingDisabled|edge,worker|90s|v1|10.0.0.1|<none>|<unknown>|6.1 (amd64)|<unknown>",
        ),
        (
            "Event",
            event,
            "10s|Normal|Started|pod/p|spec.containers{c}|kubelet, n|up|60m|3|e",
        ),
        (
            "Namespace",
            json!({"metadata": {"name": "d"}, "status": {"phase": "Active"}}),
            "d|Active|90s",
        ),
        (
            "Secret",
            json!({"metadata": {"name": "s"}, "type": "Opaque", "data": {"a": "", "b": ""}}),
            "s|Opaque|2|90s",
        ),
        (
            "ConfigMap",
            json!({"metadata": {"name": "c"}, "data": {"a": ""}, "binaryData": {"b": ""}}),
            "c|2|90s",
        ),
        (
            "ServiceAccount",
            json!({"metadata": {"name": "a"}}),
            "a|90s",
        ),
        (
            "Service",
            json!({"metadata": {"name": "k"}, "spec": {
                "type": "ClusterIP", "clusterIPs": ["10.96.0.1"], "selector": {"a": "b"},
                "ports": [{"port": 443, "protocol": "TCP"}, {"port": 80, "nodePort": 30080}],
            }}),
            "k|ClusterIP|10.96.0.1|<none>|443/TCP,80:30080/TCP|90s|a=b",
        ),
    ] {
        assert_eq!(printed("v1", kind, object).1, cells, "{kind}");
    }
}

#[test]
fn an_event_of_the_new_group_prints_the_same() {
    let event = json!({
        "metadata": {"name": "e"}, "eventTime": "2026-03-01T11:59:00.000000Z",
        "regarding": {"kind": "Pod", "name": "p"}, "note": "up", "type": "Normal", "reason": "R",
        "reportingController": "k", "reportingInstance": "k-1",
        "series": {"count": 7, "lastObservedTime": "2026-03-01T11:59:58.000000Z"},
    });
    assert_eq!(
        printed("events.k8s.io/v1", "Event", event).1,
        "2s|Normal|R|pod/p||k, k-1|up|60s|7|e"
    );
}

fn pod_status(status: Value, spec: Value) -> String {
    let pod = json!({"metadata": {"name": "p"}, "spec": spec, "status": status});
    let (_, cells) = printed("v1", "Pod", pod);
    cells
        .split('|')
        .skip(1)
        .take(3)
        .collect::<Vec<_>>()
        .join("|")
}

#[test]
fn a_pods_word_says_what_its_containers_are_at() {
    let one = json!({"containers": [{"name": "a"}]});
    let two = json!({"containers": [{"name": "a"}, {"name": "b"}]});
    let init = json!({
        "containers": [{"name": "a"}],
        "initContainers": [{"name": "i"}, {"name": "j"}],
    });
    let sidecar = json!({
        "containers": [{"name": "a"}],
        "initContainers": [{"name": "s", "restartPolicy": "Always"}],
    });
    let running = json!({"ready": true, "restartCount": 0, "state": {"running": {}}});
    let done = json!({"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
    for (spec, status, expected) in [
        (&one, json!({"phase": "Pending"}), "0/1|Pending|0"),
        (
            &one,
            json!({"phase": "Pending", "conditions":
                [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}),
            "0/1|SchedulingGated|0",
        ),
        (
            &one,
            json!({"phase": "Pending", "containerStatuses":
                [{"state": {"waiting": {"reason": "ContainerCreating"}}}]}),
            "0/1|ContainerCreating|0",
        ),
        (
            &one,
            json!({"phase": "Running", "containerStatuses": [running]}),
            "1/1|Running|0",
        ),
        (
            &one,
            json!({"phase": "Running", "containerStatuses": [{
                "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"finishedAt": "2026-03-01T11:59:00Z"}},
            }]}),
            "0/1|CrashLoopBackOff|4 (60s ago)",
        ),
        (
            &one,
            json!({"phase": "Succeeded", "containerStatuses": [done]}),
            "0/1|Completed|0",
        ),
        (
            &one,
            json!({"phase": "Failed", "containerStatuses":
                [{"state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}),
            "0/1|Error|0",
        ),
        (
            &one,
            json!({"phase": "Failed", "containerStatuses":
                [{"state": {"terminated": {"exitCode": 137, "signal": 9}}}]}),
            "0/1|Signal:9|0",
        ),
        (
            &one,
            json!({"phase": "Failed", "containerStatuses":
                [{"state": {"terminated": {"exitCode": 3}}}]}),
            "0/1|ExitCode:3|0",
        ),
        (
            &two,
            json!({"phase": "Running", "containerStatuses": [done, running],
                   "conditions": [{"type": "Ready", "status": "True"}]}),
            "1/2|Running|0",
        ),
        (
            &two,
            json!({"phase": "Running", "containerStatuses": [done, running]}),
            "1/2|NotReady|0",
        ),
        (
            &one,
            json!({"phase": "Failed", "reason": "Evicted"}),
            "0/1|Evicted|0",
        ),
        (
            &init,
            json!({"phase": "Pending", "initContainerStatuses": [
                {"name": "i", "state": {"terminated": {"exitCode": 0}}},
                {"name": "j", "state": {"waiting": {"reason": "PodInitializing"}}},
            ]}),
            "0/1|Init:1/2|0",
        ),
        (
            &init,
            json!({"phase": "Pending", "initContainerStatuses": [
                {"name": "i", "restartCount": 2, "state": {"terminated": {"exitCode": 5, "reason": "Error"}}},
            ]}),
            "0/1|Init:Error|2",
        ),
        (
            &init,
            json!({"phase": "Pending", "initContainerStatuses": [
                {"name": "i", "state": {"waiting": {"reason": "CrashLoopBackOff"}}},
            ]}),
            "0/1|Init:CrashLoopBackOff|0",
        ),
        (
            &sidecar,
            json!({"phase": "Running", "containerStatuses": [running], "initContainerStatuses":
                [{"name": "s", "started": true, "ready": true, "restartCount": 1,
                  "state": {"running": {}}}]}),
            "2/2|Running|1",
        ),
    ] {
        assert_eq!(
            pod_status(status.clone(), spec.clone()),
            expected,
            "{status}"
        );
    }
}

#[test]
fn a_pod_being_deleted_terminates_unless_it_has_ended() {
    let pod = |phase: &str| {
        let pod = json!({
            "metadata": {"name": "p", "deletionTimestamp": NOW},
            "spec": {"nodeName": "n"}, "status": {"phase": phase, "podIPs": [{"ip": "10.0.0.9"}]},
        });
        printed("v1", "Pod", pod).1
    };
    assert_eq!(
        pod("Running"),
        "p|0/0|Terminating|0|90s|10.0.0.9|n|<none>|<none>"
    );
    assert_eq!(
        pod("Succeeded"),
        "p|0/0|Succeeded|0|90s|10.0.0.9|n|<none>|<none>"
    );
}

#[test]
fn rows_carry_as_much_of_the_object_as_was_asked() {
    let kind = kinds::by_kind("v1", "Pod").expect("a served kind");
    let pod = json!({"metadata": {"name": "p"}, "status": {"phase": "Succeeded"}});
    let now = NOW.parse().expect("a time");
    let row = |include| render(kind, &[&pod], now, include)["rows"][0].clone();
    assert_eq!(row(Include::None)["object"], Value::Null);
    assert_eq!(row(Include::Object)["object"], pod);
    let metadata = row(Include::Metadata);
    assert_eq!(metadata["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(metadata["object"]["metadata"]["name"], "p");
    assert_eq!(metadata["conditions"][0]["type"], "Completed");
}

#[test]
fn what_makes_pods() {
    let spec = json!({
        "replicas": 3, "selector": {"matchLabels": {"app": "web"}},
        "template": {"spec": {"containers": [
            {"name": "a", "image": "i:1"}, {"name": "b", "image": "j:2"},
        ]}},
    });
    let status = json!({
        "replicas": 2, "readyReplicas": 1, "updatedReplicas": 2, "availableReplicas": 1,
        "desiredNumberScheduled": 2, "currentNumberScheduled": 2, "numberReady": 1,
    });
    let object = json!({"metadata": {"name": "web"}, "spec": spec, "status": status});
    let job = json!({
        "metadata": {"name": "once"}, "spec": {"completions": 2},
        "status": {"succeeded": 1, "startTime": "2026-03-01T11:59:50Z"},
    });
    let revision = json!({
        "metadata": {"name": "web-1", "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "controller": true},
        ]},
        "revision": 4,
    });
    for (api, kind, object, columns, cells) in [
        (
            "apps/v1",
            "Deployment",
            object.clone(),
            "NAME|READY|UP-TO-DATE|AVAILABLE|AGE|CONTAINERS|IMAGES|SELECTOR",
            "web|1/3|2|1|90s|a,b|i:1,j:2|app=web",
        ),
        (
            "apps/v1",
            "ReplicaSet",
            object.clone(),
            "NAME|DESIRED|CURRENT|READY|AGE|CONTAINERS|IMAGES|SELECTOR",
            "web|3|2|1|90s|a,b|i:1,j:2|app=web",
        ),
        (
            "apps/v1",
            "StatefulSet",
            object.clone(),
            "NAME|READY|AGE|CONTAINERS|IMAGES",
            "web|1/3|90s|a,b|i:1,j:2",
        ),
        (
            "apps/v1",
            "DaemonSet",
            object,
            "NAME|DESIRED|CURRENT|READY|UP-TO-DATE|AVAILABLE|NODE SELECTOR|AGE|CONTAINERS|IMAGES|SELECTOR",
            "web|2|2|1|0|0|<none>|90s|a,b|i:1,j:2|app=web",
        ),
        (
            "batch/v1",
            "Job",
            job,
            "NAME|STATUS|COMPLETIONS|DURATION|AGE|CONTAINERS|IMAGES|SELECTOR",
            "once|Running|1/2|10s|90s|||<none>",
        ),
        (
            "apps/v1",
            "ControllerRevision",
            revision,
            "NAME|CONTROLLER|REVISION|AGE",
            "web-1|statefulset.apps/web|4|90s",
        ),
    ] {
        let wanted = (columns.to_owned(), cells.to_owned());
        assert_eq!(printed(api, kind, object), wanted, "{kind}");
    }
}
