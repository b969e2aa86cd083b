//! Tokens of service accounts, as the API server gives them.

use std::fmt;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

/// A token that is wanted.
#[derive(Debug, Clone, Default)]
pub struct TokenRequest {
    /// Whom it is for; the API server itself if empty.
    pub audience: String,
    /// How long it is to be good.
    pub seconds: i64,
    /// The name and uid of the pod that it ends with.
    pub pod: (String, String),
}

impl TokenRequest {
    pub(crate) fn body(&self) -> Value {
        let audiences: Vec<&str> = match self.audience.as_str() {
            "" => Vec::new(),
            audience => vec![audience],
        };
        let (name, uid) = &self.pod;
        json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {
                "audiences": audiences,
                "expirationSeconds": self.seconds,
                "boundObjectRef": { "apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid },
            },
        })
    }
}

/// A token. It can't be printed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// The token itself.
    #[serde(rename = "token")]
    pub secret: String,
    /// When it is good no more.
    #[serde(rename = "expirationTimestamp")]
    pub expires: Timestamp,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("expires", &self.expires)
            .finish_non_exhaustive()
    }
}

/// The part of the answer that counts.
#[derive(Deserialize)]
pub(crate) struct Answer {
    pub(crate) status: Token,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_never_printed() {
        let answer =
            r#"{"status":{"token":"secret","expirationTimestamp":"2026-01-01T00:00:00Z"}}"#;
        let answer: Answer = serde_json::from_str(answer).expect("an answer");
        assert_eq!(answer.status.secret, "secret");
        let printed = format!("{:?}", answer.status);
        assert!(!printed.contains("secret"), "{printed}");
    }
}
