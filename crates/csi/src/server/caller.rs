//! Whether somebody still waits for the answer to a call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The caller of a running call; one stands in the extensions of every request.
///
/// A call that has begun runs to its end whoever waits. But one that has not begun should not, once
/// its caller is gone: the caller may by now have undone what it never saw done.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    left: Arc<AtomicBool>,
    deadline: Option<Instant>,
}

impl Caller {
    /// The caller of this request; for one that came over no socket, one who always waits.
    pub fn of<T>(request: &tonic::Request<T>) -> Self {
        request.extensions().get().cloned().unwrap_or_default()
    }

    pub(super) fn arriving(headers: &http::HeaderMap) -> Self {
        let allowed = headers
            .get("grpc-timeout")
            .and_then(|value| allowed(value.to_str().ok()?));
        Self {
            left: Arc::default(),
            deadline: allowed.and_then(|allowed| Instant::now().checked_add(allowed)),
        }
    }

    /// Whether it hung up, or its deadline has passed.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.left.load(Ordering::Acquire)
            || self
                .deadline
                .is_some_and(|deadline| deadline <= Instant::now())
    }

    /// How long it still waits; `None` if it set no deadline.
    #[must_use]
    pub fn patience(&self) -> Option<Duration> {
        self.deadline
            .map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// What says that the caller left, when dropped.
    pub(super) fn leaving(&self) -> Leaving {
        Leaving(Arc::clone(&self.left))
    }
}

/// See [`Caller::leaving`].
#[derive(Debug)]
pub(super) struct Leaving(Arc<AtomicBool>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// The time that a `grpc-timeout` header gives: up to eight digits and a unit.
fn allowed(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.len() > 8 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_is_gone_once_it_hung_up_or_its_time_is_over() {
        let patient = Caller::arriving(&http::HeaderMap::new());
        let leaving = patient.leaving();
        assert!(!patient.is_gone());
        drop(leaving);
        assert!(patient.is_gone());

        let mut headers = http::HeaderMap::new();
        headers.insert("grpc-timeout", http::HeaderValue::from_static("0n"));
        assert!(Caller::arriving(&headers).is_gone());
        headers.insert("grpc-timeout", http::HeaderValue::from_static("1H"));
        assert!(!Caller::arriving(&headers).is_gone());
    }

    #[test]
    fn timeouts_are_read_as_they_are_written() {
        assert_eq!(allowed("15S"), Some(Duration::from_secs(15)));
        assert_eq!(
            allowed("99999999m"),
            Some(Duration::from_millis(99_999_999))
        );
        for wrong in ["", "S", "-1S", "1", "123456789S", "1x", "ü"] {
            assert_eq!(allowed(wrong), None, "{wrong}");
        }
    }
}
