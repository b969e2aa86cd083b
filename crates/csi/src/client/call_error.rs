//! What a failed call means to its caller.
//!
//! The one table of retry meanings. It must never call an effect certain that
//! may still happen: whatever did not come from the driver itself is uncertain.

use std::error::Error as _;

use tonic::{Code, Status, TimeoutExpired};

use crate::secrets::Sensitive;
use crate::{Method, code_name, text};

/// What the caller may conclude from a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Retry {
    /// The effect may have happened or may still happen: repeat the call, or
    /// make its inverse, before forgetting about it.
    Uncertain,
    /// Nothing is under way; a repetition may succeed later.
    Final,
    /// Nothing is under way, and these arguments will not succeed: repeat
    /// slowly, or with others.
    Infeasible,
}

impl Retry {
    /// The meaning of a driver's own answer to a call.
    ///
    /// The groups are those of the Go sidecars and the kubelet, so that a
    /// driver sees the same reactions.
    pub fn of(method: Method, code: Code) -> Self {
        use Method::{
            ControllerExpandVolume, ControllerModifyVolume, CreateVolume, NodeExpandVolume,
        };
        match (code, method) {
            (Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted, _) => {
                Self::Uncertain
            }
            // A full pool refuses a new volume for good; everywhere else the
            // code also means "too busy now".
            (Code::ResourceExhausted, CreateVolume) => Self::Final,
            (Code::ResourceExhausted, _) => Self::Uncertain,
            (
                Code::InvalidArgument,
                CreateVolume | ControllerExpandVolume | ControllerModifyVolume | NodeExpandVolume,
            )
            | (Code::OutOfRange | Code::NotFound, ControllerExpandVolume | NodeExpandVolume) => {
                Self::Infeasible
            }
            _ => Self::Final,
        }
    }
}

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{method} failed with {}: {message}", code_name(*code))]
pub struct CallError {
    /// Which call.
    pub method: Method,
    /// The driver's code; `Unavailable` or `DeadlineExceeded` where no answer came.
    pub code: Code,
    /// The driver's text: never empty, at most 4 KiB, without the request's
    /// secrets. It may be shown to users.
    pub message: String,
    /// What the caller may conclude.
    pub retry: Retry,
}

impl CallError {
    /// A failure as the driver would report it.
    pub fn new(method: Method, code: Code, message: impl Into<String>) -> Self {
        Self {
            method,
            code,
            message: message.into(),
            retry: Retry::of(method, code),
        }
    }

    pub(super) fn from_status(method: Method, status: &Status, sensitive: &Sensitive) -> Self {
        let (code, message, retry) = match Origin::of(status) {
            Origin::Driver => {
                let message = match status.message().trim() {
                    "" => "the driver gave no reason".to_owned(),
                    message => message.to_owned(),
                };
                (status.code(), message, Retry::of(method, status.code()))
            }
            Origin::Timer => (
                Code::DeadlineExceeded,
                "the driver did not answer in time".to_owned(),
                Retry::Uncertain,
            ),
            Origin::Connection => (
                Code::Unavailable,
                connection_trouble(status),
                Retry::Uncertain,
            ),
            Origin::Reply => (
                Code::Internal,
                format!("the driver's reply cannot be read: {}", status.message()),
                Retry::Uncertain,
            ),
        };
        Self {
            method,
            code,
            message: text::cut(sensitive.scrub(&message)),
            retry,
        }
    }
}

/// Who made a status. tonic makes many itself, under codes that a driver could
/// have sent as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It came over the wire.
    Driver,
    /// A timer of the client fired.
    Timer,
    /// The connection could not be made, or broke.
    Connection,
    /// A reply came but made no sense: the driver did something.
    Reply,
}

/// tonic's words for a reply beyond the decoding limit; it has no type for it.
const REPLY_TOO_LARGE: &str = "Error, decoded message length too large";

impl Origin {
    pub(super) fn of(status: &Status) -> Self {
        let mut below = status.source();
        if below.is_none() {
            let too_large =
                status.code() == Code::OutOfRange && status.message().starts_with(REPLY_TOO_LARGE);
            return if too_large { Self::Reply } else { Self::Driver };
        }
        while let Some(source) = below {
            if source.is::<TimeoutExpired>() {
                return Self::Timer;
            }
            if source.is::<super::reply::Garbled>() {
                return Self::Reply;
            }
            below = source.source();
        }
        Self::Connection
    }
}

pub(super) fn connection_trouble(status: &Status) -> String {
    let cause = status.source().map(text::chain).unwrap_or_default();
    format!("no connection to the driver: {cause}")
}

#[cfg(test)]
mod tests;
