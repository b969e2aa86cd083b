//! A place to stand between a role and its driver.
//!
//! The simulation stops roles before a call leaves and after its reply has
//! come, and loses either; nothing else in the product uses it.

use std::future::Future;
use std::pin::Pin;

use tonic::{Code, Status};

use crate::Method;

/// What a gate returns: pass, or the status that the caller gets instead.
pub type Passage<'a> = Pin<Box<dyn Future<Output = Result<(), Status>> + Send + 'a>>;

/// The call that stands at the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallSite {
    /// Which call.
    pub method: Method,
    /// The id or name of what it is about; may be empty.
    pub subject: String,
}

/// Sees every call of a [`Driver`](super::Driver).
///
/// Both halves run within the call's deadline. One that never ends is a
/// message that never arrives: the caller then sees `DEADLINE_EXCEEDED`, as
/// with a real driver, or is killed while it waits.
pub trait Gate: Send + Sync {
    /// Before the request leaves. An error ends the call; the driver never
    /// hears of it.
    fn before<'a>(&'a self, call: &'a CallSite) -> Passage<'a>;

    /// After the driver has answered with `code` and before the caller learns
    /// of it. An error takes the answer's place.
    fn after<'a>(&'a self, call: &'a CallSite, code: Code) -> Passage<'a>;
}
