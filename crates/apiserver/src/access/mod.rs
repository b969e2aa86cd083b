//! Who asks, and what they may do.
//!
//! It owns the way from a certificate or a bearer token to a [`User`] and from the roles
//! in the store to a yes or no. It must never let a request through because something
//! could not be read: what isn't granted is refused.

mod aggregate;
mod authenticate;
mod certificate;
mod defaults;
mod escalation;
mod index;
mod nodes;
mod rbac;
mod reviews;
mod token;
mod user;

pub(crate) use aggregate::gathered;
pub(crate) use authenticate::{Caller, Gate};
pub(crate) use certificate::subject;
pub(crate) use defaults::{mended as mended_role, objects as default_roles};
pub(crate) use index::Index;
pub(crate) use rbac::Act;
pub use token::{Signer, TokenKeyError};
pub use user::User;
