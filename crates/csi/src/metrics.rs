//! How long calls take, under the names that dashboards of the Go sidecars,
//! the kubelet and Go drivers already select on.
//!
//! Labels are method, code and driver name, never anything from a request.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    driver_name: String,
    method_name: String,
    grpc_status_code: &'static str,
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
    operations: Family<Labels, Histogram, NewHistogram>,
}

impl Metrics {
    /// Registers the histogram of one side. Once per registry and side: hand
    /// clones to everyone who measures.
    pub fn register(side: Side, registry: &mut Registry) -> Self {
        let operations = Family::new_with_constructor(NewHistogram);
        // The registry ends the help text with a full stop by itself.
        registry.register(side.metric(), side.help(), operations.clone());
        Self { operations }
    }

    pub(crate) fn observe(&self, call: &Measured<'_>) {
        let labels = Labels {
            driver_name: call.driver.to_owned(),
            method_name: call.path.to_owned(),
            grpc_status_code: code_name(call.code),
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
}
