//! How a request to the API server can fail.

use std::time::Duration;

/// A request that failed: what was tried, on what, and why.
#[derive(Debug, thiserror::Error)]
#[error("could not {verb} {what}")]
pub struct ApiError {
    /// What was tried.
    pub verb: &'static str,
    /// On what.
    pub what: String,
    /// Why it failed.
    #[source]
    pub refusal: Refusal,
}

/// Why a request failed, by what the caller can do about it.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// There is no such object.
    #[error("{0}")]
    NotFound(String),
    /// An object of that name is there already.
    #[error("{0}")]
    AlreadyExists(String),
    /// The object changed since it was read: read again and decide afresh.
    #[error("{0}")]
    Conflict(String),
    /// The version asked for is too old: list again.
    #[error("{0}")]
    Expired(String),
    /// It was not sent: the lease that we work by was not renewed in time, and another may work by now.
    #[error("the lease was not renewed in time, and another may lead by now")]
    Deposed,
    /// The server wants us to wait.
    #[error("{message}")]
    Busy {
        /// How long, if it said so.
        after: Option<Duration>,
        /// Its words.
        message: String,
    },
    /// The server said no for another reason.
    #[error("{message} (HTTP {code})")]
    Refused {
        /// The HTTP status.
        code: u16,
        /// Its words.
        message: String,
    },
    /// The request or its answer was lost: it may or may not have been carried out.
    #[error("the connection to the API server failed")]
    Lost(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer could not be read.
    #[error("the API server's answer could not be read")]
    Unreadable(#[source] serde_json::Error),
}

impl ApiError {
    /// There is no such object.
    pub fn is_not_found(&self) -> bool {
        matches!(self.refusal, Refusal::NotFound(_))
    }

    /// The object changed, or its uid isn't the one meant.
    pub fn is_conflict(&self) -> bool {
        matches!(self.refusal, Refusal::Conflict(_))
    }

    /// An object of that name is there already.
    pub fn is_already_exists(&self) -> bool {
        matches!(self.refusal, Refusal::AlreadyExists(_))
    }

    /// We have no right to it.
    pub fn is_forbidden(&self) -> bool {
        matches!(self.refusal, Refusal::Refused { code: 403, .. })
    }

    /// The server says no to the request itself, and would say so again.
    pub fn is_refused(&self) -> bool {
        matches!(self.refusal, Refusal::Refused { code: 400..500, .. })
    }

    /// What to tell whoever looks at the object, if the server would refuse the same again: nobody
    /// else can help.
    pub fn told(&self) -> Option<String> {
        let help = match self.is_forbidden() {
            true => "give the controller's account the right to it",
            false => "change what it complains of",
        };
        let text = || format!("the API server refuses it: {}; {help}", self.chain());
        self.is_refused().then(text)
    }

    /// The version asked for is too old.
    pub fn is_expired(&self) -> bool {
        matches!(self.refusal, Refusal::Expired(_))
    }

    /// The same error for another who waited for the same answer.
    pub(crate) fn retold(&self) -> Self {
        let refusal = match &self.refusal {
            Refusal::NotFound(words) => Refusal::NotFound(words.clone()),
            Refusal::AlreadyExists(words) => Refusal::AlreadyExists(words.clone()),
            Refusal::Conflict(words) => Refusal::Conflict(words.clone()),
            Refusal::Expired(words) => Refusal::Expired(words.clone()),
            Refusal::Deposed => Refusal::Deposed,
            Refusal::Busy { after, message } => Refusal::Busy {
                after: *after,
                message: message.clone(),
            },
            Refusal::Refused { code, message } => Refusal::Refused {
                code: *code,
                message: message.clone(),
            },
            Refusal::Lost(cause) => Refusal::Lost(cause.to_string().into()),
            Refusal::Unreadable(cause) => {
                Refusal::Unreadable(serde::de::Error::custom(cause.to_string()))
            }
        };
        Self {
            verb: self.verb,
            what: self.what.clone(),
            refusal,
        }
    }

    /// The error and its causes in one line, for logs and events.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}

/// Treats a missing object as `None`.
pub(crate) fn found<T>(result: Result<T, ApiError>) -> Result<Option<T>, ApiError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
