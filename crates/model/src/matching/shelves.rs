//! How volumes are put so that the one for a claim is found without looking at all of them.
//!
//! A free volume stands on the shelf of its class, attributes class, volume mode and access
//! modes, and there by its size. A claim is then led to the few shelves that can serve it,
//! and on each to the first volume that is large enough. A claim that selects by labels is led
//! to shelves that hold only the volumes with one of its labels.

use crate::{
    access::{AccessMode, VolumeMode},
    claim::Claim,
    class::ReclaimPolicy,
    selector::LabelSelector,
    volume::{Volume, VolumePhase},
};

/// The name of the index by [`free_shelf`], for every role that looks for free volumes.
pub const FREE: &str = "free";

/// The name of the index by [`released_shelf`].
pub const RELEASED: &str = "released";

/// The name of the index by [`labelled_shelves`].
pub const LABELLED: &str = "free-labelled";

/// The name of the index by [`claimant`].
pub const BY_CLAIMANT: &str = "by-claimant";

/// A set of access modes, one bit each.
fn access(modes: &[AccessMode]) -> u8 {
    let bit = |mode: &AccessMode| match mode {
        AccessMode::ReadWriteOnce => 1,
        AccessMode::ReadOnlyMany => 2,
        AccessMode::ReadWriteMany => 4,
        AccessMode::ReadWriteOncePod => 8,
    };
    modes.iter().fold(0, |set, mode| set | bit(mode))
}

/// The order of preference among volumes that fit: the fewest access modes, of those one
/// certain set, then the smallest.
pub(super) fn rank(volume: &Volume) -> (u32, u8, i64) {
    let set = access(&volume.spec.access_modes);
    (set.count_ones(), set, volume.capacity_bytes())
}

/// What a free volume is found under: its shelf and its size. With [`claimant`] it is all that
/// a search needs, however many volumes there are.
pub fn free_shelf(volume: &Volume) -> Vec<String> {
    let free = volume.spec.claim_ref.is_none() && volume.phase() == VolumePhase::Available;
    if free {
        vec![shelf(volume)]
    } else {
        Vec::new()
    }
}

fn shelf(volume: &Volume) -> String {
    let attributes = volume.spec.volume_attributes_class_name.as_deref();
    let kind = Shelf {
        class: volume.class(),
        attributes: attributes.unwrap_or_default(),
        mode: volume.volume_mode(),
    };
    let set = access(&volume.spec.access_modes);
    format!("{}{}", kind.with(set), place(volume.capacity_bytes()))
}

/// What a volume that is kept though its claim is gone is found under: the shelf where it would
/// stand if it were offered again.
pub fn released_shelf(volume: &Volume) -> Vec<String> {
    let kept = volume.phase() == VolumePhase::Released
        && volume.reclaim_policy() == ReclaimPolicy::Retain
        && volume.spec.claim_ref.is_some();
    if kept {
        vec![shelf(volume)]
    } else {
        Vec::new()
    }
}

/// What a free volume is found under by each of its labels: the label, then as [`free_shelf`].
pub fn labelled_shelves(volume: &Volume) -> Vec<String> {
    let shelf = free_shelf(volume);
    let labels = volume.metadata.labels.iter();
    labels
        .flat_map(|(key, value)| shelf.iter().map(move |s| format!("{key}={value}\0{s}")))
        .collect()
}

/// What shelves of one class and kind have in common.
#[derive(Clone, Copy)]
struct Shelf<'a> {
    class: &'a str,
    attributes: &'a str,
    mode: VolumeMode,
}

impl Shelf<'_> {
    fn with(self, set: u8) -> String {
        let Self {
            class,
            attributes,
            mode,
        } = self;
        let mode = match mode {
            VolumeMode::Filesystem => 'f',
            VolumeMode::Block => 'b',
        };
        format!(
            "{}{attributes}\0{mode}{}{set:02}/",
            shelves(class),
            set.count_ones()
        )
    }
}

const DIGITS: usize = 20;

/// A size, such that sizes stand in their order.
fn place(size: i64) -> String {
    format!("{:0DIGITS$}", size.max(0))
}

/// What the shelves of all free volumes of a class begin with.
pub fn shelves(class: &str) -> String {
    format!("{class}\0")
}

/// The shelf of a value of [`free_shelf`], without the size.
pub fn group(value: &str) -> &str {
    &value[..value.len().saturating_sub(DIGITS)]
}

/// The stretches of shelves that can hold a volume for the claim, the preferred one first:
/// where each begins, and what its values begin with.
pub fn stretches(claim: &Claim) -> impl Iterator<Item = (String, String)> {
    const ALL: u8 = 0b1111;
    let wanted = access(&claim.spec.access_modes);
    let mut sets: Vec<u8> = (0..=ALL).filter(|set| set & wanted == wanted).collect();
    sets.sort_by_key(|set| (set.count_ones(), *set));
    let attributes = claim.spec.volume_attributes_class_name.as_deref();
    let kind = Shelf {
        class: claim.class().unwrap_or_default(),
        attributes: attributes.unwrap_or_default(),
        mode: claim.volume_mode(),
    };
    let size = place(claim.requested_bytes());
    sets.into_iter().map(move |set| {
        let prefix = kind.with(set);
        (format!("{prefix}{size}"), prefix)
    })
}

/// As [`stretches`], among the volumes with one of the labels that the claim's selector
/// demands; `None` if it demands no certain one.
pub fn labelled_stretches(claim: &Claim) -> Option<Vec<(String, String)>> {
    let (key, value) = claim.spec.selector.as_ref().and_then(certain)?;
    let with = |text: String| format!("{key}={value}\0{text}");
    let stretches = stretches(claim).map(|(from, prefix)| (with(from), with(prefix)));
    Some(stretches.collect())
}

/// A label that everything selected has.
fn certain(selector: &LabelSelector) -> Option<(&str, &str)> {
    let labels = selector.match_labels.iter();
    let labels = labels.map(|(key, value)| (key.as_str(), value.as_str()));
    let expressions = selector.match_expressions.iter().filter_map(|r| {
        let value = match r.values.as_slice() {
            [only] if r.operator == "In" => only,
            _ => return None,
        };
        Some((r.key.as_str(), value.as_str()))
    });
    labels.chain(expressions).next()
}

/// What a claimed volume is found under: its claim's key.
pub fn claimant(volume: &Volume) -> Vec<String> {
    let claim = volume.spec.claim_ref.as_ref();
    claim.map(|c| c.key().to_string()).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "callers write it in place")]
    fn claim(extra: serde_json::Value) -> Claim {
        let mut body = json!({
            "metadata": {"name": "data", "namespace": "ns", "uid": "u1"},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "c",
                     "resources": {"requests": {"storage": "2Gi"}}},
        });
        for (key, value) in extra.as_object().into_iter().flatten() {
            body["spec"][key] = value.clone();
        }
        serde_json::from_value(body).unwrap()
    }

    fn volume(name: &str, size: &str, access: &[&str]) -> Volume {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"tier": "t1", "disk": name}},
            "spec": {"accessModes": access, "storageClassName": "c",
                     "capacity": {"storage": size}},
            "status": {"phase": "Available"},
        }))
        .unwrap()
    }

    type Put = fn(&Volume) -> Vec<String>;

    fn found(
        volumes: &[Volume],
        put: Put,
        stretches: impl Iterator<Item = (String, String)>,
    ) -> Vec<String> {
        let mut found = Vec::new();
        for (from, prefix) in stretches {
            let mut here: Vec<(String, &Volume)> = volumes
                .iter()
                .flat_map(|v| put(v).into_iter().map(move |s| (s, v)))
                .filter(|(s, _)| *s >= from && s.starts_with(&prefix))
                .collect();
            here.sort_by(|a, b| a.0.cmp(&b.0));
            found.extend(here.into_iter().map(|(_, v)| v.metadata.name.clone()));
        }
        found
    }

    fn some_volumes() -> Vec<Volume> {
        let mut other = volume("other", "2Gi", &["ReadWriteOnce"]);
        other.spec.storage_class_name = "c2".into();
        let mut device = volume("device", "2Gi", &["ReadWriteOnce"]);
        device.spec.volume_mode = Some(VolumeMode::Block);
        let mut gold = volume("gold", "2Gi", &["ReadWriteOnce"]);
        gold.spec.volume_attributes_class_name = Some("gold".into());
        vec![
            volume("big", "9Gi", &["ReadWriteOnce"]),
            volume("many", "2Gi", &["ReadWriteOnce", "ReadWriteMany"]),
            volume("read", "2Gi", &["ReadOnlyMany"]),
            volume("tiny", "1Gi", &["ReadWriteOnce"]),
            other,
            device,
            gold,
            volume("fit", "3Gi", &["ReadWriteOnce"]),
        ]
    }

    #[test]
    fn shelves_stand_in_the_order_of_preference_and_hold_only_what_fits() {
        let volumes = some_volumes();
        let among = |claim: &Claim| found(&volumes, free_shelf, stretches(claim));
        assert_eq!(among(&claim(json!({}))), ["fit", "big", "many"]);
        assert_eq!(among(&claim(json!({"volumeMode": "Block"}))), ["device"]);
        let gold = claim(json!({"volumeAttributesClassName": "gold"}));
        assert_eq!(among(&gold), ["gold"]);
        let shared = claim(json!({"accessModes": ["ReadWriteMany"]}));
        assert_eq!(among(&shared), ["many"]);
        let both = claim(json!({"accessModes": ["ReadWriteMany", "ReadOnlyMany"]}));
        assert!(among(&both).is_empty());
    }

    #[test]
    fn a_claim_that_selects_by_a_label_sees_only_the_volumes_with_it() {
        let volumes = some_volumes();
        let among = |selector: serde_json::Value| {
            let claim = claim(json!({"selector": selector}));
            let stretches = labelled_stretches(&claim)?;
            Some(found(&volumes, labelled_shelves, stretches.into_iter()))
        };
        let fit = Some(vec!["fit".to_owned()]);
        assert_eq!(among(json!({"matchLabels": {"disk": "fit"}})), fit);
        let one_of = |values: &[&str]| json!({"matchExpressions": [{"key": "disk", "operator": "In", "values": values}]});
        assert_eq!(among(one_of(&["fit"])), fit);
        assert_eq!(among(one_of(&["fit", "big"])), None, "no certain label");
        assert_eq!(among(json!({})), None);
        assert_eq!(among(json!({"matchLabels": {"disk": "x"}})), Some(vec![]));
    }

    #[test]
    fn volumes_of_one_shelf_are_of_one_group() {
        let values: Vec<String> = some_volumes().iter().flat_map(free_shelf).collect();
        let groups: std::collections::BTreeSet<&str> =
            values.iter().map(|value| group(value)).collect();
        assert_eq!(groups.len(), 6, "{groups:?}");
    }

    #[test]
    fn a_taken_volume_is_on_no_shelf() {
        let mut taken = volume("taken", "2Gi", &["ReadWriteOnce"]);
        taken.spec.claim_ref = Some(crate::ObjectRef::default());
        assert!(free_shelf(&taken).is_empty());
        assert!(labelled_shelves(&taken).is_empty());
    }
}
