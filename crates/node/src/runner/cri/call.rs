//! One call to the runtime, with its deadline, and how it may fail.

use std::time::Duration;

use tonic::{Code, Status};

/// How long a runtime may take for one call; a pull has longer.
const DEADLINE: Duration = Duration::from_secs(120);

/// Why the runtime did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub(super) enum CriError {
    #[error("the container runtime refused to {doing}: {}", status.message())]
    Refused { doing: &'static str, status: Status },
    #[error("the container runtime did not {doing} within {} s", after.as_secs())]
    Late {
        doing: &'static str,
        after: Duration,
    },
    #[error("the container runtime's answer lacks {0}")]
    Lacks(&'static str),
    #[error("image {0} is not here, and the pull policy is Never")]
    NeverPulled(String),
    #[error("recursiveReadOnly is Enabled, and the container runtime does not have it")]
    NoRecursive,
    #[error("could not take subPath {part:?} of volume {volume:?}")]
    Part {
        part: String,
        volume: String,
        #[source]
        source: std::io::Error,
    },
    #[error("could not make the log's folder")]
    Log(#[source] std::io::Error),
}

impl CriError {
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Refused { status, .. } if status.code() == Code::NotFound)
    }
}

/// One call, with its deadline.
pub(super) async fn ask<T>(
    doing: &'static str,
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, CriError> {
    within(doing, DEADLINE, call).await
}

pub(super) async fn within<T>(
    doing: &'static str,
    after: Duration,
    call: impl Future<Output = Result<tonic::Response<T>, Status>>,
) -> Result<T, CriError> {
    match tokio::time::timeout(after, call).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(CriError::Refused { doing, status }),
        Err(_) => Err(CriError::Late { doing, after }),
    }
}
