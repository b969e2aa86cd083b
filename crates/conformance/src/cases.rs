//! Every case, one file per group, in the order in which they run.

use crate::case::{Case, Need};
use orlop_csi::client::ControllerCapability;

mod create;
mod identity;
mod required;

const CREATE: Need = Need::Controller(ControllerCapability::CreateDeleteVolume);

pub(crate) fn all() -> Vec<Case> {
    [identity::cases(), required::cases(), create::cases()].concat()
}
