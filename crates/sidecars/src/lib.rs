//! The controllers that stand beside a CSI driver, and the registrar that introduces the
//! driver to the kubelet.
//!
//! Each controller talks to the API server on one side and to the driver on the other.
//! Whatever a driver is asked to make is on record at the API server before it is asked:
//! a controller that is killed at any point finds, when it starts again, what may exist
//! and finishes or undoes it.

pub mod attacher;
mod capability;
pub mod capacity;
mod credentials;
pub mod health;
mod homecoming;
mod insist;
pub mod leaks;
pub mod listing;
pub mod liveness;
mod patience;
pub mod provisioner;
pub mod registrar;
pub mod resizer;
mod served;
pub mod snapshot_controller;
mod snapshot_parameters;
pub mod snapshotter;
mod words;

pub use patience::RetryMetrics;
