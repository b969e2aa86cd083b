//! Objects whose end was seen.
//!
//! A uid never comes back: who has seen an object's end knows for good that it is gone, however far
//! behind a cache may be. That an object is missing says less.

use std::collections::{BTreeSet, VecDeque};

/// So many are remembered; who asks later has to look.
const MOST: usize = 4096;

/// The last objects whose end was seen, by uid.
#[derive(Debug, Default)]
pub(super) struct Ends {
    known: BTreeSet<u128>,
    order: VecDeque<u128>,
}

impl Ends {
    /// An object has ended.
    pub(super) fn add(&mut self, uid: &str) {
        let Some(uid) = number(uid) else { return };
        if !self.known.insert(uid) {
            return;
        }
        self.order.push_back(uid);
        if self.order.len() > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// Whether it is known to have.
    pub(super) fn has(&self, uid: &str) -> bool {
        !self.known.is_empty() && number(uid).is_some_and(|uid| self.known.contains(&uid))
    }
}

/// A uid in 16 bytes; one in another form is not remembered.
fn number(uid: &str) -> Option<u128> {
    let digits: String = uid.chars().filter(|c| *c != '-').collect();
    (digits.len() == 32).then(|| u128::from_str_radix(&digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ends_are_remembered_and_no_others() {
        let uid = |n: usize| format!("0a1b2c3d-4e5f-6789-abcd-{n:012x}");
        let mut ends = Ends::default();
        ends.add("no uid");
        assert!(!ends.has("no uid"));
        (0..=MOST).for_each(|n| ends.add(&uid(n)));
        ends.add(&uid(MOST));
        assert!(!ends.has(&uid(0)), "that was long ago");
        assert!(ends.has(&uid(1)) && ends.has(&uid(MOST)));
        assert!(!ends.has(&uid(MOST + 1)));
        assert_eq!(ends.order.len(), ends.known.len());
    }
}
