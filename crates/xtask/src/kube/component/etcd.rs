//! etcd: where the API server keeps everything.

use super::{Component, pki};
use crate::kube::folder::Folder;

pub(in crate::kube) const ADDRESS: &str = "https://127.0.0.1:2379";

pub(in crate::kube) fn etcd(folder: &Folder) -> Component {
    let pki = |name| pki(folder, name);
    Component::built(
        folder,
        "etcd",
        [
            format!("--data-dir={}", folder.join("etcd").display()),
            format!("--listen-client-urls={ADDRESS}"),
            format!("--advertise-client-urls={ADDRESS}"),
            "--listen-peer-urls=http://127.0.0.1:2380".to_owned(),
            "--client-cert-auth".to_owned(),
            format!("--trusted-ca-file={}", pki("ca.crt")),
            format!("--cert-file={}", pki("etcd.crt")),
            format!("--key-file={}", pki("etcd.key")),
            // Its data goes with the cluster; there is no crash of the machine to survive.
            "--unsafe-no-fsync".to_owned(),
        ],
    )
}
