use serde_json::json;

use super::*;

const CONFIG: &str = "
nodeLabelsForPV: [zone, absent]
labelsForPV: {tier: fast}
storageClassMap:
  fast: {hostDir: /mnt/fast, mountDir: /in/fast, fsType: xfs}
  raw: {hostDir: /mnt/raw, mountDir: /in/raw, volumeMode: Block}
";

struct Scene {
    config: Config,
    storage_class: StorageClass,
    node: Node,
    identity: Identity,
    taken: BTreeMap<String, String>,
}

fn scene(config: &str, class: &str) -> Scene {
    let node = json!({"metadata": {"name": "n", "uid": "u-1",
        "labels": {"kubernetes.io/hostname": "host-n", "zone": "z"}}});
    let node = Node::decode(node.to_string().as_bytes()).unwrap();
    let mut storage_class = StorageClass::default();
    storage_class.metadata.name = class.to_owned();
    storage_class.mount_options = vec!["noatime".into()];
    Scene {
        config: Config::parse(config).unwrap(),
        storage_class,
        identity: Identity::of(&node),
        node,
        taken: BTreeMap::new(),
    }
}

impl Scene {
    fn judge(&self, what: Result<What, String>) -> Verdict {
        let found = Found {
            file: "disk".into(),
            what,
        };
        judge(
            &found,
            &Facts {
                config: &self.config,
                class: &self.config.classes[&self.storage_class.metadata.name],
                storage_class: &self.storage_class,
                node: &self.node,
                identity: &self.identity,
                taken: &self.taken,
            },
        )
    }
}

#[test]
fn a_disk_becomes_a_volume_as_the_original_makes_it() {
    let scene = scene(CONFIG, "fast");
    let Verdict::Offer(volume) = scene.judge(Ok(What::Mount {
        bytes: (11 << 30) + 5,
    })) else {
        panic!("not offered");
    };
    let volume = volume.encode().unwrap();
    assert_eq!(
        volume["metadata"],
        json!({
            "name": name("disk", "n", "fast"),
            "labels": {"zone": "z", "tier": "fast"},
            "annotations": {
                "pv.kubernetes.io/provisioned-by": "local-volume-provisioner-n-u-1",
                "static-provisioner.orlop.dev/mount-point": "true",
            },
            "finalizers": ["static-provisioner.orlop.dev/unclean"],
        })
    );
    let within = json!([{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["host-n"]},
        {"key": "static-provisioner.orlop.dev/node-uid", "operator": "In", "values": ["u-1"]},
    ]}]);
    assert_eq!(
        volume["spec"],
        json!({
            "capacity": {"storage": "11Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "fast",
            "mountOptions": ["noatime"],
            "volumeMode": "Filesystem",
            "nodeAffinity": {"required": {"nodeSelectorTerms": within}},
            "local": {"path": "/mnt/fast/disk", "fsType": "xfs"},
        })
    );
}

#[test]
fn who_goes_by_the_nodes_name_is_not_bound_to_its_uid() {
    let config = format!("useNodeNameOnly: true\nsetPVOwnerRef: true\n{CONFIG}");
    let scene = scene(&config, "raw");
    let Verdict::Offer(volume) = scene.judge(Ok(What::Device { bytes: 1 << 20 })) else {
        panic!("not offered");
    };
    let terms = &volume.spec.node_affinity.as_ref().unwrap().required;
    let term = &terms.as_ref().unwrap().node_selector_terms[0];
    assert_eq!(term.match_expressions.len(), 1);
    assert_eq!(volume.spec.volume_mode, Some(VolumeMode::Block));
    assert_eq!(volume.metadata.owner_references[0].uid, "u-1");
}

#[test]
fn what_is_no_disk_is_told_and_not_offered() {
    let fast = scene(CONFIG, "fast");
    let raw = scene(CONFIG, "raw");
    for (scene, what, said) in [
        (
            &fast,
            Ok(What::Folder),
            "/mnt/fast/disk is a folder that nothing is mounted at",
        ),
        (
            &fast,
            Ok(What::Other),
            "neither a mounted file system nor a block device",
        ),
        (&fast, Err("gone".to_owned()), "can't be looked at: gone"),
        (
            &raw,
            Ok(What::Device { bytes: 0 }),
            "/mnt/raw/disk has a size of 0",
        ),
        (&fast, Ok(What::Mount { bytes: 0 }), "has a size of 0"),
        (
            &raw,
            Ok(What::Mount { bytes: 1 }),
            "the class offers block devices",
        ),
    ] {
        let Verdict::Wrong(wrong) = scene.judge(what) else {
            panic!("{said}");
        };
        assert!(wrong.to_string().contains(said), "{wrong}");
    }
    // A device may become a volume of files: it is formatted when it is mounted.
    let device = fast.judge(Ok(What::Device { bytes: 1 }));
    assert!(matches!(device, Verdict::Offer(_)));
}

#[test]
fn a_path_that_a_volume_stands_for_is_not_offered_again() {
    let mut scene = scene(CONFIG, "fast");
    scene
        .taken
        .insert("/mnt/fast/disk".into(), "whatever".into());
    for what in [
        Ok(What::Mount { bytes: 1 }),
        Ok(What::Folder),
        Err(String::new()),
    ] {
        assert_eq!(scene.judge(what), Verdict::Known);
    }
}

#[test]
fn names_and_sizes_are_the_originals() {
    // FNV-1a 32 of "" and "a" by its definition.
    assert_eq!(name("", "", ""), "local-pv-811c9dc5");
    assert_eq!(name("a", "", ""), "local-pv-e40c292c");
    for (bytes, rounded) in [
        (5, 5),
        (9 << 20, 9 << 20),
        ((10 << 20) + 7, 10 << 20),
        ((9 << 30) + 7, 9 << 30),
        ((10 << 30) + (1 << 20), 10 << 30),
    ] {
        assert_eq!(round_down(bytes), rounded, "{bytes}");
    }
}

#[test]
fn a_class_must_be_there_and_not_recycle() {
    let mut scene = scene(CONFIG, "fast");
    assert!(check("fast", Some(&scene.storage_class), &scene.node).is_ok());
    let missing = BadClass::Missing("fast".into());
    assert_eq!(check("fast", None, &scene.node), Err(missing));
    scene.storage_class.reclaim_policy = Some(ReclaimPolicy::Recycle);
    let recycle = BadClass::Recycle("fast".into());
    assert_eq!(
        check("fast", Some(&scene.storage_class), &scene.node),
        Err(recycle)
    );
    scene.node.metadata.labels.clear();
    let nameless = BadClass::NoHostname("n".into());
    assert_eq!(
        check("fast", Some(&scene.storage_class), &scene.node),
        Err(nameless)
    );
}
