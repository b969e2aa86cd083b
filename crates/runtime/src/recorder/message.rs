//! What an event says.

use std::time::Duration;

/// No event's text is longer, as for the original.
const LONGEST: usize = 1024;

/// A text for people: what lasts of it, and what holds this time alone. Repetitions are known by
/// what lasts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    lasting: String,
    passing: String,
}

impl Message {
    /// What went wrong, and in how long it is tried again.
    pub fn until_next_try(what: impl Into<String>, wait: Duration) -> Self {
        let passing = format!("; next try in {}", spoken(wait));
        Self::new(&what.into(), passing)
    }

    fn new(lasting: &str, passing: String) -> Self {
        let room = LONGEST.saturating_sub(passing.chars().count());
        Self {
            lasting: lasting.chars().take(room).collect(),
            passing,
        }
    }

    /// What repetitions have in common.
    pub(super) fn lasting(&self) -> &str {
        &self.lasting
    }

    /// All of it.
    pub(super) fn text(&self) -> String {
        format!("{}{}", self.lasting, self.passing)
    }
}

impl From<&str> for Message {
    fn from(text: &str) -> Self {
        Self::new(text, String::new())
    }
}

impl From<&String> for Message {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<String> for Message {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

/// A wait in words, such as `4s` or `5m0s`.
pub fn spoken(wait: Duration) -> String {
    match wait.as_secs() {
        0 => format!("{}ms", wait.as_millis()),
        seconds @ 1..60 => format!("{seconds}s"),
        seconds => format!("{}m{}s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_spoken_as_go_speaks() {
        assert_eq!(spoken(Duration::from_millis(500)), "500ms");
        assert_eq!(spoken(Duration::from_secs(4)), "4s");
        assert_eq!(spoken(Duration::from_secs(300)), "5m0s");
    }

    #[test]
    fn a_long_text_still_says_when_it_is_tried_again() {
        let message = Message::until_next_try("x".repeat(5000), Duration::from_secs(4));
        assert_eq!(message.text().chars().count(), LONGEST);
        assert!(message.text().ends_with("; next try in 4s"));
    }
}
