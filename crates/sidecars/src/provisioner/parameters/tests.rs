use super::*;

fn parse(given: &[(&str, &str)]) -> Result<Parameters, ParameterError> {
    Parameters::parse(
        &given
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
    )
}

fn secret(given: &[(&str, &str)], purpose: Purpose) -> Result<Option<SecretRef>, ParameterError> {
    let claim = Key::namespaced("ns", "data");
    let annotations = BTreeMap::from([("team".to_owned(), "blue".to_owned())]);
    let subject = Subject {
        volume_name: "pvc-1",
        claim: &claim,
        annotations: Some(&annotations),
    };
    parse(given)?.secret(purpose, &subject)
}

fn reference(namespace: &str, name: &str) -> Option<SecretRef> {
    Some(SecretRef {
        name: name.into(),
        namespace: namespace.into(),
    })
}

#[test]
fn the_driver_sees_its_own_parameters_only() {
    let parsed = parse(&[
        ("type", "fast"),
        ("csi.storage.k8s.io/fstype", "xfs"),
        ("csi.storage.k8s.io/provisioner-secret-name", "s"),
        ("csi.storage.k8s.io/provisioner-secret-namespace", "n"),
    ])
    .expect("all are known");
    assert_eq!(
        parsed.driver,
        BTreeMap::from([("type".into(), "fast".into())])
    );
    assert_eq!(parsed.fs_type.as_deref(), Some("xfs"));
}

#[test]
fn the_old_fstype_is_read_and_still_handed_on() {
    let parsed = parse(&[("fsType", "ext4")]).expect("it is known");
    assert_eq!(parsed.fs_type.as_deref(), Some("ext4"));
    assert!(parsed.driver.contains_key("fsType"));
}

#[test]
fn mistakes_are_refused_with_the_key_that_is_wrong() {
    let unknown = parse(&[("csi.storage.k8s.io/fs-type", "xfs")]);
    assert!(matches!(unknown, Err(ParameterError::Unknown(key)) if key.ends_with("fs-type")));
    let twice = parse(&[("fstype", "xfs"), ("csi.storage.k8s.io/fstype", "xfs")]);
    assert!(matches!(twice, Err(ParameterError::Twice(..))));
    let half = parse(&[("csi.storage.k8s.io/node-stage-secret-name", "s")]);
    assert!(matches!(half, Err(ParameterError::HalfASecret { .. })));
    let both = parse(&[
        ("csi.storage.k8s.io/provisioner-secret-name", "s"),
        ("csi.storage.k8s.io/provisioner-secret-namespace", "n"),
        ("csiProvisionerSecretName", "s"),
        ("csiProvisionerSecretNamespace", "n"),
    ]);
    assert!(matches!(both, Err(ParameterError::Twice(..))));
}

#[test]
fn a_secret_of_its_own_wins_over_the_one_for_all() {
    let given = [
        ("csi.storage.k8s.io/secret-name", "all"),
        ("csi.storage.k8s.io/secret-namespace", "kube-system"),
        ("csi.storage.k8s.io/node-stage-secret-name", "stage"),
        (
            "csi.storage.k8s.io/node-stage-secret-namespace",
            "kube-system",
        ),
    ];
    assert_eq!(
        secret(&given, Purpose::Provision),
        Ok(reference("kube-system", "all"))
    );
    assert_eq!(
        secret(&given, Purpose::NodeStage),
        Ok(reference("kube-system", "stage"))
    );
    assert_eq!(secret(&[], Purpose::NodeStage), Ok(None));
}

#[test]
fn templates_speak_of_the_claim_and_the_volume() {
    let with = |name: &str, namespace: &str| {
        secret(
            &[
                ("csi.storage.k8s.io/provisioner-secret-name", name),
                ("csi.storage.k8s.io/provisioner-secret-namespace", namespace),
            ],
            Purpose::Provision,
        )
    };
    assert_eq!(
        with("${pvc.name}-${pvc.annotations['team']}", "${pvc.namespace}"),
        Ok(reference("ns", "data-blue"))
    );
    assert_eq!(with("${pv.name}", "x"), Ok(reference("x", "pvc-1")));
    for (name, namespace) in [
        ("${pvc.uid}", "x"),
        ("${pvc.name", "x"),
        ("ok", "${pvc.name}"),
        ("ok", "${pvc.annotations['team']}"),
    ] {
        let refused = with(name, namespace);
        assert!(
            matches!(refused, Err(ParameterError::Token { .. })),
            "{name} {namespace}"
        );
    }
    assert!(matches!(
        with("UPPER", "x"),
        Err(ParameterError::NotAName { .. })
    ));
    assert!(matches!(
        with("ok", "a.b"),
        Err(ParameterError::NotAName { .. })
    ));
}

#[test]
fn an_annotation_that_is_not_there_is_named() {
    let given = [
        ("provisioner-secret-name", "${pvc.annotations['team/key']}"),
        ("provisioner-secret-namespace", "default"),
    ];
    let given = given.map(|(key, value)| {
        let key = format!("{CSI_PARAMETER_PREFIX}{key}");
        (key, value.to_owned())
    });
    let parameters = Parameters::parse(&given.into()).expect("they are whole");
    let (mut annotations, claim) = (BTreeMap::new(), Key::namespaced("ns", "c"));
    let secret = |annotations: &BTreeMap<String, String>| {
        let subject = Subject {
            volume_name: "pv",
            claim: &claim,
            annotations: Some(annotations),
        };
        let found = parameters.secret(Purpose::Provision, &subject);
        found.map_err(|error| error.to_string())
    };
    let said = secret(&annotations).expect_err("it is not there");
    assert!(said.contains("annotation \"team/key\""), "{said}");
    annotations.insert("team/key".to_owned(), "s".to_owned());
    let found = secret(&annotations).map(|found| found.map(|found| found.name));
    assert_eq!(found, Ok(Some("s".to_owned())));
}

#[test]
fn names_are_what_the_api_server_takes_for_such() {
    let long = "a".repeat(100);
    for right in ["a", "a.b-c.1", &long, "0"] {
        assert!(is_subdomain(right), "{right}");
    }
    let (foreign, too_long) = ("é".repeat(40), "a".repeat(254));
    for wrong in [
        "", "A", "a..b", "-a", "a-", ".a", "a_b", &foreign, &too_long,
    ] {
        assert!(!is_subdomain(wrong), "{wrong}");
    }
    assert!(is_label("a-1") && !is_label("a.b") && !is_label(&long));
}
