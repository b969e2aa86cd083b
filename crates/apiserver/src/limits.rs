//! What one server gives its clients at most. The figures are the original's where it has any.

use std::time::Duration;

/// Limits of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Requests that read and are worked on at once, watches aside; one user gets half.
    pub reading: usize,
    /// Requests that write and are worked on at once; one user gets half.
    pub writing: usize,
    /// How long a request may take, watches and logs aside; clients may ask for less.
    pub request: Duration,
    /// Connections at once.
    pub connections: usize,
    /// How long a client may take for the TLS handshake.
    pub handshake: Duration,
    /// How long a client may take to send a request's headers over HTTP/1.1.
    pub headers: Duration,
    /// How long a connection may be without a request.
    pub idle: Duration,
    /// How long a client may leave what was sent to it unread before it is let go.
    pub unread: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            reading: 400,
            writing: 200,
            request: Duration::from_mins(1),
            // Watchers have a connection each over HTTP/1.1, and ten thousand are to be served.
            connections: 20_000,
            handshake: Duration::from_secs(10),
            headers: Duration::from_secs(32),
            idle: Duration::from_secs(90),
            unread: Duration::from_mins(1),
        }
    }
}
