//! Claims that are made for pods: what a user sees.

use super::*;

/// The original's "pod-deleted", and its metrics.
#[tokio::test(start_paused = true)]
async fn a_pod_that_is_being_deleted_gets_no_claim_any_more() {
    let stage = Stage::set().await;
    let template = json!({"spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "",
                                   "resources": {"requests": {"storage": "1Gi"}}}});
    stage
        .make::<Pod>(json!({
            "metadata": {"name": "web", "namespace": "default", "finalizers": ["test.example/hold"]},
            "spec": {"containers": [{"name": "c", "image": "i"}],
                     "volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": template}}]},
        }))
        .await;
    let claim = key("web-v");
    stage.until::<Claim>(&claim, |c| c.is_some()).await;
    // Gone too early, it is made again.
    stage.delete::<Claim>(&claim).await;
    let made = || {
        let text = stage.process.metrics.render();
        let count = |name: &str| {
            let line = format!("ephemeral_volume_controller_{name} ");
            let found = text.lines().find_map(|l| l.strip_prefix(&line));
            found.unwrap().parse::<u32>().unwrap()
        };
        (count("create_total"), count("create_failures_total"))
    };
    let again = async {
        while made() != (2, 0) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    stage.within(again, || format!("{:?}", made())).await;
    stage.until::<Claim>(&claim, |c| c.is_some()).await;
    stage.delete::<Pod>(&key("web")).await;
    let going = |p: Option<&Pod>| p.is_some_and(|p| p.metadata.is_deleting());
    stage.until(&key("web"), going).await;
    stage.delete::<Claim>(&claim).await;
    stage.until::<Claim>(&claim, |c| c.is_none()).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    stage.until::<Claim>(&claim, |c| c.is_none()).await;
    assert_eq!(made(), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_pod_gets_a_claim_of_its_own_and_takes_it_along() {
    let stage = Stage::set().await;
    stage.node("n1").await;
    stage.volume("vol", "", None).await;
    stage
        .make::<Pod>(json!({
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": [
                {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {
                    "accessModes": ["ReadWriteOnce"], "storageClassName": "",
                    "resources": {"requests": {"storage": "1Gi"}}}}}}]},
        }))
        .await;
    stage
        .until(&key("web-scratch"), phase(ClaimPhase::Bound))
        .await;
    stage.until(&key("web"), placed("n1")).await;
    stage.delete::<Pod>(&key("web")).await;
    stage
        .until::<Claim>(&key("web-scratch"), |c| c.is_none())
        .await;
}
