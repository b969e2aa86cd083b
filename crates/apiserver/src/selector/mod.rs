//! Label and field selectors: which objects a list or a watch sees.

use crate::kinds::KindInfo;
use serde_json::Value;

/// Why a selector cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SelectorError {
    /// The text is no selector.
    #[error("unable to parse requirement: {0}")]
    Malformed(String),
    /// The kind has no such selectable field.
    #[error("field label not supported: {0}")]
    Unsupported(String),
}

/// A parsed label selector.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {}

/// A parsed field selector.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields {}

impl Labels {
    /// Parses `a=b,c!=d,e in (f,g),h,!i`; the empty text selects everything.
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        let _ = text;
        Ok(Self {})
    }

    /// Whether the object's labels satisfy every requirement.
    pub fn matches(&self, object: &Value) -> bool {
        let _ = object;
        true
    }

    /// Whether everything is selected.
    pub fn is_empty(&self) -> bool {
        true
    }
}

impl Fields {
    /// Parses `metadata.name=a,status.phase!=b` for a kind.
    pub fn parse(kind: &KindInfo, text: &str) -> Result<Self, SelectorError> {
        let _ = (kind, text);
        Ok(Self {})
    }

    /// Whether the object's fields satisfy every requirement.
    pub fn matches(&self, object: &Value) -> bool {
        let _ = object;
        true
    }

    /// Whether everything is selected.
    pub fn is_empty(&self) -> bool {
        true
    }
}
