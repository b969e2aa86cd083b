//! kube-controller-manager, with every controller that is on by default.

use super::{Component, pki};
use crate::kube::folder::Folder;

pub(in crate::kube) fn controller_manager(folder: &Folder) -> Component {
    let config = folder
        .join("config/controller-manager.kubeconfig")
        .display()
        .to_string();
    Component::built(
        folder,
        "kube-controller-manager",
        [
            format!("--kubeconfig={config}"),
            format!("--authentication-kubeconfig={config}"),
            format!("--authorization-kubeconfig={config}"),
            "--bind-address=127.0.0.1".to_owned(),
            "--leader-elect=false".to_owned(),
            "--use-service-account-credentials".to_owned(),
            format!(
                "--service-account-private-key-file={}",
                pki(folder, "tokens.key")
            ),
            format!("--root-ca-file={}", pki(folder, "ca.crt")),
        ],
    )
}
