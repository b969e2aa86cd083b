//! The kubelet, fit for a machine with cgroup v1 and without systemd.

use anyhow::Result;
use serde_json::json;

use super::{Component, configure, containerd::socket, pki};
use crate::kube::{ADDRESS, KUBELET_ROOT, NODE, folder::Folder};

pub(in crate::kube) fn kubelet(folder: &Folder) -> Result<Component> {
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ADDRESS,
        "readOnlyPort": 0,
        "healthzBindAddress": "127.0.0.1",
        "authentication": {
            "anonymous": {"enabled": false},
            "x509": {"clientCAFile": pki(folder, "ca.crt")},
        },
        "tlsCertFile": pki(folder, "kubelet.crt"),
        "tlsPrivateKeyFile": pki(folder, "kubelet.key"),
        "containerRuntimeEndpoint": format!("unix://{}", socket(folder)),
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", folder.cgroup()),
        "enforceNodeAllocatable": [],
        "failSwapOn": false,
        "makeIPTablesUtilChains": false,
        "resolvConf": "",
        "podLogsDir": folder.join("log/pods").display().to_string(),
        // A pod waits for the node's status to name its volumes; the default is ten seconds.
        "nodeStatusUpdateFrequency": "1s",
        // A volume grows under a running pod when the kubelet looks at the pod again; by default
        // that takes more than a minute.
        "syncFrequency": "5s",
        // Whatever else fills this machine's disk must not evict tests' pods.
        "evictionHard": {
            "imagefs.available": "0%", "imagefs.inodesFree": "0%", "memory.available": "1Mi",
            "nodefs.available": "0%", "nodefs.inodesFree": "0%",
        },
        "imageGCHighThresholdPercent": 100,
    });
    let config = configure(folder, "kubelet.json", &config.to_string())?;
    Ok(Component::built(
        folder,
        "kubelet",
        [
            format!("--config={config}"),
            format!(
                "--kubeconfig={}",
                folder.join("config/kubelet.kubeconfig").display()
            ),
            format!("--hostname-override={NODE}"),
            format!("--node-ip={ADDRESS}"),
            format!("--root-dir={KUBELET_ROOT}"),
            "--v=2".to_owned(),
        ],
    ))
}
