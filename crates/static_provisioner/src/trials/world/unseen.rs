//! A container that sees nothing of other pods.

use orlop_host::disk;
use orlop_runtime::{Clock, Process};
use orlop_trials::{Reach, Strikes};

use super::{SILENCE, World};

#[tokio::test]
async fn a_provisioner_that_cannot_see_pods_says_so_and_works() {
    if !super::super::is_root() || disk::sees_first_process().unwrap() {
        return;
    }
    let world = World::open(Strikes::none(Reach::Calls), super::ByCommand::No).await;
    let client = world.strikes.client(world.server.service());
    let process = Process::new(client, Clock::system());
    let mut settings = world.settings.clone();
    settings.in_pod = true;
    let ready = crate::provisioner::start_with(&process, settings, SILENCE);
    world
        .until("all is offered", &mut [], |_| ready.check().is_ok())
        .await;
    world.until_told("LocalPodsNotSeen", "hostPID").await;
    process.kill();
    world.others.kill();
}
