//! The marks of an intent on a claim: that the driver is asked, for which place,
//! and with which content.

use orlop_model::{
    Claim,
    well_known::{
        BETA_STORAGE_PROVISIONER, PROVISIONING, PROVISIONING_PLACE, PROVISIONING_SOURCE,
        SELECTED_NODE, STORAGE_PROVISIONER,
    },
};
use orlop_runtime::Patch;
use serde_json::json;

use super::{request::Plan, source::Content, topology::Segment};

/// Puts the intent on the very version of the claim that was decided on, and the driver's name if
/// nobody did that yet.
pub(super) fn on(claim: &Claim, plan: &Plan, driver: &str) -> Patch {
    let mut finalizers = claim.metadata.finalizers.clone();
    finalizers.push(PROVISIONING.to_owned());
    let mut body = json!({"metadata": {"finalizers": finalizers}});
    if claim.provisioner().is_none() {
        for key in [STORAGE_PROVISIONER, BETA_STORAGE_PROVISIONER] {
            body["metadata"]["annotations"][key] = json!(driver);
        }
    }
    let place = plan.place();
    if !place.is_empty() && claim.selected_node().is_some() {
        let text = json!(place).to_string();
        body["metadata"]["annotations"][PROVISIONING_PLACE] = json!(text);
    }
    if let Some(content) = &plan.content {
        body["metadata"]["annotations"][PROVISIONING_SOURCE] = json!(content.to_text());
    }
    Patch::merge_on(claim, body)
}

/// What stays on a claim without the intent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// The selected node.
    Place,
    /// Not even that: the scheduler shall choose again.
    Nothing,
}

/// Takes the intent off; `None` if there is none.
pub(super) fn off(claim: &Claim, keep: Keep) -> Option<Patch> {
    let meta = &claim.metadata;
    let rest: Vec<_> = meta
        .finalizers
        .iter()
        .filter(|f| *f != PROVISIONING)
        .collect();
    let mut gone = vec![PROVISIONING_PLACE, PROVISIONING_SOURCE];
    if keep == Keep::Nothing {
        gone.push(SELECTED_NODE);
    }
    gone.retain(|key| meta.annotations.contains_key(*key));
    if gone.is_empty() && rest.len() == meta.finalizers.len() {
        return None;
    }
    let mut body = json!({"metadata": {"finalizers": rest}});
    for key in gone {
        body["metadata"]["annotations"][key] = serde_json::Value::Null;
    }
    Some(Patch::merge_on(claim, body))
}

/// The place that the driver was asked for, if the claim tells.
pub(super) fn place(claim: &Claim) -> Option<Segment> {
    let text = claim.metadata.annotation(PROVISIONING_PLACE)?;
    serde_json::from_str(text).ok()
}

/// What the driver was asked to fill the volume with, if the claim tells.
pub(super) fn content(claim: &Claim) -> Option<Content> {
    Content::of_text(claim.metadata.annotation(PROVISIONING_SOURCE)?)
}

#[cfg(test)]
mod tests;
