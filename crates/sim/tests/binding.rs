//! Volumes that were made by hand: bound, asked for by name, released, scrubbed, with every
//! fault on the way.

use orlop_model::{Claim, ClaimPhase, Key, Volume, VolumePhase};
use orlop_sim::faults::Plan;
use orlop_sim::run::{Extent, Scenario, run, sweep};
use orlop_sim::strikes::{self, Strikes};
use orlop_sim::user::{Stuck, User};
use serde_json::{Value, json};

const SEED: u64 = 23;
/// Runs per story and kind of fault.
const SOME: Extent = Extent::Sample(6);

async fn volume(user: &User, name: &str, policy: &str, extra: Value) {
    let mut spec = json!({
        "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": policy,
        "hostPath": {"path": "/tmp"},
    });
    for (field, value) in extra.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    user.create::<Volume>(json!({"metadata": {"name": name}, "spec": spec}))
        .await;
}

async fn claim(user: &User, name: &str, volume: &str) {
    let mut spec = json!({
        "accessModes": ["ReadWriteOnce"], "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}},
    });
    if !volume.is_empty() {
        spec["volumeName"] = json!(volume);
    }
    user.create::<Claim>(json!({
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    }))
    .await;
}

async fn until_phase(user: &User, name: &str, phase: VolumePhase) -> Result<(), Stuck> {
    let name = name.to_owned();
    user.until(&format!("volume {name} is {phase:?}"), move |objects| {
        objects
            .volumes
            .get(&name)
            .is_some_and(|v| v.phase() == phase)
    })
    .await
}

async fn until_gone(user: &User, name: &str) -> Result<(), Stuck> {
    let key = Key::namespaced("default", name);
    user.until(&format!("claim {name} is gone"), move |objects| {
        !objects.claims.contains_key(&key)
    })
    .await
}

/// A claim takes a volume, and leaves it to whoever looks after it.
fn by_hand() -> Scenario {
    Scenario::new("by hand", |user| {
        Box::pin(async move {
            volume(&user, "one", "Retain", json!({})).await;
            volume(
                &user,
                "two",
                "Retain",
                // One that would do could be taken for want of news of the better one.
                json!({"accessModes": ["ReadOnlyMany"]}),
            )
            .await;
            until_phase(&user, "one", VolumePhase::Available).await?;
            until_phase(&user, "two", VolumePhase::Available).await?;
            claim(&user, "data", "").await;
            user.until_bound("data").await?;
            user.delete_claim("data").await;
            until_gone(&user, "data").await?;
            until_phase(&user, "one", VolumePhase::Released).await?;
            until_phase(&user, "two", VolumePhase::Available).await
        })
    })
}

/// Claim and volume name each other, one before the other is there.
fn by_name() -> Scenario {
    Scenario::new("by name", |user| {
        Box::pin(async move {
            let reserved = json!({"namespace": "default", "name": "first"});
            volume(&user, "one", "Retain", json!({"claimRef": reserved})).await;
            volume(&user, "two", "Retain", json!({})).await;
            claim(&user, "second", "two").await;
            claim(&user, "first", "").await;
            user.until_bound("first").await?;
            user.until_bound("second").await?;
            claim(&user, "third", "two").await;
            user.until("third waits", |objects| {
                let third = objects.claims.get(&Key::namespaced("default", "third"));
                third.is_some_and(|claim| claim.status.phase == Some(ClaimPhase::Pending))
            })
            .await
        })
    })
}

/// A volume goes from one claim to the next, scrubbed between them.
fn scrubbed() -> Scenario {
    Scenario::new("scrubbed", |user| {
        Box::pin(async move {
            volume(&user, "one", "Recycle", json!({})).await;
            claim(&user, "first", "").await;
            user.until_bound("first").await?;
            user.delete_claim("first").await;
            until_phase(&user, "one", VolumePhase::Available).await?;
            claim(&user, "second", "").await;
            user.until_bound("second").await?;
            user.delete_claim("second").await;
            until_gone(&user, "second").await?;
            until_phase(&user, "one", VolumePhase::Available).await?;
            user.until("no pod is left", |objects| objects.pods.is_empty())
                .await
        })
    })
}

/// One name, three claims, one after the other.
fn again_and_again() -> Scenario {
    Scenario::new("again and again", |user| {
        Box::pin(async move {
            for name in ["one", "two", "three"] {
                volume(&user, name, "Retain", json!({})).await;
                until_phase(&user, name, VolumePhase::Available).await?;
            }
            for left in [2, 1, 0] {
                claim(&user, "data", "").await;
                user.until_bound("data").await?;
                user.delete_claim("data").await;
                until_gone(&user, "data").await?;
                user.until("one volume fewer is free", move |objects| {
                    let free = |v: &&Volume| v.phase() == VolumePhase::Available;
                    let released = |v: &Volume| {
                        matches!(v.phase(), VolumePhase::Released | VolumePhase::Available)
                    };
                    objects.volumes.values().filter(free).count() == left
                        && objects.volumes.values().all(released)
                })
                .await?;
            }
            Ok(())
        })
    })
}

fn each(strikes: Strikes) {
    let mut wrong = Vec::new();
    for scenario in [by_hand(), by_name(), scrubbed(), again_and_again()] {
        let sweep = sweep(&scenario, SEED, strikes, SOME);
        println!("{}: {} runs", sweep.reference.replay, sweep.runs);
        wrong.extend(sweep.wrong());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn volumes_made_by_hand_survive_crashes() {
    each(strikes::crashes);
}

#[test]
fn volumes_made_by_hand_survive_errors_and_conflicts() {
    each(|member, call| {
        let mut faults = strikes::errors(member, call);
        faults.extend(strikes::conflicts(member, call));
        faults
    });
}

#[test]
fn volumes_made_by_hand_survive_poor_watches_and_the_past() {
    each(|member, call| {
        let mut faults = strikes::poor_watches(member, call);
        faults.extend(strikes::travels(member, call));
        faults
    });
}

#[test]
fn volumes_made_by_hand_survive_a_leader_that_does_not_know_it_is_none() {
    each(strikes::successions);
}

#[test]
fn a_hundred_claims_at_once_get_a_volume_each() {
    let burst = Scenario::new("burst", |user| {
        Box::pin(async move {
            for number in 0..100 {
                claim(&user, &format!("claim-{number:03}"), "").await;
            }
            for number in 0..100 {
                volume(&user, &format!("vol-{number:03}"), "Retain", json!({})).await;
            }
            user.until("all are bound", |objects| {
                let bound = |claim: &Claim| claim.phase() == ClaimPhase::Bound;
                objects.claims.len() == 100 && objects.claims.values().all(bound)
            })
            .await
        })
    });
    let report = run(&burst, &Plan::calm(), SEED);
    let complaints = report.complaints(&report.end);
    assert!(complaints.is_empty(), "{complaints:#?}");
    let volumes = report.end.lines().filter(|l| l.starts_with("volume "));
    assert_eq!(volumes.filter(|l| l.contains("Bound")).count(), 100);
}
