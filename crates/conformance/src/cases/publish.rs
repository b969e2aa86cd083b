//! `NodePublishVolume` and its reverse.

use crate::case::Case;

mod publishing;
mod unpublishing;

pub(super) fn cases() -> Vec<Case> {
    [publishing::cases(), unpublishing::cases()].concat()
}
