//! Calls that the caller gave up on: the effect may come late, and the next call must cope.

use std::fmt::Debug;
use std::time::Duration;

use orlop_csi::{Unary, proto};
use tonic::Code;

use crate::case::{Case, Trouble};
use crate::trial::Trial;

mod controller;
mod node;
mod undone;

/// When the caller loses its patience.
const PATIENCE: [(&str, Duration); 3] = [
    ("at_once", Duration::from_micros(300)),
    ("after_2_ms", Duration::from_millis(2)),
    ("after_20_ms", Duration::from_millis(20)),
];

/// How long a driver may take to take up a call that has reached it.
const MET: Duration = Duration::from_millis(30);

/// Gives a call up, then repeats it until it is answered otherwise than with ABORTED.
async fn given_up<R>(t: &Trial, request: R, patience: Duration) -> Result<R::Reply, Trouble>
where
    R: Unary + Debug + Clone,
    R::Reply: Debug,
{
    t.call_within(request.clone(), patience).await;
    repeated(t, request).await
}

/// Gives a call up, and waits until the driver has met it: two calls in flight may be taken up
/// in any order, and a reverse that is taken up first has nothing to undo.
async fn left_behind<R>(t: &Trial, request: R, patience: Duration)
where
    R: Unary + Debug,
    R::Reply: Debug,
{
    t.call_within(request, patience).await;
    for _ in 0..2 {
        t.call(proto::ProbeRequest {}).await;
    }
    tokio::time::sleep(MET).await;
}

/// Repeats a call while the driver says that the earlier one still runs.
pub(super) async fn repeated<R>(t: &Trial, request: R) -> Result<R::Reply, Trouble>
where
    R: Unary + Debug + Clone,
    R::Reply: Debug,
{
    let ends = tokio::time::Instant::now() + t.bench().settings.timeout;
    let mut wait = Duration::from_millis(5);
    loop {
        let answer = t.call(request.clone()).await;
        let waits = matches!(
            answer.code(),
            Code::Aborted | Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled
        );
        if !waits || tokio::time::Instant::now() >= ends {
            return answer.ok_because(
                "the same call was given up before; repeating it must lead to its end",
            );
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(Duration::from_millis(500));
    }
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = PATIENCE
        .into_iter()
        .flat_map(|(word, patience)| {
            [
                controller::cases(word, patience),
                node::cases(word, patience),
            ]
            .concat()
        })
        .collect();
    cases.extend(undone::cases());
    cases
}
