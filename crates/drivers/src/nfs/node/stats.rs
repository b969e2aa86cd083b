//! NodeGetVolumeStats.

use std::time::Instant;

use orlop_csi::proto;
use orlop_csi::proto::volume_usage::Unit;
use orlop_csi::server::CsiError;
use tonic::Code;

use super::publish::{look, table};
use crate::local::fields;
use crate::nfs::controller::Call;
use crate::nfs::failure::Failure;
use crate::nfs::order::{Answer, Figures};

pub(super) async fn stats(
    call: &Call<'_>,
    request: &proto::NodeGetVolumeStatsRequest,
) -> Result<proto::NodeGetVolumeStatsResponse, Failure> {
    if request.volume_id.is_empty() {
        return Err(Failure::missing("volume_id"));
    }
    if request.volume_path.is_empty() {
        return Err(Failure::missing("volume_path"));
    }
    let missing = || {
        let told = format!(
            "no volume {:?} at {}",
            request.volume_id, request.volume_path
        );
        Failure::not_found(told)
    };
    let path = fields::absolute("volume_path", &request.volume_path).map_err(|_| missing())?;
    if table()?.at(&path).is_none() {
        return Err(missing());
    }
    let known = call.shared.memory.published().get(&path).cloned();
    if known.is_some_and(|known| known.volume != request.volume_id) {
        return Err(missing());
    }
    let key = (request.volume_id.clone(), path.clone());
    let fresh = call.shared.memory.figures().get(&key).cloned();
    if let Some((at, response)) = fresh
        && at.elapsed() < call.shared.config.stats_age
    {
        return Ok(response);
    }
    let condition = |abnormal, message: String| Some(proto::VolumeCondition { abnormal, message });
    match look(call, &path).await {
        Ok(Answer::Usage(figures)) => {
            let response = proto::NodeGetVolumeStatsResponse {
                usage: usage(&figures),
                volume_condition: condition(false, "the server answers".to_owned()),
            };
            let now = (Instant::now(), response.clone());
            call.shared.memory.figures().insert(key, now);
            Ok(response)
        }
        Ok(Answer::Stale) => Ok(proto::NodeGetVolumeStatsResponse {
            usage: Vec::new(),
            volume_condition: condition(
                true,
                "the server has replaced the volume's folder (stale file handle): start the pod \
                 anew to mount it again"
                    .to_owned(),
            ),
        }),
        Ok(_) => Err(missing()),
        Err(failure) if failure.code() == Code::DeadlineExceeded => {
            Ok(proto::NodeGetVolumeStatsResponse {
                usage: Vec::new(),
                volume_condition: condition(true, failure.to_string()),
            })
        }
        Err(failure) => Err(failure),
    }
}

fn usage(figures: &Figures) -> Vec<proto::VolumeUsage> {
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    vec![
        proto::VolumeUsage {
            available: signed(figures.available),
            total: signed(figures.total),
            used: signed(figures.used),
            unit: Unit::Bytes.into(),
        },
        proto::VolumeUsage {
            available: signed(figures.inodes_free),
            total: signed(figures.inodes),
            used: signed(figures.inodes.saturating_sub(figures.inodes_free)),
            unit: Unit::Inodes.into(),
        },
    ]
}
