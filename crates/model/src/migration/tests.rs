//! The cases by which Kubernetes' own table is judged.

use serde_json::{Value, json};

use super::*;
use crate::{kind::Kind, well_known};

mod backwards;
mod classes;
mod places;

#[expect(clippy::needless_pass_by_value, reason = "callers write it in place")]
fn pv(body: Value) -> Volume {
    Volume::decode(body.to_string().as_bytes()).unwrap()
}

fn told(volume: &Volume) -> Value {
    let mut body = volume.encode().unwrap();
    let whole = body.as_object_mut().unwrap();
    whole.remove("status");
    if whole["metadata"]
        .as_object()
        .is_some_and(serde_json::Map::is_empty)
    {
        whole.remove("metadata");
    }
    body
}

fn over(body: Value) -> Result<Value, Untranslatable> {
    Ok(told(&volume(&pv(body))?.expect("it is a plugin's")))
}

fn of_pod(name: &str, source: Value, namespace: &str) -> Result<Value, Untranslatable> {
    let mut body = source;
    body["name"] = name.into();
    let volume: PodVolume = serde_json::from_value(body).unwrap();
    let new = inline(&volume, namespace)?.expect("it is a plugin's");
    assert_eq!(new.spec.volume_mode, Some(VolumeMode::Filesystem));
    Ok(json!({
        "name": new.metadata.name, "modes": new.spec.access_modes, "csi": new.spec.csi,
    }))
}

#[test]
fn every_plugin_has_one_driver_and_every_driver_one_plugin() {
    for one in SUCCESSORS {
        assert_eq!(driver_of(one.plugin), Some(one.driver));
        assert_eq!(plugin_of(one.driver), Some(one.plugin));
    }
    assert_eq!(driver_of("kubernetes.io/nfs"), None);
    assert_eq!(plugin_of("nfs.csi.k8s.io"), None);
}

#[test]
fn what_is_no_plugins_stays_as_it_is() {
    let own = pv(json!({"spec": {"csi": {"driver": "d", "volumeHandle": "h"}}}));
    assert_eq!(volume(&own), Ok(None));
    assert_eq!(own.unique_name().as_deref(), Some("kubernetes.io/csi/d^h"));
    assert_eq!(back(&own), Ok(None));
    let local = pv(json!({"spec": {"hostPath": {"path": "/x"}}}));
    assert_eq!(volume(&local), Ok(None));
    assert_eq!(local.unique_name(), None);
    assert_eq!(inline(&PodVolume::default(), "ns"), Ok(None));
}

#[test]
fn disks_of_aws_are_known_by_their_own_id() {
    let id = "vol-02399794d890f9375";
    for told in [
        id,
        "aws:///vol-02399794d890f9375",
        "aws://us-west-2a/vol-02399794d890f9375",
    ] {
        let source = json!({"awsElasticBlockStore": {"volumeID": told, "fsType": "ext4",
                                                      "partition": 1, "readOnly": true}});
        let csi = json!({"driver": "ebs.csi.aws.com", "volumeHandle": id, "fsType": "ext4",
                         "readOnly": true, "volumeAttributes": {"partition": "1"}});
        let name = format!("ebs.csi.aws.com-{id}");
        assert_eq!(
            of_pod("v", source.clone(), "ns"),
            Ok(json!({"name": name, "modes": ["ReadWriteOnce"], "csi": csi})),
            "{told}"
        );
        assert_eq!(over(json!({"spec": source})).unwrap()["spec"]["csi"], csi);
    }
    let wrong = "aws://us-west-2a/02399794d890f9375";
    let source = json!({"awsElasticBlockStore": {"volumeID": wrong}});
    assert!(matches!(
        of_pod("v", source.clone(), ""),
        Err(Untranslatable::Id { .. })
    ));
    let volume = pv(json!({"spec": source}));
    assert!(super::volume(&volume).is_err());
    assert_eq!(volume.unique_name(), None);
}

#[test]
fn disks_of_gce_are_known_by_the_place_that_is_told() {
    let zone = "topology.kubernetes.io/zone";
    let beta = "failure-domain.beta.kubernetes.io/zone";
    for (label, value, id) in [
        (
            "",
            "",
            "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/pd-name",
        ),
        (
            beta,
            "us-east1-a",
            "projects/UNSPECIFIED/zones/us-east1-a/disks/pd-name",
        ),
        (
            zone,
            "us-east1-a",
            "projects/UNSPECIFIED/zones/us-east1-a/disks/pd-name",
        ),
        (
            beta,
            "us-central1-a__us-central1-c",
            "projects/UNSPECIFIED/regions/us-central1/disks/pd-name",
        ),
        (
            zone,
            "us-central1-a__us-central1-c",
            "projects/UNSPECIFIED/regions/us-central1/disks/pd-name",
        ),
    ] {
        let new = over(json!({
            "metadata": {"labels": {label: value}},
            "spec": {"gcePersistentDisk": {"pdName": "pd-name"}},
        }));
        assert_eq!(new.unwrap()["spec"]["csi"]["volumeHandle"], id, "{label}");
    }
    for (read_only, mode) in [(true, "ReadOnlyMany"), (false, "ReadWriteOnce")] {
        let source = json!({"gcePersistentDisk": {"pdName": "foo", "readOnly": read_only}});
        let new = of_pod("v", source, "").unwrap();
        assert_eq!(new["modes"], json!([mode]));
        assert_eq!(new["name"], "pd.csi.storage.gke.io-foo");
        assert_eq!(new["csi"]["volumeAttributes"], json!({"partition": ""}));
    }
}

#[test]
fn disks_of_gce_are_written_by_one_node() {
    let (once, read, many) = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany");
    for (modes, expected) in [
        (&[read][..], &[read][..]),
        (&[once], &[once]),
        (&[many], &[once]),
        (&[read, once], &[once]),
        (&[once, many], &[once]),
        (&[many, read], &[once]),
        (&[many, once, read], &[once]),
        (&[], &[]),
    ] {
        let volume = pv(json!({"spec": {
            "gcePersistentDisk": {"pdName": "pd"}, "accessModes": modes,
        }}));
        let new = super::volume(&volume).unwrap().unwrap();
        assert_eq!(json!(new.spec.access_modes), json!(expected), "{modes:?}");
        assert_eq!(json!(access_modes(&volume)), json!(expected), "{modes:?}");
    }
}

#[test]
fn what_gce_did_not_tell_of_a_disk_is_told_by_the_node() {
    let driver = "pd.csi.storage.gke.io";
    let node = |zone: &str| format!("projects/bing/zones/{zone}/instances/boom");
    for (handle, zone, expected) in [
        (
            "projects/foo/zones/bar/disks/baz",
            "bada",
            "projects/foo/zones/bar/disks/baz",
        ),
        (
            "projects/foo/regions/us-central1-c/disks/baz",
            "bada",
            "projects/foo/regions/us-central1-c/disks/baz",
        ),
        (
            "projects/UNSPECIFIED/zones/bar/disks/baz",
            "bada",
            "projects/bing/zones/bar/disks/baz",
        ),
        (
            "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/baz",
            "bada",
            "projects/bing/zones/bada/disks/baz",
        ),
        (
            "projects/UNSPECIFIED/regions/UNSPECIFIED/disks/baz",
            "us-central1-c",
            "projects/bing/regions/us-central1/disks/baz",
        ),
        (
            "projects/UNSPECIFIED/regions/us-west1/disks/baz",
            "us-central1-c",
            "projects/bing/regions/us-west1/disks/baz",
        ),
    ] {
        let repaired = repaired_handle(driver, handle, &node(zone));
        assert_eq!(repaired.as_deref(), Ok(expected));
    }
    assert!(repaired_handle(driver, "foo", &node("us-central1-c")).is_err());
    let handle = "projects/UNSPECIFIED/regions/us-west1/disks/baz";
    assert!(repaired_handle(driver, handle, "foo").is_err());
    assert_eq!(
        repaired_handle("ebs.csi.aws.com", "vol-1", "i-1").as_deref(),
        Ok("vol-1")
    );
}

#[test]
fn disks_of_azure_are_managed_ones() {
    let csi = json!({"driver": "disk.csi.azure.com", "volumeHandle": "datadiskuri",
                     "volumeAttributes": {"kind": "Managed"}});
    let plain = json!({"azureDisk": {"diskName": "diskname", "diskURI": "datadiskuri"}});
    assert_eq!(
        of_pod("v", plain.clone(), ""),
        Ok(json!({"name": "datadiskuri", "modes": ["ReadWriteOnce"], "csi": csi}))
    );
    assert_eq!(over(json!({"spec": plain})).unwrap()["spec"]["csi"], csi);
    let full = json!({"azureDisk": {
        "diskName": "diskname", "diskURI": "datadiskuri", "cachingMode": "ReadOnly",
        "fsType": "ext4", "readOnly": true, "kind": "managed",
    }});
    let csi = json!({"driver": "disk.csi.azure.com", "volumeHandle": "datadiskuri",
                     "fsType": "ext4", "readOnly": true,
                     "volumeAttributes": {"cachingmode": "ReadOnly", "fstype": "ext4",
                                           "kind": "Managed"}});
    assert_eq!(of_pod("v", full.clone(), "").unwrap()["csi"], csi);
    assert_eq!(over(json!({"spec": full})).unwrap()["spec"]["csi"], csi);
    let blob = json!({"azureDisk": {"diskURI": "datadiskuri", "kind": "Dedicated"}});
    let refused = Err(Untranslatable::Kind("Dedicated".into()));
    assert_eq!(of_pod("v", blob.clone(), ""), refused);
    assert_eq!(over(json!({"spec": blob})), refused);
}

#[test]
fn shares_of_azure_are_known_by_account_share_and_namespace() {
    let share = json!({"shareName": "sharename", "secretName": "secretname", "readOnly": true});
    for (pod, namespace) in [("", "default"), ("test", "test")] {
        let id = format!("#secretname#sharename#name#{namespace}");
        let csi = json!({
            "driver": "file.csi.azure.com", "volumeHandle": id, "readOnly": true,
            "volumeAttributes": {"sharename": "sharename"},
            "nodeStageSecretRef": {"name": "secretname", "namespace": namespace},
        });
        assert_eq!(
            of_pod("name", json!({"azureFile": share}), pod),
            Ok(json!({"name": id, "modes": ["ReadWriteMany"], "csi": csi}))
        );
    }
    let nobody = json!({"metadata": {"name": "uuid"}, "spec": {"azureFile": share}});
    assert_eq!(over(nobody.clone()), Err(Untranslatable::NoSecretNamespace));
    let mut claimed = nobody.clone();
    claimed["spec"]["claimRef"] = json!({"namespace": "ns", "name": "c"});
    let mut told = nobody;
    told["spec"]["azureFile"]["secretNamespace"] = "ns".into();
    let mut grouped = told.clone();
    grouped["metadata"]["annotations"] = json!({well_known::AZURE_FILE_GROUP: "rg"});
    let mut account = told.clone();
    account["spec"]["azureFile"]["secretName"] = "azure-storage-account-acc-secret".into();
    for (body, id) in [
        (claimed, "#secretname#sharename#uuid#ns"),
        (told, "#secretname#sharename#uuid#ns"),
        (grouped, "rg#secretname#sharename#uuid#ns"),
        (account, "#acc#sharename#uuid#ns"),
    ] {
        let csi = &over(body).unwrap()["spec"]["csi"];
        assert_eq!(csi["volumeHandle"], id);
        assert_eq!(csi["nodeStageSecretRef"]["namespace"], "ns");
    }
}

#[test]
fn volumes_of_cinder_vsphere_and_portworx_keep_their_ids() {
    let cinder = json!({"cinder": {"volumeID": "1", "fsType": "ext4", "readOnly": true}});
    let csi = json!({"driver": "cinder.csi.openstack.org", "volumeHandle": "1",
                     "fsType": "ext4", "readOnly": true});
    let name = "cinder.csi.openstack.org-1";
    assert_eq!(
        of_pod("v", cinder.clone(), ""),
        Ok(json!({"name": name, "modes": ["ReadWriteOnce"], "csi": csi}))
    );
    assert_eq!(over(json!({"spec": cinder})).unwrap()["spec"]["csi"], csi);

    let path = "[vsanDatastore] 6785a85e/volume.vmdk";
    let disk = json!({"vsphereVolume": {"volumePath": path, "fsType": "ext4",
                                         "storagePolicyName": "gold"}});
    let csi = json!({"driver": "csi.vsphere.vmware.com", "volumeHandle": path, "fsType": "ext4",
                     "volumeAttributes": {"storagepolicyname": "gold"}});
    let name = format!("csi.vsphere.vmware.com-{path}");
    assert_eq!(
        of_pod("v", disk.clone(), ""),
        Ok(json!({"name": name, "modes": ["ReadWriteOnce"], "csi": csi}))
    );
    assert_eq!(over(json!({"spec": disk})).unwrap()["spec"]["csi"], csi);

    for (read_only, mode) in [(true, "ReadOnlyMany"), (false, "ReadWriteOnce")] {
        let source = json!({"portworxVolume": {"volumeID": "ID", "fsType": "type",
                                                "readOnly": read_only}});
        let csi = json!({"driver": "pxd.portworx.com", "volumeHandle": "ID", "fsType": "type"});
        assert_eq!(
            of_pod("v", source.clone(), ""),
            Ok(json!({"name": "pxd.portworx.com-ID", "modes": [mode], "csi": csi}))
        );
        assert_eq!(over(json!({"spec": source})).unwrap()["spec"]["csi"], csi);
    }
    let secret = json!({"name": "s", "namespace": "ns"});
    let new = over(json!({
        "metadata": {"annotations": {well_known::PORTWORX_SECRET_NAME: "s",
                                      well_known::PORTWORX_SECRET_NAMESPACE: "ns"}},
        "spec": {"portworxVolume": {"volumeID": "ID"}},
    }));
    let csi = &new.unwrap()["spec"]["csi"];
    for purpose in [
        "controllerPublish",
        "nodeStage",
        "nodePublish",
        "controllerExpand",
        "nodeExpand",
    ] {
        assert_eq!(csi[format!("{purpose}SecretRef")], secret, "{purpose}");
    }
}
