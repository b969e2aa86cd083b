//! The API over HTTPS, as an unmodified kubectl sees it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod definitions;
mod served;

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use served::*;

const EXAMPLE: &str = r#"
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: local
  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
provisioner: local.example.com
allowVolumeExpansion: true
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 64Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - name: main
    image: busybox
    command: [sleep, "1000"]
    volumeMounts: [{name: data, mountPath: /data}]
  volumes:
  - name: data
    persistentVolumeClaim: {claimName: data}
"#;

const READER: &str = r"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules:
- {apiGroups: [''], resources: [configmaps], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects:
- {kind: ServiceAccount, name: reader, namespace: default}
";

/// The first words of each line.
fn columns(table: &str, count: usize) -> Vec<Vec<&str>> {
    table
        .lines()
        .map(|line| line.split_whitespace().take(count).collect())
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_applied_looked_at_changed_and_deleted() {
    if kubectl_is_missing() {
        return;
    }
    let cluster = Served::start().await;
    let applied = cluster.feed("apply -f -", EXAMPLE).await;
    assert_eq!(
        applied,
        "storageclass.storage.k8s.io/local created\n\
         persistentvolumeclaim/data created\n\
         pod/web created\n"
    );
    let again = cluster.feed("apply -f -", EXAMPLE).await;
    assert_eq!(again.matches("unchanged").count(), 3, "{again}");
    let server_side = cluster
        .feed("apply --server-side --force-conflicts -f -", EXAMPLE)
        .await;
    assert_eq!(
        server_side.matches("serverside-applied").count(),
        3,
        "{server_side}"
    );
    assert_eq!(
        columns(&cluster.kubectl("get pvc").await, 3),
        [
            vec!["NAME", "STATUS", "VOLUME"],
            vec!["data", "Pending", "local"]
        ]
    );
    let wide = cluster.kubectl("get pod -o wide").await;
    assert!(wide.contains("NOMINATED NODE"), "{wide}");
    let described = cluster.kubectl("describe pvc data").await;
    assert!(described.contains("Used By:       web"), "{described}");
    assert!(
        described.contains("[kubernetes.io/pvc-protection]"),
        "{described}"
    );
    cluster.kubectl("label pvc data colour=red").await;
    cluster.kubectl("annotate pvc data note=hello").await;
    assert_eq!(
        cluster.kubectl("get pvc -l colour=red -o name").await,
        "persistentvolumeclaim/data\n"
    );
    assert_eq!(cluster.kubectl("get pvc -l colour!=red -o name").await, "");
    cluster
        .kubectl(r#"patch pod web -p {"metadata":{"labels":{"tier":"front"}}}"#)
        .await;
    cluster
        .kubectl(r#"patch pod web --subresource=status --type=merge -p {"status":{"conditions":[{"type":"Ready","status":"True"}]}}"#)
        .await;
    cluster
        .kubectl("wait --for=condition=Ready pod/web --timeout=30s")
        .await;
    let refused = cluster
        .refused(r#"patch pvc data -p {"spec":{"accessModes":["ReadWriteMany"]}}"#)
        .await;
    assert!(
        refused.contains("spec is immutable after creation"),
        "{refused}"
    );
    assert_eq!(
        cluster.refused("get pvc nothing").await,
        "Error from server (NotFound): persistentvolumeclaims \"nothing\" not found\n"
    );
    // Nobody here removes the finalizer, so the deletion waits until the test does.
    let deleting = cluster
        .command("delete pvc data")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let waited =
        cluster.kubectl("wait --for=jsonpath={.metadata.deletionTimestamp} pvc/data --timeout=30s");
    waited.await;
    assert_eq!(
        columns(&cluster.kubectl("get pvc").await, 2)[1],
        ["data", "Terminating"]
    );
    cluster
        .kubectl(r#"patch pvc data --type=merge -p {"metadata":{"finalizers":null}}"#)
        .await;
    let deleted = tokio::time::timeout(PATIENCE, deleting.wait_with_output())
        .await
        .unwrap()
        .unwrap();
    assert!(deleted.status.success());
    cluster.kubectl("delete pod/web sc/local").await;
    assert_eq!(cluster.kubectl("get sc,pvc,pod -o name").await, "");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_simple_kinds_are_created_by_their_own_commands() {
    if kubectl_is_missing() {
        return;
    }
    let cluster = Served::start().await;
    cluster.kubectl("create namespace team").await;
    cluster
        .kubectl("-n team create configmap m --from-literal=k=v")
        .await;
    cluster
        .kubectl("-n team create secret generic s --from-literal=k=v")
        .await;
    cluster.kubectl("-n team create serviceaccount a").await;
    assert_eq!(
        cluster
            .kubectl("-n team get secret s -o jsonpath={.data.k}")
            .await,
        "dg=="
    );
    assert_eq!(
        cluster
            .kubectl("-n team get cm m -o jsonpath={.data.k}")
            .await,
        "v"
    );
    cluster.kubectl("delete namespace team --timeout=30s").await;
    let refused = cluster.refused("get namespace team").await;
    assert!(refused.contains("not found"), "{refused}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_shows_what_happens() {
    if kubectl_is_missing() {
        return;
    }
    let cluster = Served::start().await;
    cluster.kubectl("create configmap first").await;
    let mut watching: Child = cluster
        .command("get cm --watch")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut next = async || {
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await;
        line.expect("the watch stayed silent")
            .unwrap()
            .expect("the watch ended")
    };
    assert!(next().await.starts_with("NAME"));
    assert!(next().await.starts_with("first"));
    cluster.kubectl("create configmap second").await;
    assert!(next().await.starts_with("second"));
    cluster.kubectl("delete cm second").await;
    assert!(next().await.starts_with("second"));
    // The server must stop although somebody watches.
    cluster.stop().await;
    watching.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_come_from_whoever_keeps_them() {
    if kubectl_is_missing() {
        return;
    }
    let cluster = Served::start().await;
    cluster.feed("apply -f -", EXAMPLE).await;
    let refused = cluster.refused("logs web").await;
    assert!(
        refused.contains("pod web does not have a host assigned"),
        "{refused}"
    );
    let binding = r#"{"apiVersion":"v1","kind":"Binding","metadata":{"name":"web"},"target":{"kind":"Node","name":"n1"}}"#;
    cluster
        .feed(
            "create --raw /api/v1/namespaces/default/pods/web/binding -f -",
            binding,
        )
        .await;
    assert_eq!(
        cluster.kubectl("logs web --tail=2").await,
        "line 1\nline 2\n"
    );
    let asked = cluster.logs.asked.lock().unwrap().clone().unwrap();
    assert_eq!(
        (asked.container.as_str(), asked.node.as_str()),
        ("main", "n1")
    );
    assert_eq!((asked.tail_lines, asked.follow), (Some(2), false));
    let refused = cluster.refused("logs web -c other").await;
    assert!(
        refused.contains("container other is not valid for pod web"),
        "{refused}"
    );
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_enough_to_do_what_its_account_may() {
    if kubectl_is_missing() {
        return;
    }
    let cluster = Served::start().await;
    cluster.kubectl("create serviceaccount reader").await;
    cluster.feed("apply -f -", READER).await;
    cluster
        .kubectl("create configmap c --from-literal=a=b")
        .await;
    let token = cluster.kubectl("create token reader --duration=10m").await;
    // A kubeconfig of its own: a certificate would count before the token.
    let own = cluster.directory.path().join("reader");
    let as_reader = |arguments: &str| {
        let mut command = cluster.command(arguments);
        command.env("KUBECONFIG", &own).args([
            "--server",
            &cluster.url,
            "--insecure-skip-tls-verify",
            "--token",
            token.trim(),
        ]);
        async move {
            let output = tokio::time::timeout(PATIENCE, command.output());
            let output = output.await.expect("kubectl took too long").unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            (
                output.status.success(),
                text(&output.stdout) + &text(&output.stderr),
            )
        }
    };
    let (done, text) = as_reader("get configmaps -o name").await;
    assert!(done && text.contains("configmap/c"), "{text}");
    let (done, text) = as_reader("get secrets").await;
    assert!(
        !done && text.contains("cannot list resource \"secrets\""),
        "{text}"
    );
    assert_eq!(as_reader("auth can-i list configmaps").await.1, "yes\n");
    assert!(
        as_reader("auth can-i delete configmaps")
            .await
            .1
            .starts_with("no")
    );
    let who = as_reader("auth whoami").await.1;
    assert!(
        who.contains("system:serviceaccount:default:reader"),
        "{who}"
    );
    let (_, rules) = as_reader("auth can-i --list").await;
    assert!(
        rules.contains("selfsubjectreviews.authentication.k8s.io"),
        "{rules}"
    );
    let (done, text) = as_reader("create role all --verb=* --resource=*").await;
    assert!(!done, "{text}");
    let table = cluster.kubectl("get rolebindings -o wide").await;
    assert!(table.contains("Role/reader"), "{table}");
    cluster.kubectl("delete serviceaccount reader").await;
    let (done, text) = as_reader("get configmaps").await;
    assert!(!done && text.contains("must be logged in"), "{text}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_only_learn_that_the_server_lives() {
    if kubectl_is_missing() {
        return;
    }
    let cluster = Served::start().await;
    let stranger = |path: &'static str| {
        let mut command = Command::new("kubectl");
        command
            .args([
                "--kubeconfig=/dev/null",
                "--insecure-skip-tls-verify",
                "--token=nobody",
                "get",
            ])
            .arg(format!("--server={}", cluster.url))
            .args(["--raw", path])
            .stdin(Stdio::null())
            .env("HOME", cluster.directory.path())
            .kill_on_drop(true);
        async move {
            tokio::time::timeout(PATIENCE, command.output())
                .await
                .unwrap()
                .unwrap()
        }
    };
    for path in ["/api/v1/secrets", "/metrics", "/openapi/v2", "/healthz"] {
        let refused = stranger(path).await;
        let complaint = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success(), "{path} was served to a stranger");
        assert!(complaint.contains("must be logged in"), "{complaint}");
    }
    cluster.stop().await;
}
