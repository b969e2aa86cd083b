use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener as StdListener;

use tempfile::TempDir;
use tokio::sync::oneshot;

use super::*;
use crate::testing::Fake;
use crate::{Driver, proto};

fn place() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = format!("unix://{}/csi.sock", folder.path().display());
    (folder, endpoint)
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn a_socket_is_private_alone_and_gone_at_the_end() {
    let (folder, endpoint) = place();
    let socket = Socket::bind(&endpoint).unwrap();
    assert_eq!(mode(socket.path()), 0o600);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

    let (stop, stopped) = oneshot::channel::<()>();
    let services = Fake::default().services();
    let server = tokio::spawn(socket.serve(services, async { drop(stopped.await) }));
    let driver = Driver::connect(&endpoint).unwrap();
    driver.probe(proto::ProbeRequest {}).await.unwrap();
    drop(stop);
    server.await.unwrap().unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let error = driver.probe(proto::ProbeRequest {}).await.unwrap_err();
    assert!(error.message.contains("No such file"), "{error}");
}

#[tokio::test]
async fn a_dead_socket_is_replaced() {
    let (_folder, endpoint) = place();
    let path = socket_path(&endpoint).unwrap();
    drop(StdListener::bind(&path).unwrap());
    assert!(path.exists(), "a killed driver leaves its socket behind");
    let socket = Socket::bind(&endpoint).unwrap();
    assert_eq!(mode(socket.path()), 0o600);
    UnixStream::connect(&path).unwrap();
}

#[tokio::test]
async fn a_live_socket_is_left_alone() {
    let (_folder, endpoint) = place();
    let path = socket_path(&endpoint).unwrap();
    let _alive = StdListener::bind(&path).unwrap();
    let error = Socket::bind(&endpoint).unwrap_err();
    assert!(matches!(error, BindError::InUse { .. }), "{error}");
    UnixStream::connect(&path).unwrap();
}

#[tokio::test]
async fn another_kind_of_file_is_left_alone() {
    let (folder, endpoint) = place();
    let path = socket_path(&endpoint).unwrap();
    fs::write(&path, "precious").unwrap();
    assert!(matches!(
        Socket::bind(&endpoint),
        Err(BindError::NotASocket { .. })
    ));
    assert_eq!(fs::read(&path).unwrap(), b"precious");

    // A link to a dead socket is no socket either.
    let dead = folder.path().join("dead");
    drop(StdListener::bind(&dead).unwrap());
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&dead, &path).unwrap();
    assert!(matches!(
        Socket::bind(&endpoint),
        Err(BindError::NotASocket { .. })
    ));
    assert!(dead.exists());
}

#[tokio::test]
async fn the_folder_must_be_there() {
    let (_folder, endpoint) = place();
    let error = Socket::bind(&endpoint.replace("csi.sock", "none/csi.sock")).unwrap_err();
    assert!(matches!(error, BindError::Folder { .. }), "{error}");
    assert!(error.to_string().contains("create it first"), "{error}");
}

#[tokio::test]
async fn a_successors_socket_is_not_removed() {
    let (_folder, endpoint) = place();
    let old = Socket::bind(&endpoint).unwrap();
    let path = old.path().to_owned();
    let Socket { listener, file } = old;
    // As at a stop: no longer accepting, calls still running.
    drop(listener);
    let new = Socket::bind(&endpoint).unwrap();
    drop(file);
    UnixStream::connect(&path).unwrap();
    drop(new);
    assert!(!path.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_many_starters_at_a_dead_socket_one_wins() {
    let (_folder, endpoint) = place();
    let path = socket_path(&endpoint).unwrap();
    for _ in 0..20 {
        drop(StdListener::bind(&path).unwrap());
        let starters: Vec<_> = (0..8)
            .map(|_| {
                let endpoint = endpoint.clone();
                tokio::spawn(async move { Socket::bind(&endpoint) })
            })
            .collect();
        let mut winners = Vec::new();
        for starter in starters {
            match starter.await.unwrap() {
                Ok(socket) => winners.push(socket),
                Err(error) => assert!(matches!(error, BindError::InUse { .. }), "{error}"),
            }
        }
        assert_eq!(winners.len(), 1);
        UnixStream::connect(&path).unwrap();
        drop(winners);
    }
}
