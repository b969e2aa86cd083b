//! kube-apiserver, with RBAC, the node authorizer and NodeRestriction.

use super::{Component, etcd, pki};
use crate::kube::{ADDRESS, folder::Folder};

pub(in crate::kube) fn apiserver(folder: &Folder) -> Component {
    let pki = |name| pki(folder, name);
    Component::built(
        folder,
        "kube-apiserver",
        [
            format!("--etcd-servers={}", etcd::ADDRESS),
            format!("--etcd-cafile={}", pki("ca.crt")),
            format!("--etcd-certfile={}", pki("apiserver.crt")),
            format!("--etcd-keyfile={}", pki("apiserver.key")),
            format!("--bind-address={ADDRESS}"),
            format!("--advertise-address={ADDRESS}"),
            "--secure-port=6443".to_owned(),
            format!("--tls-cert-file={}", pki("apiserver.crt")),
            format!("--tls-private-key-file={}", pki("apiserver.key")),
            format!("--client-ca-file={}", pki("ca.crt")),
            format!("--kubelet-certificate-authority={}", pki("ca.crt")),
            format!("--kubelet-client-certificate={}", pki("apiserver.crt")),
            format!("--kubelet-client-key={}", pki("apiserver.key")),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", pki("tokens.pub")),
            format!("--service-account-signing-key-file={}", pki("tokens.key")),
            "--service-cluster-ip-range=10.96.0.0/24".to_owned(),
            "--allow-privileged".to_owned(),
        ],
    )
}
