//! DeleteVolume: the folder goes, stays or is renamed, as the volume's id says.

use orlop_csi::proto;

use super::{Call, volume_and_folder};
use crate::nfs::failure::Failure;
use crate::nfs::ids::VolumeId;
use crate::nfs::node::table;
use crate::nfs::order::Work;
use crate::nfs::{OnDelete, shown};

pub(super) async fn delete(
    call: &Call<'_>,
    request: &proto::DeleteVolumeRequest,
) -> Result<proto::DeleteVolumeResponse, Failure> {
    if request.volume_id.is_empty() {
        return Err(Failure::missing("volume_id"));
    }
    let done = Ok(proto::DeleteVolumeResponse {});
    let id = match VolumeId::parse(&request.volume_id) {
        Ok(id) => id,
        Err(error) => {
            // No volume of ours has such an id, so there is none to delete.
            tracing::warn!(id = request.volume_id, %error, "nothing is deleted");
            return done;
        }
    };
    let config = &call.shared.config;
    let on_delete = id.on_delete.unwrap_or(config.on_delete);
    if on_delete == OnDelete::Retain {
        return done;
    }
    // Other nodes are not seen from here, nor in which of several volumes of a folder this one is used.
    let shown = shown::all(&table()?, config.hands.stand_in().is_some());
    let work = Work::Delete {
        on: call.mounting(&id.export, None, &request.secrets)?,
        key: id.key().to_owned(),
        folder: id.folder.clone(),
        on_delete,
        remove_archived: config.remove_archived,
        shown,
    };
    call.run(work, volume_and_folder(&id)).await?;
    done
}
