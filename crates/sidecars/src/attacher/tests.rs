use orlop_model::{attachment::VolumeError, well_known::ATTACHMENT_NODE_ID};

use super::*;

#[test]
fn our_own_errors_and_marks_wake_nobody() {
    let before = VolumeAttachment::default();
    let mut marked = before.clone();
    marked.status.attach_error = Some(VolumeError::default());
    marked.status.detach_error = Some(VolumeError::default());
    marked.metadata.finalizers.push("x".into());
    marked
        .metadata
        .annotations
        .insert(ATTACHMENT_NODE_ID.into(), "i".into());
    assert!(!stirs(&before, &marked));
    let mut deleted = before.clone();
    deleted.metadata.deletion_timestamp = Some(jiff::Timestamp::UNIX_EPOCH);
    assert!(stirs(&before, &deleted));
    let mut detached_behind_our_back = before.clone();
    detached_behind_our_back.status.attached = true;
    assert!(stirs(&detached_behind_our_back, &before));
}
