//! A class's parameters: which are the driver's, which are Kubernetes' own.
//!
//! Keys under `csi.storage.k8s.io/` never reach the driver. An unknown one is refused: it
//! is a typing mistake, or a feature that we would silently not give.

use std::collections::BTreeMap;

use orlop_model::{Claim, Key, volume::SecretRef, well_known::CSI_PARAMETER_PREFIX};

/// What a call needs its own credentials for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    Provision,
    ControllerPublish,
    NodeStage,
    NodePublish,
    ControllerExpand,
    NodeExpand,
    ControllerModify,
}

impl Purpose {
    const ALL: [Self; 7] = [
        Self::Provision,
        Self::ControllerPublish,
        Self::NodeStage,
        Self::NodePublish,
        Self::ControllerExpand,
        Self::NodeExpand,
        Self::ControllerModify,
    ];

    /// The part of the key between the prefix and `secret-name`.
    fn infix(self) -> &'static str {
        match self {
            Self::Provision => "provisioner-",
            Self::ControllerPublish => "controller-publish-",
            Self::NodeStage => "node-stage-",
            Self::NodePublish => "node-publish-",
            Self::ControllerExpand => "controller-expand-",
            Self::NodeExpand => "node-expand-",
            Self::ControllerModify => "controller-modify-",
        }
    }

    /// The key before there was a prefix, less `Name` or `Namespace`. The driver gets it too.
    fn deprecated(self) -> Option<&'static str> {
        match self {
            Self::Provision => Some("csiProvisionerSecret"),
            Self::ControllerPublish => Some("csiControllerPublishSecret"),
            Self::NodeStage => Some("csiNodeStageSecret"),
            Self::NodePublish => Some("csiNodePublishSecret"),
            Self::ControllerExpand | Self::NodeExpand | Self::ControllerModify => None,
        }
    }
}

/// Parameters that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// Not a key that exists.
    #[error(
        "found unknown parameter key {0:?} with reserved namespace {CSI_PARAMETER_PREFIX}; correct or \
         remove it"
    )]
    Unknown(String),
    /// The same thing is said twice.
    #[error("parameters {0:?} and {1:?} say the same; keep one of them")]
    Twice(String, String),
    /// A secret needs both.
    #[error("parameter {given:?} is set but {missing:?} is not; a secret needs both")]
    HalfASecret {
        /// The one that is there.
        given: String,
        /// The one that isn't.
        missing: String,
    },
    /// A `${...}` that isn't known here.
    #[error("parameter {key:?}: unknown or unclosed token in {template:?}; there are {known}")]
    Token {
        /// The parameter.
        key: String,
        /// Its value.
        template: String,
        /// What may stand there.
        known: String,
    },
    /// A `${...}` that is known, of which there is nothing to say.
    #[error(
        "parameter {key:?}: {template:?} asks for the claim's annotation {annotation:?}, which it does \
         not have; set it"
    )]
    NoAnnotation {
        /// The parameter.
        key: String,
        /// Its value.
        template: String,
        /// What it asks for.
        annotation: String,
    },
    /// What came out is no name.
    #[error("parameter {key:?} gives {value:?}, which is not a valid name")]
    NotAName {
        /// The parameter.
        key: String,
        /// What came out.
        value: String,
    },
}

/// A secret's name and namespace, as the class writes them.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Template {
    name_key: String,
    name: String,
    namespace_key: String,
    namespace: String,
}

/// What a class's parameters say.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Parameters {
    /// Handed to the driver as they are.
    pub(super) driver: BTreeMap<String, String>,
    pub(super) fs_type: Option<String>,
    secrets: BTreeMap<Purpose, Template>,
}

impl Parameters {
    pub(super) fn parse(given: &BTreeMap<String, String>) -> Result<Self, ParameterError> {
        let mut driver = BTreeMap::new();
        let mut file_systems = Vec::new();
        for (key, value) in given {
            match key.strip_prefix(CSI_PARAMETER_PREFIX) {
                Some("fstype") => file_systems.push((key, value)),
                Some(rest) if names_a_secret(rest) => {}
                Some(_) => return Err(ParameterError::Unknown(key.clone())),
                None => {
                    if key.eq_ignore_ascii_case("fstype") {
                        file_systems.push((key, value));
                    }
                    driver.insert(key.clone(), value.clone());
                }
            }
        }
        if let [(one, _), (other, _), ..] = file_systems.as_slice() {
            return Err(ParameterError::Twice((*one).clone(), (*other).clone()));
        }
        let mut secrets = BTreeMap::new();
        for purpose in Purpose::ALL {
            if let Some(template) = template(given, purpose)? {
                secrets.insert(purpose, template);
            }
        }
        Ok(Self {
            driver,
            fs_type: file_systems.first().map(|(_, value)| (*value).clone()),
            secrets,
        })
    }

    /// The secret for a purpose, its templates filled in.
    pub(super) fn secret(
        &self,
        purpose: Purpose,
        subject: &Subject<'_>,
    ) -> Result<Option<SecretRef>, ParameterError> {
        let Some(template) = self.secrets.get(&purpose) else {
            return Ok(None);
        };
        let namespace = fill(
            (&template.namespace_key, &template.namespace),
            "${pv.name} and ${pvc.namespace}",
            |token| subject.namespace_token(token),
        )?;
        let name = fill(
            (&template.name_key, &template.name),
            "${pv.name}, ${pvc.namespace}, ${pvc.name} and ${pvc.annotations['KEY']}",
            |token| {
                subject
                    .namespace_token(token)
                    .or_else(|| subject.name_token(token))
            },
        )?;
        check(&template.namespace_key, &namespace, is_label)?;
        check(&template.name_key, &name, is_subdomain)?;
        Ok(Some(SecretRef { name, namespace }))
    }
}

/// What templates may speak of.
pub(super) struct Subject<'a> {
    pub(super) volume_name: &'a str,
    pub(super) claim: &'a Key,
    /// Unknown when a volume is deleted after its claim.
    pub(super) annotations: Option<&'a BTreeMap<String, String>>,
}

impl<'a> Subject<'a> {
    pub(super) fn of(volume_name: &'a str, key: &'a Key, claim: &'a Claim) -> Self {
        Self {
            volume_name,
            claim: key,
            annotations: Some(&claim.metadata.annotations),
        }
    }

    fn namespace_token(&self, token: &str) -> Option<String> {
        match token {
            "pv.name" => Some(self.volume_name.to_owned()),
            "pvc.namespace" => Some(self.claim.namespace.clone()),
            _ => None,
        }
    }

    fn name_token(&self, token: &str) -> Option<String> {
        if token == "pvc.name" {
            return Some(self.claim.name.clone());
        }
        self.annotations?.get(annotation(token)?).cloned()
    }
}

/// The annotation that a token asks for.
fn annotation(token: &str) -> Option<&str> {
    token.strip_prefix("pvc.annotations['")?.strip_suffix("']")
}

fn names_a_secret(key: &str) -> bool {
    let owner = key
        .strip_suffix("secret-name")
        .or_else(|| key.strip_suffix("secret-namespace"));
    owner.is_some_and(|o| o.is_empty() || Purpose::ALL.iter().any(|p| p.infix() == o))
}

fn template(
    given: &BTreeMap<String, String>,
    purpose: Purpose,
) -> Result<Option<Template>, ParameterError> {
    let prefixed = |infix: &str, end: &str| format!("{CSI_PARAMETER_PREFIX}{infix}secret-{end}");
    let pair = |name_key: String, namespace_key: String| {
        let found = (given.get(&name_key), given.get(&namespace_key));
        match found {
            (None, None) => Ok(None),
            (Some(_), None) => Err(ParameterError::HalfASecret {
                given: name_key,
                missing: namespace_key,
            }),
            (None, Some(_)) => Err(ParameterError::HalfASecret {
                given: namespace_key,
                missing: name_key,
            }),
            (Some(name), Some(namespace)) => Ok(Some(Template {
                name: name.clone(),
                namespace: namespace.clone(),
                name_key,
                namespace_key,
            })),
        }
    };
    let own = pair(
        prefixed(purpose.infix(), "name"),
        prefixed(purpose.infix(), "namespace"),
    )?;
    let old = match purpose.deprecated() {
        Some(stem) => pair(format!("{stem}Name"), format!("{stem}Namespace"))?,
        None => None,
    };
    match (own, old) {
        (Some(own), Some(old)) => Err(ParameterError::Twice(own.name_key, old.name_key)),
        (Some(found), None) | (None, Some(found)) => Ok(Some(found)),
        (None, None) => pair(prefixed("", "name"), prefixed("", "namespace")),
    }
}

pub(crate) fn fill(
    (key, template): (&str, &str),
    known: &str,
    value_of: impl Fn(&str) -> Option<String>,
) -> Result<String, ParameterError> {
    let wrong = || ParameterError::Token {
        key: key.to_owned(),
        template: template.to_owned(),
        known: known.to_owned(),
    };
    let untold = |token: &str| match annotation(token).filter(|_| known.contains("annotations")) {
        Some(annotation) => ParameterError::NoAnnotation {
            key: key.to_owned(),
            template: template.to_owned(),
            annotation: annotation.to_owned(),
        },
        None => wrong(),
    };
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("${") {
        let (token, after) = after.split_once('}').ok_or_else(wrong)?;
        out.push_str(before);
        out.push_str(&value_of(token).ok_or_else(|| untold(token))?);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

pub(crate) fn check(
    key: &str,
    value: &str,
    is_valid: fn(&str) -> bool,
) -> Result<(), ParameterError> {
    if is_valid(value) {
        return Ok(());
    }
    Err(ParameterError::NotAName {
        key: key.to_owned(),
        value: value.to_owned(),
    })
}

/// RFC 1123, as Kubernetes checks namespaces.
pub(crate) fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

/// RFC 1123, as Kubernetes checks secrets' names: of their parts only the signs.
pub(crate) fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_part)
}

fn is_part(text: &str) -> bool {
    let ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(ends) && text.ends_with(ends) && text.chars().all(|c| ends(c) || c == '-')
}

#[cfg(test)]
mod tests;
