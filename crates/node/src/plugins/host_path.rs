//! hostPath: a path of the host, with the kubelet's checks and its words.

use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use orlop_model::volume::HostPathSource;

use super::{VolumeError, at};

/// Checks a path of the host, and makes what is missing where that is asked for. A path that
/// nothing is said of is made as a folder, as container runtimes do it.
pub(crate) fn host_path(source: &HostPathSource) -> Result<PathBuf, VolumeError> {
    let path = PathBuf::from(&source.path);
    let mut parts = path.components();
    if !path.is_absolute() || parts.any(|part| part == Component::ParentDir) {
        return Err(VolumeError::BadHostPath(source.path.clone()));
    }
    let wanted = source.type_.as_deref().unwrap_or_default();
    let found = match std::fs::metadata(&path) {
        Ok(found) => Some(found.file_type()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(at("look at", &path)(error)),
    };
    let fits = match (wanted, found) {
        ("" | "DirectoryOrCreate", None) => {
            make_folder(&path)?;
            Ok(())
        }
        ("FileOrCreate", None) => {
            make_file(&path)?;
            Ok(())
        }
        ("", Some(_)) => Ok(()),
        ("Directory" | "DirectoryOrCreate", found) => {
            check(found.is_some_and(|found| found.is_dir()), "directory")
        }
        ("File" | "FileOrCreate", found) => {
            check(found.is_some_and(|found| !found.is_dir()), "file")
        }
        ("Socket", found) => check(found.is_some_and(|f| f.is_socket()), "socket file"),
        ("CharDevice", found) => check(
            found.is_some_and(|f| f.is_char_device()),
            "character device",
        ),
        ("BlockDevice", found) => check(found.is_some_and(|f| f.is_block_device()), "block device"),
        _ => return Err(VolumeError::HostPathType(wanted.to_owned())),
    };
    fits.map(|()| path).map_err(|wanted| VolumeError::HostPath {
        path: source.path.clone(),
        wanted,
    })
}

fn check(fits: bool, wanted: &'static str) -> Result<(), &'static str> {
    if fits { Ok(()) } else { Err(wanted) }
}

fn make_folder(path: &Path) -> Result<(), VolumeError> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o755);
    builder.create(path).map_err(at("make", path))
}

fn make_file(path: &Path) -> Result<(), VolumeError> {
    let mut options = std::fs::OpenOptions::new();
    options.create(true).append(true).mode(0o644);
    options.open(path).map_err(at("make", path)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_takes_what_the_kubelet_takes() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name).display().to_string();
        std::fs::create_dir(at("dir")).expect("a folder");
        std::fs::write(at("file"), "").expect("a file");
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).expect("a socket");
        std::os::unix::fs::symlink(at("dir"), at("link")).expect("a link");
        let null = "/dev/null".to_owned();
        let not = |path: &str, what: &str| {
            Err(format!(
                "hostPath type check failed: {path} is not a {what}"
            ))
        };
        let cases = [
            (at("dir"), "", Ok(())),
            (at("file"), "", Ok(())),
            (at("dir"), "Directory", Ok(())),
            (at("link"), "Directory", Ok(())),
            (at("file"), "Directory", not(&at("file"), "directory")),
            (at("none"), "Directory", not(&at("none"), "directory")),
            (
                at("file"),
                "DirectoryOrCreate",
                not(&at("file"), "directory"),
            ),
            (at("new/deep"), "DirectoryOrCreate", Ok(())),
            (at("file"), "File", Ok(())),
            (at("dir"), "File", not(&at("dir"), "file")),
            (at("none"), "File", not(&at("none"), "file")),
            (at("new-file"), "FileOrCreate", Ok(())),
            (at("dir"), "FileOrCreate", not(&at("dir"), "file")),
            (at("socket"), "Socket", Ok(())),
            (at("file"), "Socket", not(&at("file"), "socket file")),
            (null.clone(), "CharDevice", Ok(())),
            (
                at("file"),
                "CharDevice",
                not(&at("file"), "character device"),
            ),
            (null.clone(), "BlockDevice", not(&null, "block device")),
            (
                at("dir"),
                "Fifo",
                Err("Fifo is an invalid volume type".to_owned()),
            ),
            (at("dir/../x"), "", Err("must not contain '..'".to_owned())),
            ("new".into(), "", Err("must be absolute".to_owned())),
        ];
        for (path, type_, wanted) in cases {
            let source = HostPathSource {
                path: path.clone(),
                type_: Some(type_.to_owned()),
            };
            match (host_path(&source), wanted) {
                (Ok(found), Ok(())) => assert_eq!(found, Path::new(&path)),
                (Err(error), Err(words)) => {
                    assert!(error.to_string().contains(&words), "{error}");
                }
                (found, wanted) => panic!("{path} {type_}: {found:?}, not {wanted:?}"),
            }
        }
        assert!(Path::new(&at("new/deep")).is_dir());
        assert!(Path::new(&at("new-file")).is_file());
        assert!(!Path::new(&at("none")).exists());
        let deep = HostPathSource {
            path: at("missing/file"),
            type_: Some("FileOrCreate".to_owned()),
        };
        assert!(host_path(&deep).is_err(), "only the file itself is made");
    }
}
