//! How full a volume is and how well, as its driver tells.

use std::time::Duration;

use orlop_csi::client::NodeCapability;
use orlop_csi::proto::{self, volume_usage::Unit};

use super::csi::{Published, stages, text};
use super::{DeviceKey, Hold, Lifetime, Volumes};
use crate::layout::PodUid;
use crate::stats::{Condition, Measured, Usage};

/// A driver that takes longer is asked again another time.
const PATIENCE: Duration = Duration::from_secs(10);

impl Volumes {
    /// Asks the driver of a published volume; `None` if it does not tell, or not now.
    pub(crate) async fn measure(&self, key: &DeviceKey, pod: &PodUid) -> Option<Measured> {
        let (shape, lifetime, volume) = self.look(key, |device| {
            let publication = device.publications.get(pod)?;
            let there = publication.hold == Hold::Certain;
            there.then(|| {
                let volume = publication.volume.clone();
                (device.shape.clone(), device.lifetime, volume)
            })
        })?;
        let driver = self.driver(key).ok()?;
        let info = driver.info().await.ok()?;
        if !info.node_can(NodeCapability::GetVolumeStats) {
            return None;
        }
        let published = Published {
            key,
            shape: &shape,
            pod,
            volume: &volume,
        };
        let staged = stages(&info) && lifetime == Lifetime::Persistent;
        let request = proto::NodeGetVolumeStatsRequest {
            volume_id: key.handle.clone(),
            volume_path: text(&self.target(&published)),
            staging_target_path: match staged {
                true => text(&self.staging_target(key, &shape)),
                false => String::new(),
            },
        };
        let asked = driver.node_get_volume_stats(request);
        let answer = tokio::time::timeout(PATIENCE, asked).await.ok()?;
        let answer = answer
            .inspect_err(|error| {
                let (driver, volume_id) = (&key.driver, &key.handle);
                tracing::debug!(driver, volume_id, %error, "no word on a volume's usage");
            })
            .ok()?;
        Some(measured(&answer))
    }

    /// Whether some volume's driver tells how well its volumes are.
    pub(crate) async fn any_tells_health(&self) -> bool {
        let names: std::collections::BTreeSet<String> = {
            let state = self.state();
            state.devices.keys().map(|key| key.driver.clone()).collect()
        };
        for name in names {
            if let Some(driver) = self.parts.drivers.get(&name)
                && let Ok(info) = driver.info().await
                && info.node_can(NodeCapability::VolumeCondition)
            {
                return true;
            }
        }
        false
    }
}

/// A driver's words, as far as they make sense: it is not trusted.
fn measured(answer: &proto::NodeGetVolumeStatsResponse) -> Measured {
    let mut usage = Usage::default();
    let told = |number: i64| u64::try_from(number).ok();
    for entry in &answer.usage {
        match entry.unit() {
            Unit::Bytes => {
                usage.capacity_bytes = told(entry.total);
                usage.available_bytes = told(entry.available);
                usage.used_bytes = told(entry.used);
            }
            Unit::Inodes => {
                usage.inodes = told(entry.total);
                usage.inodes_free = told(entry.available);
                usage.inodes_used = told(entry.used);
            }
            Unit::Unknown => {}
        }
    }
    let condition = answer.volume_condition.as_ref();
    Measured {
        usage,
        condition: condition.map(|condition| Condition {
            abnormal: condition.abnormal,
            message: condition.message.clone(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_can_not_be_are_not_passed_on() {
        let entry = |unit: Unit, total| proto::VolumeUsage {
            available: 1,
            total,
            used: 2,
            unit: unit.into(),
        };
        let answer = proto::NodeGetVolumeStatsResponse {
            usage: vec![
                entry(Unit::Bytes, 3),
                entry(Unit::Inodes, -1),
                entry(Unit::Unknown, 9),
            ],
            volume_condition: None,
        };
        let Measured { usage, condition } = measured(&answer);
        assert_eq!((usage.capacity_bytes, usage.used_bytes), (Some(3), Some(2)));
        assert_eq!((usage.inodes, usage.inodes_free), (None, Some(1)));
        assert_eq!(condition, None);
    }
}
