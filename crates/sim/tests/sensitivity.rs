//! Proof that the simulation can fail: what is broken on purpose is found.

use std::collections::BTreeMap;

use orlop_csi::{Driver, Method, proto};
use orlop_model::{Claim, Kind as _, Meta, ReclaimPolicy, Volume, well_known};
use orlop_runtime::{Backoff, Outcome, Preconditions, Process, Queue, work};
use orlop_sim::driver::{self, Trouble};
use orlop_sim::faults::{Fault, Member, Phase, Plan};
use orlop_sim::run::{Extent, Report, Scenario, run, sweep};
use orlop_sim::strikes::crashes_at_effects;

const SEED: u64 = 5;

fn story() -> Scenario {
    Scenario::new("broken", |user| {
        Box::pin(async move {
            user.class("Immediate", "Delete").await;
            user.claim("data").await;
            user.until_bound("data").await?;
            user.delete_claim("data").await;
            user.until_all_gone().await
        })
    })
}

fn rules(report: &Report) -> Vec<&str> {
    report.breaches.iter().map(|breach| breach.rule).collect()
}

#[test]
fn a_driver_that_only_pretends_to_delete_is_found() {
    let scenario = story().trouble(Method::DeleteVolume, 1, Trouble::Pretended);
    let report = run(&scenario, &Plan::calm(), SEED);
    assert!(rules(&report).contains(&"I05"), "{:?}", report.breaches);
    assert!(
        report.end.contains("backend vol-pvc-"),
        "the leak shows: {}",
        report.end
    );
    assert!(!report.complaints("").is_empty());
}

#[test]
fn a_driver_that_never_deletes_leaves_the_user_waiting() {
    let mut scenario = story();
    for count in 1..200 {
        let refused = Trouble::Refused(tonic::Code::Internal);
        scenario = scenario.trouble(Method::DeleteVolume, count, refused);
    }
    let report = run(&scenario, &Plan::calm(), SEED);
    assert!(report.stuck.is_some());
    assert!(
        report.end.contains("Released"),
        "it shows where: {}",
        report.end
    );
}

#[test]
fn what_is_forgiven_of_who_was_deposed_is_found_of_everybody_else() {
    let scenario = story().provisioner(careless);
    let scenario = scenario.tolerating_of_deposed(&["I14"]);
    let calm = run(&scenario, &Plan::calm(), SEED);
    assert!(rules(&calm).contains(&"I14"), "{:?}", calm.breaches);
    let mut calls = calm.calls[&Member::Provisioner].iter();
    let create = calls.find(|call| call.what.starts_with("CreateVolume"));
    let fault = Fault::Deposed(Phase::Before);
    let plan = Plan::one(Member::Provisioner, create.unwrap().number, fault);
    // Its successor comes while its call is held up.
    let report = run(&scenario, &plan, SEED);
    assert!(rules(&report).contains(&"I14"), "{}", report.trace);
}

#[test]
fn a_provisioner_without_a_record_of_its_intent_is_found() {
    let scenario = story().provisioner(careless);
    let calm = run(&scenario, &Plan::calm(), SEED);
    assert!(rules(&calm).contains(&"I14"), "{:?}", calm.breaches);
    assert_eq!(
        calm.stuck, None,
        "all goes well while nobody dies: {}",
        calm.trace
    );

    // And when it dies at the wrong moment while the claim goes, the volume leaks.
    let impatient = Scenario::new("broken and impatient", |user| {
        Box::pin(async move {
            user.class("Immediate", "Delete").await;
            user.claim("data").await;
            user.wait(std::time::Duration::from_secs(1)).await;
            user.delete_claim("data").await;
            user.until_all_gone().await
        })
    });
    let sweep = sweep(
        &impatient.provisioner(careless),
        SEED,
        crashes_at_effects,
        Extent::Whole,
    );
    let leaks = sweep
        .failures
        .iter()
        .filter(|(report, _)| report.end.contains("backend vol-"));
    assert!(leaks.count() > 0, "no leak among {} runs", sweep.runs);
}

/// A provisioner as one would write it on a Friday afternoon: it makes the volume first and
/// writes it down afterwards.
fn careless(process: &Process, driver: Driver) {
    let claims = process.cache::<Claim>();
    let volumes = process.cache::<Volume>();
    let cluster = process.cluster.clone();
    let queue: Queue<String> = Queue::new(Backoff::default());
    let on = queue.clone();
    claims.subscribe(move |change| on.add(change.object().metadata.name.clone()));
    let on = queue.clone();
    volumes.subscribe(move |change| {
        let claim = change.object().spec.claim_ref.clone();
        on.add(claim.map(|claim| claim.name).unwrap_or_default());
    });
    process.spawn("careless", async move {
        claims.synced().await;
        volumes.synced().await;
        let turn = |name: String| {
            let (claims, volumes) = (claims.clone(), volumes.clone());
            let (cluster, driver) = (cluster.clone(), driver.clone());
            async move {
                let claim = claims
                    .all()
                    .into_iter()
                    .find(|claim| claim.metadata.name == name);
                let volume = volumes.all().into_iter().next();
                match (claim, volume) {
                    (Some(claim), None) if claim.provisioner() == Some(driver::NAME) => {
                        let Ok(made) = driver.create_volume(order(&claim)).await else {
                            return Outcome::Retry;
                        };
                        let volume = record(&claim, made.volume.unwrap_or_default());
                        cluster
                            .create(&volume)
                            .await
                            .map_or(Outcome::Retry, |_| Outcome::Done)
                    }
                    (None, Some(volume)) => {
                        let id = volume
                            .spec
                            .csi
                            .as_ref()
                            .map(|csi| csi.volume_handle.clone());
                        let request = proto::DeleteVolumeRequest {
                            volume_id: id.unwrap_or_default(),
                            ..Default::default()
                        };
                        if driver.delete_volume(request).await.is_err() {
                            return Outcome::Retry;
                        }
                        let any = Preconditions::default();
                        let gone = cluster.delete::<Volume>(&volume.key(), &any).await;
                        gone.map_or(Outcome::Retry, |()| Outcome::Done)
                    }
                    _ => Outcome::Done,
                }
            }
        };
        work(queue, 1, turn).await;
    });
}

fn order(claim: &Claim) -> proto::CreateVolumeRequest {
    use proto::volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode};
    proto::CreateVolumeRequest {
        name: format!("pvc-{}", claim.metadata.uid),
        volume_capabilities: vec![proto::VolumeCapability {
            access_type: Some(AccessType::Mount(MountVolume::default())),
            access_mode: Some(AccessMode {
                mode: Mode::SingleNodeWriter.into(),
            }),
        }],
        ..Default::default()
    }
}

fn record(claim: &Claim, made: proto::Volume) -> Volume {
    let mut volume = Volume {
        metadata: Meta {
            name: format!("pvc-{}", claim.metadata.uid),
            ..Meta::default()
        },
        ..Volume::default()
    };
    let annotation = (
        well_known::PROVISIONED_BY.to_owned(),
        driver::NAME.to_owned(),
    );
    volume.metadata.annotations = BTreeMap::from([annotation]);
    volume.spec.capacity = claim.spec.resources.requests.clone();
    volume.spec.access_modes = claim.spec.access_modes.clone();
    volume.spec.claim_ref = Some(claim.reference());
    volume.spec.persistent_volume_reclaim_policy = Some(ReclaimPolicy::Delete);
    volume.spec.storage_class_name = "fast".to_owned();
    volume.spec.csi = Some(orlop_model::volume::CsiSource {
        driver: driver::NAME.to_owned(),
        volume_handle: made.volume_id,
        ..Default::default()
    });
    volume
}
