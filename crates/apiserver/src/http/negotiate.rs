//! In which form and encoding a client wants its answer.

use crate::protobuf;
use crate::refusal::Refusal;

/// How an answer is to be given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) form: Form,
    pub(super) encoding: Encoding,
}

/// The forms of objects that can be served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As it is.
    Object,
    /// Rows and columns for people.
    Table,
    /// Metadata only.
    Metadata,
}

/// The encodings of answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Json,
    Protobuf,
}

/// Chooses the first of an `Accept` header's offers that can be served. `encodable` says
/// whether objects of the kind have a protobuf encoding.
pub(super) fn choose(accept: &str, encodable: bool) -> Result<Answer, Refusal> {
    if accept.trim().is_empty() {
        return Ok(Answer {
            form: Form::Object,
            encoding: Encoding::Json,
        });
    }
    accept
        .split(',')
        .filter_map(offer)
        .find(|answer| answer.encoding == Encoding::Json || encodable && answer.form != Form::Table)
        .ok_or_else(Refusal::not_acceptable)
}

/// The encoding of a refusal: that of the first offer which names one.
pub(super) fn encoding(accept: &str) -> Encoding {
    accept
        .split(',')
        .find_map(offer)
        .map_or(Encoding::Json, |answer| answer.encoding)
}

fn offer(range: &str) -> Option<Answer> {
    let mut parts = range.split(';').map(str::trim);
    let encoding = match parts.next()? {
        "application/json" | "application/*" | "*/*" | "text/json" => Encoding::Json,
        protobuf::MEDIA_TYPE => Encoding::Protobuf,
        _ => return None,
    };
    let mut shape = None;
    let mut version = None;
    for parameter in parts {
        match parameter.split_once('=') {
            Some(("as", name)) => shape = Some(name),
            Some(("v", name)) => version = Some(name),
            _ => {}
        }
    }
    let form = match (shape, version) {
        (None, _) => Form::Object,
        (Some("Table"), Some("v1")) => Form::Table,
        (Some("PartialObjectMetadata" | "PartialObjectMetadataList"), Some("v1")) => Form::Metadata,
        _ => return None,
    };
    Some(Answer { form, encoding })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(form: Form) -> Result<Answer, Refusal> {
        let encoding = Encoding::Json;
        Ok(Answer { form, encoding })
    }

    fn protobuf(form: Form) -> Result<Answer, Refusal> {
        let encoding = Encoding::Protobuf;
        Ok(Answer { form, encoding })
    }

    #[test]
    fn the_first_offer_that_can_be_served_is_taken() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,\
                     application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(choose(table, true), json(Form::Table));
        let go = "application/vnd.kubernetes.protobuf,application/json";
        assert_eq!(choose(go, true), protobuf(Form::Object));
        assert_eq!(choose(go, false), json(Form::Object));
        assert_eq!(
            choose("application/json;stream=watch", true),
            json(Form::Object)
        );
        assert_eq!(choose("", true), json(Form::Object));
        assert_eq!(choose("*/*", true), json(Form::Object));
        let metadata = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        let offer = format!("application/json;{metadata}");
        assert_eq!(choose(&offer, true), json(Form::Metadata));
        let offer = format!("application/vnd.kubernetes.protobuf;{metadata}");
        assert_eq!(choose(&offer, true), protobuf(Form::Metadata));
        let tables = "application/vnd.kubernetes.protobuf;as=Table;v=v1,application/json";
        assert_eq!(choose(tables, true), json(Form::Object));
        let only = "application/vnd.kubernetes.protobuf";
        assert_eq!(choose(only, false).unwrap_err().code, 406);
    }

    #[test]
    fn a_refusal_is_encoded_as_the_client_prefers() {
        let go = "application/vnd.kubernetes.protobuf,application/json";
        assert_eq!(encoding(go), Encoding::Protobuf);
        assert_eq!(encoding("application/json"), Encoding::Json);
        assert_eq!(encoding("text/html"), Encoding::Json);
    }
}
