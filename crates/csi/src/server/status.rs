//! The one place where a driver's error becomes a gRPC status.

use std::error::Error;

use tonic::{Code, Response, Status};

use crate::{code_name, text};

/// An error that a driver answers a call with.
///
/// Its text and its sources' texts go to the caller and from there to users:
/// they must not hold secrets.
pub trait CsiError: Error {
    /// The code, which is how callers decide whether and when to repeat the
    /// call. Match without a wildcard: a new variant must choose.
    fn code(&self) -> Code;
}

/// The reply to a call: what was made of it, or why not.
pub fn answer<T, E: CsiError>(outcome: Result<T, E>) -> Result<Response<T>, Status> {
    outcome.map(Response::new).map_err(|error| status(&error))
}

/// The status of an error: its code, and its whole chain of sources as text,
/// at most 4 KiB. Logged here, so that no handler has to.
pub fn status<E: CsiError>(error: &E) -> Status {
    let code = match error.code() {
        // A success cannot be an error; the caller must not take it for one.
        Code::Ok => Code::Internal,
        code => code,
    };
    let message = match text::chain(error) {
        empty if empty.trim().is_empty() => format!("the driver failed with {}", code_name(code)),
        message => text::cut(message),
    };
    match code {
        Code::Internal | Code::Unknown | Code::DataLoss => {
            tracing::error!(code = code_name(code), message, "the call failed");
        }
        _ => tracing::info!(code = code_name(code), message, "the call was refused"),
    }
    Status::new(code, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Refusal {
        #[error("could not grow volume v1")]
        Grow(#[source] std::io::Error),
        #[error("")]
        Silent,
        #[error("{0}")]
        Long(String),
    }

    impl CsiError for Refusal {
        fn code(&self) -> Code {
            match self {
                Self::Grow(_) => Code::ResourceExhausted,
                Self::Silent => Code::Ok,
                Self::Long(_) => Code::Internal,
            }
        }
    }

    #[test]
    fn a_status_names_the_whole_chain() {
        let status = status(&Refusal::Grow(std::io::Error::other("no space left")));
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.message(), "could not grow volume v1: no space left");
        assert!(
            status.details().is_empty(),
            "the specification forbids details"
        );
    }

    #[test]
    fn an_error_is_never_ok_nor_silent() {
        let status = status(&Refusal::Silent);
        assert_eq!(status.code(), Code::Internal);
        assert_eq!(status.message(), "the driver failed with Internal");
    }

    #[test]
    fn a_status_is_cut_to_what_a_header_can_carry() {
        let status = status(&Refusal::Long("x".repeat(1 << 20)));
        assert!(status.message().len() <= 4096);
        assert!(status.message().ends_with("[cut]"));
    }
}
