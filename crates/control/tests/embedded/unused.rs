//! Whether pods use a claim: what a user sees.

use super::*;

impl Stage {
    /// The conditions of the claim `data`, and its version.
    async fn conditions(&self) -> (Vec<Value>, String) {
        let client = kube::Client::new(self._server.service(), "default");
        let path = "/api/v1/namespaces/default/persistentvolumeclaims/data";
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        let claim: Value = client.request(request).await.unwrap();
        let all = claim["status"]["conditions"].as_array().cloned();
        let version = claim["metadata"]["resourceVersion"].as_str().unwrap();
        (all.unwrap_or_default(), version.to_owned())
    }

    async fn until_unused(&self, wanted: bool) {
        let told = |c: Option<&Claim>| c.is_some_and(|c| c.status.unused == Some(wanted));
        self.until(&key("data"), told).await;
    }
}

async fn rest() {
    tokio::time::sleep(Duration::from_secs(30)).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_tells_since_when_no_pod_uses_it() {
    let stage = Stage::set().await;
    orlop_control::unused::start(&stage.process);
    stage.node("n1").await;
    stage.claim("data", "").await;
    rest().await;
    assert_eq!(
        stage.conditions().await.0,
        [] as [Value; 0],
        "it is not bound"
    );
    stage.volume("vol", "", None).await;
    stage.until(&key("data"), phase(ClaimPhase::Bound)).await;
    let bound = Clock::simulated(Timestamp::UNIX_EPOCH);
    stage.until_unused(true).await;
    let waited = bound.now().as_second();
    assert!((9..=12).contains(&waited), "it was told after {waited} s");
    let (all, _) = stage.conditions().await;
    assert_eq!(all[0]["reason"], "NoPodsUsingPVC");
    assert_eq!(
        all[0]["message"],
        "No pods are currently referencing this PVC"
    );

    // Another's word stays, and that it is used is told at once.
    let others = json!({"type": "Resizing", "status": "True"});
    let body = json!({"status": {"conditions": [others]}});
    let patch = Patch::Strategic(body);
    stage
        .cluster
        .patch_status::<Claim>(&key("data"), &patch)
        .await
        .unwrap();
    let asked = Clock::simulated(Timestamp::UNIX_EPOCH);
    stage.pod("web", "data", "").await;
    stage.until_unused(false).await;
    assert!(asked.now().as_second() < 2, "at once");
    let (all, _) = stage.conditions().await;
    let types: Vec<&str> = all.iter().map(|c| c["type"].as_str().unwrap()).collect();
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(types.contains(&"Resizing") && types.contains(&"Unused"));

    // A pod that is made anew costs nothing.
    stage.until(&key("web"), placed("n1")).await;
    rest().await;
    let (_, version) = stage.conditions().await;
    stage.delete::<Pod>(&key("web")).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    stage.pod("web", "data", "").await;
    rest().await;
    assert_eq!(stage.conditions().await.1, version);

    // The last one goes: the time is when it went.
    stage.delete::<Pod>(&key("web")).await;
    let gone = stage.process.clock.now_seconds();
    stage.until_unused(true).await;
    let (all, _) = stage.conditions().await;
    let told = all.iter().find(|c| c["type"] == "Unused").unwrap();
    let since: Timestamp = told["lastTransitionTime"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let off = since.duration_since(gone).as_secs().abs();
    assert!(off < 2, "{since} for {gone}");
}
