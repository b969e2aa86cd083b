//! `orlop apiserver backup` and `restore`, on a server in use.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::{
    path::Path,
    process::{Command, Output},
};

use support::Machine;

fn apiserver(arguments: &[&str], data: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_orlop"))
        .arg("apiserver")
        .args(arguments)
        .arg("--data-dir")
        .arg(data)
        .output()
        .unwrap()
}

/// Everything there is, as it is stored.
fn everything(machine: &Machine) -> String {
    let kinds = "namespaces,configmaps,secrets,serviceaccounts,pvc,pv,storageclasses,\
                 crd,widgets,clusterroles,clusterrolebindings";
    // The certificate is each server's own.
    let text = machine.kubectl(&["get", kinds, "-A", "-o", "json", "--show-managed-fields"]);
    let mut all: serde_json::Value = serde_json::from_str(&text).unwrap();
    let items = all["items"].as_array_mut().unwrap();
    items.retain(|item| item["metadata"]["name"] != "kube-root-ca.crt");
    assert!(items.len() > 40, "{text}");
    all.to_string()
}

const OBJECTS: &str = r#"apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties: {spec: {type: object, properties: {size: {type: integer}}}}
---
apiVersion: v1
kind: Secret
metadata: {name: key}
stringData: {password: hush}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: slow}
provisioner: x.example.com
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteOnce]
  storageClassName: slow
  resources: {requests: {storage: 1Gi}}
"#;

#[test]
fn a_server_in_use_is_backed_up_and_comes_back_elsewhere() {
    needs_a_machine!();
    let mut first = Machine::command("apiserver", &[]);
    first.start();
    first.apply(OBJECTS);
    first.kubectl(&[
        "wait",
        "--for=condition=Established",
        "crd/widgets.example.com",
    ]);
    first.apply("apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {size: 3}\n");
    for number in 0..20 {
        let name = format!("map-{number}");
        first.kubectl(&["create", "configmap", &name, "--from-literal=a=b"]);
    }
    first.kubectl(&["annotate", "pvc", "data", "changed=yes"]);
    first.kubectl(&["delete", "configmap", "map-0"]);
    // A new namespace gets its account in a moment; what is compared must be at rest.
    first.kubectl(&["create", "namespace", "team"]);
    first.kubectl(&["run", "waits", "--image=host", "-n", "team"]);
    let before = everything(&first);

    let file = first.path().join("backup");
    let file = file.to_str().unwrap();
    let made = apiserver(&["backup", file], first.path());
    let said = String::from_utf8_lossy(&made.stdout).into_owned();
    assert!(made.status.success(), "{made:?}");
    assert!(said.contains("objects at revision"), "{said}");
    assert!(said.contains("/pki as well"), "{said}");
    // What comes later is not in it.
    first.kubectl(&["create", "configmap", "late", "--from-literal=a=b"]);
    let twice = apiserver(&["backup", file], first.path());
    assert!(!twice.status.success(), "a backup is not overwritten");

    let mut second = Machine::command("apiserver", &[]);
    let restored = apiserver(&["restore", file], second.path());
    assert!(restored.status.success(), "{restored:?}");
    let said = String::from_utf8_lossy(&restored.stdout).into_owned();
    assert!(said.contains("put the old one there"), "{said}");
    let again = apiserver(&["restore", file], second.path());
    assert!(!again.status.success(), "a store is not overwritten");
    second.start();
    assert_eq!(everything(&second), before);
    // It goes on from there: versions rise, the certificate is its own.
    second.kubectl(&["create", "configmap", "next", "--from-literal=a=b"]);
    second.kubectl(&["delete", "widget", "w"]);
    let late = second.try_kubectl(&["get", "configmap", "late"]);
    assert!(!late.status.success());
    first.stop();
    second.stop();
}
