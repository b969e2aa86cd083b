//! Who a program is to the API server.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::{Stage, objects::documents};

impl Stage {
    /// A kubeconfig for a role of ours, with exactly the rights of `deploy/rbac/ROLE.yaml`.
    pub(crate) async fn role(&self, role: &str) -> Result<PathBuf> {
        let file =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../deploy/rbac/{role}.yaml"));
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("could not read {}", file.display()))?;
        let mut account = None;
        for object in documents(&text)? {
            if object["kind"] == "ServiceAccount" {
                let part = |name: &str| object["metadata"][name].as_str().map(str::to_owned);
                account = part("namespace").zip(part("name"));
            }
            self.apply_shared(object).await?;
        }
        let (namespace, name) =
            account.with_context(|| format!("{} has no ServiceAccount", file.display()))?;
        self.account(&namespace, &name)
    }

    /// A kubeconfig for a service account. The certificate names the account's user, so that it
    /// has the account's rights without a token.
    pub(crate) fn account(&self, namespace: &str, name: &str) -> Result<PathBuf> {
        let path = self.folder().join(format!("{namespace}-{name}.kubeconfig"));
        let user = format!("system:serviceaccount:{namespace}:{name}");
        self.authority
            .kubeconfig(&path, &user, Some("system:serviceaccounts"))?;
        Ok(path)
    }

    /// The administrator's kubeconfig, for programs whose rights are not the question.
    pub(crate) fn administrator(&self) -> PathBuf {
        self.cluster.admin()
    }
}
