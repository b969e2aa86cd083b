//! Disks that pods name themselves, and that two pods of a node can't have at once.
//!
//! As the original's VolumeRestrictions: only these plugins of old are looked at, and only pods
//! of one node. Claims are the binder's and attach-detach's business.

use orlop_model::{
    Pod,
    network_disk::IscsiSource,
    pod::{PodVolume, RbdSource},
};

/// Whether a pod names any such disk.
pub fn names_disks(pod: &Pod) -> bool {
    pod.spec.volumes.iter().any(|volume| {
        volume.gce_persistent_disk.is_some()
            || volume.aws_elastic_block_store.is_some()
            || volume.iscsi.is_some()
            || volume.rbd.is_some()
    })
}

/// Whether a pod can't be where another is, for a disk that both name.
pub fn conflict(pod: &Pod, other: &Pod) -> bool {
    let theirs = &other.spec.volumes;
    let mut ours = pod.spec.volumes.iter();
    ours.any(|one| theirs.iter().any(|two| same_disk(one, two)))
}

/// The same disk, unless both only read.
fn same_disk(one: &PodVolume, two: &PodVolume) -> bool {
    if let (Some(one), Some(two)) = (&one.gce_persistent_disk, &two.gce_persistent_disk)
        && one.pd_name == two.pd_name
        && !(one.read_only && two.read_only)
    {
        return true;
    }
    // One node attaches a disk of AWS once, however it is read.
    if let (Some(one), Some(two)) = (&one.aws_elastic_block_store, &two.aws_elastic_block_store)
        && one.volume_id == two.volume_id
    {
        return true;
    }
    let iscsi = |one: &IscsiSource, two: &IscsiSource| {
        one.iqn == two.iqn && !(one.read_only && two.read_only)
    };
    let rbd = |one: &RbdSource, two: &RbdSource| {
        one.monitors
            .iter()
            .any(|monitor| two.monitors.contains(monitor))
            && one.pool() == two.pool()
            && one.image == two.image
            && !(one.read_only && two.read_only)
    };
    one.iscsi
        .as_ref()
        .zip(two.iscsi.as_ref())
        .is_some_and(|(one, two)| iscsi(one, two))
        || one
            .rbd
            .as_ref()
            .zip(two.rbd.as_ref())
            .is_some_and(|(one, two)| rbd(one, two))
}

#[cfg(test)]
mod tests {
    use orlop_model::Kind as _;
    use serde_json::{Value, json};

    use super::*;

    fn pod(volumes: &[&Value]) -> Pod {
        let mut all = Vec::new();
        for (number, volume) in volumes.iter().enumerate() {
            let mut volume = (*volume).clone();
            volume["name"] = json!(number.to_string());
            all.push(volume);
        }
        let pod = json!({"metadata": {"name": "p"}, "spec": {"volumes": all}});
        Pod::decode(pod.to_string().as_bytes()).unwrap()
    }

    /// The cases of the original's tests, by kind of disk.
    #[test]
    fn disks_conflict_as_in_the_original() {
        let gce =
            |name: &str, ro: bool| json!({"gcePersistentDisk": {"pdName": name, "readOnly": ro}});
        let aws = |name: &str, ro: bool| json!({"awsElasticBlockStore": {"volumeID": name, "readOnly": ro}});
        let iscsi = |portal: &str, iqn: &str, ro: bool| json!({"iscsi": {"targetPortal": portal, "iqn": iqn, "lun": 0, "readOnly": ro}});
        let rbd = |monitors: &[&str], pool: &str, image: &str, ro: bool| json!({"rbd": {"monitors": monitors, "pool": pool, "image": image, "readOnly": ro}});
        for (one, two, conflicts) in [
            (json!({}), gce("foo", false), false),
            (gce("foo", false), gce("foo", false), true),
            (gce("foo", true), gce("foo", true), false),
            (gce("foo", true), gce("foo", false), true),
            (gce("foo", false), gce("bar", false), false),
            (json!({}), aws("foo", false), false),
            (aws("foo", false), aws("foo", false), true),
            (aws("foo", true), aws("foo", true), true),
            (aws("foo", false), aws("bar", false), false),
            (
                rbd(&["a", "b"], "foo", "bar", false),
                rbd(&["a", "b"], "foo", "bar", false),
                true,
            ),
            (
                rbd(&["a", "b"], "foo", "bar", false),
                rbd(&["c", "d"], "foo", "bar", false),
                false,
            ),
            (
                rbd(&["a", "b"], "foo", "bar", true),
                rbd(&["b"], "foo", "bar", true),
                false,
            ),
            (
                rbd(&["a"], "foo", "bar", false),
                rbd(&["a"], "foo", "other", false),
                false,
            ),
            // The pool that is meant where none is named.
            (
                json!({"rbd": {"monitors": ["a"], "image": "bar"}}),
                rbd(&["a"], "rbd", "bar", false),
                true,
            ),
            (
                iscsi(
                    "127.0.0.1:3260",
                    "iqn.2016-12.server:storage.target01",
                    false,
                ),
                iscsi(
                    "127.0.0.1:3260",
                    "iqn.2016-12.server:storage.target01",
                    false,
                ),
                true,
            ),
            // By its name, wherever it is asked for.
            (
                iscsi(
                    "127.0.0.1:3260",
                    "iqn.2016-12.server:storage.target01",
                    false,
                ),
                iscsi(
                    "127.0.0.2:3260",
                    "iqn.2016-12.server:storage.target01",
                    false,
                ),
                true,
            ),
            (
                iscsi(
                    "127.0.0.1:3260",
                    "iqn.2016-12.server:storage.target01",
                    false,
                ),
                iscsi(
                    "127.0.0.1:3260",
                    "iqn.2017-12.server:storage.target01",
                    false,
                ),
                false,
            ),
            (
                iscsi(
                    "127.0.0.1:3260",
                    "iqn.2016-12.server:storage.target01",
                    true,
                ),
                iscsi(
                    "127.0.0.1:3260",
                    "iqn.2016-12.server:storage.target01",
                    true,
                ),
                false,
            ),
            (gce("foo", false), aws("foo", false), false),
        ] {
            let (first, second) = (pod(&[&one]), pod(&[&json!({}), &two]));
            assert_eq!(conflict(&first, &second), conflicts, "{one} and {two}");
            assert_eq!(conflict(&second, &first), conflicts, "{two} and {one}");
            assert!(names_disks(&second));
        }
        assert!(!names_disks(&pod(&[&json!({"emptyDir": {}})])));
    }
}
