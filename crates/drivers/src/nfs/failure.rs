//! A call's failure, as it travels from a worker to the caller.

use orlop_csi::server::CsiError;
use serde::{Deserialize, Serialize};
use tonic::Code;

/// What went wrong, in words for users, with the code that says whether to try again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub(crate) struct Failure {
    code: i32,
    message: String,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code: code.into(),
            message: message.into(),
        }
    }

    pub(crate) fn invalid(error: &dyn std::error::Error) -> Self {
        Self::new(Code::InvalidArgument, error.to_string())
    }

    pub(crate) fn missing(field: &'static str) -> Self {
        Self::new(Code::InvalidArgument, format!("{field} is missing"))
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }
}

impl CsiError for Failure {
    fn code(&self) -> Code {
        Code::from(self.code)
    }
}
