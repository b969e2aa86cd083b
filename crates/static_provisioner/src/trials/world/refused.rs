//! Disks that no volume can be made of.

use orlop_model::{Volume, VolumePhase};
use orlop_runtime::{Clock, Process};
use orlop_trials::{Reach, Strikes};

use super::{CLASSES, SILENCE, World};
use serde_json::json;

#[tokio::test]
async fn a_disk_that_cannot_be_offered_is_told_and_keeps_no_other_from_being_offered() {
    if !super::super::is_root() {
        return;
    }
    let world = World::open(Strikes::none(Reach::Calls), super::ByCommand::No).await;
    // A size of 0, and a volume that the server refuses: both before the last by their classes.
    let settings = world.settings_with(|classes| {
        classes["a"] = json!({"hostDir": "/", "mountDir": "/", "namePattern": "proc"});
        let near = json!({"key": "zone", "operator": "Near", "values": ["a"]});
        classes["files"]["selector"] = json!([{"matchExpressions": [near]}]);
    });
    let class = json!({
        "metadata": {"name": "a"}, "provisioner": "kubernetes.io/no-provisioner",
    });
    let api = &world.others.cluster;
    api.create_json::<orlop_model::StorageClass>(&class)
        .await
        .unwrap();
    let client = world.strikes.client(world.server.service());
    let process = Process::new(client, Clock::system());
    let ready = crate::provisioner::start_with(&process, settings, SILENCE);
    let offered = |volumes: &[Volume]| {
        let free = volumes
            .iter()
            .filter(|v| v.phase() == VolumePhase::Available);
        free.map(Volume::class).any(|class| class == CLASSES[1])
    };
    world.until("the last is offered", &mut [], offered).await;
    for why in ["/proc has a size of 0", "the API server refuses it"] {
        let says = || ready.check().is_err_and(|all| all.contains(why));
        world.until(why, &mut [], |_| says()).await;
        world.until_told("LocalDiskNotOffered", why).await;
    }
    process.kill();
    world.others.kill();
}
