//! In which form a client wants its answer.

use crate::refusal::Refusal;

/// The forms of objects that can be served; all are JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As it is.
    Object,
    /// Rows and columns for people.
    Table,
    /// Metadata only.
    Metadata,
}

/// Chooses the first form of an `Accept` header that can be served. Clients that prefer
/// another encoding name JSON after it.
pub(super) fn choose(accept: &str) -> Result<Form, Refusal> {
    if accept.trim().is_empty() {
        return Ok(Form::Object);
    }
    accept
        .split(',')
        .find_map(form)
        .ok_or_else(Refusal::not_acceptable)
}

fn form(range: &str) -> Option<Form> {
    let mut parts = range.split(';').map(str::trim);
    let media = parts.next()?;
    if !matches!(
        media,
        "application/json" | "application/*" | "*/*" | "text/json"
    ) {
        return None;
    }
    let mut shape = None;
    let mut version = None;
    for parameter in parts {
        match parameter.split_once('=') {
            Some(("as", name)) => shape = Some(name),
            Some(("v", name)) => version = Some(name),
            _ => {}
        }
    }
    match (shape, version) {
        (None, _) => Some(Form::Object),
        (Some("Table"), Some("v1")) => Some(Form::Table),
        (Some("PartialObjectMetadata" | "PartialObjectMetadataList"), Some("v1")) => {
            Some(Form::Metadata)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_form_that_can_be_served_is_taken() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,\
                     application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(choose(table), Ok(Form::Table));
        assert_eq!(
            choose("application/vnd.kubernetes.protobuf,application/json"),
            Ok(Form::Object)
        );
        assert_eq!(choose("application/json;stream=watch"), Ok(Form::Object));
        assert_eq!(choose(""), Ok(Form::Object));
        assert_eq!(choose("*/*"), Ok(Form::Object));
        assert_eq!(
            choose("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"),
            Ok(Form::Metadata)
        );
        assert_eq!(
            choose("application/vnd.kubernetes.protobuf")
                .unwrap_err()
                .code,
            406
        );
    }
}
