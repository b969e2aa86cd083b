//! What every role needs, and no role's own business.
//!
//! A role is started on a [`Process`]: it takes [`Cache`]s from the process's
//! [`Informers`] (one list and watch per kind, shared by all roles of the process),
//! subscribes to their changes to feed its [`Queue`], and [`work`]s the queue off:
//! read the caches, decide (a pure function of the role), carry the decision out
//! through [`Cluster`]. Dropping the process kills every role on it at once; nothing
//! needs to be told, because whatever must survive stands on the API server.
//!
//! Nothing here polls: workers wake on a watch event or on a timer that they set.

mod backoff;
mod bucket;
mod cache;
mod clock;
mod cluster;
mod error;
mod fence;
mod informers;
mod joint;
mod lease;
mod library;
mod metrics;
mod pace;
mod panics;
mod patch;
mod process;
mod queue;
mod recorder;
mod this_process;
mod token;
mod watch;

pub use backoff::Backoff;
pub use bucket::{Bucket, Cap};
pub use cache::{Cache, Change, Index};
pub use clock::Clock;
pub use cluster::{Cluster, Preconditions};
pub use error::{ApiError, Refusal};
pub use informers::{Followed, Informers};
pub use joint::Joint;
pub use lease::{Election, LostLease, Renewal};
pub use library::Library;
pub use metrics::Metrics;
pub use patch::{Patch, letting_go, with_finalizer, without_finalizer};
pub use process::Process;
pub use queue::{Outcome, Queue, work};
pub use recorder::{EventType, Message, Recorder, spoken};
pub use token::{Token, TokenRequest};
