//! What was called when, by whom, and how it ended: for people after a failure, and as one
//! number to compare two runs by.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The record of a run; clones share it.
#[derive(Debug, Clone)]
pub struct Trace {
    began: Instant,
    lines: Arc<Mutex<Vec<(Duration, String)>>>,
}

impl Trace {
    /// An empty record that begins now.
    pub fn begin() -> Self {
        Self {
            began: Instant::now(),
            lines: Arc::default(),
        }
    }

    /// Writes a line down.
    pub fn say(&self, line: impl Into<String>) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push((self.began.elapsed(), line.into()));
    }

    /// A number that two equal runs share.
    pub fn hash(&self) -> u64 {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        // Its keys are fixed, unlike those of a hash map.
        let mut hasher = DefaultHasher::new();
        lines.hash(&mut hasher);
        hasher.finish()
    }

    /// The whole record as text.
    pub fn text(&self) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let line = |(at, line): &(Duration, String)| format!("{:9.3} {line}\n", at.as_secs_f64());
        lines.iter().map(line).collect()
    }
}
