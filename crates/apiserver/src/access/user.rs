//! A user as the rest of the server knows one.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Everybody who has said who they are is in this group.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// Members may do everything, whatever the roles say.
pub(crate) const MASTERS: &str = "system:masters";
/// What a service account's user name begins with.
pub(crate) const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Somebody who may ask for something.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct User {
    /// The name.
    pub name: String,
    /// What tells two users of one name apart; may be empty.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// Whatever else the credential said.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// A user of this name and these groups, and of the group of all known users.
    pub fn new(name: impl Into<String>, groups: impl IntoIterator<Item = String>) -> Self {
        let mut groups: Vec<String> = groups.into_iter().collect();
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        Self {
            name: name.into(),
            groups,
            ..Self::default()
        }
    }

    /// A service account of a namespace.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self::new(
            format!("{SERVICE_ACCOUNT}{namespace}:{name}"),
            [
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
            ],
        )
    }

    /// Whoever runs the server itself.
    pub(crate) fn master(name: &str) -> Self {
        Self::new(name, [MASTERS.to_owned()])
    }

    /// Whether no role is asked.
    pub(crate) fn is_master(&self) -> bool {
        self.is_in(MASTERS)
    }

    /// Whether the user is in a group.
    pub(crate) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }

    /// The namespace and name of a service account's user name.
    pub(crate) fn as_service_account(name: &str) -> Option<(&str, &str)> {
        name.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')
    }

    /// As reviews spell it.
    pub(crate) fn info(&self) -> Value {
        let mut info = json!({ "username": self.name, "groups": self.groups });
        if !self.uid.is_empty() {
            info["uid"] = self.uid.as_str().into();
        }
        if !self.extra.is_empty() {
            info["extra"] = json!(self.extra);
        }
        info
    }
}
