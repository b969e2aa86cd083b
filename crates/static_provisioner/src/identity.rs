//! Whose a volume is: this node's, an earlier node's of the same name, or somebody else's.

use orlop_model::{Node, Volume, well_known};

/// How the provisioner's names begin.
const PREFIX: &str = "local-volume-provisioner-";
/// The length of a uid.
const UID: usize = 36;

/// Who a provisioner is, and who its volumes say made them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    node: String,
    uid: Option<String>,
}

/// Whose a volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// This node's.
    Ours,
    /// Of a node that had this one's name and is no more.
    Predecessor,
    /// Somebody else's.
    Others,
}

impl Identity {
    /// The provisioner of this very node.
    pub fn of(node: &Node) -> Self {
        Self {
            node: node.metadata.name.clone(),
            uid: Some(node.metadata.uid.clone()),
        }
    }

    /// The provisioner of whichever node has this name.
    pub fn of_name(node: &Node) -> Self {
        Self {
            node: node.metadata.name.clone(),
            uid: None,
        }
    }

    /// What volumes call it.
    pub fn name(&self) -> String {
        match &self.uid {
            Some(uid) => format!("{PREFIX}{}-{uid}", self.node),
            None => format!("{PREFIX}{}", self.node),
        }
    }

    /// Whose a volume is.
    pub fn whose(&self, volume: &Volume) -> Whose {
        let maker = volume.metadata.annotation(well_known::PROVISIONED_BY);
        let Some(maker) = maker.filter(|_| volume.spec.local.is_some()) else {
            return Whose::Others;
        };
        if maker == self.name() {
            Whose::Ours
        } else if is_of_node(maker, &self.node) {
            Whose::Predecessor
        } else {
            Whose::Others
        }
    }
}

/// Whether a maker's name is of any node that is or was called so, uid included.
fn is_of_node(maker: &str, node: &str) -> bool {
    let rest = maker
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.strip_prefix(node));
    // `a` with some uid, not the node `a-b`.
    rest.and_then(|rest| rest.strip_prefix('-'))
        .is_some_and(|uid| uid.len() == UID && uid.bytes().filter(|b| *b == b'-').count() == 4)
}

/// The name of the node that a volume was made on, as far as its maker's name tells.
pub fn node_of(volume: &Volume) -> Option<&str> {
    let maker = volume.metadata.annotation(well_known::PROVISIONED_BY)?;
    let node = maker.strip_prefix(PREFIX)?;
    let named = node.len().checked_sub(UID + 1).and_then(|at| {
        let (name, uid) = node.split_at_checked(at)?;
        is_of_node(maker, name).then_some((name, uid))
    });
    Some(named.map_or(node, |(name, _)| name))
}

/// Whether a volume was made on a node that is or was called so.
pub fn may_be_of(volume: &Volume, node: &str) -> bool {
    let maker = volume.metadata.annotation(well_known::PROVISIONED_BY);
    let Some(maker) = maker.filter(|_| volume.spec.local.is_some()) else {
        return false;
    };
    is_of_node(maker, node) || maker.strip_prefix(PREFIX) == Some(node)
}

#[cfg(test)]
mod tests {
    use orlop_model::volume::LocalSource;

    use super::*;

    const UID_1: &str = "11111111-1111-1111-1111-111111111111";
    const UID_2: &str = "22222222-2222-2222-2222-222222222222";

    fn node(name: &str, uid: &str) -> Node {
        let mut node = Node::default();
        node.metadata.name = name.into();
        node.metadata.uid = uid.into();
        node
    }

    fn made_by(maker: &str) -> Volume {
        let mut volume = Volume::default();
        let annotations = &mut volume.metadata.annotations;
        annotations.insert(well_known::PROVISIONED_BY.into(), maker.into());
        volume.spec.local = Some(LocalSource::default());
        volume
    }

    #[test]
    fn volumes_of_an_earlier_node_of_the_same_name_are_told_apart() {
        let ours = Identity::of(&node("a", UID_1));
        assert_eq!(ours.name(), format!("local-volume-provisioner-a-{UID_1}"));
        for (maker, whose) in [
            (format!("{PREFIX}a-{UID_1}"), Whose::Ours),
            (format!("{PREFIX}a-{UID_2}"), Whose::Predecessor),
            (format!("{PREFIX}a-b-{UID_1}"), Whose::Others),
            (format!("{PREFIX}a"), Whose::Others),
            (format!("{PREFIX}b-{UID_1}"), Whose::Others),
            ("driver.example".into(), Whose::Others),
        ] {
            assert_eq!(ours.whose(&made_by(&maker)), whose, "{maker}");
        }
        let mut by_hand = made_by(&ours.name());
        by_hand.spec.local = None;
        assert_eq!(ours.whose(&by_hand), Whose::Others);
    }

    #[test]
    fn a_provisioner_that_goes_by_the_nodes_name_keeps_its_volumes() {
        let ours = Identity::of_name(&node("a", UID_1));
        assert_eq!(
            ours.whose(&made_by("local-volume-provisioner-a")),
            Whose::Ours
        );
        let before = made_by(&format!("{PREFIX}a-{UID_2}"));
        assert_eq!(ours.whose(&before), Whose::Predecessor);
        assert!(may_be_of(&before, "a") && !may_be_of(&before, "a-2"));
        assert_eq!(node_of(&before), Some("a"));
        assert_eq!(node_of(&made_by(&format!("{PREFIX}a-b"))), Some("a-b"));
        assert_eq!(node_of(&made_by("driver.example")), None);
    }
}
