//! The binder: what a user sees.

use orlop_model::{PodPhase, StorageClass, VolumeAttributesClass, well_known};

use super::*;

fn is(wanted: VolumePhase) -> impl Fn(Option<&Volume>) -> bool {
    move |volume| volume.is_some_and(|v| v.phase() == wanted)
}

impl Stage {
    /// A folder that is scrubbed when its claim is gone.
    async fn folder(&self, name: &str) {
        self.make::<Volume>(json!({
            "metadata": {"name": name},
            "spec": {"capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"],
                     "persistentVolumeReclaimPolicy": "Recycle",
                     "hostPath": {"path": format!("/srv/{name}")}},
        }))
        .await;
    }

    async fn end_pod(&self, key: &Key, phase: PodPhase, message: &str) {
        let body = json!({"status": {"phase": phase, "message": message}});
        let patch = Patch::Merge(body);
        self.cluster.patch_status::<Pod>(key, &patch).await.unwrap();
    }

    /// The recycler's pod, once it is on record.
    async fn recycler(&self, volume: &str) -> String {
        let pod = key(&format!("recycler-for-{volume}"));
        self.until::<Pod>(&pod, |p| p.is_some_and(Pod::is_placed))
            .await;
        let uid = self.process.cache::<Pod>().get(&pod).unwrap();
        let uid = uid.metadata.uid.clone();
        let on_record = |v: Option<&Volume>| {
            v.is_some_and(|v| v.metadata.annotation(well_known::RECYCLER) == Some(&*uid))
        };
        self.until(&Key::cluster(volume), on_record).await;
        uid
    }
}

#[tokio::test(start_paused = true)]
async fn a_folder_is_scrubbed_by_a_pod_and_then_anybodys() {
    let stage = Stage::set().await;
    stage.node("n1").await;
    stage.folder("vol").await;
    stage.claim("data", "").await;
    stage.until(&key("data"), phase(ClaimPhase::Bound)).await;
    stage.delete::<Claim>(&key("data")).await;
    let (vol, pod) = (Key::cluster("vol"), key("recycler-for-vol"));
    let first = stage.recycler("vol").await;
    stage.until(&vol, is(VolumePhase::Released)).await;
    let message = "Recycler pod: Successfully assigned default/recycler-for-vol to n1";
    stage.until_said("vol", "RecyclerPod", message).await;

    // It fails: that is told, and it is tried again.
    stage.end_pod(&pod, PodPhase::Failed, "disk on fire").await;
    stage.until(&vol, is(VolumePhase::Failed)).await;
    let message = "Recycle failed: failed to recycle volume: disk on fire";
    stage
        .until_said("vol", "VolumeFailedRecycle", message)
        .await;
    let another = |p: Option<&Pod>| p.is_some_and(|p| p.metadata.uid != first && p.is_placed());
    stage.until(&pod, another).await;

    stage.recycler("vol").await;
    stage.end_pod(&pod, PodPhase::Succeeded, "").await;
    stage.until(&vol, is(VolumePhase::Available)).await;
    stage
        .until_said("vol", "VolumeRecycled", "Volume recycled")
        .await;
    stage.until::<Pod>(&pod, |p| p.is_none()).await;
    let clean = |v: Option<&Volume>| {
        v.is_some_and(|v| v.spec.claim_ref.is_none() && v.metadata.annotations.is_empty())
    };
    stage.until(&vol, clean).await;
    stage.claim("next", "").await;
    stage.until(&key("next"), phase(ClaimPhase::Bound)).await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_taken_back_while_it_is_scrubbed_is_nobodys_until_that_has_ended() {
    let stage = Stage::set().await;
    stage.node("n1").await;
    let (vol, pod) = (Key::cluster("vol"), key("recycler-for-vol"));
    let now = Preconditions {
        grace_period_seconds: Some(0),
        ..Default::default()
    };
    let going = |p: Option<&Pod>| p.is_some_and(|p| p.metadata.is_deleting());
    let again = Patch::Merge(json!({"spec": {
        "claimRef": null, "persistentVolumeReclaimPolicy": "Retain",
    }}));
    for anew in [false, true] {
        stage.folder("vol").await;
        stage.claim("data", "").await;
        stage.until(&key("data"), phase(ClaimPhase::Bound)).await;
        stage.delete::<Claim>(&key("data")).await;
        stage.recycler("vol").await;
        match anew {
            // The old pod would empty whatever is called so.
            true => {
                stage.delete::<Volume>(&vol).await;
                stage.until::<Volume>(&vol, |v| v.is_none()).await;
                stage.folder("vol").await;
            }
            false => {
                stage.cluster.patch::<Volume>(&vol, &again).await.unwrap();
            }
        }
        stage
            .make::<Claim>(json!({
                "metadata": {"name": "next", "namespace": "default"},
                "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "",
                         "volumeName": "vol", "resources": {"requests": {"storage": "1Gi"}}},
            }))
            .await;
        let message = "volume \"vol\" is still being scrubbed by pod default/recycler-for-vol; the \
                       claim is bound once that has ended";
        stage.until_said("next", "FailedBinding", message).await;
        stage.until(&pod, going).await;
        stage.until(&key("next"), phase(ClaimPhase::Pending)).await;
        // Its node says that it has ended.
        stage.cluster.delete::<Pod>(&pod, &now).await.unwrap();
        stage.until(&key("next"), phase(ClaimPhase::Bound)).await;
        stage.delete::<Claim>(&key("next")).await;
        stage.delete::<Volume>(&vol).await;
        stage.until::<Claim>(&key("next"), |c| c.is_none()).await;
        stage.until::<Volume>(&vol, |v| v.is_none()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_only_has_the_name_of_a_recycler_scrubs_nothing() {
    let stage = Stage::set().await;
    stage.node("n1").await;
    stage.folder("vol").await;
    stage.claim("data", "").await;
    stage.until(&key("data"), phase(ClaimPhase::Bound)).await;
    let pod = key("recycler-for-vol");
    let forged = stage
        .make::<Pod>(json!({
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }))
        .await;
    let forged = forged.metadata.uid;
    stage.end_pod(&pod, PodPhase::Succeeded, "").await;
    stage.delete::<Claim>(&key("data")).await;
    let scrubs = |p: Option<&Pod>| p.is_some_and(|p| p.metadata.uid != forged);
    stage.until(&pod, scrubs).await;
    stage
        .until(&Key::cluster("vol"), is(VolumePhase::Released))
        .await;
}

#[tokio::test(start_paused = true)]
async fn mistakes_are_told_with_what_would_fit() {
    let stage = Stage::set().await;
    stage.class("fast", "Immediate").await;
    stage.volume("vol", "", None).await;
    let none = "no persistent volumes available for this claim and no storage class is set; ";
    let cases = [
        (
            "large",
            json!({"resources": {"requests": {"storage": "10Gi"}}}),
            "FailedBinding",
            format!(
                "{none}the largest free volume without a class that would do is \"vol\" with 2Gi, \
                 and the claim asks for 10Gi"
            ),
        ),
        (
            "shared",
            json!({"accessModes": ["ReadWriteMany"]}),
            "FailedBinding",
            format!(
                "{none}no free volume without a class offers ReadWriteMany; there are such with \
                 ReadWriteOnce"
            ),
        ),
        (
            "device",
            json!({"volumeMode": "Block"}),
            "FailedBinding",
            format!(
                "{none}no free volume without a class has volumeMode Block; there are such with \
                 Filesystem"
            ),
        ),
        (
            "choosy",
            json!({"selector": {"matchLabels": {"a": "b"}}}),
            "FailedBinding",
            format!(
                "{none}volume \"vol\" would fit otherwise, but has no label a; no free volume \
                 without a class that is large enough satisfies what the claim's selector asks \
                 for: \"a=b\""
            ),
        ),
        (
            "misspelt",
            json!({"storageClassName": "fsat"}),
            "ProvisioningFailed",
            "storageclass.storage.k8s.io \"fsat\" not found; did you mean \"fast\"?".to_owned(),
        ),
        (
            "by-hand",
            json!({"storageClassName": "fast"}),
            "ProvisioningFailed",
            "no volume plugin matched name: kubernetes.io/no-provisioner; there is no free volume \
             of class \"fast\"; volume \"vol\" would fit, but has no class"
                .to_owned(),
        ),
        (
            "named",
            json!({"volumeName": "vol", "resources": {"requests": {"storage": "10Gi"}}}),
            "VolumeMismatch",
            "Cannot bind to requested volume \"vol\": requested PV is too small (the volume has \
             2Gi, the claim asks for 10Gi)"
                .to_owned(),
        ),
        (
            "nowhere",
            json!({"volumeName": "gone"}),
            "FailedBinding",
            "volume \"gone\" not found; the claim asks for that one and waits until it is there"
                .to_owned(),
        ),
    ];
    for (name, change, reason, message) in cases {
        let mut spec = json!({
            "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}},
        });
        for (field, value) in change.as_object().unwrap() {
            spec[field] = value.clone();
        }
        stage
            .make::<Claim>(json!({
                "metadata": {"name": name, "namespace": "default"}, "spec": spec,
            }))
            .await;
        stage.until_said(name, reason, &message).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_class_takes_the_default_one_when_it_comes() {
    let stage = Stage::set().await;
    stage
        .make::<Claim>(json!({
            "metadata": {"name": "data", "namespace": "default"},
            "spec": {"accessModes": ["ReadWriteOnce"],
                     "resources": {"requests": {"storage": "1Gi"}}},
        }))
        .await;
    stage
        .until_said(
            "data",
            "FailedBinding",
            "no persistent volumes available for this claim and no storage class is set; there is \
             no free volume without a class",
        )
        .await;
    stage
        .make::<StorageClass>(json!({
            "metadata": {"name": "std", "annotations": {
                "storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "d",
        }))
        .await;
    let took = |c: Option<&Claim>| c.is_some_and(|c| c.class() == Some("std"));
    stage.until(&key("data"), took).await;
    let text = stage.process.metrics.render();
    assert!(text.contains("retroactive_storageclass_total 1"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_claim_is_bound_again_when_its_volume_is_put_back() {
    let stage = Stage::set().await;
    stage.volume("vol", "", None).await;
    stage.claim("data", "").await;
    let (data, vol) = (key("data"), Key::cluster("vol"));
    stage.until(&data, phase(ClaimPhase::Bound)).await;
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    stage.delete::<Volume>(&vol).await;
    stage.cluster.patch::<Volume>(&vol, &free).await.unwrap();
    stage.until(&data, phase(ClaimPhase::Lost)).await;
    let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
    stage.until_said("data", "ClaimLost", message).await;
    stage.volume("vol", "", None).await;
    stage.until(&data, phase(ClaimPhase::Bound)).await;
    stage.until(&vol, is(VolumePhase::Bound)).await;
}

#[tokio::test(start_paused = true)]
async fn an_attributes_class_outlives_its_deletion_while_a_claim_names_it() {
    let stage = Stage::set().await;
    let gold = Key::cluster("gold");
    stage
        .make::<VolumeAttributesClass>(json!({
            "metadata": {"name": "gold"}, "driverName": "d", "parameters": {"iops": "1"},
        }))
        .await;
    let guarded = |c: Option<&VolumeAttributesClass>| {
        c.is_some_and(|c| c.metadata.has_finalizer(well_known::VAC_PROTECTION))
    };
    stage.until(&gold, guarded).await;
    stage
        .make::<Claim>(json!({
            "metadata": {"name": "data", "namespace": "default"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "",
                     "volumeAttributesClassName": "gold",
                     "resources": {"requests": {"storage": "1Gi"}}},
        }))
        .await;
    stage.delete::<VolumeAttributesClass>(&gold).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    stage.until(&gold, guarded).await;
    stage.delete::<Claim>(&key("data")).await;
    stage
        .until::<VolumeAttributesClass>(&gold, |c| c.is_none())
        .await;
}

#[tokio::test(start_paused = true)]
async fn metrics_have_the_originals_names() {
    let stage = Stage::set().await;
    stage.volume("vol", "", None).await;
    stage.volume("spare", "", None).await;
    stage.claim("data", "").await;
    stage.until(&key("data"), phase(ClaimPhase::Bound)).await;
    stage
        .make::<Volume>(json!({
            "metadata": {"name": "orphan"},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                     "persistentVolumeReclaimPolicy": "Delete",
                     "nfs": {"server": "s", "path": "/p"},
                     "claimRef": {"namespace": "default", "name": "gone", "uid": "u"}},
        }))
        .await;
    stage
        .make::<StorageClass>(json!({"metadata": {"name": "made"}, "provisioner": "p"}))
        .await;
    stage.claim("made", "made").await;
    let asked = |c: Option<&Claim>| c.is_some_and(|c| c.provisioner() == Some("p"));
    stage.until(&key("made"), asked).await;
    stage.volume("made", "made", None).await;
    stage.until(&key("made"), phase(ClaimPhase::Bound)).await;
    let orphan = Key::cluster("orphan");
    stage.until(&orphan, is(VolumePhase::Failed)).await;
    let text = stage.process.metrics.render();
    for line in [
        "pv_collector_total_pv_count{plugin_name=\"kubernetes.io/csi:d\",volume_mode=\"Filesystem\"} 3",
        "pv_collector_total_pv_count{plugin_name=\"kubernetes.io/nfs\",volume_mode=\"Filesystem\"} 1",
        "pv_collector_bound_pv_count{storage_class=\"\"} 1",
        "pv_collector_unbound_pv_count{storage_class=\"\"} 2",
        "pv_collector_bound_pvc_count{namespace=\"default\",storage_class=\"\",volume_attributes_class=\"\"} 1",
        "volume_operation_errors_total{plugin_name=\"N/A\",operation_name=\"delete\"} 1",
        "volume_operation_total_errors{plugin_name=\"N/A\",operation_name=\"delete\"} 1",
        "retroactive_storageclass_total 0",
        "retroactive_storageclass_errors_total 0",
        "volume_operation_total_seconds_count{plugin_name=\"p\",operation_name=\"provision\"} 1",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_annotations_leave_no_room_for_the_binders_says_so() {
    let stage = Stage::set().await;
    stage.volume("vol", "", None).await;
    // The API server takes 256 KiB of them.
    let full = "x".repeat((256 << 10) - 30);
    stage
        .make::<Claim>(json!({
            "metadata": {"name": "data", "namespace": "default", "annotations": {"notes": full}},
            "spec": {"storageClassName": "", "accessModes": ["ReadWriteOnce"],
                     "resources": {"requests": {"storage": "1Gi"}}},
        }))
        .await;
    let events = stage.process.cache::<Event>();
    let told = || {
        let all = events.all().into_iter();
        let about = |e: &Event| e.involved_object.name == "data" && e.reason == "FailedBinding";
        let texts = all.filter(|e| about(e)).map(|e| e.message.clone());
        texts.collect::<Vec<_>>().join("\n")
    };
    let shown = async {
        while !["the API server refuses it", "annotations"]
            .iter()
            .all(|words| told().contains(words))
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    stage.within(shown, told).await;
    let less = Patch::Merge(json!({"metadata": {"annotations": {"notes": null}}}));
    stage
        .cluster
        .patch::<Claim>(&key("data"), &less)
        .await
        .unwrap();
    stage.until(&key("data"), phase(ClaimPhase::Bound)).await;
}
