use std::collections::BTreeMap;

use orlop_csi::proto::volume_capability::AccessType;
use orlop_model::{Resources, selector::LabelSelector};

use super::*;

fn driver(extra: &[ControllerCapability]) -> DriverInfo {
    let mut info = DriverInfo {
        name: "d".into(),
        ..DriverInfo::default()
    };
    info.controller
        .insert(ControllerCapability::CreateDeleteVolume);
    info.controller.extend(extra);
    info
}

fn claim() -> Claim {
    let mut claim = Claim::default();
    claim.metadata.name = "data".into();
    claim.metadata.namespace = "ns".into();
    claim.metadata.uid = "u1".into();
    claim.spec.access_modes = vec![AccessMode::ReadWriteOnce];
    claim.spec.resources.requests = Resources::of_storage(Quantity::bytes(1 << 30));
    claim
}

fn class(parameters: &[(&str, &str)]) -> StorageClass {
    StorageClass {
        parameters: parameters
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
        mount_options: vec!["noatime".into()],
        ..StorageClass::default()
    }
}

fn plan(claim: &Claim, class: &StorageClass) -> Result<Plan, Refusal> {
    plan_with(&Config::default(), &driver(&[]), claim, class)
}

fn plan_with(
    config: &Config,
    driver: &DriverInfo,
    claim: &Claim,
    class: &StorageClass,
) -> Result<Plan, Refusal> {
    filled(config, driver, claim, class, None, None)
}

fn filled(
    config: &Config,
    driver: &DriverInfo,
    claim: &Claim,
    class: &StorageClass,
    content: Option<Content>,
    attributes: Option<&VolumeAttributesClass>,
) -> Result<Plan, Refusal> {
    let ask = Ask {
        driver,
        config,
        claim,
        class,
        place: Some(TopologyRequirement::default()),
        content,
        attributes,
    };
    ask.plan()
}

#[test]
fn the_call_carries_size_access_parameters_and_file_system() {
    let class = class(&[("type", "fast"), ("csi.storage.k8s.io/fstype", "xfs")]);
    let plan = plan(&claim(), &class).expect("it can be asked for");
    let request = &plan.request;
    assert_eq!(request.name, "pvc-u1");
    let range = request.capacity_range.as_ref().expect("there is a size");
    assert_eq!((range.required_bytes, range.limit_bytes), (1 << 30, 0));
    assert_eq!(
        request.parameters,
        BTreeMap::from([("type".into(), "fast".into())])
    );
    let [capability] = request.volume_capabilities.as_slice() else {
        panic!("one mode, one capability");
    };
    let Some(AccessType::Mount(mount)) = &capability.access_type else {
        panic!("it is a file system");
    };
    assert_eq!(mount.fs_type, "xfs");
    assert_eq!(mount.mount_flags, ["noatime"]);
    assert!(
        request.accessibility_requirements.is_none(),
        "the driver knows no places"
    );
}

#[test]
fn each_access_mode_is_a_capability_of_its_own() {
    let mut claim = claim();
    claim.spec.access_modes = vec![AccessMode::ReadWriteOnce, AccessMode::ReadOnlyMany];
    let plan = plan(&claim, &class(&[])).expect("it can be asked for");
    assert_eq!(plan.request.volume_capabilities.len(), 2);
}

#[test]
fn a_block_volume_has_no_file_system() {
    let mut claim = claim();
    claim.spec.volume_mode = Some(VolumeMode::Block);
    let plan = plan(&claim, &class(&[("csi.storage.k8s.io/fstype", "xfs")]));
    let plan = plan.expect("it can be asked for");
    assert_eq!(plan.fs_type, "");
    let capability = &plan.request.volume_capabilities[0];
    assert!(matches!(capability.access_type, Some(AccessType::Block(_))));
}

#[test]
fn names_are_told_only_where_they_are_wanted() {
    let config = Config {
        extra_create_metadata: true,
        ..Config::default()
    };
    let plan = plan_with(&config, &driver(&[]), &claim(), &class(&[]));
    let parameters = plan.expect("it can be asked for").request.parameters;
    assert_eq!(parameters["csi.storage.k8s.io/pvc/name"], "data");
    assert_eq!(parameters["csi.storage.k8s.io/pvc/namespace"], "ns");
    assert_eq!(parameters["csi.storage.k8s.io/pv/name"], "pvc-u1");
}

#[test]
fn what_can_not_be_asked_for_is_refused_before_the_driver_is() {
    let with = |change: fn(&mut Claim)| {
        let mut claim = claim();
        change(&mut claim);
        plan(&claim, &class(&[]))
    };
    assert_eq!(
        with(|c| c.spec.selector = Some(LabelSelector::default())),
        Err(Refusal::Selector)
    );
    assert_eq!(
        with(|c| c.spec.resources.requests = Resources::default()),
        Err(Refusal::NoSize)
    );
    assert!(matches!(
        with(|c| c.spec.access_modes.clear()),
        Err(Refusal::Access(_))
    ));
    let nameless = DriverInfo::default();
    assert!(matches!(
        plan_with(&Config::default(), &nameless, &claim(), &class(&[])),
        Err(Refusal::NotSupported(_))
    ));
}

#[test]
fn the_same_claim_makes_the_same_call() {
    let class = class(&[("b", "2"), ("a", "1")]);
    assert_eq!(plan(&claim(), &class), plan(&claim(), &class));
}

#[test]
fn a_volume_is_filled_only_by_a_driver_that_can() {
    let ask = |capabilities: &[ControllerCapability], content: &Content| {
        let (config, driver) = (Config::default(), driver(capabilities));
        let content = Some(content.clone());
        filled(&config, &driver, &claim(), &class(&[]), content, None)
    };
    let cases = [
        (
            Content::Volume("v".into()),
            ControllerCapability::CloneVolume,
            "CSI driver does not support clone: capability CLONE_VOLUME is not supported",
        ),
        (
            Content::Snapshot("s".into()),
            ControllerCapability::CreateDeleteSnapshot,
            "CSI driver does not support snapshot restore: capability CREATE_DELETE_SNAPSHOT is \
             not supported",
        ),
    ];
    for (content, needs, words) in cases {
        let refused = ask(&[], &content).expect_err("it can't");
        assert_eq!(refused.to_string(), words);
        let plan = ask(&[needs], &content).expect("it can");
        let told = plan.request.volume_content_source;
        assert_eq!(told, Some(content.to_proto()));
    }
}

#[test]
fn attributes_are_asked_for_with_the_volume() {
    let mut gold = VolumeAttributesClass {
        driver_name: "d".into(),
        parameters: [("iops".to_owned(), "9".to_owned())].into(),
        ..VolumeAttributesClass::default()
    };
    gold.metadata.name = "gold".into();
    let ask = |gold: &VolumeAttributesClass, capabilities: &[ControllerCapability]| {
        let (config, driver) = (Config::default(), driver(capabilities));
        filled(&config, &driver, &claim(), &class(&[]), None, Some(gold))
    };
    let modify = [ControllerCapability::ModifyVolume];
    let plan = ask(&gold, &modify).expect("it can be asked for");
    assert_eq!(plan.request.mutable_parameters, gold.parameters);
    assert_eq!(plan.attributes_class.as_deref(), Some("gold"));
    assert_eq!(ask(&gold, &[]), Err(Refusal::Attributes));
    gold.driver_name = "other".into();
    let refused = ask(&gold, &modify)
        .expect_err("it is another's")
        .to_string();
    let text = "VAC gold referenced in PVC is for driver other which does not match driver name d";
    assert!(refused.starts_with(text), "{refused}");
}

#[test]
fn what_many_nodes_may_only_read_is_attached_so_where_that_is_wanted() {
    let mut shared = claim();
    let ask = |claim: &Claim, wanted: bool| {
        let config = Config {
            controller_publish_readonly: wanted,
            ..Config::default()
        };
        let plan = plan_with(&config, &driver(&[]), claim, &class(&[]));
        plan.expect("it can be asked for").readonly
    };
    assert!(!ask(&shared, true));
    shared.spec.access_modes = vec![AccessMode::ReadOnlyMany];
    assert!(ask(&shared, true));
    assert!(!ask(&shared, false));
    shared.spec.access_modes.push(AccessMode::ReadWriteMany);
    assert!(!ask(&shared, true));
}

#[test]
fn names_may_be_shorter_than_the_uid() {
    let mut claim = claim();
    claim.metadata.uid = "12345678-9abc-def0".into();
    let name = |length: Option<usize>| {
        let config = Config {
            volume_name_uuid_length: length,
            ..Config::default()
        };
        config.volume_name(&claim)
    };
    assert_eq!(name(None), "pvc-12345678-9abc-def0");
    assert_eq!(name(Some(10)), "pvc-123456789a");
    assert_eq!(name(Some(99)), "pvc-123456789abcdef0");
}
