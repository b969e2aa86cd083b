//! Whose volumes a resizer looks after.

use std::collections::BTreeMap;

use orlop_model::Volume;

/// Where the volumes are that a resizer looks after.
#[derive(Debug, Clone)]
pub(super) enum Area {
    /// Anywhere: there is one resizer.
    Everywhere,
    /// Where a node reaches them: every node has a resizer of its own, and its driver knows no
    /// others.
    Node {
        name: String,
        place: BTreeMap<String, String>,
    },
}

impl Area {
    /// Whether a volume is in it.
    pub(super) fn has(&self, volume: &Volume) -> bool {
        match self {
            Self::Everywhere => true,
            Self::Node { name, place } => volume.reachable_from(name, place),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_nodes_resizer_leaves_other_nodes_volumes_alone() {
        let on = |node: &str| -> Volume {
            let term =
                json!({"matchExpressions": [{"key": "at", "operator": "In", "values": [node]}]});
            let affinity = json!({"required": {"nodeSelectorTerms": [term]}});
            serde_json::from_value(json!({
                "metadata": {"name": "v"}, "spec": {"nodeAffinity": affinity},
            }))
            .unwrap()
        };
        let here = Area::Node {
            name: "a".into(),
            place: BTreeMap::from([("at".into(), "a".into())]),
        };
        assert!(here.has(&on("a")) && !here.has(&on("b")));
        assert!(Area::Everywhere.has(&on("b")));
    }
}
