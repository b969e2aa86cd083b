//! How long calls take, under the names that dashboards of the Go sidecars,
//! the kubelet and Go drivers already select on.
//!
//! Labels are method, code and driver name, never anything from a request.

use std::fmt;
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabel as _, EncodeLabelSet, LabelSetEncoder};
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tonic::Code;

use crate::code_name;

/// The bounds of csi-lib-utils' histogram, in seconds.
const BUCKETS: [f64; 13] = [
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0,
];

/// Whose calls are measured; each has its own metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// A controller beside a driver: `csi_sidecar_operations_seconds`.
    Sidecar,
    /// The node's volume manager: `csi_operations_seconds`.
    Node,
    /// A driver itself: `csi_plugin_operations_seconds`.
    Plugin,
}

impl Side {
    fn metric(self) -> &'static str {
        match self {
            Self::Sidecar => "csi_sidecar_operations_seconds",
            Self::Node => "csi_operations_seconds",
            Self::Plugin => "csi_plugin_operations_seconds",
        }
    }

    fn help(self) -> &'static str {
        match self {
            Self::Sidecar | Self::Node => "Time that calls to a CSI driver took, with their result",
            Self::Plugin => "Time that the CSI driver took for a call, with its result",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Labels {
    side: Side,
    driver_name: String,
    method_name: String,
    grpc_status_code: &'static str,
    /// Told only where there are two kinds of volumes.
    migrated: Option<bool>,
}

impl EncodeLabelSet for Labels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        ("driver_name", self.driver_name.as_str()).encode(encoder.encode_label())?;
        ("method_name", self.method_name.as_str()).encode(encoder.encode_label())?;
        ("grpc_status_code", self.grpc_status_code).encode(encoder.encode_label())?;
        match self.migrated {
            Some(migrated) => {
                let word = if migrated { "true" } else { "false" };
                ("migrated", word).encode(encoder.encode_label())
            }
            None => Ok(()),
        }
    }
}

#[derive(Debug, Clone)]
struct NewHistogram;

impl MetricConstructor<Histogram> for NewHistogram {
    fn new_metric(&self) -> Histogram {
        Histogram::new(BUCKETS)
    }
}

/// The histogram of calls; clones share it.
#[derive(Debug, Clone)]
pub struct Metrics {
    side: Side,
    operations: Family<Labels, Histogram, NewHistogram>,
    /// Whether a driver took the place of a plugin that was part of Kubernetes.
    successor: fn(&str) -> bool,
}

impl Metrics {
    /// Registers the histogram of one side. Once per registry and side: hand
    /// clones to everyone who measures.
    pub fn register(side: Side, registry: &mut Registry) -> Self {
        let operations = Family::new_with_constructor(NewHistogram);
        // The registry ends the help text with a full stop by itself.
        registry.register(side.metric(), side.help(), operations.clone());
        Self {
            side,
            operations,
            successor: |_| false,
        }
    }

    /// The same, for which of a successor's calls it is told whether they were for a volume of the
    /// plugin whose place it took.
    #[must_use]
    pub fn with_successors(self, successor: fn(&str) -> bool) -> Self {
        Self { successor, ..self }
    }

    pub(crate) fn observe(&self, call: &Measured<'_>) {
        let labels = Labels {
            side: self.side,
            driver_name: call.driver.to_owned(),
            method_name: call.path.to_owned(),
            grpc_status_code: code_name(call.code),
            migrated: match self.side {
                // The kubelet always says it; the others only of drivers that replace a plugin.
                Side::Node => Some(call.migrated),
                Side::Sidecar | Side::Plugin => {
                    (self.successor)(call.driver).then_some(call.migrated)
                }
            },
        };
        self.operations
            .get_or_create(&labels)
            .observe(call.took.as_secs_f64());
    }
}

/// One finished call.
pub(crate) struct Measured<'a> {
    pub(crate) driver: &'a str,
    pub(crate) path: &'a str,
    pub(crate) code: Code,
    pub(crate) took: Duration,
    /// For a volume of a plugin that the driver took the place of.
    pub(crate) migrated: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_has_the_name_and_labels_that_are_known_for_it() {
        let cases = [
            (Side::Sidecar, "csi_sidecar_operations_seconds_sum", ""),
            (
                Side::Node,
                "csi_operations_seconds_sum",
                ",migrated=\"false\"",
            ),
            (Side::Plugin, "csi_plugin_operations_seconds_sum", ""),
        ];
        for (side, name, more) in cases {
            let mut registry = Registry::default();
            Metrics::register(side, &mut registry).observe(&Measured {
                driver: "d",
                path: "/csi.v1.Node/NodeGetInfo",
                code: Code::Cancelled,
                took: Duration::from_secs(2),
                migrated: false,
            });
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
            let line = format!(
                "{name}{{driver_name=\"d\",method_name=\"/csi.v1.Node/NodeGetInfo\",\
                 grpc_status_code=\"Canceled\"{more}}} 2.0\n"
            );
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn of_a_plugins_successor_is_told_whose_volume_a_call_was_for() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(Side::Sidecar, &mut registry);
        let metrics = metrics.with_successors(|driver| driver == "heir");
        for (driver, migrated) in [("heir", true), ("heir", false), ("other", true)] {
            metrics.observe(&Measured {
                driver,
                path: "/csi.v1.Controller/CreateVolume",
                code: Code::Ok,
                took: Duration::from_secs(1),
                migrated,
            });
        }
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let count = |driver: &str, more: &str| {
            format!(
                "csi_sidecar_operations_seconds_count{{driver_name=\"{driver}\",\
                 method_name=\"/csi.v1.Controller/CreateVolume\",grpc_status_code=\"OK\"{more}}} 1\n"
            )
        };
        for line in [
            count("heir", ",migrated=\"true\""),
            count("heir", ",migrated=\"false\""),
            count("other", ""),
        ] {
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
    }
}
