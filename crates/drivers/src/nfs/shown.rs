//! What a mount of this node shows, as far as the kernel's table tells: also if the original made it.
//!
//! Pure. The table never waits for a server.

use std::path::Path;

use orlop_host::{Mount, MountTable};

use super::export::Export;
use super::sub_dir::SubDir;

/// Whether a mount shows a folder of a share, or the share itself.
pub(super) fn shows(mount: &Mount, export: &Export, folder: Option<&SubDir>) -> bool {
    if !mount.fs_type.to_string_lossy().starts_with("nfs") {
        return false;
    }
    let folder = folder.map_or("", |folder| folder.as_str());
    let share = export.source();
    let share = share.trim_end_matches('/');
    let source = mount.source.to_string_lossy();
    let source = source.trim_end_matches('/');
    let root = mount.root.to_string_lossy();
    let root = root.trim_matches('/');
    let whole = format!("{source}/{root}");
    if whole.trim_end_matches('/') == format!("{share}/{folder}").trim_end_matches('/') {
        return true;
    }
    // The root that the kernel tells may begin above the share, where the server's file system does.
    let above = match folder {
        "" => Some(format!("{root}/")),
        folder => root.strip_suffix(folder).map(str::to_owned),
    };
    source == share && above.is_some_and(|above| is_end_of(&export.share, &above))
}

/// Whether a path ends with whole names: all of these, or none.
fn is_end_of(share: &str, names: &str) -> bool {
    match names {
        "" => true,
        names => names.ends_with('/') && Path::new(share).ends_with(names),
    }
}

/// A path of this node that shows a volume's folder.
pub(super) fn somewhere<'a>(
    table: &'a MountTable,
    export: &Export,
    folder: &SubDir,
) -> Option<&'a Path> {
    let shown = |mount: &&Mount| shows(mount, export, Some(folder));
    table.iter().find(shown).map(|mount| mount.point.as_path())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(line: &str, folder: &str) -> bool {
        let table = MountTable::parse(line.as_bytes()).unwrap();
        let export = Export::parse("s", "/data").unwrap();
        let folder = SubDir::parse(folder).unwrap();
        somewhere(&table, &export, &folder).is_some()
    }

    #[test]
    fn a_folder_is_shown_whoever_mounted_it_and_no_other_is_taken_for_it() {
        let ours = "40 22 0:41 /pvc-1 /p rw - nfs4 s:/data rw\n";
        let theirs = "40 22 0:41 / /p rw - nfs4 s:/data/pvc-1 rw\n";
        for line in [ours, theirs] {
            assert!(seen(line, "pvc-1"), "{line}");
            for other in ["pvc-10", "vc-1", "a/pvc-1"] {
                assert!(!seen(line, other), "{line} {other}");
            }
        }
        assert!(!seen(
            "40 22 0:41 /pvc-1 /p rw - ext4 s:/data rw\n",
            "pvc-1"
        ));
        assert!(!seen(
            "40 22 0:41 /pvc-1 /p rw - nfs4 t:/data rw\n",
            "pvc-1"
        ));
        assert!(!seen("40 22 0:41 / /p rw - nfs4 s:/data rw\n", "pvc-1"));
        // A file system that begins above the share, and a folder of the same name in another.
        assert!(seen(
            "40 22 0:41 /data/pvc-1 /p rw - nfs4 s:/data rw\n",
            "pvc-1"
        ));
        assert!(!seen(
            "40 22 0:41 /sub/pvc-1 /p rw - nfs4 s:/data rw\n",
            "pvc-1"
        ));
    }

    #[test]
    fn a_share_is_shown_by_a_mount_of_its_root_alone() {
        let export = Export::parse("s", "/data").unwrap();
        let shown = |line: &str| {
            let table = MountTable::parse(line.as_bytes()).unwrap();
            table.iter().any(|mount| shows(mount, &export, None))
        };
        assert!(shown("40 22 0:41 / /p rw - nfs4 s:/data rw\n"));
        assert!(shown("40 22 0:41 /data /p rw - nfs4 s:/data rw\n"));
        assert!(!shown("40 22 0:41 /pvc-1 /p rw - nfs4 s:/data rw\n"));
    }
}
