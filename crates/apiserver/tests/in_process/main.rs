//! The API as an unmodified kube client in the same process sees it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod accounts;
mod admission;
mod connections;
mod crowd;
mod definitions;
mod deletion;
mod durability;
mod events;
mod fixtures;
mod histories;
mod limits;
mod quotas;
mod reading;
mod workloads;
mod writes;
