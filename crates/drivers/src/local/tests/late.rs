//! Calls whose callers give up, and what their repetition and their undoing find.

use std::sync::mpsc;
use std::time::Duration;

use orlop_csi::memory;
use orlop_csi::proto::node_client::NodeClient;
use tonic::transport::Channel;

use super::*;

/// The longest that anything here may take.
const BOUND: Duration = Duration::from_secs(60);

/// How long a caller waits that is to give up: long enough for its call to arrive.
const PATIENCE: Duration = Duration::from_millis(300);

/// A runtime with one thread for blocking work, so that one piece of work can hold up all others.
fn narrow_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .unwrap()
}

/// Occupies the only blocking thread until the sender is dropped.
async fn occupy() -> mpsc::Sender<()> {
    let (release, held) = mpsc::channel::<()>();
    let (begun, is_held) = tokio::sync::oneshot::channel();
    tokio::task::spawn_blocking(move || {
        let _ = begun.send(());
        let _ = held.recv_timeout(BOUND);
    });
    is_held.await.unwrap();
    release
}

fn serve_in_memory(bed: &Bed) -> NodeClient<Channel> {
    let socket = memory::Socket::new();
    let listener = socket.bind().unwrap();
    let services = bed
        .driver
        .as_ref()
        .unwrap()
        .node_services(&NodeName::from("one"));
    tokio::spawn(listener.serve(services, std::future::pending()));
    NodeClient::new(socket.channel())
}

fn staging_of(bed: &Bed, id: &str) -> proto::NodeStageVolumeRequest {
    proto::NodeStageVolumeRequest {
        volume_id: id.to_owned(),
        staging_target_path: bed.staging(id),
        volume_capability: Some(files("")),
        ..Default::default()
    }
}

/// Undoes the staging as a caller does: again and again until it is done.
async fn unstage(bed: &Bed, id: &str, client: &mut NodeClient<Channel>) {
    let request = proto::NodeUnstageVolumeRequest {
        volume_id: id.to_owned(),
        staging_target_path: bed.staging(id),
    };
    let until_done = async {
        loop {
            match client.node_unstage_volume(request.clone()).await {
                Ok(_) => return,
                Err(status) => assert_eq!(status.code(), Code::Aborted, "{status}"),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(BOUND, until_done).await.unwrap();
}

#[test]
fn a_staging_whose_caller_gave_up_does_not_take_place_after_it_was_undone() {
    if !is_root() {
        return;
    }
    narrow_runtime().block_on(async {
        let bed = Bed::new();
        let id = bed.volume("data", 64 * MIB).await;
        let mut client = serve_in_memory(&bed);

        let release = occupy().await;
        let late = {
            let (mut client, request) = (client.clone(), staging_of(&bed, &id));
            tokio::spawn(async move { client.node_stage_volume(request).await })
        };
        // It has arrived once it has the volume's turn.
        let arrived = async {
            let subject = in_flight::Subject::volume(&VolumeId::parse(&id).unwrap());
            while !bed.pools().in_flight().is_busy(&subject) {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(BOUND, arrived).await.unwrap();
        late.abort();
        // While it is queued its undoing is told to wait, not that there is nothing to undo.
        let request = proto::NodeUnstageVolumeRequest {
            volume_id: id.clone(),
            staging_target_path: bed.staging(&id),
        };
        let refused = client.node_unstage_volume(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::Aborted);
        drop(release);
        unstage(&bed, &id, &mut client).await;

        // Nothing that was asked for before the undoing is still to come.
        let _ = tokio::task::spawn_blocking(|| {}).await;
        let mounts = MountTable::read().unwrap();
        assert_eq!(mounts.beneath(&bed.path("kubelet-one")).count(), 0);
        bed.delete(&id).await.unwrap();
        assert_eq!(bed.leftovers(), Vec::<String>::new());
    });
}

#[test]
fn a_call_that_outlived_its_deadline_in_the_queue_is_not_begun() {
    narrow_runtime().block_on(async {
        let bed = Bed::new();
        let release = occupy().await;
        let mut request = Request::new(creation("late", 64 * MIB));
        request.set_timeout(PATIENCE);
        let socket = memory::Socket::new();
        let listener = socket.bind().unwrap();
        let services = bed.driver.as_ref().unwrap().controller_services();
        tokio::spawn(listener.serve(services, std::future::pending()));
        let mut client = proto::controller_client::ControllerClient::new(socket.channel());
        let outcome = tokio::time::timeout(BOUND, client.create_volume(request)).await;
        assert!(outcome.unwrap().is_err());
        // The driver counts from when the call arrived, which was later than when it was sent.
        tokio::time::sleep(PATIENCE).await;
        drop(release);
        // Behind it in the queue: once this ran, so did the other, or never will.
        tokio::task::spawn_blocking(|| {}).await.unwrap();
        assert_eq!(bed.leftovers(), Vec::<String>::new());
        let again = client.create_volume(creation("late", 64 * MIB)).await;
        bed.delete(&again.unwrap().into_inner().volume.unwrap().volume_id)
            .await
            .unwrap();
    });
}
