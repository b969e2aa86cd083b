//! NodeUnpublishVolume.

use std::path::Path;
use std::time::Duration;

use orlop_csi::proto;
use orlop_csi::server::CsiError;
use tonic::Code;

use super::publish::{folder_of, turn};
use crate::nfs::controller::Call;
use crate::nfs::failure::Failure;
use crate::nfs::order::Work;

/// How long an unmount may take by itself. Then its server is taken for gone, and what is pending for
/// it is given up.
const GENTLE: Duration = Duration::from_secs(10);
const FORCED: Duration = Duration::from_secs(30);

pub(super) async fn unpublish(
    call: &Call<'_>,
    request: &proto::NodeUnpublishVolumeRequest,
) -> Result<proto::NodeUnpublishVolumeResponse, Failure> {
    if request.volume_id.is_empty() {
        return Err(Failure::missing("volume_id"));
    }
    if request.target_path.is_empty() {
        return Err(Failure::missing("target_path"));
    }
    let target = call
        .shared
        .config
        .reach
        .absolute("target_path", &request.target_path)
        .map_err(|error| Failure::invalid(&error))?;
    // Not the worker's: one that its server holds would keep the forced one away.
    let _turn = call.begin(vec![turn(&target)])?;
    clear(call, &target).await?;
    Ok(proto::NodeUnpublishVolumeResponse {})
}

/// Takes away what a path shows, and the path. Its turn is the caller's.
pub(super) async fn clear(call: &Call<'_>, target: &Path) -> Result<(), Failure> {
    let work = |force| Work::Unpublish {
        reach: folder_of(&call.shared.config.reach),
        target: target.to_owned(),
        force,
    };
    let patience = call.caller.patience().unwrap_or(FORCED + GENTLE);
    let gentle = GENTLE.min(patience / 2);
    let outcome = call.run_holding(work(false), gentle, ()).await;
    match outcome {
        Err(failure) if failure.code() == Code::DeadlineExceeded => {
            tracing::warn!(path = %target.display(), "the server does not answer: unmounted by force");
            let forced = FORCED.min(patience.saturating_sub(gentle));
            call.run_holding(work(true), forced, ()).await?;
        }
        other => {
            other?;
        }
    }
    call.shared.memory.forget(target);
    Ok(())
}
