//! Asks a driver how it is, for whoever watches its process.
//!
//! Must never say that a driver is well which did not just say so itself.

use orlop_csi::{CallError, Driver, proto};

/// How a driver is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Liveness {
    /// It answers and is ready.
    Ready,
    /// It answers, and is not ready yet.
    NotReady,
    /// It does not answer, or says that something is wrong.
    Failed(String),
}

/// Asks a driver.
pub async fn probe(driver: &Driver) -> Liveness {
    judge(driver.probe(proto::ProbeRequest {}).await)
}

/// A driver that says nothing of readiness is ready.
fn judge(answer: Result<proto::ProbeResponse, CallError>) -> Liveness {
    match answer {
        Ok(answer) if answer.ready.unwrap_or(true) => Liveness::Ready,
        Ok(_) => Liveness::NotReady,
        Err(error) => Liveness::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_well_unless_it_says_otherwise() {
        let says = |ready| judge(Ok(proto::ProbeResponse { ready }));
        assert_eq!(says(None), Liveness::Ready);
        assert_eq!(says(Some(true)), Liveness::Ready);
        assert_eq!(says(Some(false)), Liveness::NotReady);
        let refused = CallError::new(
            orlop_csi::Method::Probe,
            tonic::Code::FailedPrecondition,
            "no disk",
        );
        assert!(matches!(judge(Err(refused)), Liveness::Failed(why) if why.contains("no disk")));
    }
}
