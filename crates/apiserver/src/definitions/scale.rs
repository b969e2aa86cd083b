//! Where objects of a defined kind say how many they are: the paths of its `scale`.

use serde_json::Value;

use crate::refusal::FieldError;
use crate::registry::text;

/// Pointers into an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScalePaths {
    /// How many there shall be.
    pub(crate) wanted: String,
    /// How many there are.
    pub(crate) present: String,
    /// Which they are; none if the kind doesn't say.
    pub(crate) selector: Option<String>,
}

/// The fields of a definition's `scale`, and where each may point.
const FIELDS: [(&str, &[&str], bool); 3] = [
    ("specReplicasPath", &[".spec."], true),
    ("statusReplicasPath", &[".status."], true),
    ("labelSelectorPath", &[".spec.", ".status."], false),
];

impl ScalePaths {
    /// Reads the paths of a definition; none if it has no `scale`.
    pub(super) fn parse(scale: &Value) -> Option<Self> {
        let pointer = |field: &str| Some(scale[field].as_str()?.replace('.', "/"));
        Some(Self {
            wanted: pointer("specReplicasPath")?,
            present: pointer("statusReplicasPath")?,
            selector: pointer("labelSelectorPath").filter(|path| !path.is_empty()),
        })
    }

    /// What is wrong with the paths of a definition.
    pub(super) fn errors(scale: &Value, path: &str) -> Vec<FieldError> {
        if scale.is_null() {
            return Vec::new();
        }
        let fault = |&(name, roots, required): &(&str, &[&str], bool)| {
            let (field, given) = (format!("{path}.{name}"), text(scale, &format!("/{name}")));
            if given.is_empty() {
                return required.then(|| FieldError::required(field, ""));
            }
            if !given.starts_with('.') {
                let why = "must be a simple json path starting with .";
                return Some(FieldError::invalid(field, &given.into(), why));
            }
            let starts = roots.iter().any(|root| given.starts_with(root));
            let simple = !given.contains(['[', ']', '/', '~']) && !given.contains("..");
            (!starts || !simple).then(|| {
                let roots: Vec<&str> = roots
                    .iter()
                    .map(|root| root.trim_end_matches('.'))
                    .collect();
                let either = if roots.len() > 1 { "either " } else { "" };
                let roots = roots.join(" or ");
                let why = format!("should be a json path under {either}{roots}");
                FieldError::invalid(field, &given.into(), why)
            })
        };
        FIELDS.iter().filter_map(fault).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_point_below_spec_and_status() {
        let good =
            json!({ "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.n" });
        assert!(ScalePaths::errors(&good, "scale").is_empty());
        let paths = ScalePaths::parse(&good).expect("complete");
        assert_eq!(
            (paths.wanted.as_str(), paths.selector),
            ("/spec/replicas", None)
        );
        let bad = json!({ "specReplicasPath": ".status.n", "labelSelectorPath": ".metadata.x" });
        let texts: Vec<String> = ScalePaths::errors(&bad, "scale")
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            texts,
            [
                "scale.specReplicasPath: Invalid value: \".status.n\": should be a json path under .spec",
                "scale.statusReplicasPath: Required value",
                "scale.labelSelectorPath: Invalid value: \".metadata.x\": should be a json path under \
                 either .spec or .status",
            ]
        );
    }
}
