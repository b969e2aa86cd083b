//! Label and field selectors: which objects a list or a watch sees.
//!
//! Both are parsed once per request and then asked per object; asking never
//! fails.

mod fields;
mod labels;
#[cfg(test)]
mod tests;
mod written;

pub use fields::Fields;
pub use labels::Labels;
pub(crate) use written::written;

/// Why a selector cannot be used: HTTP 400.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SelectorError {
    /// The text is no label selector.
    #[error("unable to parse requirement: {0}")]
    MalformedLabels(String),
    /// Something in the text belongs to no requirement.
    #[error("{0}")]
    MisplacedLabels(String),
    /// A field selector escapes what needs no escape.
    #[error("invalid field selector: invalid escape sequence: \\{0}")]
    Escape(String),
    /// The text is no field selector.
    #[error("invalid selector: '{text}'; can't understand '{part}'")]
    MalformedFields {
        /// The whole selector.
        text: String,
        /// The part that has no operator.
        part: String,
    },
    /// The kind can be selected by its name and namespace only.
    #[error("{0:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")]
    OnlyMetadata(String),
    /// The kind has no such selectable field.
    #[error("field label not supported: {0}")]
    Unsupported(String),
}
