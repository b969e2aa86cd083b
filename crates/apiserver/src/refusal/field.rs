//! What is wrong with a field, in the original's words.

use std::fmt;

use serde_json::{Value, json};

/// What is wrong with one field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    /// The path, such as `spec.resources[storage]`.
    pub field: String,
    /// What kind of mistake it is.
    pub fault: Fault,
    /// What to do about it; may be empty.
    pub detail: String,
}

/// The kinds of mistakes in a field.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// It is missing.
    Required,
    /// Its value is wrong, and too long to repeat.
    Unsaid,
    /// Its value is of another type.
    TypeInvalid(Value),
    /// Its value is wrong.
    Invalid(Value),
    /// Its value is wrong, and is shown in this way.
    Told(String),
    /// It may not be set, or not be changed.
    Forbidden,
    /// Its value isn't one of a known few.
    NotSupported(Value, Vec<String>),
    /// Its value occurs twice.
    Duplicate(Value),
    /// It names something that isn't there.
    NotFound(Value),
    /// It is longer than this many characters.
    TooLong(usize),
    /// It has this many items, and may have so many.
    TooMany(usize, u64),
}

impl FieldError {
    /// A fault that needs no more words.
    pub fn new(field: &str, fault: Fault) -> Self {
        Self {
            field: field.to_owned(),
            fault,
            detail: String::new(),
        }
    }

    /// The field is missing.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            fault: Fault::Required,
            detail: detail.into(),
        }
    }

    /// The field's value is wrong.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: impl Into<String>) -> Self {
        let fault = Fault::Invalid(value.clone());
        Self {
            field: field.into(),
            fault,
            detail: detail.into(),
        }
    }

    /// The field may not be set or changed.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            fault: Fault::Forbidden,
            detail: detail.into(),
        }
    }

    /// The field's value isn't one of a known few.
    pub fn not_supported(
        field: impl Into<String>,
        value: &Value,
        supported: &'static [&'static str],
    ) -> Self {
        let supported = supported.iter().map(|one| format!("\"{one}\"")).collect();
        let fault = Fault::NotSupported(value.clone(), supported);
        Self {
            field: field.into(),
            fault,
            detail: String::new(),
        }
    }

    fn reason(&self) -> &'static str {
        match self.fault {
            Fault::Required => "FieldValueRequired",
            Fault::TypeInvalid(_) => "FieldValueTypeInvalid",
            Fault::Invalid(_) | Fault::Told(_) | Fault::Unsaid => "FieldValueInvalid",
            Fault::Forbidden => "FieldValueForbidden",
            Fault::NotSupported(..) => "FieldValueNotSupported",
            Fault::Duplicate(_) => "FieldValueDuplicate",
            Fault::NotFound(_) => "FieldValueNotFound",
            Fault::TooLong(_) => "FieldValueTooLong",
            Fault::TooMany(..) => "FieldValueTooMany",
        }
    }

    fn text(&self) -> String {
        let what = match &self.fault {
            Fault::Required => "Required value".to_owned(),
            Fault::Unsaid => "Invalid value".to_owned(),
            Fault::Invalid(value) | Fault::TypeInvalid(value) => {
                format!("Invalid value: {value}")
            }
            Fault::Told(text) => format!("Invalid value: {text}"),
            Fault::Forbidden => "Forbidden".to_owned(),
            Fault::NotSupported(value, supported) => {
                format!(
                    "Unsupported value: {value}: supported values: {}",
                    supported.join(", ")
                )
            }
            // Too long to repeat.
            Fault::Duplicate(Value::Null) => "Duplicate value".to_owned(),
            Fault::Duplicate(value) => format!("Duplicate value: {value}"),
            Fault::NotFound(value) => format!("Not found: {value}"),
            Fault::TooLong(most) => format!("Too long: may not be more than {most} bytes"),
            Fault::TooMany(count, most) => {
                format!("Too many: {count}: must have at most {most} items")
            }
        };
        if self.detail.is_empty() {
            what
        } else {
            format!("{what}: {}", self.detail)
        }
    }

    pub(super) fn cause(&self) -> Value {
        json!({ "reason": self.reason(), "message": self.text(), "field": self.field })
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.text())
    }
}
