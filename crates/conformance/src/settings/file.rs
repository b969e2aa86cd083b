//! Parameters and secrets by file: JSON, or the plain `key: value` lines that
//! csi-sanity's users have.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use orlop_csi::Method;

use super::Secrets;

/// A file that can't be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It can't be read.
    #[error("could not read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not in the form that it must have.
    #[error("{} is no map of strings: {problem}", path.display())]
    Form {
        /// Which.
        path: PathBuf,
        /// What is wrong; never a value.
        problem: String,
    },
    /// A section is named after no call.
    #[error(
        "{} has secrets for {section:?}, which is no call; write for example CreateVolumeSecret",
        path.display()
    )]
    Section {
        /// Which file.
        path: PathBuf,
        /// The unknown name.
        section: String,
    },
}

type Map = BTreeMap<String, String>;

/// Reads a map of strings.
pub fn read_parameters(path: &Path) -> Result<Map, FileError> {
    let text = read(path)?;
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(&text).map_err(|error| form(path, error.line()));
    }
    let mut sections = sections(path, &text)?;
    let top = sections.remove("").unwrap_or_default();
    match sections.keys().next() {
        None => Ok(top),
        Some(section) => Err(FileError::Form {
            path: path.to_owned(),
            problem: format!("{section} holds a map"),
        }),
    }
}

/// Reads secrets by call: `CreateVolumeSecret`, `NodeStageVolumeSecret` and so on, as
/// csi-sanity names them, or the bare names of the calls.
pub fn read_secrets(path: &Path) -> Result<Secrets, FileError> {
    let text = read(path)?;
    let sections: BTreeMap<String, Map> = if text.trim_start().starts_with('{') {
        serde_json::from_str(&text).map_err(|error| form(path, error.line()))?
    } else {
        sections(path, &text)?
    };
    let mut secrets = Secrets::default();
    for (section, values) in sections {
        if section.is_empty() && values.is_empty() {
            continue;
        }
        let name = section.strip_suffix("Secret").unwrap_or(&section);
        // csi-sanity's own short names.
        let name = match name {
            "ControllerValidateVolumeCapabilities" => "ValidateVolumeCapabilities",
            other => other,
        };
        let method = Method::ALL.iter().find(|method| method.name() == name);
        let Some(method) = method else {
            return Err(FileError::Section {
                path: path.to_owned(),
                section,
            });
        };
        secrets.insert(*method, values);
    }
    Ok(secrets)
}

fn read(path: &Path) -> Result<String, FileError> {
    std::fs::read_to_string(path).map_err(|source| FileError::Read {
        path: path.to_owned(),
        source,
    })
}

/// The line alone: serde's own words may show a value.
fn form(path: &Path, line: usize) -> FileError {
    FileError::Form {
        path: path.to_owned(),
        problem: format!("see line {line}"),
    }
}

/// `key: value` lines, and those below a `section:` line that are indented.
fn sections(path: &Path, text: &str) -> Result<BTreeMap<String, Map>, FileError> {
    let mut sections = BTreeMap::<String, Map>::new();
    let mut current = String::new();
    for (number, line) in text.lines().enumerate() {
        let content = line.trim();
        if content.is_empty() || content.starts_with('#') || content == "---" {
            continue;
        }
        let (key, value) = content
            .split_once(": ")
            .or_else(|| content.strip_suffix(':').map(|key| (key, "")))
            .ok_or_else(|| form(path, number + 1))?;
        let (key, value) = (unquoted(key), unquoted(value));
        let indented = line.starts_with([' ', '\t']);
        if !indented && content.ends_with(':') {
            sections.entry(key.clone()).or_default();
            current = key;
            continue;
        }
        if !indented {
            current.clear();
        }
        sections
            .entry(current.clone())
            .or_default()
            .insert(key, value);
    }
    Ok(sections)
}

fn unquoted(text: &str) -> String {
    let text = text.trim();
    for quote in ['"', '\''] {
        if let Some(inner) = text
            .strip_prefix(quote)
            .and_then(|rest| rest.strip_suffix(quote))
        {
            return inner.to_owned();
        }
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<T>(text: &str, read: impl Fn(&Path) -> T) -> T {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("written");
        read(file.path())
    }

    #[test]
    fn parameters_are_read_from_json_and_from_lines() {
        let wanted = Map::from([("a".into(), "1".into()), ("b/c".into(), "x: y".into())]);
        for text in [
            r#"{"a": "1", "b/c": "x: y"}"#,
            "# of the class\na: \"1\"\nb/c: x: y\n",
        ] {
            assert_eq!(with(text, read_parameters).expect("read"), wanted, "{text}");
        }
    }

    #[test]
    fn secrets_are_read_by_call() {
        for text in [
            "CreateVolumeSecret:\n  key: value\nNodeStageVolume:\n  other: 'x'\n",
            r#"{"CreateVolume": {"key": "value"}, "NodeStageVolumeSecret": {"other": "x"}}"#,
        ] {
            let secrets = with(text, read_secrets).expect("read");
            assert_eq!(secrets.of(Method::CreateVolume)["key"], "value");
            assert_eq!(secrets.of(Method::NodeStageVolume)["other"], "x");
            assert!(secrets.of(Method::DeleteVolume).is_empty());
        }
    }

    #[test]
    fn a_bad_file_is_refused_without_its_values() {
        for text in [
            "{\"CreateVolume\": \"hunter2\"}",
            "hunter2",
            "Nothing:\n  a: hunter2",
        ] {
            let error = with(text, read_secrets).expect_err("refused").to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
