//! The Container Storage Interface, spoken from both sides.
//!
//! - [`proto`] and [`registration`]: the messages and services of CSI 1.12 and
//!   of the kubelet's plugin registration, compiled from our own protos.
//! - [`Driver`]: what a role holds to call a driver. Deadlines, capabilities,
//!   the meaning of a failure, metrics and spans live there.
//! - [`server`]: what a driver stands on: the socket, the stop, and the one
//!   place where an error becomes a gRPC status.
//! - [`memory`]: both of them in one process, for tests and simulation.
//! - [`limits`], [`access`]: the specification's bounds and Kubernetes' access
//!   modes, for whoever builds or checks a request.
//!
//! Invariants: a secret's value never reaches a log, an error, a metric or a
//! `Debug` output through this crate; no request body is ever logged; nothing
//! here retries a call, which is its caller's decision.

pub mod access;
pub mod client;
mod code;
pub mod limits;
pub mod memory;
mod method;
pub mod metrics;
mod proto_debug;
mod secrets;
pub mod server;
#[cfg(test)]
mod testing;
mod text;

pub use client::{CallError, Deadlines, Driver, DriverInfo, Gate, Retry, Turns};
pub use code::code_name;
pub use method::{About, CsiRequest, Method, Service, Streams, Unary};
pub use secrets::{SERVICE_ACCOUNT_TOKENS, Secrets};

/// The messages and services of CSI 1.12 (`csi.v1`).
///
/// `Debug` of a message hides what may be secret in it; maps are ordered, so
/// that equal messages have equal bytes.
#[expect(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    reason = "generated from proto/csi.proto"
)]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/csi.v1.rs"));
}

/// The kubelet's plugin registration (`pluginregistration`, version 1).
#[expect(
    clippy::pedantic,
    reason = "generated from proto/pluginregistration.proto"
)]
pub mod registration {
    include!(concat!(env!("OUT_DIR"), "/pluginregistration.rs"));
}
