//! What is told about a scenario that failed.

use std::fmt::Write as _;

use super::{ATTACHMENT, CLAIM, CSI_NODE, EVENT, POD, Stage, VOLUME, lock};
use crate::kube::{COMPONENTS, logs};

const LINES: usize = 30;

impl Stage {
    /// The objects, events and ends of logs that tell why.
    pub(crate) async fn report(&self) -> String {
        let mut text = String::new();
        for kind in [POD, CLAIM, VOLUME, ATTACHMENT, CSI_NODE] {
            for mut object in self.list(kind).await.unwrap_or_default() {
                if let Some(metadata) = object["metadata"].as_object_mut() {
                    metadata.remove("managedFields");
                }
                let _ = writeln!(text, "--- {}\n{object:#}", kind.name);
            }
        }
        let _ = writeln!(text, "--- events");
        for event in self.list(EVENT).await.unwrap_or_default() {
            let part = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
            let about = event["involvedObject"]["name"].as_str().unwrap_or_default();
            let _ = writeln!(text, "{about}  {}  {}", part("reason"), part("message"));
        }
        let programs = lock(&self.programs).clone();
        for program in programs {
            let _ = write!(
                text,
                "--- {}\n{}",
                program.name,
                logs::end(&program.log, LINES)
            );
        }
        for component in COMPONENTS
            .iter()
            .filter(|name| !matches!(**name, "etcd" | "containerd"))
        {
            let _ = write!(
                text,
                "--- {component}\n{}",
                logs::end(&self.cluster.log(component), LINES / 2)
            );
        }
        text
    }
}
