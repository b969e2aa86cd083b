//! A node that comes back: whatever it was doing when it died, and however old the news that it gets
//! first, pods that are there go on, and pods that are gone don't begin again.

use std::time::Duration;

use orlop_model::Pod;
use orlop_sim::faults::{Fault, Member};
use orlop_sim::run::{Extent, Scenario, sweep};
use orlop_sim::strikes;
use orlop_sim::user::User;
use orlop_sim::wire::Call;
use serde_json::json;

const SEED: u64 = 71;

/// Crashes of nodes alone, each followed by the past.
fn nodes_travel(member: Member, call: &Call) -> Vec<Fault> {
    match member {
        Member::Node(_) => strikes::travels(member, call),
        _ => Vec::new(),
    }
}

/// A pod that needs nothing of anybody, not even a token.
async fn plain_pod(user: &User, name: &str) {
    user.create::<Pod>(json!({
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": "node-1", "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 5,
            "containers": [{"name": "main", "image": "none", "command": ["serve"]}],
        },
    }))
    .await;
}

#[test]
fn a_pod_with_a_volume_goes_on_though_the_node_is_shown_the_past() {
    let scenario = Scenario::new("a pod that lives on", |user| {
        Box::pin(async move {
            user.class("WaitForFirstConsumer", "Delete").await;
            user.claim("data").await;
            user.pod("web", "data").await;
            user.until_running("web").await?;
            user.resize("data", "2Gi").await;
            user.until_size("data", "2Gi").await?;
            user.wait(Duration::from_secs(20)).await;
            user.until_running("web").await?;
            user.delete_pod("web").await;
            user.delete_claim("data").await;
            user.until_all_gone().await
        })
    });
    sweep(&scenario, SEED, nodes_travel, Extent::Whole).must_hold();
}

#[test]
fn a_pod_that_is_gone_does_not_begin_again_though_the_node_is_shown_the_past() {
    let scenario = Scenario::new("a pod that is no more", |user| {
        Box::pin(async move {
            // Placed before the node ever reads its pods: so the past has it.
            user.cut_off(1);
            plain_pod(&user, "web").await;
            user.bring_back(1);
            user.until_running("web").await?;
            user.delete_pod("web").await;
            user.until_pod_gone("web").await?;
            user.wait(Duration::from_secs(10)).await;
            user.until_all_gone().await
        })
    });
    sweep(&scenario, SEED, nodes_travel, Extent::Whole).must_hold();
}
