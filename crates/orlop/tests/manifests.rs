//! The manifests in `deploy`: an API server takes them, and our binary takes their flags. It takes the
//! NFS driver's examples, too.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use std::{path::Path, process::Command};

use serde_json::Value;
use support::Machine;

#[test]
fn the_manifests_apply_and_their_flags_are_known() {
    needs_a_machine!();
    let mut machine = Machine::command("apiserver", &[]);
    machine.start();
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
    let path = |name: &str| deploy.join(name).display().to_string();
    let mut programs = 0;
    for manifests in [
        "crds",
        "rbac/controller.yaml",
        "rbac/snapshot-controller.yaml",
        "snapshots/snapshot-controller.yaml",
        "driver",
        "local",
        "local-static",
        "local-node-cleanup",
        "nfs",
    ] {
        let manifests = path(manifests);
        machine.kubectl(&["apply", "--dry-run=server", "-f", &manifests]);
        machine.kubectl(&["apply", "-f", &manifests]);
        let objects = machine.kubectl(&["get", "-f", &manifests, "-o", "json"]);
        let objects: Value = serde_json::from_str(&objects).unwrap();
        // Of a single object there is no list.
        let alone = std::slice::from_ref(&objects);
        for object in objects["items"].as_array().map_or(alone, Vec::as_slice) {
            let containers = &object["spec"]["template"]["spec"]["containers"];
            for container in containers.as_array().into_iter().flatten() {
                programs += usize::from(is_understood(container));
            }
        }
    }
    let examples = path("../examples/nfs");
    machine.kubectl(&["apply", "--dry-run=server", "-f", &examples]);
    // The snapshot controller, two of the driver's, three of the local one's, two for local disks,
    // and four of the NFS driver's.
    assert_eq!(programs, 12);
}

/// Asserts that our binary takes a container's arguments; says whether it is ours.
fn is_understood(container: &Value) -> bool {
    if container["command"][0] != "orlop" {
        return false;
    }
    let words = container["args"].as_array().unwrap();
    let words: Vec<&str> = words.iter().map(|word| word.as_str().unwrap()).collect();
    // Flags are read before the version or the help is printed; a wrong one is not passed over.
    let last = match words[0] {
        "driver" | "local-static-provisioner" | "local-volume-node-cleanup" => "--help",
        _ => "--version",
    };
    let output = Command::new(env!("CARGO_BIN_EXE_orlop"))
        .args(&words)
        .arg(last)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}");
    true
}
