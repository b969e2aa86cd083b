//! The roles against the embedded API server, with real disks, killed at every call and deprived
//! of every answer: no disk is offered before it is clean, none is touched before its claim is
//! gone, none is offered twice or lost.

mod disks;
mod removed_nodes;
mod world;

use orlop_trials::{Fault, Reach, Strikes};

use self::{
    disks::Disks,
    world::{ByCommand, World},
};

/// Disks are found, given to claims, written to, given back, cleaned and offered again.
async fn story(strikes: std::sync::Arc<Strikes>, by_command: ByCommand, instances: usize) {
    let world = World::open(strikes, by_command).await;
    world.run(instances).await;
}

#[tokio::test]
async fn a_cleaning_that_nothing_is_heard_of_is_told_and_goes_on() {
    if is_root() {
        let world = World::open(Strikes::none(Reach::Calls), ByCommand::Silent).await;
        world.run(1).await;
        let reasons = world.reasons().await;
        assert!(reasons.contains("VolumeCleaningSilent"), "{reasons:?}");
    }
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: needs root");
    }
    root
}

#[tokio::test]
async fn disks_survive_a_crash_at_every_call() {
    if is_root() {
        orlop_trials::at_every_call(Fault::Die, Reach::Calls, async |strikes| {
            story(strikes, ByCommand::No, 1).await;
        })
        .await;
    }
}

#[tokio::test]
async fn disks_survive_every_lost_answer() {
    if is_root() {
        orlop_trials::at_every_call(Fault::LoseAnswer, Reach::Calls, async |strikes| {
            story(strikes, ByCommand::No, 1).await;
        })
        .await;
    }
}

#[tokio::test]
async fn two_provisioners_of_one_node_do_no_harm_and_survive_a_crash_at_every_call() {
    if is_root() {
        orlop_trials::at_every_call(Fault::Die, Reach::Calls, async |strikes| {
            story(strikes, ByCommand::No, 2).await;
        })
        .await;
    }
}

#[tokio::test]
async fn disks_that_a_command_cleans_survive_a_crash_at_every_call() {
    if is_root() {
        orlop_trials::at_every_call(Fault::Die, Reach::Calls, async |strikes| {
            story(strikes, ByCommand::Yes, 1).await;
        })
        .await;
    }
}
