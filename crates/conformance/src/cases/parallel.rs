//! Many callers at once: after an orchestrator's crash two of it may ask for the same.

use std::fmt::Debug;

use futures::future::join_all;
use orlop_csi::Unary;
use tonic::Code;

use crate::case::{Case, Trouble, ensure};
use crate::trial::Trial;

mod controller;
mod many;
mod node;

/// Sends the same request many times at once. Each answer must be OK or ABORTED, and at least
/// one repetition after the storm must succeed.
async fn storm<R>(t: &Trial, request: R, callers: usize) -> Result<Vec<R::Reply>, Trouble>
where
    R: Unary + Debug + Clone,
    R::Reply: Debug,
{
    let calls = (0..callers).map(|_| t.call(request.clone()));
    let mut replies = Vec::new();
    for answer in join_all(calls).await {
        let because =
            format!("{callers} equal calls ran at once; a call that meets another one is ABORTED");
        replies.extend(answer.ok_or_any(&[Code::Aborted], &because)?);
    }
    let last = t
        .call(request)
        .await
        .ok_because("the same call ran many times before, and nothing runs any more")?;
    replies.push(last);
    Ok(replies)
}

const CROWDS: [usize; 2] = [2, 32];

pub(super) fn cases() -> Vec<Case> {
    CROWDS
        .into_iter()
        .flat_map(|callers| [controller::cases(callers), node::cases(callers)].concat())
        .chain(many::cases())
        .collect()
}

pub(super) fn nothing_mounted(path: &str, after: &str) -> Result<(), Trouble> {
    let table = orlop_host::MountTable::read()
        .map_err(crate::make::io("could not read the mount table"))?;
    let left = table.beneath(std::path::Path::new(path)).count();
    ensure!(left == 0, "{left} mounts are at {path} after {after}");
    Ok(())
}
