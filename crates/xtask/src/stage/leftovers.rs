//! What a scenario must not leave behind.

use anyhow::Result;
use serde_json::Value;

use super::{ATTACHMENT, Stage, VOLUME};
use crate::kube::loop_devices;

impl Stage {
    /// Volumes and attachments on the API server, mounts and loop devices on the node.
    pub(super) async fn leftovers(&self) -> Result<Vec<String>> {
        let driver = self.driver_name();
        let is = |object: &Value, pointer: &str, text: &str| {
            object.pointer(pointer).and_then(Value::as_str) == Some(text)
        };
        let mut left = self.node_leftovers();
        for volume in self.list(VOLUME).await? {
            if is(&volume, "/spec/csi/driver", &driver)
                || is(&volume, "/spec/claimRef/namespace", self.namespace())
            {
                left.push(format!("PersistentVolume {}", volume["metadata"]["name"]));
            }
        }
        for attachment in self.list(ATTACHMENT).await? {
            if is(&attachment, "/spec/attacher", &driver) {
                left.push(format!(
                    "VolumeAttachment {}",
                    attachment["metadata"]["name"]
                ));
            }
        }
        Ok(left)
    }

    /// What of it can be told without the API server, as one text.
    pub(super) fn leftovers_now(&self) -> String {
        match self.node_leftovers() {
            left if left.is_empty() => "objects on the API server, see below".to_owned(),
            left => left.join(", "),
        }
    }

    fn node_leftovers(&self) -> Vec<String> {
        let mut left: Vec<String> = loop_devices(&self.folder())
            .into_iter()
            .map(|(device, file)| format!("{} on {}", device.display(), file.display()))
            .collect();
        let (driver, folder) = (self.driver_name(), self.folder().display().to_string());
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        left.extend(
            mounts
                .lines()
                .filter(|line| line.contains(&driver) || line.contains(&folder))
                .map(|line| format!("mount {line}")),
        );
        left
    }
}
