//! What the kubelet writes on a container to know it again: one that lacks it is taken for another
//! definition's, and started anew by a kubelet that takes the node over.

use std::collections::BTreeMap;

use crate::runner::ContainerId;

const HASH: &str = "io.kubernetes.container.hash";
const RESTARTS: &str = "io.kubernetes.container.restartCount";

/// The annotations of a container of an image.
pub(super) fn annotations(id: &ContainerId, image: &str) -> BTreeMap<String, String> {
    let hash = hash(&id.container, image);
    BTreeMap::from([
        (HASH.to_owned(), format!("{hash:x}")),
        (RESTARTS.to_owned(), id.attempt.to_string()),
    ])
}

/// The kubelet's: FNV-1a of the JSON of name and image, printed byte by byte.
fn hash(name: &str, image: &str) -> u32 {
    let json = serde_json::json!({"image": image, "name": name}).to_string();
    let bytes: Vec<String> = json.bytes().map(|byte| byte.to_string()).collect();
    let printed = format!("([]uint8)[{}]", bytes.join(" "));
    printed.bytes().fold(0x811c_9dc5, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::PodUid;

    #[test]
    fn a_container_bears_the_hash_that_the_kubelet_reckons() {
        for (name, image, hash) in [
            ("main", "orlop.test/busybox:1", "990e28b5"),
            ("web", "nginx:1.27", "e220f96"),
        ] {
            let id = ContainerId {
                pod: PodUid::new("u").expect("a uid"),
                container: name.to_owned(),
                attempt: 3,
            };
            let marks = annotations(&id, image);
            assert_eq!(marks[HASH], hash, "{name} {image}");
            assert_eq!(marks[RESTARTS], "3");
        }
    }
}
