//! kube-scheduler.

use super::Component;
use crate::kube::folder::Folder;

pub(in crate::kube) fn scheduler(folder: &Folder) -> Component {
    let config = folder
        .join("config/scheduler.kubeconfig")
        .display()
        .to_string();
    Component::built(
        folder,
        "kube-scheduler",
        [
            format!("--kubeconfig={config}"),
            format!("--authentication-kubeconfig={config}"),
            format!("--authorization-kubeconfig={config}"),
            "--bind-address=127.0.0.1".to_owned(),
            "--leader-elect=false".to_owned(),
        ],
    )
}
