//! What mounts of this node show, as far as the kernel's table tells: also if the original made them.
//!
//! Pure. The table never waits for a server, but it doesn't tell by which name a share was mounted: the
//! kernel lets mounts of one server's file system share it, and tells the name that the first of them
//! was made by, or the address that it reaches the same server by. So a worker compares with what the
//! table tells of its own mount of the share: by the device, and by name and address where the kernel
//! has two devices for one file system.

use std::path::Path;

use orlop_host::{Mount, MountTable};
use serde::{Deserialize, Serialize};

use super::export::Export;
use super::sub_dir::SubDir;

/// What a mount shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) point: String,
    device: (u32, u32),
    /// Name and address of its server; empty for what has none.
    servers: Vec<String>,
    /// What it may show of its server or device: the table can be read in two ways.
    paths: Vec<String>,
}

impl Seen {
    pub(crate) fn of(mount: &Mount) -> Self {
        let root = mount.root.to_string_lossy();
        let root = root.trim_matches('/');
        let mut seen = Self {
            point: mount.point.display().to_string(),
            device: (mount.device.major, mount.device.minor),
            servers: Vec::new(),
            paths: vec![root.to_owned()],
        };
        let source = mount.source.to_string_lossy();
        if let Some((server, path)) = source.split_once(":/").filter(|_| is_nfs(mount)) {
            seen.servers.push(bare(server));
            let options = mount.super_options.iter();
            let address = options.filter_map(|word| word.to_str()?.strip_prefix("addr="));
            seen.servers.extend(address.map(bare));
            seen.paths = paths(path.trim_matches('/'), root);
        }
        seen
    }

    /// What is held of it, where that is not all.
    pub(crate) fn below(mut self, way: &Path) -> Self {
        let way = way.to_string_lossy();
        for path in &mut self.paths {
            *path = joined(path, &way);
        }
        self
    }

    /// The same share as a caller named it.
    pub(crate) fn known_as(mut self, export: &Export, address: Option<std::net::IpAddr>) -> Self {
        if !self.servers.is_empty() {
            self.servers.push(bare(&export.server));
            self.servers.extend(address.map(|it| it.to_string()));
            self.paths.push(export.share.clone());
        }
        self
    }

    fn is_one_server_with(&self, other: &Self) -> bool {
        let known = |server| other.servers.contains(server);
        self.device == other.device || self.servers.iter().any(known)
    }
}

/// All that mounts of a node show of servers; of anything, where folders stand for servers.
pub(crate) fn all(table: &MountTable, of_anything: bool) -> Vec<Seen> {
    let mounts = table.iter().filter(|mount| of_anything || is_nfs(mount));
    mounts.map(Seen::of).collect()
}

pub(crate) fn is_nfs(mount: &Mount) -> bool {
    matches!(mount.fs_type.to_str(), Some("nfs" | "nfs4"))
}

/// How what is shown stands to a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    /// It is the folder.
    Same,
    /// It is in the folder.
    Below,
    /// The folder is in it, and it is not the whole share.
    Above,
}

/// How a mount of the node stands to a folder of a share, which is seen as well.
pub(crate) fn relation(seen: &Seen, share: &Seen, folder: Option<&SubDir>) -> Option<Relation> {
    if !seen.is_one_server_with(share) {
        return None;
    }
    let pairs = seen
        .paths
        .iter()
        .flat_map(|path| share.paths.iter().map(move |share| (path, share)));
    let relations = pairs.filter_map(|(path, share)| {
        let whole = folder.map_or_else(|| share.clone(), |it| joined(share, it.as_str()));
        let (path, whole, share) = (Path::new(path), Path::new(&whole), Path::new(share));
        if path == whole {
            Some(Relation::Same)
        } else if path.starts_with(whole) {
            Some(Relation::Below)
        } else if whole.starts_with(path) && path != share && path.starts_with(share) {
            Some(Relation::Above)
        } else {
            None
        }
    });
    let relations: Vec<Relation> = relations.collect();
    [Relation::Same, Relation::Below, Relation::Above]
        .into_iter()
        .find(|relation| relations.contains(relation))
}

/// Whether a mount shows a folder of a share, or the share itself, by the very name that it has here.
pub(crate) fn shows(mount: &Mount, export: &Export, folder: Option<&SubDir>) -> bool {
    let seen = Seen::of(mount);
    let named = Seen {
        point: String::new(),
        device: seen.device,
        servers: vec![bare(&export.server)],
        paths: vec![export.share.clone()],
    };
    is_nfs(mount)
        && seen.servers.first() == named.servers.first()
        && relation(&seen, &named, folder) == Some(Relation::Same)
}

/// The paths on its server that a source and a root can mean: the root may begin above the source,
/// where the server's file system does.
fn paths(source: &str, root: &str) -> Vec<String> {
    let mut paths = vec![joined(source, root)];
    let names: Vec<&str> = source.split('/').collect();
    for from in 0..names.len() {
        let end = names[from..].join("/");
        if let Ok(below) = Path::new(root).strip_prefix(&end)
            && !end.is_empty()
        {
            paths.push(joined(source, &below.to_string_lossy()));
        }
    }
    paths
}

fn joined(path: &str, below: &str) -> String {
    match (path, below) {
        ("", other) | (other, "") => other.to_owned(),
        (path, below) => format!("{path}/{below}"),
    }
}

/// A server as it is compared: addresses have several spellings, names have no case.
fn bare(server: &str) -> String {
    let bare = server.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<std::net::IpAddr>() {
        Ok(address) => address.to_string(),
        Err(_) => bare.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(device: &str, root: &str, source: &str, options: &str) -> Seen {
        let text = format!("40 22 {device} {root} /p rw - nfs4 {source} {options}\n");
        let table = MountTable::parse(text.as_bytes()).unwrap();
        all(&table, false).pop().unwrap()
    }

    fn stands(seen: &Seen, folder: &str) -> Option<Relation> {
        let export = Export::parse("s", "/data").unwrap();
        let share = line("0:99", "/", "s:/data", "rw").known_as(&export, None);
        relation(seen, &share, Some(&SubDir::parse(folder).unwrap()))
    }

    #[test]
    fn a_folder_is_shown_whoever_mounted_it_and_no_other_is_taken_for_it() {
        let ours = line("0:41", "/pvc-1", "s:/data", "rw");
        let theirs = line("0:41", "/", "s:/data/pvc-1", "rw");
        // A file system that begins above the share.
        let above = line("0:41", "/data/pvc-1", "s:/data", "rw");
        for seen in [ours, theirs, above] {
            assert_eq!(stands(&seen, "pvc-1"), Some(Relation::Same), "{seen:?}");
            for other in ["pvc-10", "vc-1", "a/pvc-1"] {
                assert_eq!(stands(&seen, other), None, "{seen:?} {other}");
            }
        }
        for (source, root) in [("t:/data", "/pvc-1"), ("s:/data", "/sub/pvc-1")] {
            assert_eq!(stands(&line("0:41", root, source, "rw"), "pvc-1"), None);
        }
        let table = MountTable::parse(b"40 22 0:41 /pvc-1 /p rw - ext4 s:/data rw\n").unwrap();
        assert_eq!(all(&table, false), []);
    }

    #[test]
    fn a_folder_is_shown_by_whatever_name_of_its_server_the_kernel_tells() {
        let export = Export::parse("localhost", "/data").unwrap();
        let folder = SubDir::parse("pvc-1").unwrap();
        let folder = Some(&folder);
        // The kernel reaches the server by an address that nobody asked for, and tells so of both.
        let pod = line("0:37", "/", "[::1]:/data/pvc-1", "rw,vers=4.2,addr=::1");
        let own = line("0:37", "/", "[::1]:/data", "rw,vers=4.2,addr=::1");
        let own = own.known_as(&export, Some([127, 0, 0, 1].into()));
        assert_eq!(relation(&pod, &own, folder), Some(Relation::Same));
        // By other options, on a device of its own.
        let own = line("0:38", "/", "localhost:/data", "rw,vers=3,addr=127.0.0.1");
        let own = own.known_as(&export, Some([127, 0, 0, 1].into()));
        assert_eq!(relation(&pod, &own, folder), None);
        let pod = line("0:37", "/", "nfs:/data/pvc-1", "rw,vers=4.2,addr=127.0.0.1");
        assert_eq!(relation(&pod, &own, folder), Some(Relation::Same));
        let other = line("0:37", "/", "nfs:/data/pvc-1", "rw,vers=4.2,addr=127.0.0.2");
        assert_eq!(relation(&other, &own, folder), None);
    }

    #[test]
    fn what_is_in_a_folder_or_around_it_is_told_and_the_whole_share_is_not() {
        let seen = |path: &str| line("0:41", "/", &format!("s:/{path}"), "rw");
        for (path, folder, relation) in [
            ("data/team/db", "team", Some(Relation::Below)),
            ("data/team", "team/db", Some(Relation::Above)),
            ("data/team", "teams/db", None),
            ("data", "team", None),
            ("", "team", None),
        ] {
            assert_eq!(stands(&seen(path), folder), relation, "{path} {folder}");
        }
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
        assert!(!shown("40 22 0:41 / /p rw - nfs4 t:/data rw\n"));
    }
}
