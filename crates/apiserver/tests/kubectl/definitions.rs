//! Kinds that users define, installed by `kubectl apply`.

use crate::served::*;
use std::path::PathBuf;

const BACKUPS: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: backups.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Backup, plural: backups, shortNames: [bk], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    additionalPrinterColumns:
    - {name: Claim, type: string, jsonPath: .spec.claim}
    - {name: Ready, type: boolean, jsonPath: .status.ready}
    - {name: Age, type: date, jsonPath: .metadata.creationTimestamp}
    schema:
      openAPIV3Schema:
        type: object
        description: A copy of a claim's data.
        required: [spec]
        properties:
          spec:
            type: object
            description: What to copy.
            required: [claim]
            properties:
              claim:
                type: string
                minLength: 1
                x-kubernetes-validations:
                - {rule: self == oldSelf, message: claim is immutable}
              keep: {type: integer, minimum: 1, default: 3}
              targets:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties:
                    name: {type: string}
                    size: {x-kubernetes-int-or-string: true}
          status:
            type: object
            properties:
              ready: {type: boolean}
  - name: v1beta1
    served: true
    storage: false
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
"#;

const NIGHTLY: &str = r#"
apiVersion: example.com/v1
kind: Backup
metadata: {name: nightly}
spec:
  claim: data
  targets: [{name: a, size: 1}, {name: b, size: 10%}]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_users_own_kind_is_served_like_any_other() {
    if kubectl_is_missing() {
        return;
    }
    let served = Served::start().await;
    served.feed("apply -f -", BACKUPS).await;
    served
        .kubectl("wait --for=condition=Established crd/backups.example.com --timeout=30s")
        .await;
    let resources = served
        .kubectl("api-resources --api-group=example.com --no-headers")
        .await;
    let words: Vec<&str> = resources.split_whitespace().collect();
    assert_eq!(words, ["backups", "bk", "example.com/v1", "true", "Backup"]);

    served.feed("apply -f -", NIGHTLY).await;
    let again = served.feed("apply -f -", NIGHTLY).await;
    assert!(again.contains("unchanged"), "{again}");
    let keep = served
        .kubectl("get bk nightly -o jsonpath={.spec.keep}")
        .await;
    assert_eq!(keep, "3", "the default");
    let table = served.kubectl("get backups").await;
    let head: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["NAME", "CLAIM", "READY", "AGE"]);
    let explained = served.kubectl("explain backup.spec").await;
    assert!(explained.contains("What to copy."), "{explained}");
    // As kinds of the server's own are.
    let explained = served.kubectl("explain pvc.spec.resources").await;
    for part in [
        "requests",
        "How much storage is asked for.",
        "The least that is needed",
    ] {
        assert!(explained.contains(part), "{explained}");
    }
    let explained = served.kubectl("explain --recursive sc").await;
    assert!(explained.contains("volumeBindingMode"), "{explained}");

    // The status is a part of its own, and the generation counts the rest.
    served
        .kubectl(
            r#"patch bk nightly --subresource=status --type=merge -p {"status":{"ready":true}}"#,
        )
        .await;
    let row = served.kubectl("get bk nightly --no-headers").await;
    let row: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(row[..3], ["nightly", "data", "true"]);
    served
        .kubectl(r#"patch bk nightly --type=merge -p {"spec":{"keep":5},"status":{"ready":false}}"#)
        .await;
    let now = served
        .kubectl("get bk nightly -o jsonpath={.metadata.generation}/{.status.ready}")
        .await;
    assert_eq!(now, "2/true");

    // The other version has the same objects.
    let other = served
        .kubectl("get backups.v1beta1.example.com nightly -o jsonpath={.apiVersion}/{.spec.claim}")
        .await;
    assert_eq!(other, "example.com/v1beta1/data");

    let wrong = served
        .refused(r#"patch bk nightly --type=merge -p {"spec":{"claim":"other","keep":1}}"#)
        .await;
    assert!(
        wrong.contains("spec.claim: Invalid value: \"other\": claim is immutable"),
        "{wrong}"
    );
    let wrong = served
        .refused(r#"patch bk nightly --type=merge -p {"spec":{"keep":0}}"#)
        .await;
    assert!(
        wrong.contains("spec.keep in body should be greater than or equal to 1"),
        "{wrong}"
    );

    // Two managers, each with an item of its own.
    for (manager, item) in [("x", "{name: c}"), ("y", "{name: d}")] {
        let mine = NIGHTLY.replace("{name: b, size: 10%}", item);
        let apply = format!("apply --server-side --force-conflicts --field-manager={manager} -f -");
        served.feed(&apply, &mine).await;
    }
    let names = served
        .kubectl("get bk nightly -o jsonpath={.spec.targets[*].name}")
        .await;
    assert_eq!(names, "a c d");

    // Objects go with their definition, and the kind with them.
    served
        .kubectl("delete crd backups.example.com --timeout=30s")
        .await;
    let gone = served
        .refused("get --raw /apis/example.com/v1/backups")
        .await;
    // In which words depends on the age of what kubectl knows of the server.
    assert!(gone.contains("the server"), "{gone}");
    served.feed("apply -f -", BACKUPS).await;
    let none = served.kubectl("get backups.v1.example.com -o name").await;
    assert_eq!(none, "");
    served.stop().await;
}

/// Where Go keeps the module that the snapshot kinds are published in.
fn snapshot_definitions() -> Option<PathBuf> {
    let cache = match std::env::var_os("GOMODCACHE") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(std::env::var_os("HOME")?).join("go/pkg/mod"),
    };
    let module = cache.join("github.com/kubernetes-csi/external-snapshotter/client");
    let mut versions: Vec<PathBuf> = std::fs::read_dir(module)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path().join("config/crd")))
        .filter(|folder| folder.is_dir())
        .collect();
    versions.sort();
    versions.pop()
}

const SNAPSHOT: &str = r#"
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshotClass
metadata: {name: fast}
driver: local.example.com
deletionPolicy: Delete
---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: monday}
spec:
  volumeSnapshotClassName: fast
  source: {persistentVolumeClaimName: data}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_snapshot_kinds_install_as_they_are_published() {
    if kubectl_is_missing() {
        return;
    }
    let Some(folder) = snapshot_definitions() else {
        println!("skipped: the module with the snapshot definitions isn't in Go's cache");
        return;
    };
    let served = Served::start().await;
    served
        .kubectl(&format!("apply -k {}", folder.display()))
        .await;
    served
        .kubectl("wait --for=condition=Established crd --all --timeout=30s")
        .await;
    served.feed("apply -f -", SNAPSHOT).await;
    let table = served.kubectl("get volumesnapshot").await;
    assert!(
        table.contains("READYTOUSE") && table.contains("SOURCEPVC"),
        "{table}"
    );
    let wrong = served
        .refused(
            r#"patch volumesnapshot monday --type=merge -p {"spec":{"source":{"persistentVolumeClaimName":"x"}}}"#,
        )
        .await;
    assert!(
        wrong.contains("persistentVolumeClaimName is immutable"),
        "{wrong}"
    );
    let wrong = served
        .refused(
            r#"patch volumesnapshot monday --type=merge -p {"spec":{"source":{"volumeSnapshotContentName":"x"}}}"#,
        )
        .await;
    assert!(
        wrong.contains("exactly one of volumeSnapshotContentName"),
        "{wrong}"
    );
    served
        .kubectl(
            r#"patch volumesnapshot monday --subresource=status --type=merge -p {"status":{"readyToUse":true,"restoreSize":"1Gi"}}"#,
        )
        .await;
    let row = served.kubectl("get vs monday --no-headers").await;
    assert!(row.contains("true") && row.contains("1Gi"), "{row}");
    served.stop().await;
}
