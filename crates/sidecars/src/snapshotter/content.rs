//! What a single snapshot's content and a group's have in common, so that one shell leads both.

use std::collections::BTreeMap;

use jiff::Timestamp;
use orlop_csi::{CallError, Retry, Secrets};
use orlop_model::{Kind, volume::SecretRef};
use serde_json::Value;
use tonic::Code;

use super::{Config, decide::View, desk::Desk};
use crate::{credentials::CredentialsError, patience::Setback, provisioner::ParameterError};

/// The names that a kind of content goes by.
pub(super) struct Names {
    pub(super) finalizer: &'static str,
    pub(super) being_created: &'static str,
    pub(super) secret_name: &'static str,
    pub(super) secret_namespace: &'static str,
    /// "snapshot" or "group snapshot".
    pub(super) word: &'static str,
    pub(super) creation_failed: &'static str,
    pub(super) check_failed: &'static str,
    pub(super) delete_error: &'static str,
    /// As the original calls its queue.
    pub(super) queue: &'static str,
    /// Who waits, for metrics.
    pub(super) controller: &'static str,
}

/// A content of either kind.
pub(super) trait Content: Kind {
    /// The kind's class.
    type Class: Kind;
    /// What the driver tells of a snapshot.
    type Told: Send + Sync;
    const NAMES: Names;

    fn view(&self) -> View;
    fn driver(&self) -> &str;
    fn class_name(&self) -> Option<&str>;
    fn parameters(class: &Self::Class) -> &BTreeMap<String, String>;
    fn error_message(&self) -> Option<&str>;
    fn has_status(&self) -> bool;
    /// The volumes to be cut, for people.
    fn volumes(&self) -> String;
    /// What the driver calls it, which is the same at every try.
    fn name(&self, config: &Config) -> Option<String>;
    /// Parameters that name its objects.
    fn metadata(&self) -> Vec<(&'static str, String)>;
    /// The secret that the class names for asking how it is.
    fn list_secret(&self, class: &Self::Class) -> Result<Option<SecretRef>, ParameterError>;
    /// The status to be patched in after the driver told this; `None` if it stands already.
    fn status(&self, told: &Self::Told, now: Timestamp) -> Option<Value>;
    /// Whether it can be used, by what the driver told.
    fn is_ready(told: &Self::Told) -> bool;

    fn cut(
        desk: &Desk<Self>,
        content: &Self,
        order: Order,
    ) -> impl Future<Output = Result<Self::Told, Failure>> + Send;
    fn ask(
        desk: &Desk<Self>,
        content: &Self,
        secrets: Secrets,
    ) -> impl Future<Output = Result<Self::Told, Failure>> + Send;
    /// What the driver calls it and its members, from wherever that is known.
    fn handles(&self) -> Handles;
    /// The same, from what the driver told.
    fn named(told: &Self::Told) -> Handles;
    fn delete(
        desk: &Desk<Self>,
        handles: Handles,
        secrets: Secrets,
    ) -> impl Future<Output = Result<(), CallError>> + Send;
}

/// The driver's ids of a snapshot, or of a group and its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Handles {
    pub(super) id: String,
    pub(super) members: Vec<String>,
}

/// What a cut is asked for with.
pub(super) struct Order {
    pub(super) name: String,
    pub(super) parameters: BTreeMap<String, String>,
    pub(super) secrets: Secrets,
}

/// Why a snapshot was not made, or not found.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Driver(#[from] CallError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    #[error("the class {0:?} does not exist")]
    NoClass(String),
    #[error("it names no class, and a snapshot is not taken without one")]
    Classless,
    #[error("it is not bound to a snapshot")]
    Unbound,
    #[error("can not find snapshot for snapshotID {0}")]
    Unknown(String),
    #[error("the driver's answer {0}; this is an error of the driver")]
    Garbled(&'static str),
}

impl Failure {
    /// Whether a cut that failed so has made nothing, and won't; `afresh` if none was asked for before.
    pub(super) fn is_the_end(&self, afresh: bool) -> bool {
        match self {
            // Too busy, or full: a first call that is turned away for it began nothing.
            Self::Driver(error) if error.code == Code::ResourceExhausted => afresh,
            Self::Driver(error) => error.retry != Retry::Uncertain,
            // It has made something that it can't name.
            _ => false,
        }
    }

    /// How long to wait after it.
    pub(super) fn setback(&self) -> Setback {
        match self {
            Self::Driver(error) => of_call(error),
            Self::Credentials(error) => of_credentials(error),
            // A class that comes or changes wakes those who wait for it.
            Self::NoClass(_) | Self::Unknown(_) => Setback::Failed,
            Self::Parameters(_) | Self::Classless | Self::Unbound => Setback::Infeasible,
            Self::Garbled(_) => Setback::Uncertain,
        }
    }
}

/// What a driver's answer about snapshots is.
pub(super) fn of_call(error: &CallError) -> Setback {
    match error.code {
        Code::InvalidArgument | Code::Unimplemented | Code::OutOfRange => Setback::Infeasible,
        _ => Setback::of_call(error),
    }
}

/// What credentials that can't be had are.
pub(super) fn of_credentials(error: &CredentialsError) -> Setback {
    match error {
        CredentialsError::Read(error) => Setback::of_api(error),
        // Nobody tells of secrets.
        CredentialsError::Missing(_) | CredentialsError::NotText { .. } => Setback::Waiting,
    }
}

/// Nanoseconds since 1970 of a driver's time; now if it tells none, or one that can't be: Go's word
/// for none is the year 1.
pub(super) fn nanoseconds(told: Option<(i64, i32)>, now: Timestamp) -> i64 {
    let told = told.map(|(s, nanos)| i128::from(s) * 1_000_000_000 + i128::from(nanos));
    let told = told.and_then(|told| i64::try_from(told).ok());
    let now = || i64::try_from(now.as_nanosecond()).unwrap_or(i64::MAX);
    told.filter(|told| *told > 0).unwrap_or_else(now)
}

/// The driver's name of a snapshot.
pub(super) fn name(prefix: &str, uid: &str, length: Option<usize>) -> Option<String> {
    if uid.is_empty() {
        return None;
    }
    let uid = match length {
        None => uid.to_owned(),
        Some(length) => uid.chars().filter(|c| *c != '-').take(length).collect(),
    };
    Some(format!("{prefix}-{uid}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_original() {
        let uid = "0a1b2c3d-4e5f-6789-abcd-ef0123456789";
        assert_eq!(name("snapshot", uid, None), Some(format!("snapshot-{uid}")));
        let short = name("s", uid, Some(10));
        assert_eq!(short.as_deref(), Some("s-0a1b2c3d4e"));
        let all = name("s", uid, Some(99));
        assert_eq!(all.as_deref(), Some("s-0a1b2c3d4e5f6789abcdef0123456789"));
        assert_eq!(name("s", "", None), None);
    }

    #[test]
    fn a_driver_without_a_clock_gets_ours() {
        let now = Timestamp::from_second(7).expect("a time");
        assert_eq!(nanoseconds(None, now), 7_000_000_000);
        assert_eq!(nanoseconds(Some((0, 0)), now), 7_000_000_000);
        assert_eq!(nanoseconds(Some((3, 5)), now), 3_000_000_005);
        for odd in [
            (-62_135_596_800, 0),
            (-1, 0),
            (i64::MIN, 0),
            (i64::MAX, i32::MAX),
        ] {
            assert_eq!(nanoseconds(Some(odd), now), 7_000_000_000, "{odd:?}");
        }
    }
}
