//! Why a volume did not grow, and what that says about the next try.

use orlop_csi::CallError;

use crate::{
    capability::AccessError, credentials::CredentialsError, patience::Setback,
    resizer::setbacks::Verdict,
};

/// Why a volume did not grow.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Driver(#[from] CallError),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error(transparent)]
    Access(#[from] AccessError),
    #[error(
        "the driver says that the volume has {has} bytes now, but it was asked for {asked}; \
         this is an error of the driver"
    )]
    TooSmall { has: i64, asked: i64 },
}

impl Failure {
    /// What it says about the next try; `None` if the driver may yet do what was asked.
    pub(super) fn verdict(&self) -> Option<Verdict> {
        match self {
            Self::Driver(error) => Verdict::of(error),
            Self::TooSmall { .. } => Some(Verdict::Infeasible),
            // The driver was not asked this time; an earlier call may be under way.
            Self::Credentials(_) | Self::Access(_) => None,
        }
    }

    pub(super) fn setback(&self) -> Setback {
        match self {
            Self::Driver(error) => Setback::of_call(error),
            Self::Credentials(_) => Setback::Waiting,
            Self::Access(_) | Self::TooSmall { .. } => Setback::Infeasible,
        }
    }
}
