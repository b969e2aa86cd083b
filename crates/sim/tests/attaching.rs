//! Volumes that move between nodes, whatever becomes of nodes, controllers and watches: never on
//! two nodes, never taken from under a pod, and everything settles.

use std::time::Duration;

use orlop_control::attach_detach;
use orlop_sim::faults::Plan;
use orlop_sim::run::{Extent, Report, Scenario, Script, run, sweep};
use orlop_sim::strikes::{self, Strikes};

const SEED: u64 = 23;
/// Runs per story and kind of fault by default.
const SOME: Extent = Extent::Sample(3);

fn two_nodes(name: &'static str, script: Script) -> Scenario {
    Scenario::new(name, script).nodes(2).anywhere()
}

fn must_be(report: &Report, end: &str) {
    let complaints = report.complaints(end);
    let replay = &report.replay;
    assert!(
        complaints.is_empty(),
        "{replay}: {complaints:#?}\n{}",
        report.trace
    );
}

/// A pod on one node, then on the other.
fn moves() -> Scenario {
    two_nodes("a pod moves at once", |user| {
        Box::pin(async move {
            user.class("Immediate", "Delete").await;
            user.claim("data").await;
            user.until_bound("data").await?;
            user.pod_on("first", "data", "node-1").await;
            user.until_running("first").await?;
            user.delete_pod("first").await;
            user.pod_on("second", "data", "node-2").await;
            user.until_running("second").await?;
            user.delete_pod("second").await;
            user.delete_claim("data").await;
            user.until_all_gone().await
        })
    })
}

/// kubernetes#50944: a node's power is gone, an administrator says so, and the pod's successor
/// runs elsewhere at once. The node comes back later.
fn dark() -> Scenario {
    two_nodes("a node loses its power", |user| {
        Box::pin(async move {
            user.class("Immediate", "Delete").await;
            user.claim("data").await;
            user.until_bound("data").await?;
            user.pod_on("first", "data", "node-1").await;
            user.until_running("first").await?;
            user.power_off(1);
            user.delete_pod("first").await;
            user.out_of_service("node-1", true).await;
            user.pod_on("second", "data", "node-2").await;
            user.until_running("second").await?;
            user.delete_pod_now("first").await;
            user.bring_back(1);
            user.out_of_service("node-1", false).await;
            user.delete_pod("second").await;
            user.delete_claim("data").await;
            user.until_all_gone().await
        })
    })
}

/// The node's object is deleted, as clouds do with machines that are no more.
fn deleted() -> Scenario {
    two_nodes("a node is deleted", |user| {
        Box::pin(async move {
            user.class("Immediate", "Delete").await;
            user.claim("data").await;
            user.until_bound("data").await?;
            user.pod_on("first", "data", "node-1").await;
            user.until_running("first").await?;
            user.power_off(1);
            user.delete_node("node-1").await;
            user.delete_pod_now("first").await;
            user.pod_on("second", "data", "node-2").await;
            user.until_running("second").await?;
            user.bring_back(1);
            user.delete_pod("second").await;
            user.delete_claim("data").await;
            user.until_all_gone().await
        })
    })
}

/// One name, three lives: pods and claims that come, go and come again.
fn again() -> Scenario {
    two_nodes("one name again and again", |user| {
        Box::pin(async move {
            user.class("Immediate", "Delete").await;
            for node in ["node-1", "node-2", "node-1"] {
                user.claim("data").await;
                user.pod_on("web", "data", node).await;
                user.until_running("web").await?;
                user.delete_pod("web").await;
                user.delete_claim("data").await;
                user.until_pod_gone("web").await?;
                user.until("the name is free", |objects| objects.claims.is_empty())
                    .await?;
            }
            user.until_all_gone().await
        })
    })
}

/// The faults, and what of the rules the last call of one who was deposed may break.
const FAULTS: [(&[&str], Strikes); 6] = [
    (&[], strikes::crashes),
    (&[], strikes::travels),
    (&[], strikes::errors),
    (&[], strikes::conflicts),
    (&[], strikes::poor_watches),
    (&["I14"], strikes::successions),
];

#[test]
fn a_volume_follows_its_pod_whatever_goes_wrong() {
    for (tolerated, strikes) in FAULTS {
        sweep(
            &moves().tolerating_of_deposed(tolerated),
            SEED,
            strikes,
            SOME,
        )
        .must_hold();
    }
}

#[test]
fn a_volume_leaves_a_dark_node_whatever_goes_wrong() {
    for (tolerated, strikes) in FAULTS {
        sweep(
            &dark().tolerating_of_deposed(tolerated),
            SEED,
            strikes,
            Extent::Sample(2),
        )
        .must_hold();
    }
}

#[test]
fn a_volume_leaves_a_deleted_node_whatever_goes_wrong() {
    for (tolerated, strikes) in FAULTS {
        sweep(
            &deleted().tolerating_of_deposed(tolerated),
            SEED,
            strikes,
            Extent::Sample(2),
        )
        .must_hold();
    }
}

/// The node's object is deleted while its pod runs, and made anew by the node itself.
fn made_anew() -> Scenario {
    Scenario::new("a node is made anew", |user| {
        Box::pin(async move {
            user.class("Immediate", "Delete").await;
            user.claim("data").await;
            user.until_bound("data").await?;
            user.pod_on("web", "data", "node-1").await;
            user.until_running("web").await?;
            user.delete_node("node-1").await;
            user.until("the node says again what it uses", |objects| {
                let node = objects.nodes.get("node-1");
                node.is_some_and(|node| !node.status.volumes_in_use.is_empty())
            })
            .await?;
            user.delete_pod("web").await;
            user.delete_claim("data").await;
            user.until_all_gone().await
        })
    })
}

#[test]
fn a_node_that_is_made_anew_says_again_what_it_uses() {
    for (tolerated, strikes) in FAULTS {
        sweep(
            &made_anew().tolerating_of_deposed(tolerated),
            SEED,
            strikes,
            Extent::Sample(2),
        )
        .must_hold();
    }
}

#[test]
fn one_name_may_live_three_times_whatever_goes_wrong() {
    for (tolerated, strikes) in FAULTS {
        sweep(
            &again().tolerating_of_deposed(tolerated),
            SEED,
            strikes,
            Extent::Sample(2),
        )
        .must_hold();
    }
}

/// kubernetes#61832, #65392: a node is out of reach, its pod still writes, and another pod waits
/// elsewhere for the same volume. It waits until the node is back, however long that takes.
fn cut_off() -> Scenario {
    two_nodes("a node is cut off", |user| {
        Box::pin(async move {
            user.class("Immediate", "Delete").await;
            user.claim("data").await;
            user.until_bound("data").await?;
            user.pod_on("first", "data", "node-1").await;
            user.until_running("first").await?;
            user.cut_off(1);
            user.unheard_of("node-1").await;
            user.delete_pod_now("first").await;
            user.pod_on("second", "data", "node-2").await;
            user.wait(Duration::from_secs(20 * 60)).await;
            user.until("the first node has it", |objects| {
                let mut attachments = objects.attachments.values();
                attachments.all(|a| a.spec.node_name == "node-1" && a.status.attached)
            })
            .await?;
            user.bring_back(1);
            user.until_running("second").await?;
            user.delete_pod("second").await;
            user.delete_claim("data").await;
            user.until_all_gone().await
        })
    })
}

#[test]
fn a_node_that_is_cut_off_keeps_what_its_pods_write_to() {
    must_be(&run(&cut_off(), &Plan::calm(), SEED), "");
    sweep(&cut_off(), SEED, strikes::crashes_at_effects, SOME).must_hold();
}

/// What makes the waiting worth it: with kube-controller-manager's default, the driver is asked
/// to take the volume from under the pod.
#[test]
fn forcing_takes_a_volume_from_under_a_pod_and_the_simulation_sees_it() {
    let forcing = cut_off().attach_detach(attach_detach::start_forcing);
    let report = run(&forcing, &Plan::calm(), SEED);
    let rules: Vec<&str> = report.breaches.iter().map(|breach| breach.rule).collect();
    assert!(rules.contains(&"I09"), "{rules:?}\n{}", report.trace);
}
