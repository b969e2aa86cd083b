//! Where the nodes are, and so where a claim's volume shall be.

use orlop_csi::proto;
use orlop_model::{Claim, CsiNode, Node, StorageClass};
use orlop_runtime::Cache;

use super::{
    Config, Immediate, intent,
    topology::{self, Segment, Spread, Start, TopologyError},
};

/// Where nodes are.
pub(super) struct Places {
    pub(super) nodes: Cache<Node>,
    pub(super) csi_nodes: Cache<CsiNode>,
}

impl Places {
    /// Waits for everything that decisions read.
    pub(super) async fn synced(&self) {
        self.nodes.synced().await;
        self.csi_nodes.synced().await;
    }

    /// What to ask the driver for; `None` for nothing in particular.
    pub(super) fn requirement(
        &self,
        driver: &str,
        config: &Config,
        claim: &Claim,
        class: &StorageClass,
    ) -> Result<Option<proto::TopologyRequirement>, TopologyError> {
        let allowed = topology::allowed(class);
        let spread = config.spread;
        if !class.waits_for_consumer() && claim.selected_node().is_none() {
            let requisite = match config.immediate {
                _ if !allowed.is_empty() => allowed,
                Immediate::EverywhereTheDriverIs => self.all(driver),
                Immediate::AsTheClassSays => Vec::new(),
            };
            return topology::requirement(requisite, &Start::ByName(&claim.metadata.name), spread);
        }
        let Some(segment) = self.chosen(driver, claim)? else {
            return Ok(None);
        };
        let requisite = match spread {
            _ if !allowed.is_empty() => allowed,
            Spread::Strict => Vec::new(),
            // A place on record may be one that no node is in any more.
            Spread::Preferred => Some(self.all(driver))
                .filter(|all| all.contains(&segment))
                .unwrap_or_default(),
        };
        topology::requirement(requisite, &Start::At(segment), spread)
    }

    /// The selected node's place, or the one on record if the node, or its labels, went
    /// after the driver was asked.
    fn chosen(&self, driver: &str, claim: &Claim) -> Result<Option<Segment>, TopologyError> {
        let recorded = intent::place(claim);
        let Some(node) = claim.selected_node() else {
            return Ok(recorded);
        };
        let (object, csi) = (self.nodes.named(node), self.csi_nodes.named(node));
        match topology::segment_of(driver, node, object.as_deref(), csi.as_deref()) {
            Err(error) => recorded.map(Some).ok_or(error),
            found => found,
        }
    }

    /// All places where the driver runs.
    fn all(&self, driver: &str) -> Vec<Segment> {
        let nodes = self.nodes.all();
        let csi: Vec<_> = nodes
            .iter()
            .map(|n| self.csi_nodes.named(&n.metadata.name))
            .collect();
        let pairs = nodes.iter().zip(&csi).map(|(n, c)| (&**n, c.as_deref()));
        topology::segments(driver, pairs)
    }
}
