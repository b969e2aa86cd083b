//! What went wrong, for people.

/// An error and its causes in one line.
pub(crate) fn words(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", words(cause)),
        None => error.to_string(),
    }
}
