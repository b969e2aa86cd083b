//! Disks of plugins of old: how many a node bears, and which pods can't share it.

use super::*;

/// As the original's tables of its limits: whatever names a volume of a plugin of old, it counts
/// as one of the driver that took the plugin's place, and once.
#[test]
fn volumes_of_plugins_of_old_count_for_the_drivers_that_took_their_place() {
    const EBS: &str = "ebs.csi.aws.com";
    let there = |handles: &[&str]| {
        let set = handles.iter().map(|h| (*h).to_owned()).collect();
        limits::Attached::from([(EBS.to_owned(), set)])
    };
    let bound = |source: Value| {
        let mut facts = late(claim("data", "1Gi"), "kubernetes.io/aws-ebs");
        edit(&mut facts, |claim| {
            claim.spec.volume_name = "v".into();
            let bound = orlop_model::well_known::BIND_COMPLETED;
            let annotations = &mut claim.metadata.annotations;
            annotations.insert(bound.into(), "yes".into());
        });
        let mut spec = json!({"capacity": {"storage": "1Gi"}});
        spec.as_object_mut()
            .unwrap()
            .extend(source.as_object().unwrap().clone());
        facts.volume = Some(Arc::new(object(json!({
            "metadata": {"name": "v"}, "spec": spec,
        }))));
        facts
    };
    let disk = |id: &str| json!({"awsElasticBlockStore": {"volumeID": id}});
    let csi = |id: &str| json!({"csi": {"driver": EBS, "volumeHandle": id}});
    let naming = |id: &str| {
        let mut pod = pod("p", &[]);
        let mut volume = disk(id);
        volume["name"] = json!("own");
        pod.spec
            .volumes
            .push(serde_json::from_value(volume).unwrap());
        pod
    };
    let of_claim = || pod("p", &["data"]);
    let new = || late(claim("data", "1Gi"), "kubernetes.io/aws-ebs");
    for (number, (pod, claims, attached, fits)) in [
        (of_claim(), vec![bound(disk("vol-1"))], there(&["a"]), true),
        (
            of_claim(),
            vec![bound(disk("vol-1"))],
            there(&["a", "b"]),
            false,
        ),
        // It is there already, by whichever name.
        (
            of_claim(),
            vec![bound(disk("vol-1"))],
            there(&["a", "vol-1"]),
            true,
        ),
        (
            of_claim(),
            vec![bound(csi("vol-1"))],
            there(&["a", "b"]),
            false,
        ),
        // One that isn't there yet, of a class of old.
        (of_claim(), vec![new()], there(&["a"]), true),
        (of_claim(), vec![new()], there(&["a", "b"]), false),
        (of_claim(), vec![new()], there(&["a", "ns/data"]), true),
        // Named by the pod itself.
        (naming("vol-1"), vec![], there(&["a"]), true),
        (naming("vol-1"), vec![], there(&["a", "b"]), false),
        (naming("vol-1"), vec![], there(&["a", "vol-1"]), true),
        // What is of no driver isn't counted.
        (
            of_claim(),
            vec![bound(json!({"hostPath": {"path": "/a"}}))],
            there(&["a", "b"]),
            true,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let mut v = view(pod, claims);
        v.nodes.truncate(1);
        v.nodes[0].csi_node = Some(Arc::new(object(json!({
            "metadata": {"name": "n1"},
            "spec": {"drivers": [{"name": EBS, "nodeID": "n1", "allocatable": {"count": 2}}]},
        }))));
        v.nodes[0].attached = attached;
        match fits {
            true => assert_eq!(promised(&decide(&v)), "n1", "case {number}"),
            false => assert_eq!(
                reasons(&decide(&v))["n1"],
                [Reason::VolumeCount],
                "case {number}"
            ),
        }
    }
}

#[test]
fn a_pod_keeps_away_from_a_node_where_another_has_its_disk() {
    let naming = |name: &str| {
        let mut pod = pod(name, &[]);
        let volume = json!({"name": "own", "iscsi": {"iqn": "iqn.2016-12.a:b"}});
        pod.spec
            .volumes
            .push(serde_json::from_value(volume).unwrap());
        pod
    };
    let mut v = view(naming("p"), vec![]);
    v.nodes[0].neighbours = vec![Arc::new(naming("q"))];
    assert_eq!(promised(&decide(&v)), "n2");
    v.nodes[1].neighbours = vec![Arc::new(pod("r", &[])), Arc::new(naming("s"))];
    let decision = decide(&v);
    assert_eq!(reasons(&decision)["n2"], [Reason::DiskConflict]);
    let Decision::Refuse(refusal) = decision else {
        panic!("{decision:?}");
    };
    assert_eq!(
        refusal.message(2),
        "0/2 nodes are available: 2 node(s) had no available disk."
    );
}
