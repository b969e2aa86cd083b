//! The driver below the whole stack: classes, claims and pods of `orlop up`, by kubectl.

use std::fs;
use std::time::{Duration, Instant};

use crate::client::{Driver, nfs_mounts};
use crate::support::Machine;
use crate::{in_guest, server};

/// A class whose volumes are archived, with folders by claim.
const CLASS: &str = "apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: shared}
provisioner: nfs.csi.k8s.io
parameters:
  server: 127.0.0.1
  share: /data
  subDir: ${pvc.metadata.namespace}/${pvc.metadata.name}
  onDelete: archive
mountOptions: [nfsvers=4.1]
allowVolumeExpansion: true
";

/// A claim; `source` is what it is filled from, if anything.
fn claim(name: &str, source: &str) -> String {
    format!(
        "---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: {name}}}
spec:
  accessModes: [ReadWriteMany]
  storageClassName: shared
  {source}
  resources: {{requests: {{storage: 1Gi}}}}
"
    )
}

/// A pod with a volume at `/v`.
fn pod(name: &str, volume: &str, script: &str) -> String {
    format!(
        "---
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - name: main
      image: host
      command: [sh, -c, '{script}; sleep 3600']
      volumeMounts: [{{name: v, mountPath: /v}}]
  volumes:
    - name: v
      {volume}
"
    )
}

/// What administrators allow who want volumes in pods.
const TRAITS: &str = "apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: nfs.csi.k8s.io}
spec:
  attachRequired: false
  volumeLifecycleModes: [Persistent, Ephemeral]
";

const CUT: &str = "---
apiVersion: snapshot.storage.k8s.io/v1
kind: VolumeSnapshot
metadata: {name: cut}
spec:
  source: {persistentVolumeClaimName: data}
";

#[tokio::test(flavor = "multi_thread")]
async fn claims_and_pods_live_on_shares_through_the_whole_stack() {
    in_guest!();
    server::kernel();
    let driver = Driver::start().await;
    let socket = format!("unix://{}", driver.socket().display());
    tokio::task::spawn_blocking(move || story(&socket))
        .await
        .unwrap();
    assert_eq!(nfs_mounts(), Vec::<String>::new());
}

fn story(socket: &str) {
    let of = |claim: &str| format!("persistentVolumeClaim: {{claimName: {claim}}}");
    let mut machine = Machine::up(&["--driver", socket]);
    machine.apply(&format!(
        "{CLASS}{}{}",
        claim("data", ""),
        pod("writer", &of("data"), "echo kept > /v/file; sync")
    ));
    let ready = [
        "wait",
        "--for=condition=Ready",
        "pod",
        "--all",
        "--timeout=120s",
    ];
    machine.kubectl(&ready);
    let file = server::path("data", "default/data/file");
    until("the pod has written", || {
        fs::read_to_string(&file).is_ok_and(|text| text == "kept\n")
    });
    machine.apply(CUT);
    machine.kubectl(&[
        "wait",
        "--for=jsonpath={.status.readyToUse}=true",
        "volumesnapshot/cut",
        "--timeout=120s",
    ]);
    // A larger size is a label, and needs nobody on the node.
    let patch = "{\"spec\":{\"resources\":{\"requests\":{\"storage\":\"2Gi\"}}}}";
    machine.kubectl(&["patch", "pvc", "data", "-p", patch]);
    machine.kubectl(&[
        "wait",
        "--for=jsonpath={.status.capacity.storage}=2Gi",
        "pvc/data",
        "--timeout=120s",
    ]);
    // A volume that lives with its pod is a folder that is there.
    machine.kubectl(&["delete", "csidriver", "nfs.csi.k8s.io"]);
    machine.apply(TRAITS);
    let inline = "csi: {driver: nfs.csi.k8s.io, volumeAttributes: {server: 127.0.0.1, share: /data, \
                  subDir: default/data, mountOptions: 'nfsvers=4.2'}}";
    let restored =
        "dataSource: {apiGroup: snapshot.storage.k8s.io, kind: VolumeSnapshot, name: cut}";
    let restored = claim("restored", restored).replace("1Gi", "2Gi");
    let cloned = claim(
        "cloned",
        "dataSource: {kind: PersistentVolumeClaim, name: data}",
    );
    machine.apply(
        &[
            restored,
            cloned.replace("1Gi", "2Gi"),
            pod("restored", &of("restored"), "cat /v/file"),
            pod("cloned", &of("cloned"), "cat /v/file"),
            pod("inline", inline, "cat /v/file"),
        ]
        .concat(),
    );
    machine.kubectl(&ready);
    for pod in ["restored", "cloned", "inline"] {
        assert_eq!(machine.kubectl(&["logs", pod]), "kept\n", "{pod}");
    }
    // Killed, it finds everything again.
    machine.crash();
    machine.start();
    let all = "pod,volumesnapshot,pvc";
    machine.kubectl(&["delete", all, "--all", "--timeout=120s"]);
    machine.wait_none("pv,volumesnapshotcontents");
    for name in ["data", "restored", "cloned"] {
        let archived = server::path("data", "archived-default").join(name);
        assert_eq!(
            fs::read_to_string(archived.join("file")).unwrap(),
            "kept\n",
            "{name}"
        );
        assert!(!server::path("data", "default").join(name).exists());
    }
    machine.stop();
    fs::remove_dir_all(server::path("data", "archived-default")).unwrap();
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}
