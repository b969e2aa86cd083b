use super::*;

/// Every canonical code but `Ok`.
const FAILURES: [Code; 16] = [
    Code::Cancelled,
    Code::Unknown,
    Code::InvalidArgument,
    Code::DeadlineExceeded,
    Code::NotFound,
    Code::AlreadyExists,
    Code::PermissionDenied,
    Code::ResourceExhausted,
    Code::FailedPrecondition,
    Code::Aborted,
    Code::OutOfRange,
    Code::Unimplemented,
    Code::Internal,
    Code::Unavailable,
    Code::DataLoss,
    Code::Unauthenticated,
];

fn codes(method: Method, meaning: Retry) -> Vec<Code> {
    FAILURES
        .into_iter()
        .filter(|code| Retry::of(method, *code) == meaning)
        .collect()
}

#[test]
fn a_lost_or_pending_operation_is_uncertain_for_every_call() {
    for method in Method::ALL {
        for code in [
            Code::Cancelled,
            Code::DeadlineExceeded,
            Code::Unavailable,
            Code::Aborted,
        ] {
            assert_eq!(
                Retry::of(*method, code),
                Retry::Uncertain,
                "{method} {code:?}"
            );
        }
    }
}

#[test]
fn exhaustion_is_final_only_for_a_new_volume() {
    for method in Method::ALL {
        let meaning = match method {
            Method::CreateVolume => Retry::Final,
            _ => Retry::Uncertain,
        };
        assert_eq!(
            Retry::of(*method, Code::ResourceExhausted),
            meaning,
            "{method}"
        );
    }
}

#[test]
fn only_creating_growing_and_modifying_can_be_infeasible() {
    let growing = [Code::InvalidArgument, Code::NotFound, Code::OutOfRange];
    for method in Method::ALL {
        let expected: &[Code] = match method {
            Method::CreateVolume | Method::ControllerModifyVolume => &[Code::InvalidArgument],
            Method::ControllerExpandVolume | Method::NodeExpandVolume => &growing,
            _ => &[],
        };
        assert_eq!(codes(*method, Retry::Infeasible), expected, "{method}");
    }
}

#[test]
fn an_error_says_which_call_failed_and_how() {
    let error = CallError::new(
        Method::DeleteVolume,
        Code::FailedPrecondition,
        "v1 is in use",
    );
    assert_eq!(
        error.to_string(),
        "DeleteVolume failed with FailedPrecondition: v1 is in use"
    );
    assert_eq!(error.retry, Retry::Final);
}

#[test]
fn a_status_with_a_source_did_not_come_from_the_driver() {
    let mut status = Status::new(Code::NotFound, "h2 protocol error");
    status.set_source(std::sync::Arc::new(std::io::Error::other("broken pipe")));
    let error = CallError::from_status(
        Method::ControllerExpandVolume,
        &status,
        &Sensitive::default(),
    );
    assert_eq!(
        (error.code, error.retry),
        (Code::Unavailable, Retry::Uncertain)
    );
    assert_eq!(error.message, "no connection to the driver: broken pipe");
}
