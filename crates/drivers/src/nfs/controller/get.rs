//! ControllerGetVolume: whether a volume is there, and how its server is.

use orlop_csi::proto;
use orlop_csi::proto::controller_get_volume_response::VolumeStatus;
use orlop_csi::server::CsiError;
use tonic::Code;

use super::{Call, known};
use crate::nfs::failure::Failure;
use crate::nfs::order::{Answer, Work};

pub(super) async fn get(
    call: &Call<'_>,
    request: &proto::ControllerGetVolumeRequest,
) -> Result<proto::ControllerGetVolumeResponse, Failure> {
    let id = known(&request.volume_id)?;
    let work = Work::Look {
        on: call.mounting(&id.export, None, &std::collections::BTreeMap::new())?,
        key: id.key().to_owned(),
        folder: id.folder.clone(),
    };
    let answer = call.run(work, Vec::new()).await;
    // What nodes have to know stands in the id, if nothing else is written down.
    let told = |key: &str, value: String| (key.to_owned(), value);
    let mut volume_context = std::collections::BTreeMap::from([
        told("server", id.export.server.clone()),
        told("share", id.export.path()),
        told("subdir", id.folder.as_str().to_owned()),
    ]);
    let (capacity_bytes, abnormal, message) = match answer {
        Ok(Answer::Volume {
            capacity_bytes,
            context,
            ..
        }) => {
            if !context.is_empty() {
                volume_context = context;
            }
            let message = "the volume is in its share".to_owned();
            (capacity_bytes, false, message)
        }
        Ok(Answer::Nothing) => {
            return Err(Failure::not_found(format!("there is no volume {id}")));
        }
        Ok(_) => {
            return Err(Failure::new(
                Code::Internal,
                "the worker answered something else",
            ));
        }
        // That the server is not well is what was asked for.
        Err(failure) => match failure.code() {
            Code::Unavailable | Code::DeadlineExceeded => (0, true, failure.to_string()),
            _ => return Err(failure),
        },
    };
    Ok(proto::ControllerGetVolumeResponse {
        volume: Some(proto::Volume {
            volume_id: request.volume_id.clone(),
            capacity_bytes,
            volume_context,
            ..Default::default()
        }),
        status: Some(VolumeStatus {
            volume_condition: Some(proto::VolumeCondition { abnormal, message }),
            ..Default::default()
        }),
    })
}
