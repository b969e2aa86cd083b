//! Whether a volume is well, as far as can be seen without using it.

use std::fs;
use std::os::unix::fs::MetadataExt;

use orlop_csi::proto;

use super::pools::{Pools, Volume};
use super::room::Allocation;

/// A volume that is well.
pub(super) fn well() -> proto::VolumeCondition {
    proto::VolumeCondition {
        abnormal: false,
        message: "the volume is in order".to_owned(),
    }
}

/// A volume that is not, and why.
pub(super) fn abnormal(message: impl Into<String>) -> proto::VolumeCondition {
    proto::VolumeCondition {
        abnormal: true,
        message: message.into(),
    }
}

/// What the pool tells about a volume.
pub(super) fn of(pools: &Pools, volume: &Volume) -> proto::VolumeCondition {
    let pool = pools.pool_of(volume);
    let record = &volume.record;
    if let Err(error) = pool.usage() {
        return abnormal(error.to_string());
    }
    match fs::metadata(pool.image(&record.id)) {
        Err(error) => abnormal(format!(
            "the volume's image cannot be read ({error}); restore it from a backup"
        )),
        Ok(image) if image.len() < record.least_image_bytes() => {
            abnormal("the volume's image was cut off and has lost data; restore it from a backup")
        }
        Ok(image) if image.len() < record.capacity_bytes => abnormal(
            "the volume's image is smaller than promised; stage the volume again to mend it",
        ),
        Ok(image)
            if record.allocation == Allocation::Thick
                && image.blocks().saturating_mul(512) < record.capacity_bytes =>
        {
            abnormal("the volume is thick and has lost blocks; set its allocation to thick again")
        }
        Ok(_) => well(),
    }
}
