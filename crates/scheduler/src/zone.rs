//! Whether a node is in the zone that a volume's labels name.
//!
//! The labels are from before volumes had a node affinity; volumes of old still have them.

use std::collections::BTreeMap;

use orlop_model::{Volume, well_known};

/// The labels that count, each with the name that it has today.
const LABELS: [(&str, &str); 4] = [
    (well_known::ZONE, well_known::ZONE),
    (well_known::REGION, well_known::REGION),
    (well_known::BETA_ZONE, well_known::ZONE),
    (well_known::BETA_REGION, well_known::REGION),
];

/// Stands between the zones of a volume that is in several.
const AND: &str = "__";

/// Whether a node with these labels is where the volume is.
pub fn allows(volume: &Volume, node: &BTreeMap<String, String>) -> bool {
    // A cluster that knows no zones has no wrong ones.
    if !LABELS.iter().any(|(label, _)| node.contains_key(*label)) {
        return true;
    }
    LABELS.iter().all(|(label, today)| {
        let Some(zones) = volume.metadata.labels.get(*label) else {
            return true;
        };
        // As the original: what names no zone says nothing.
        if zones.split(AND).any(|zone| zone.trim().is_empty()) {
            return true;
        }
        let here = node.get(*label).or_else(|| node.get(*today));
        here.is_some_and(|here| zones.split(AND).any(|zone| zone == here))
    })
}

/// Where a volume's labels say that it is, in words.
pub fn places(volume: &Volume) -> Vec<String> {
    let labels = &volume.metadata.labels;
    let mut places = Vec::new();
    for (what, names) in [
        ("zone", [well_known::ZONE, well_known::BETA_ZONE]),
        ("region", [well_known::REGION, well_known::BETA_REGION]),
    ] {
        if let Some(zones) = names.iter().find_map(|name| labels.get(*name)) {
            places.push(format!("{what} {}", zones.replace(AND, " or ")));
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    #[test]
    fn a_volume_is_where_its_labels_say() {
        let (zone, region) = (well_known::ZONE, well_known::REGION);
        let (beta, beta_region) = (well_known::BETA_ZONE, well_known::BETA_REGION);
        for (volume, node, allowed) in [
            // As the original's table has them.
            (&[][..], &[(zone, "a")][..], true),
            (&[(zone, "a")], &[], true),
            (&[(zone, "a")], &[("other", "a")], true),
            (&[(zone, "a")], &[(zone, "a")], true),
            (&[(zone, "b")], &[(zone, "a")], false),
            (&[(zone, "a__b")], &[(zone, "b")], true),
            (&[(zone, "a__b")], &[(zone, "c")], false),
            (
                &[(zone, "a"), (region, "r")],
                &[(zone, "a"), (region, "r")],
                true,
            ),
            (
                &[(zone, "a"), (region, "r")],
                &[(zone, "a"), (region, "s")],
                false,
            ),
            (&[(region, "r")], &[(zone, "a")], false),
            // Labels of old on volumes, of today on nodes.
            (&[(beta, "a")], &[(zone, "a")], true),
            (&[(beta, "a")], &[(zone, "b")], false),
            (&[(beta, "a")], &[(beta, "a")], true),
            (&[(beta_region, "r")], &[(region, "r")], true),
            (&[(beta_region, "r")], &[(region, "s")], false),
            (&[(beta, "c__a")], &[(beta, "a"), ("useless", "x")], true),
            (&[(beta, "c__a")], &[], true),
            (&[(beta, "a")], &[(beta, "b")], false),
            (
                &[(beta_region, "r"), ("useless", "x")],
                &[(beta_region, "r")],
                true,
            ),
            (&[(beta_region, "r")], &[(beta_region, "s")], false),
            (&[(region, "r")], &[(region, "r")], true),
            (&[(region, "r")], &[(region, "s")], false),
            // "pv with zone and region, node with only zone", "pv with zone,node with beta zone"
            (&[(zone, "a"), (region, "a")], &[(zone, "a")], false),
            (&[(zone, "a")], &[(beta, "a")], false),
            // A label that names no zone, or one among others, is ignored.
            (&[(zone, "")], &[(zone, "a")], true),
            (&[(zone, "b__")], &[(zone, "a")], true),
        ] {
            let mut of_labels = Volume::default();
            of_labels.metadata.labels = labels(volume);
            let told = allows(&of_labels, &labels(node));
            assert_eq!(told, allowed, "{volume:?} on {node:?}");
        }
    }
}
