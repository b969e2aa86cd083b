//! A volume's folder, as a path below its share.
//!
//! Pure. There is one form: names with single slashes between them. What is anything else is
//! refused rather than mended, because the original's traps began with mended paths.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::HOUSE;
use super::record::digest;

/// What a folder's name may have at most.
const LONGEST_NAME: usize = 255;

/// A path below a share: at least one name, none of them special.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct SubDir(String);

/// Why a text is no such path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SubDirError {
    #[error("it is empty")]
    Empty,
    #[error("it has an empty name between two slashes")]
    Gap,
    #[error("it has the name {0:?}, which leads elsewhere")]
    Dots(String),
    #[error("it has a control character")]
    Control,
    #[error("its name {HOUSE:?} is the driver's own")]
    House,
    #[error("it is longer than 3000 bytes, or has a name longer than 255")]
    Long,
    #[error(
        "{0} stands in it, but the request does not say what that is; start the provisioner with \
         --extra-create-metadata"
    )]
    Template(&'static str),
    #[error(
        "{0} stands in it, which is none of ${{pvc.metadata.name}}, ${{pvc.metadata.namespace}} and \
         ${{pv.metadata.name}}"
    )]
    Word(String),
}

impl SubDir {
    /// Understands a path; slashes at its ends do not count.
    pub(crate) fn parse(text: &str) -> Result<Self, SubDirError> {
        let text = text.trim_matches('/');
        if text.is_empty() {
            return Err(SubDirError::Empty);
        }
        if text.len() > 3000 {
            return Err(SubDirError::Long);
        }
        if text.chars().any(char::is_control) {
            return Err(SubDirError::Control);
        }
        for name in text.split('/') {
            match name {
                "" => return Err(SubDirError::Gap),
                _ if name.len() > LONGEST_NAME => return Err(SubDirError::Long),
                _ => {}
            }
            // A server may take a backslash for a slash.
            for part in name.split('\\') {
                if matches!(part, "." | "..") {
                    return Err(SubDirError::Dots(part.to_owned()));
                }
            }
        }
        // At any level: what is a folder of one share may be the root of another.
        match text.split('/').any(|name| name == HOUSE) {
            true => Err(SubDirError::House),
            false => Ok(Self(text.to_owned())),
        }
    }

    /// Its text, without slashes at the ends.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    pub(crate) fn path(&self) -> &Path {
        Path::new(&self.0)
    }

    /// The folder that it is in, below the share; `None` for the share itself.
    pub(crate) fn parent(&self) -> Option<PathBuf> {
        let (parent, _) = self.0.rsplit_once('/')?;
        Some(PathBuf::from(parent))
    }

    /// Its last name.
    pub(crate) fn name(&self) -> &str {
        self.0.rsplit_once('/').map_or(&self.0, |(_, name)| name)
    }

    /// Where it goes if it is archived; with a number where something else is.
    pub(crate) fn archived(&self, number: u32) -> Self {
        let mut names: Vec<String> = self.0.split('/').map(str::to_owned).collect();
        if let Some(first) = names.first_mut() {
            first.insert_str(0, "archived-");
        }
        if let Some(last) = names.last_mut().filter(|_| number > 0) {
            last.push_str(&format!("-{number}"));
        }
        let names: Vec<String> = names.into_iter().map(shortened).collect();
        Self(names.join("/"))
    }
}

/// A name that a folder can have: the end of one that is too long for that is told by a digest.
fn shortened(name: String) -> String {
    if name.len() <= LONGEST_NAME {
        return name;
    }
    let digest = digest(&name);
    let end = name.floor_char_boundary(LONGEST_NAME - 1 - digest.len());
    format!("{}-{digest}", &name[..end])
}

impl TryFrom<String> for SubDir {
    type Error = SubDirError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl std::fmt::Display for SubDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a request tells about claim and volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told<'a> {
    pub(crate) claim: Option<&'a str>,
    pub(crate) namespace: Option<&'a str>,
    pub(crate) volume: Option<&'a str>,
}

/// What becomes of a word of a template that the request says nothing about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Untold {
    /// It is refused: all volumes of a class would share a folder.
    Refused,
    /// It stays: a folder that is there may have just that name.
    Left,
}

/// Fills in a template.
pub(crate) fn expand(
    template: &str,
    told: Told<'_>,
    untold: Untold,
) -> Result<String, SubDirError> {
    let words = [
        ("${pvc.metadata.name}", told.claim),
        ("${pvc.metadata.namespace}", told.namespace),
        ("${pv.metadata.name}", told.volume),
    ];
    if untold == Untold::Refused {
        let strange = template.match_indices("${").map(|(at, _)| &template[at..]);
        let mut strange =
            strange.filter(|text| !words.iter().any(|(word, _)| text.starts_with(word)));
        if let Some(text) = strange.next() {
            let end = text.find('}').map_or(text.len(), |at| at + 1);
            return Err(SubDirError::Word(text[..end].to_owned()));
        }
    }
    let mut text = template.to_owned();
    for (word, value) in words {
        match (text.contains(word), value) {
            (true, Some(value)) => text = text.replace(word, value),
            (true, None) if untold == Untold::Refused => return Err(SubDirError::Template(word)),
            _ => {}
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_out_of_the_share_or_to_its_root_is_refused() {
        for text in [
            "",
            "/",
            "//",
            ".",
            "..",
            "../x",
            "a/..",
            "a/../..",
            "a/./b",
            "a//b",
            "..\\..",
            "a\\..",
            "a\0b",
            "a\nb",
            ".orlop-csi",
            "/.orlop-csi/trash",
            "deep/.orlop-csi",
            "deep/.orlop-csi/volumes",
        ] {
            assert!(SubDir::parse(text).is_err(), "{text:?}");
        }
        for text in ["a", "/a/", "a/b", "..a", "a..b", ".hidden", "a b", "a\\b"] {
            assert!(SubDir::parse(text).is_ok(), "{text:?}");
        }
    }

    #[test]
    fn a_path_knows_its_folder_its_name_and_its_archive() {
        let deep = SubDir::parse("/ns/claim/").unwrap();
        assert_eq!(deep.as_str(), "ns/claim");
        assert_eq!(deep.parent(), Some("ns".into()));
        assert_eq!(deep.name(), "claim");
        assert_eq!(deep.archived(0).as_str(), "archived-ns/claim");
        assert_eq!(deep.archived(2).as_str(), "archived-ns/claim-2");
        assert_eq!(SubDir::parse("x").unwrap().parent(), None);
    }

    #[test]
    fn the_archive_of_the_longest_name_has_one_of_its_own_that_is_none_too_long() {
        let long = "ä".repeat(127);
        let mut names = std::collections::BTreeSet::new();
        for text in [long.clone(), format!("{long}/{long}"), format!("a/{long}b")] {
            for number in [0, 1, 9999] {
                let archived = SubDir::parse(&text).unwrap().archived(number);
                assert_eq!(SubDir::parse(archived.as_str()), Ok(archived.clone()));
                assert!(archived.as_str().starts_with("archived-"));
                assert!(names.insert(archived), "{text} {number}");
            }
        }
    }

    #[test]
    fn a_template_that_is_none_is_refused_and_found_where_it_is_there() {
        let told = Told {
            claim: Some("data"),
            namespace: Some("ns"),
            volume: Some("pvc-1"),
        };
        for (template, word) in [
            ("x/${pvc.metadata.nmae}", "${pvc.metadata.nmae}"),
            (
                "${pvc.metadata.name}-${pvc.metadata.labels.team}/x",
                "${pvc.metadata.labels.team}",
            ),
            ("${pvc.metadata.name", "${pvc.metadata.name"),
            ("${}", "${}"),
        ] {
            let refused = expand(template, told, Untold::Refused).unwrap_err();
            assert_eq!(refused, SubDirError::Word(word.to_owned()));
            assert!(
                refused.to_string().contains("none of ${pvc.metadata.name}"),
                "{refused}"
            );
            assert!(expand(template, told, Untold::Left).is_ok(), "{template}");
        }
        assert_eq!(expand("$x/{y}", told, Untold::Refused).unwrap(), "$x/{y}");
    }

    #[test]
    fn templates_are_filled_in_or_refused() {
        let told = Told {
            claim: Some("data"),
            namespace: Some("ns"),
            volume: None,
        };
        assert_eq!(
            expand(
                "${pvc.metadata.namespace}/${pvc.metadata.name}/x",
                told,
                Untold::Refused
            )
            .unwrap(),
            "ns/data/x"
        );
        assert_eq!(
            expand("${pv.metadata.name}", told, Untold::Refused),
            Err(SubDirError::Template("${pv.metadata.name}"))
        );
        // What a name looks like doesn't make it a template.
        let odd = Told {
            claim: Some("${pv.metadata.name}"),
            ..told
        };
        assert!(expand("${pvc.metadata.name}", odd, Untold::Refused).is_err());
        assert_eq!(
            expand("${pv.metadata.name}", told, Untold::Left).unwrap(),
            "${pv.metadata.name}"
        );
    }
}
