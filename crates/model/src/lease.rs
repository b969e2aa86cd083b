//! Lease: who leads, and who is alive.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{kind::kind, meta::Meta};

/// A claim to lead, or to be alive, for a while.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Lease {
    /// Metadata.
    pub metadata: Meta,
    /// Who, since when, for how long.
    pub spec: LeaseSpec,
}
kind!(
    Lease,
    "coordination.k8s.io",
    "v1",
    "Lease",
    "leases",
    Namespaced
);

/// Who, since when, for how long.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseSpec {
    /// Who.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder_identity: Option<String>,
    /// For how long after the last renewal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_duration_seconds: Option<i32>,
    /// Since when.
    #[serde(skip_serializing_if = "Option::is_none", with = "micro_time")]
    pub acquire_time: Option<Timestamp>,
    /// The last renewal.
    #[serde(skip_serializing_if = "Option::is_none", with = "micro_time")]
    pub renew_time: Option<Timestamp>,
    /// How often it changed hands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_transitions: Option<i32>,
}

/// Kubernetes' MicroTime: always six digits after the point; Go refuses fewer.
mod micro_time {
    use super::{Deserialize, Timestamp};

    pub(super) fn serialize<S: serde::Serializer>(
        time: &Option<Timestamp>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => serializer.collect_str(&format_args!("{time:.6}")),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Timestamp>, D::Error> {
        Option::<Timestamp>::deserialize(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn micro_times_have_six_digits() {
        let spec = LeaseSpec {
            renew_time: Some(Timestamp::UNIX_EPOCH),
            ..LeaseSpec::default()
        };
        let json = serde_json::to_string(&spec).unwrap();
        assert_eq!(json, r#"{"renewTime":"1970-01-01T00:00:00.000000Z"}"#);
        assert_eq!(serde_json::from_str::<LeaseSpec>(&json).unwrap(), spec);
    }
}
