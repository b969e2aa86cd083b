//! The binder: joins claims with volumes, one to one, and parts them.
//!
//! ```text
//! claim:   Pending --reserve, mark, point, mark--> Bound --volume gone--> Lost
//! volume:  Pending -> Available -> Bound --claim gone--> Released --> (reclaimed)
//!              ^---------------------- recycled ---------------'
//! ```
//!
//! A bind is four writes at most, in an order that a crash can't hurt: the volume is
//! reserved, then marked bound, and only then does the claim point to it and is marked
//! bound. Whatever is missing of the four is what [`claim::decide`] asks for, so that a
//! restart simply goes on.
//!
//! Must never: let a volume have two owners, or take a volume from an owner who still
//! exists. Deleting what a driver made is not its job; marking a volume Released is, and
//! that is the signal for it.

pub mod claim;
mod courtesy;
pub mod explain;
mod index;
mod mentions;
mod metrics;
pub mod recycle;
mod spelling;
pub mod volume;
mod work;
pub mod write;

#[cfg(test)]
mod tests;

pub use work::{start, start_with};

/// What the binder may be told.
#[derive(Debug, Clone)]
pub struct Config {
    /// How folders of hosts are scrubbed.
    pub host_path: Scrubbing,
    /// How folders of NFS servers are.
    pub nfs: Scrubbing,
}

/// How volumes of a kind are scrubbed.
#[derive(Debug, Clone)]
pub struct Scrubbing {
    /// The pod that does it: its first volume is replaced by what is to be scrubbed.
    pub pod: serde_json::Value,
    /// Seconds that it may run at least.
    pub least: u32,
    /// Seconds that it may run for each gibibyte.
    pub per_gibibyte: u32,
}

impl Default for Config {
    fn default() -> Self {
        let at_least = |least| Scrubbing {
            pod: recycle::default_pod(),
            least,
            per_gibibyte: 30,
        };
        Self {
            host_path: at_least(60),
            nfs: at_least(300),
        }
    }
}

/// The component that the binder's events name.
pub const COMPONENT: &str = "persistentvolume-controller";

/// Something that a person should be told about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    /// Whether somebody may have to act.
    pub warning: bool,
    /// In one word.
    pub reason: &'static str,
    /// In a sentence.
    pub message: String,
}

impl News {
    fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            warning: false,
            reason,
            message: message.into(),
        }
    }

    fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            warning: true,
            reason,
            message: message.into(),
        }
    }
}
