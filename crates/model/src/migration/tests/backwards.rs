//! From the driver's words to the plugin's, and there and back again.

use super::*;

fn back_of(body: Value) -> Result<Value, Untranslatable> {
    Ok(told(&back(&pv(body))?.expect("it took a plugin's place")))
}

#[test]
fn what_went_over_comes_back() {
    for spec in [
        json!({"awsElasticBlockStore": {"volumeID": "vol-1", "fsType": "ext4", "partition": 2}}),
        json!({"gcePersistentDisk": {"pdName": "pd", "fsType": "xfs", "partition": 3}}),
        json!({"cinder": {"volumeID": "1", "fsType": "ext4", "readOnly": true}}),
        json!({"portworxVolume": {"volumeID": "1", "fsType": "ext4"}}),
        json!({"azureDisk": {
            "diskName": "name", "kind": "Managed", "fsType": "ext4", "readOnly": false,
            "cachingMode": "None",
            "diskURI": "/subscriptions/1/resourceGroups/2/providers/Microsoft.Compute/disks/name",
        }}),
        json!({"azureFile": {"secretName": "s", "shareName": "n", "secretNamespace": "ns"}}),
    ] {
        let whole = json!({"metadata": {"name": "v"}, "spec": spec});
        let there = over(whole.clone()).unwrap();
        assert!(there["spec"]["csi"].is_object(), "{there}");
        assert_eq!(back_of(there), Ok(whole));
    }
}

#[test]
fn a_disk_of_azure_is_named_by_its_address() {
    let managed = "/subscriptions/12/resourceGroups/23/providers/Microsoft.Compute/disks/name";
    for (uri, name) in [
        (managed, Some("name")),
        (
            "/subscriptions/23/providers/Microsoft.Compute/disks/name",
            None,
        ),
        ("http://test.io/vhds/name", Some("name")),
        ("https://foo.blob/vhds/name", Some("name")),
        ("http://test.io/name", None),
    ] {
        let csi = json!({"driver": "disk.csi.azure.com", "volumeHandle": uri});
        let new = back_of(json!({"spec": {"csi": csi}}));
        let told = new
            .as_ref()
            .map(|new| new["spec"]["azureDisk"]["diskName"].clone());
        assert_eq!(told.ok(), name.map(Value::from), "{uri}");
    }
    for mode in ["ReadOnly", "None", "ReadWrite"] {
        for key in ["cachingmode", "cachingMode"] {
            let csi = json!({
                "driver": "disk.csi.azure.com", "volumeHandle": managed, "readOnly": true,
                "volumeAttributes": {key: mode, "kind": "Managed", "fstype": "xfs"},
            });
            let new = back_of(json!({"spec": {"csi": csi}})).unwrap();
            let expected = json!({"diskName": "name", "diskURI": managed, "kind": "Managed",
                                  "cachingMode": mode, "fsType": "xfs", "readOnly": true});
            assert_eq!(new["spec"]["azureDisk"], expected);
        }
    }
}

#[test]
fn a_share_of_azure_is_found_by_whatever_tells_of_it() {
    let attributes = json!({"shareName": "sharename"});
    let all = json!({"shareName": "sharename", "secretName": "secretname",
                     "secretNamespace": "secretnamespace"});
    let secret = |name: &str| json!({"name": name, "namespace": "secretnamespace"});
    let id = "rg#st#pvc-file-dynamic#diskname.vhd";
    for (name, csi, share, account, namespace, group) in [
        (
            "no group",
            json!({"nodeStageSecretRef": secret("ut"), "volumeAttributes": attributes}),
            "sharename",
            "ut",
            "secretnamespace",
            None,
        ),
        (
            "attributes",
            json!({"volumeHandle": id, "volumeAttributes": attributes}),
            "sharename",
            "azure-storage-account-st-secret",
            "default",
            Some("rg"),
        ),
        (
            "all attributes",
            json!({"volumeHandle": id, "volumeAttributes": all}),
            "sharename",
            "secretname",
            "secretnamespace",
            None,
        ),
        (
            "the staging secret",
            json!({"volumeHandle": id, "volumeAttributes": attributes,
                   "nodeStageSecretRef": secret("secretname")}),
            "sharename",
            "secretname",
            "secretnamespace",
            None,
        ),
        (
            "the id alone",
            json!({"volumeHandle": id}),
            "pvc-file-dynamic",
            "azure-storage-account-st-secret",
            "default",
            Some("rg"),
        ),
    ] {
        let mut csi = csi;
        csi["driver"] = "file.csi.azure.com".into();
        csi["readOnly"] = true.into();
        let new = back_of(json!({"spec": {"csi": csi}})).unwrap();
        let expected = json!({"shareName": share, "secretName": account,
                              "secretNamespace": namespace, "readOnly": true});
        assert_eq!(new["spec"]["azureFile"], expected, "{name}");
        let told = &new["metadata"]["annotations"][well_known::AZURE_FILE_GROUP];
        assert_eq!(told.as_str(), group, "{name}");
    }
    let csi = json!({"driver": "file.csi.azure.com", "volumeHandle": "sharename",
                     "volumeAttributes": attributes});
    assert!(back_of(json!({"spec": {"csi": csi}})).is_err());
}

#[test]
fn a_disk_of_vsphere_is_the_file_that_its_driver_told_of() {
    let path = "[vsanDatastore] 6785a85e/volume.vmdk";
    let csi = json!({"driver": "csi.vsphere.vmware.com", "volumeHandle": "e4073a6d", "fsType": "ext4",
                     "volumeAttributes": {"initialvolumefilepath": path}});
    let new = back_of(json!({"spec": {"csi": csi}})).unwrap();
    let expected = json!({"volumePath": path, "fsType": "ext4"});
    assert_eq!(new["spec"]["vsphereVolume"], expected);
}

#[test]
fn numbers_that_are_none_and_ids_of_another_form_are_refused() {
    let partition = json!({"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1",
                           "volumeAttributes": {"partition": "first"}});
    let refused = Err(Untranslatable::Partition("first".into()));
    assert_eq!(back_of(json!({"spec": {"csi": partition}})), refused);
    let id = json!({"driver": "pd.csi.storage.gke.io", "volumeHandle": "disks/x"});
    assert!(back_of(json!({"spec": {"csi": id}})).is_err());
}
