//! Classes, as their provisioners are told of them.

use super::*;
use crate::class::StorageClass;

const GA: &str = "topology.kubernetes.io/zone";
const BETA: &str = "failure-domain.beta.kubernetes.io/zone";

/// Parameters and places of a class, as `key=value` and `key in values`.
type Told<'a> = (&'a [(&'a str, &'a str)], &'a [(&'a str, &'a [&'a str])]);

fn made(plugin: &str, (parameters, places): Told<'_>) -> StorageClass {
    let parameters = parameters.iter().map(|(k, v)| ((*k).to_owned(), json!(v)));
    let places = places
        .iter()
        .map(|(key, values)| json!({"matchLabelExpressions": [{"key": key, "values": values}]}));
    let body = json!({
        "provisioner": plugin,
        "parameters": parameters.collect::<serde_json::Map<_, _>>(),
        "allowedTopologies": places.collect::<Vec<_>>(),
    });
    StorageClass::decode(body.to_string().as_bytes()).unwrap()
}

#[test]
fn classes_are_told_in_their_drivers_words() {
    let fs = ("csi.storage.k8s.io/fstype", "ext3");
    let (ebs, gke) = ("topology.ebs.csi.aws.com/zone", "topology.gke.io/zone");
    let azure = "topology.disk.csi.azure.com/zone";
    let nova = "topology.cinder.csi.openstack.org/zone";
    let vmware = "topology.csi.vmware.com/zone";
    let on = ("csimigration", "true");
    let cases: [(&Successor, Told<'_>, Told<'_>); 27] = [
        (&EBS, (&[("foo", "bar")], &[]), (&[("foo", "bar")], &[])),
        (&EBS, (&[], &[]), (&[], &[])),
        (&EBS, (&[("fstype", "ext3")], &[]), (&[fs], &[])),
        (
            &EBS,
            (&[("iopsPerGB", "100")], &[]),
            (
                &[("iopsPerGB", "100"), ("allowautoiopspergbincrease", "true")],
                &[],
            ),
        ),
        (
            &EBS,
            (&[("zones", "a, b")], &[]),
            (&[], &[(ebs, &["a", "b"])]),
        ),
        (&GCE, (&[("foo", "bar")], &[]), (&[("foo", "bar")], &[])),
        (&GCE, (&[("fsType", "ext3")], &[]), (&[fs], &[])),
        (&GCE, (&[("zone", "foo")], &[]), (&[], &[(gke, &["foo"])])),
        (
            &GCE,
            (&[("zones", "foo,bar,baz")], &[]),
            (&[], &[(gke, &["foo", "bar", "baz"])]),
        ),
        (&GCE, (&[], &[(gke, &["foo"])]), (&[], &[(gke, &["foo"])])),
        (&GCE, (&[], &[(BETA, &["foo"])]), (&[], &[(gke, &["foo"])])),
        (
            &GCE,
            (&[], &[(GA, &["foo"]), ("other", &["x"])]),
            (&[], &[(gke, &["foo"]), ("other", &["x"])]),
        ),
        (
            &AZURE_DISK,
            (&[("fsType", "xfs"), ("zone", "foo")], &[]),
            (&[("fsType", "xfs")], &[(azure, &["foo"])]),
        ),
        (
            &AZURE_DISK,
            (&[], &[(BETA, &["foo"])]),
            (&[], &[(azure, &["foo"])]),
        ),
        (
            &AZURE_DISK,
            (&[], &[(GA, &["0"])]),
            (&[], &[(azure, &[""])]),
        ),
        (
            &AZURE_DISK,
            (&[], &[(GA, &["1234"])]),
            (&[], &[(azure, &[""])]),
        ),
        (
            &AZURE_DISK,
            (&[], &[(GA, &["centralus-1"])]),
            (&[], &[(azure, &["centralus-1"])]),
        ),
        (
            &AZURE_FILE,
            (&[("skuName", "x"), ("fsType", "nfs")], &[(GA, &["a"])]),
            (&[("skuName", "x"), ("fsType", "nfs")], &[(GA, &["a"])]),
        ),
        (&CINDER, (&[("fstype", "ext3")], &[]), (&[fs], &[])),
        (
            &CINDER,
            (&[("availability", "nova"), ("zone", "z")], &[]),
            (&[("availability", "nova"), ("zone", "z")], &[]),
        ),
        (
            &CINDER,
            (&[], &[(BETA, &["nova"])]),
            (&[], &[(nova, &["nova"])]),
        ),
        (&VSPHERE, (&[], &[]), (&[on], &[])),
        (&VSPHERE, (&[("unknownparam", "value")], &[]), (&[on], &[])),
        (
            &VSPHERE,
            (
                &[
                    ("storagepolicyname", "p"),
                    ("Datastore", "d"),
                    ("fstype", "ext3"),
                ],
                &[],
            ),
            (
                &[
                    ("storagepolicyname", "p"),
                    ("datastore-migrationparam", "d"),
                    fs,
                    on,
                ],
                &[],
            ),
        ),
        (
            &VSPHERE,
            (&[], &[(BETA, &["z"])]),
            (&[on], &[(vmware, &["z"])]),
        ),
        (
            &VSPHERE,
            (
                &[
                    ("diskformat", "thin"),
                    ("hostfailurestotolerate", "2"),
                    ("forceprovisioning", "1"),
                    ("cachereservation", "25"),
                    ("diskstripes", "4"),
                    ("objectspacereservation", "10"),
                    ("iopslimit", "32"),
                ],
                &[],
            ),
            (
                &[
                    ("diskformat-migrationparam", "thin"),
                    ("hostfailurestotolerate-migrationparam", "2"),
                    ("forceprovisioning-migrationparam", "1"),
                    ("cachereservation-migrationparam", "25"),
                    ("diskstripes-migrationparam", "4"),
                    ("objectspacereservation-migrationparam", "10"),
                    ("iopslimit-migrationparam", "32"),
                    on,
                ],
                &[],
            ),
        ),
        (
            &PORTWORX,
            (&[("repl", "1"), ("fs", "ext4")], &[]),
            (&[("repl", "1"), ("fs", "ext4")], &[]),
        ),
    ];
    for (successor, given, told) in cases {
        let given = made(successor.plugin, given);
        let new = class(&given, successor.driver).unwrap();
        assert_eq!(*new, made(successor.driver, told), "{given:?}");
    }
}

#[test]
fn a_portworx_secret_serves_every_purpose() {
    let given = [
        (well_known::PORTWORX_SECRET_NAME, "s"),
        (well_known::PORTWORX_SECRET_NAMESPACE, "ns"),
    ];
    let given = made(PORTWORX.plugin, (&given, &[]));
    let new = class(&given, PORTWORX.driver).unwrap();
    assert_eq!(new.parameters.len(), 12, "{:?}", new.parameters);
    let name = &new.parameters["csi.storage.k8s.io/node-expand-secret-name"];
    assert_eq!(name, "s");
}

#[test]
fn zones_are_named_once() {
    let (zone, zones) = (("zone", "a"), ("zones", "a,b"));
    for told in [
        (&[zone][..], &[(GA, &["foo"][..])][..]),
        (&[zone, zones], &[]),
    ] {
        for one in [&EBS, &GCE, &AZURE_DISK] {
            let given = made(one.plugin, told);
            let refused = class(&given, one.driver);
            assert!(matches!(refused, Err(Twice(..))), "{refused:?}");
        }
    }
}

#[test]
fn other_classes_stay_as_they_are() {
    let own = made(EBS.driver, (&[("zone", "a"), ("fstype", "xfs")], &[]));
    assert!(matches!(class(&own, EBS.driver), Ok(Cow::Borrowed(_))));
    let foreign = made(EBS.plugin, (&[("zone", "a")], &[]));
    let same = class(&foreign, "another.driver");
    assert!(matches!(same, Ok(Cow::Borrowed(_))));
}
