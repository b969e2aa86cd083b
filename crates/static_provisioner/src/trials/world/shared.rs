//! Two nodes of one machine that are told of the same folders.

use orlop_model::{Node, Volume, VolumePhase};
use orlop_runtime::{Clock, Process};
use orlop_trials::{Reach, Strikes};
use serde_json::json;

use super::{CLASSES, SILENCE, World};

#[tokio::test]
async fn a_disk_is_offered_by_one_node_of_a_machine_and_the_other_says_whose_it_is() {
    if !super::super::is_root() {
        return;
    }
    let world = World::open(Strikes::none(Reach::Calls), super::ByCommand::No).await;
    let node = json!({"metadata": {"name": "m", "labels": {"kubernetes.io/hostname": "m"}}});
    world
        .others
        .cluster
        .create_json::<Node>(&node)
        .await
        .unwrap();
    let start = |node: &str| {
        let client = world.strikes.client(world.server.service());
        let process = Process::new(client, Clock::system());
        let mut settings = world.settings.clone();
        settings.node = node.to_owned();
        let ready = crate::provisioner::start_with(&process, settings, SILENCE);
        (process, ready)
    };
    let offered = |volumes: &[Volume]| {
        let free = volumes
            .iter()
            .filter(|v| v.phase() == VolumePhase::Available);
        free.count() == CLASSES.len()
    };
    let (one, _) = start("n");
    world.until("one offers them", &mut [], offered).await;
    let (other, ready) = start("m");
    world
        .until("the other has looked", &mut [], |_| {
            ready
                .check()
                .is_err_and(|why| why.contains("offered by local-volume-provisioner-n-"))
        })
        .await;
    let volumes = world.others.cluster.list::<Volume>(None).await.unwrap();
    assert_eq!(volumes.len(), CLASSES.len(), "{volumes:#?}");
    for process in [one, other] {
        process.kill();
    }
    world.others.kill();
}
