//! What happens to the machines that nodes are, beside what happens to their processes.

use std::sync::Weak;

use super::{Inner, World};
use crate::faults::Member;

/// The machines, for those who can reach them.
#[derive(Clone)]
pub(crate) struct Machines(pub(super) Weak<Inner>);

impl Machines {
    fn world(&self) -> Option<World> {
        self.0.upgrade().map(|inner| World { inner })
    }

    /// The node is cut off: nobody hears of it and it hears of nobody, while its pods go on.
    pub(crate) fn cut_off(&self, node: u8) {
        let Some(world) = self.world() else { return };
        let member = Member::Node(node);
        world.away().insert(member);
        let process = world.lives().remove(&member);
        process
            .iter()
            .for_each(|process| world.bury(member, process));
        world.inner.trace.say(format!("{member} is out of reach"));
    }

    /// The node loses its power: its pods end, and nothing is mounted there.
    pub(crate) fn power_off(&self, node: u8) {
        self.cut_off(node);
        let Some(world) = self.world() else { return };
        let member = Member::Node(node);
        world.inner.nodes[&member].go_dark();
        world.inner.driver.lose(&member.to_string());
        world.inner.trace.say(format!("{member} is dark"));
    }

    /// The node is back.
    pub(crate) fn back(&self, node: u8) {
        let Some(world) = self.world() else { return };
        let member = Member::Node(node);
        world.away().remove(&member);
        world.inner.trace.say(format!("{member} is back"));
        world.revive(member, false);
    }
}
