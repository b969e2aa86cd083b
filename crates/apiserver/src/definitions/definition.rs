//! What a definition may say. The texts are the original's.

use serde_json::Value;

use super::approval::Approval;
use super::columns::Path;
use super::formats;
use super::object::is_true;
use super::scale::ScalePaths;
use super::schemas;
use super::selectable;
use crate::refusal::FieldError;
use crate::registry::{DNS_1035_LABEL, DNS_SUBDOMAIN, text};

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] = [
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
];

/// What is wrong with a definition.
pub(crate) fn validate_definition(object: &Value) -> Vec<FieldError> {
    let mut errors = contents(object);
    errors.extend(Approval::errors(None, object));
    errors
}

/// What to tell whoever writes a definition.
pub(crate) fn warnings(object: &Value) -> Vec<String> {
    let versions = all_versions(&object["spec"]).iter();
    let mut found: Vec<String> = versions
        .flat_map(|version| formats::warnings(&version["schema"]["openAPIV3Schema"]))
        .collect();
    found.dedup();
    found
}

/// All but whether its group may be used.
fn contents(object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    let (group, plural) = (text(spec, "/group"), text(spec, "/names/plural"));
    let name = &object["metadata"]["name"];
    if *name != format!("{plural}.{group}") {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", name, detail));
    }
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if let Some(fault) = DNS_SUBDOMAIN.fault(group) {
        errors.push(FieldError::invalid("spec.group", &spec["group"], fault));
    } else if !group.contains('.') {
        let detail = "should be a domain with at least one dot";
        errors.push(FieldError::invalid("spec.group", &spec["group"], detail));
    }
    match text(spec, "/scope") {
        "" => errors.push(FieldError::required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        _ => {
            let scopes = &["Cluster", "Namespaced"];
            errors.push(FieldError::not_supported(
                "spec.scope",
                &spec["scope"],
                scopes,
            ));
        }
    }
    versions(spec, &mut errors);
    names(&spec["names"], &mut errors);
    errors.extend(shared(spec));
    if text(spec, "/conversion/strategy") != "None" {
        let strategy = &spec["conversion"]["strategy"];
        let field = "spec.conversion.strategy";
        errors.push(FieldError::not_supported(field, strategy, &["None"]));
    }
    if spec["preserveUnknownFields"] == true {
        let detail = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                      spec.versions[*].schema instead";
        let field = "spec.preserveUnknownFields";
        errors.push(FieldError::invalid(field, &true.into(), detail));
    }
    errors
}

fn all_versions(spec: &Value) -> &[Value] {
    spec["versions"].as_array().map_or(&[], Vec::as_slice)
}

/// What all versions say alike, which the original calls by a name above the versions.
fn alike<'v>(spec: &'v Value, field: &str) -> Option<&'v Value> {
    let versions = all_versions(spec);
    let first = &versions.first()?[field];
    let said = match first {
        Value::Array(list) => !list.is_empty(),
        other => other.is_object(),
    };
    let same = versions.iter().all(|version| version[field] == *first);
    (said && same).then_some(first)
}

/// What is wrong with what all versions say alike.
fn shared(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let schema = alike(spec, "schema");
    if let Some(schema) = schema {
        let status = all_versions(spec)
            .iter()
            .any(|version| version["subresources"]["status"].is_object());
        schemas::validate(schema, "spec.validation", status, &mut errors);
    }
    if let Some(subresources) = alike(spec, "subresources") {
        errors.extend(ScalePaths::errors(
            &subresources["scale"],
            "spec.subresources.scale",
        ));
    }
    if let Some(all) = alike(spec, "additionalPrinterColumns") {
        columns(all, "spec.additionalPrinterColumns", &mut errors);
    }
    if let Some(fields) = alike(spec, "selectableFields") {
        match schema {
            Some(schema) => {
                let schema = &schema["openAPIV3Schema"];
                errors.extend(selectable::errors(fields, schema, "spec.selectableFields"));
            }
            None => {
                let detail = "may only be set when validations.schema is included";
                errors.push(FieldError::invalid(
                    "spec.selectableFields",
                    &"".into(),
                    detail,
                ));
            }
        }
    }
    errors
}

fn versions(spec: &Value, errors: &mut Vec<FieldError>) {
    let versions = all_versions(spec);
    for (at, version) in versions.iter().enumerate() {
        if !version["schema"]["openAPIV3Schema"].is_object() {
            let field = format!("spec.versions[{at}].schema.openAPIV3Schema");
            errors.push(FieldError::required(field, ""));
        }
    }
    let own = |field: &str| alike(spec, field).is_none();
    for (at, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{at}]");
        if let Some(fault) = DNS_1035_LABEL.fault(text(version, "/name")) {
            let field = format!("{path}.name");
            errors.push(FieldError::invalid(field, &version["name"], fault));
        }
        deprecation(version, &path, errors);
        let schema = &version["schema"];
        if own("schema") && schema["openAPIV3Schema"].is_object() {
            let status = version["subresources"]["status"].is_object();
            schemas::validate(schema, &format!("{path}.schema"), status, errors);
        }
        if own("subresources") {
            let scale = &version["subresources"]["scale"];
            errors.extend(ScalePaths::errors(
                scale,
                &format!("{path}.subresources.scale"),
            ));
        }
        if own("additionalPrinterColumns") {
            let all = &version["additionalPrinterColumns"];
            columns(all, &format!("{path}.additionalPrinterColumns"), errors);
        }
        if own("selectableFields") {
            let schema = &schema["openAPIV3Schema"];
            let path = format!("{path}.selectableFields");
            errors.extend(selectable::errors(
                &version["selectableFields"],
                schema,
                &path,
            ));
        }
    }
    if let Some(first) = versions.first()
        && let Some(fault) = DNS_1035_LABEL.fault(text(first, "/name"))
    {
        errors.push(FieldError::invalid("spec.version", &first["name"], fault));
    }
    let field = "spec.versions";
    let twice = |at: usize| {
        let earlier = &versions[..at];
        earlier
            .iter()
            .any(|other| other["name"] == versions[at]["name"])
    };
    if (0..versions.len()).any(twice) {
        let detail = "must contain unique version names";
        errors.push(FieldError::invalid(field, &spec["versions"], detail));
    }
    let storage = versions.iter().filter(|version| version["storage"] == true);
    if storage.count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid(field, &spec["versions"], detail));
    }
}

fn deprecation(version: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let warning = &version["deprecationWarning"];
    let Some(text) = warning.as_str() else { return };
    let mut wrong = |detail: String| {
        let field = format!("{path}.deprecationWarning");
        errors.push(FieldError::invalid(field, warning, detail));
    };
    if version["deprecated"] != true {
        return wrong("can only be set for deprecated versions".to_owned());
    }
    if text.len() > 256 {
        wrong("must be <= 256 characters long".to_owned());
    }
    if text.is_empty() {
        wrong("must not be an empty string".to_owned());
    }
    if let Some((at, _)) = text.char_indices().find(|(_, c)| c.is_control()) {
        wrong(format!(
            "must only contain printable UTF-8 characters; non-printable character found at \
             index {at}"
        ));
    }
}

fn names(names: &Value, errors: &mut Vec<FieldError>) {
    let all = ["plural", "singular", "kind", "listKind"];
    for name in all {
        if text(names, &format!("/{name}")).is_empty() {
            errors.push(FieldError::required(format!("spec.names.{name}"), ""));
        }
    }
    for name in all {
        let given = text(names, &format!("/{name}"));
        let is_kind = name.ends_with("ind");
        let lower = if is_kind {
            given.to_lowercase()
        } else {
            given.to_owned()
        };
        if let Some(fault) = DNS_1035_LABEL.fault(&lower).filter(|_| !given.is_empty()) {
            let mixed = "may have mixed case, but should otherwise match: ";
            let detail = if is_kind {
                format!("{mixed}{fault}")
            } else {
                fault
            };
            errors.push(FieldError::invalid(
                format!("spec.names.{name}"),
                &names[name],
                detail,
            ));
        }
    }
    let list = |field: &str, errors: &mut Vec<FieldError>| {
        let list = names[field].as_array().into_iter().flatten();
        for (at, one) in list.enumerate() {
            if let Some(fault) = DNS_1035_LABEL.fault(one.as_str().unwrap_or("")) {
                let field = format!("spec.names.{field}[{at}]");
                errors.push(FieldError::invalid(field, one, fault));
            }
        }
    };
    list("shortNames", errors);
    let kind = text(names, "/kind");
    if !kind.is_empty() && kind == text(names, "/listKind") {
        let detail = "kind and listKind may not be the same";
        errors.push(FieldError::invalid(
            "spec.names.listKind",
            &names["listKind"],
            detail,
        ));
    }
    list("categories", errors);
}

fn columns(columns: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (at, column) in columns.as_array().into_iter().flatten().enumerate() {
        let path = format!("{path}[{at}]");
        if text(column, "/name").is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        }
        let must = |these: &[&str]| format!("must be one of {}", these.join(","));
        match text(column, "/type") {
            "" => {
                let field = format!("{path}.type");
                errors.push(FieldError::required(field, must(&COLUMN_TYPES)));
            }
            known if COLUMN_TYPES.contains(&known) => {}
            _ => {
                let field = format!("{path}.type");
                errors.push(FieldError::invalid(
                    field,
                    &column["type"],
                    must(&COLUMN_TYPES),
                ));
            }
        }
        let format = text(column, "/format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            let (field, detail) = (format!("{path}.format"), must(&COLUMN_FORMATS));
            errors.push(FieldError::invalid(field, &column["format"], detail));
        }
        let field = format!("{path}.JSONPath");
        match text(column, "/jsonPath") {
            "" => errors.push(FieldError::required(field, "")),
            path if !path.starts_with('.') => {
                let detail = "must be a simple json path starting with .";
                errors.push(FieldError::invalid(field, &column["jsonPath"], detail));
            }
            path if Path::parse(path).is_none() => {
                // The original takes such a definition, and doesn't show the column.
                let detail = "is not understood; use fields, indexes and \
                              [?(@.field==\"value\")]";
                errors.push(FieldError::invalid(field, &column["jsonPath"], detail));
            }
            _ => {}
        }
    }
}

/// What is wrong with a changed definition, and with how it changed.
pub(crate) fn validate_definition_change(before: &Value, after: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (old, new) = (&before["spec"], &after["spec"]);
    let mut stays = |field: &str, old: &Value, new: &Value| {
        if old != new {
            let detail = "field is immutable";
            errors.push(FieldError::invalid(format!("spec.{field}"), new, detail));
        }
    };
    if is_true(before, "Established") {
        stays("scope", &old["scope"], &new["scope"]);
        stays("names.kind", &old["names"]["kind"], &new["names"]["kind"]);
    }
    stays("group", &old["group"], &new["group"]);
    stays(
        "names.plural",
        &old["names"]["plural"],
        &new["names"]["plural"],
    );
    // With a new spec, all of it is looked at anyway.
    if old == new {
        errors.extend(Approval::errors(Some(before), after));
    }
    errors.extend(stored_versions(before, after));
    errors
}

/// Versions that objects may still be stored in must stay.
fn stored_versions(before: &Value, after: &Value) -> Vec<FieldError> {
    let versions = all_versions(&after["spec"]);
    let stored = before["status"]["storedVersions"].as_array();
    let stored = stored.into_iter().flatten().enumerate();
    let gone =
        stored.filter(|(_, stored)| !versions.iter().any(|version| version["name"] == **stored));
    gone.map(|(at, stored)| {
        let name = stored.as_str().unwrap_or("");
        let detail = format!(
            "missing from spec.versions; {name} was previously a storage version, and must \
             remain in spec.versions until a storage migration ensures no data remains \
             persisted in {name} and removes {name} from status.storedVersions"
        );
        FieldError::invalid(format!("status.storedVersions[{at}]"), stored, detail)
    })
    .collect()
}
