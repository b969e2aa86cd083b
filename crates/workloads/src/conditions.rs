//! Conditions: changed only when they say something else, and dated by that.

use jiff::Timestamp;
use orlop_model::workload::WorkloadCondition;

/// A condition that was found at a time.
pub(crate) fn found(
    type_: &str,
    status: &str,
    (reason, message): (&str, impl Into<String>),
    now: Timestamp,
) -> WorkloadCondition {
    WorkloadCondition {
        type_: type_.to_owned(),
        status: status.to_owned(),
        last_update_time: None,
        last_transition_time: Some(now),
        reason: reason.to_owned(),
        message: message.into(),
    }
}

/// The condition of that type.
pub(crate) fn get<'c>(all: &'c [WorkloadCondition], type_: &str) -> Option<&'c WorkloadCondition> {
    all.iter().find(|condition| condition.type_ == type_)
}

/// Puts a condition in the place of its predecessor, unless that says the same.
pub(crate) fn set(all: &mut Vec<WorkloadCondition>, mut new: WorkloadCondition) {
    if let Some(old) = get(all, &new.type_) {
        if old.status == new.status && old.reason == new.reason {
            return;
        }
        if old.status == new.status {
            new.last_transition_time = old.last_transition_time;
        }
    }
    remove(all, &new.type_);
    all.push(new);
}

/// Takes a condition away.
pub(crate) fn remove(all: &mut Vec<WorkloadCondition>, type_: &str) {
    all.retain(|condition| condition.type_ != type_);
}
