//! The controllers that decide which claim owns which volume, and which node may use it.
//!
//! Each role is a `start` on a [`Process`](orlop_runtime::Process): it subscribes to the
//! shared caches, and works its queue off. A turn looks at the caches, calls a pure
//! `decide`, and carries the decision out by patches that hold only for the versions that
//! were looked at. Nothing is kept that a restart would miss.
//!
//! Must never: believe a cache alone before an act that can't be taken back (a claim called
//! lost, a volume released, a protection lifted, an attachment deleted). `decide` then asks
//! for [`Evidence::Live`], and is asked again with what the API server says.

pub mod attach_detach;
pub mod binder;
pub mod ephemeral;
pub mod expand;
pub mod protection;
mod turn;
pub mod unused;

#[cfg(test)]
mod fixtures;

/// Where a view's facts come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Evidence {
    /// The caches, which may be behind.
    Cached,
    /// The API server, just now.
    Live,
}
