//! From a container's volume mounts to what the runner mounts.

use std::path::{Component, Path, PathBuf};

use orlop_host::sandbox::{Below, Mount, Propagation, Writable};
use orlop_model::pod::VolumeMount;

use super::container::{DescribeError, expand};

/// Why a mount cannot be made as it is written.
#[derive(Debug, thiserror::Error)]
pub(super) enum MountProblem {
    #[error("subPath {0:?} must not be an absolute path")]
    Absolute(String),
    #[error("subPath {0:?} must not contain '..'")]
    Backsteps(String),
    #[error("subPathExpr {expression:?} needs variable {variable:?}, which the container lacks")]
    NoVariable {
        expression: String,
        variable: String,
    },
    #[error("mountPropagation {0:?} is not known")]
    Propagation(String),
    #[error("mountPropagation Bidirectional is for privileged containers only")]
    NotPrivileged,
    #[error("recursiveReadOnly {0:?} is not known")]
    Recursive(String),
    #[error("recursiveReadOnly asks for a mount that is read-only and not propagated")]
    RecursiveButWritable,
}

/// What is known of a mount's surroundings.
pub(super) struct Around<'a> {
    /// Where the volume is.
    pub(super) source: PathBuf,
    /// Whether the volume may be read only, however it is mounted.
    pub(super) read_only: bool,
    pub(super) privileged: bool,
    /// The container's variables.
    pub(super) env: &'a [(String, String)],
}

pub(super) fn mount(mount: &VolumeMount, around: Around<'_>) -> Result<Mount, DescribeError> {
    let problem = |problem| DescribeError::Mount {
        volume: mount.name.clone(),
        path: mount.mount_path.clone(),
        problem,
    };
    let part = part(mount, around.env).map_err(problem)?;
    let read_only = mount.read_only || around.read_only;
    let propagation = propagation(mount, around.privileged).map_err(problem)?;
    Ok(Mount {
        volume: mount.name.clone(),
        source: around.source,
        sub_path: part.map(PathBuf::from),
        target: Path::new("/").join(&mount.mount_path),
        access: if read_only {
            Writable::ReadOnly
        } else {
            Writable::ReadWrite
        },
        below: below(mount, read_only, propagation).map_err(problem)?,
        propagation,
    })
}

/// Which part of the volume is mounted: a path below it, whatever variables hold.
fn part(mount: &VolumeMount, env: &[(String, String)]) -> Result<Option<String>, MountProblem> {
    let part = if mount.sub_path_expr.is_empty() {
        mount.sub_path.clone()
    } else {
        expression(&mount.sub_path_expr, env)?
    };
    if part.is_empty() {
        return Ok(None);
    }
    let path = Path::new(&part);
    if path.is_absolute() {
        return Err(MountProblem::Absolute(part));
    }
    if path.components().any(|name| name == Component::ParentDir) {
        return Err(MountProblem::Backsteps(part));
    }
    Ok(Some(part))
}

/// As variables are replaced elsewhere, but one that is missing is an error: the name of a
/// folder is nothing to guess.
fn expression(text: &str, env: &[(String, String)]) -> Result<String, MountProblem> {
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("$$") {
            rest = after;
            continue;
        }
        let inner = rest
            .strip_prefix("$(")
            .and_then(|inner| inner.split_once(')'));
        if let Some((name, _)) = inner
            && !env.iter().any(|(known, _)| known == name)
        {
            return Err(MountProblem::NoVariable {
                expression: text.to_owned(),
                variable: name.to_owned(),
            });
        }
        rest = &rest[1..];
    }
    Ok(expand(text, env))
}

fn propagation(mount: &VolumeMount, privileged: bool) -> Result<Propagation, MountProblem> {
    match mount.mount_propagation.as_str() {
        "" | "None" => Ok(Propagation::None),
        "HostToContainer" => Ok(Propagation::HostToContainer),
        "Bidirectional" if privileged => Ok(Propagation::Bidirectional),
        "Bidirectional" => Err(MountProblem::NotPrivileged),
        other => Err(MountProblem::Propagation(other.to_owned())),
    }
}

fn below(
    mount: &VolumeMount,
    read_only: bool,
    propagation: Propagation,
) -> Result<Below, MountProblem> {
    match mount.recursive_read_only.as_str() {
        "" | "Disabled" => Ok(Below::AsItIs),
        "Enabled" if read_only && propagation == Propagation::None => Ok(Below::ReadOnly),
        "IfPossible" if read_only && propagation == Propagation::None => {
            Ok(Below::ReadOnlyIfPossible)
        }
        "Enabled" | "IfPossible" => Err(MountProblem::RecursiveButWritable),
        other => Err(MountProblem::Recursive(other.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env() -> Vec<(String, String)> {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        vec![pair("POD", "web"), pair("UP", "../x"), pair("ROOT", "/x")]
    }

    #[test]
    fn a_part_stays_below_its_volume_whatever_variables_hold() {
        let cases = [
            ("", "", Ok(None)),
            ("a/b", "", Ok(Some("a/b"))),
            ("", "$(POD)/logs", Ok(Some("web/logs"))),
            ("", "$$(POD)", Ok(Some("$(POD)"))),
            ("../a", "", Err("must not contain '..'")),
            ("a/../../b", "", Err("must not contain '..'")),
            ("/a", "", Err("must not be an absolute path")),
            ("", "$(UP)", Err("must not contain '..'")),
            ("", "$(ROOT)", Err("must not be an absolute path")),
            ("", "$(NONE)", Err("needs variable \"NONE\"")),
        ];
        for (sub_path, sub_path_expr, wanted) in cases {
            let mount = VolumeMount {
                sub_path: sub_path.into(),
                sub_path_expr: sub_path_expr.into(),
                ..VolumeMount::default()
            };
            let found = part(&mount, &env()).map_err(|error| error.to_string());
            match wanted {
                Ok(wanted) => assert_eq!(found.as_ref().map(|part| part.as_deref()), Ok(wanted)),
                Err(words) => assert!(
                    found.as_ref().is_err_and(|e| e.contains(words)),
                    "{found:?}"
                ),
            }
        }
    }

    #[test]
    fn what_a_mount_may_ask_for_depends_on_the_rest_of_it() {
        let cases = [
            (
                ("", "", false),
                false,
                Ok((Propagation::None, Below::AsItIs)),
            ),
            (
                ("HostToContainer", "", false),
                false,
                Ok((Propagation::HostToContainer, Below::AsItIs)),
            ),
            (("Bidirectional", "", false), false, Err("privileged")),
            (
                ("Bidirectional", "", false),
                true,
                Ok((Propagation::Bidirectional, Below::AsItIs)),
            ),
            (("Both", "", false), true, Err("is not known")),
            (
                ("", "Enabled", true),
                false,
                Ok((Propagation::None, Below::ReadOnly)),
            ),
            (("", "Enabled", false), false, Err("read-only")),
            (
                ("HostToContainer", "IfPossible", true),
                false,
                Err("not propagated"),
            ),
            (("", "Sometimes", true), false, Err("is not known")),
        ];
        for ((propagation, recursive, read_only), privileged, wanted) in cases {
            let asked = VolumeMount {
                mount_path: "/v".into(),
                mount_propagation: propagation.into(),
                recursive_read_only: recursive.into(),
                read_only,
                ..VolumeMount::default()
            };
            let around = Around {
                source: "/s".into(),
                read_only: false,
                privileged,
                env: &[],
            };
            let found = mount(&asked, around)
                .map(|mount| (mount.propagation, mount.below))
                .map_err(|error| crate::words::chain(&error));
            match wanted {
                Ok(wanted) => assert_eq!(found, Ok(wanted)),
                Err(words) => assert!(
                    found.as_ref().is_err_and(|e| e.contains(words)),
                    "{found:?}"
                ),
            }
        }
    }
}
