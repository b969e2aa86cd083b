//! Mount options: those of the kernel's NFS client, and no others.
//!
//! Pure. What mount.nfs would have kept for itself (`bg`, `retry`, `_netdev` …) means nothing here
//! and is left out. An option's value may be sensitive, so refusals name only the option.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use orlop_host::mount::{AccessTimes, FsOption, Restrictions};
use serde::{Deserialize, Serialize};

use super::export::Export;

/// How a share is mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MountPlan {
    /// The version asked for; without one the highest that both sides speak.
    pub(crate) version: Option<String>,
    /// Options of the client: name and value.
    pub(crate) options: Vec<(String, Option<String>)>,
    /// Words for the mount itself, such as `noexec`.
    pub(crate) flags: Vec<String>,
}

/// How a server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Udp,
    Rdma,
}

/// Why an option cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OptionRefused {
    #[error("mount option {0} is not one of the NFS client's; take it out of mountOptions")]
    Unknown(String),
    /// Who it says to be asked for the share's root could be anybody.
    #[error("mount option {0:?} is not allowed: the share's server is asked and no other")]
    Elsewhere(String),
    #[error("mount option {0} has a value that it cannot have; mend it in mountOptions")]
    Value(String),
    #[error("mount option {0:?} has the value {1:?}, which is no number")]
    Number(String, String),
    #[error("NFS version {0:?} of mount option {1:?} is none of 3, 4, 4.0, 4.1, 4.2")]
    Version(String, String),
}

/// Options with a value that is a number, a word or an address.
const VALUED: &[&str] = &[
    "acdirmax",
    "acdirmin",
    "acregmax",
    "acregmin",
    "actimeo",
    "bsize",
    "clientaddr",
    "fsc",
    "local_lock",
    "lookupcache",
    "max_connect",
    "mountport",
    "mountproto",
    "mountvers",
    "namlen",
    "nconnect",
    "port",
    "proto",
    "retrans",
    "rsize",
    "sec",
    "timeo",
    "write",
    "wsize",
    "xprtsec",
];
/// Those of them that are numbers, which may be shown: nobody keeps a number secret there.
const NUMBERS: &[&str] = &[
    "acdirmax",
    "acdirmin",
    "acregmax",
    "acregmin",
    "actimeo",
    "bsize",
    "max_connect",
    "mountport",
    "mountvers",
    "namlen",
    "nconnect",
    "port",
    "retrans",
    "rsize",
    "timeo",
    "wsize",
];
/// Labels of SELinux, which have letters of their own.
const LABELS: &[&str] = &["context", "defcontext", "fscontext", "rootcontext"];
/// Options without.
const PLAIN: &[&str] = &[
    "ac",
    "acl",
    "cto",
    "fsc",
    "hard",
    "lock",
    "migration",
    "noac",
    "noacl",
    "nocto",
    "nofsc",
    "nolock",
    "nomigration",
    "nordirplus",
    "noresvport",
    "nosharecache",
    "notrunkdiscovery",
    "rdirplus",
    "rdma",
    "resvport",
    "sharecache",
    "soft",
    "softerr",
    "softreval",
    "nosoftreval",
    "sync",
    "async",
    "tcp",
    "trunkdiscovery",
    "udp",
];
/// What only matters to programs.
const IGNORED: &[&str] = &[
    "_netdev", "auto", "bg", "defaults", "fg", "intr", "nofail", "nointr", "noauto", "nouser",
    "rw", "relatime", "suid", "dev", "exec", "atime", "diratime",
];
/// What the mount does, not the client.
const FLAGS: &[&str] = &[
    "ro",
    "nosuid",
    "nodev",
    "noexec",
    "noatime",
    "nodiratime",
    "strictatime",
];

impl MountPlan {
    /// Understands lists of options; later ones count.
    pub(crate) fn parse<'a>(
        lists: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, OptionRefused> {
        let mut plan = Self::default();
        let mut minor = None;
        let words = lists
            .into_iter()
            .flat_map(words)
            .map(str::trim)
            .filter(|word| !word.is_empty());
        for (index, word) in words.enumerate() {
            let shown = || named(word, index + 1);
            match word.split_once('=') {
                Some((key @ ("vers" | "nfsvers"), version)) => {
                    let spoken = known(version).ok_or_else(|| no_version(key, version))?;
                    plan.version = Some(spoken.to_owned());
                }
                Some(("minorversion", version)) => minor = Some(version.to_owned()),
                Some(("retry" | "x-systemd.automount" | "comment", _)) => {}
                Some((key @ ("mountaddr" | "mounthost" | "addr"), _)) => {
                    return Err(OptionRefused::Elsewhere(key.to_owned()));
                }
                Some((key, value)) if VALUED.contains(&key) => {
                    if !harmless(value) {
                        return Err(OptionRefused::Value(shown()));
                    }
                    if NUMBERS.contains(&key) && value.parse::<u32>().is_err() {
                        let (key, value) = (key.to_owned(), value.to_owned());
                        return Err(OptionRefused::Number(key, value));
                    }
                    plan.options.push((key.to_owned(), Some(value.to_owned())));
                }
                Some((key, value)) if LABELS.contains(&key) => {
                    let label = value.trim_matches('"');
                    if !is_label(label) {
                        return Err(OptionRefused::Value(shown()));
                    }
                    plan.options.push((key.to_owned(), Some(label.to_owned())));
                }
                None if word.strip_prefix('v').and_then(known).is_some() => {
                    plan.version = word.strip_prefix('v').map(str::to_owned);
                }
                None if FLAGS.contains(&word) => plan.flags.push(word.to_owned()),
                None if PLAIN.contains(&word) => plan.options.push((word.to_owned(), None)),
                None if IGNORED.contains(&word) || word.starts_with("x-") => {}
                _ => return Err(OptionRefused::Unknown(shown())),
            }
        }
        if let (Some("4"), Some(minor)) = (plan.version.as_deref(), minor) {
            let refused = || no_version("minorversion", &minor);
            let spoken = format!("4.{minor}");
            plan.version = Some(known(&spoken).ok_or_else(refused)?.to_owned());
        }
        Ok(plan)
    }

    /// The versions to try, best first.
    pub(crate) fn versions(&self) -> Vec<&str> {
        match self.version.as_deref() {
            None => vec!["4.2", "4.1", "4.0", "3"],
            Some("4") => vec!["4.2", "4.1", "4.0"],
            Some(version) => vec![version],
        }
    }

    /// What the client is told besides.
    pub(crate) fn options(&self) -> Vec<FsOption> {
        let option = |(key, value): &(String, Option<String>)| FsOption {
            key: key.clone(),
            value: value.clone(),
        };
        self.options.iter().map(option).collect()
    }

    /// The last value of an option.
    pub(crate) fn value(&self, key: &str) -> Option<&str> {
        let found = self.options.iter().rev().find(|(name, _)| name == key);
        found.and_then(|(_, value)| value.as_deref())
    }

    /// How the server is reached: by the last option that says so.
    pub(crate) fn transport(&self) -> Transport {
        let named = |(key, value): &(String, Option<String>)| {
            let word = match key.as_str() {
                "proto" => value.as_deref()?,
                key => key,
            };
            match word {
                "tcp" | "tcp6" => Some(Transport::Tcp),
                "udp" | "udp6" => Some(Transport::Udp),
                "rdma" | "rdma6" => Some(Transport::Rdma),
                _ => None,
            }
        };
        let named = self.options.iter().rev().find_map(named);
        named.unwrap_or(Transport::Tcp)
    }

    /// What the mount refuses.
    pub(crate) fn restrictions(&self) -> Restrictions {
        let mut restrictions = Restrictions::default();
        for flag in &self.flags {
            match flag.as_str() {
                "ro" => restrictions.read_only = true,
                "nosuid" => restrictions.no_suid = true,
                "nodev" => restrictions.no_dev = true,
                "noexec" => restrictions.no_exec = true,
                "noatime" => restrictions.access_times = AccessTimes::Never,
                "nodiratime" => restrictions.access_times = AccessTimes::NeverForDirectories,
                "strictatime" => restrictions.access_times = AccessTimes::Always,
                _ => {}
            }
        }
        restrictions
    }

    /// The same for work of our own on the share, which nobody else sees: writable, and without
    /// locks, which by version 3 need daemons that a controller's node may not have.
    pub(crate) fn for_work(mut self) -> Self {
        self.flags.clear();
        self.options
            .retain(|(key, _)| !matches!(key.as_str(), "lock" | "nolock" | "local_lock"));
        self.options.push(("nolock".to_owned(), None));
        self
    }
}

/// The options of a list. A comma between quotes is a label's.
fn words(list: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    list.split(move |letter| {
        quoted ^= letter == '"';
        letter == ',' && !quoted
    })
}

fn is_label(value: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:,".contains(&byte);
    !value.is_empty() && value.len() <= 255 && value.bytes().all(letter)
}

fn known(version: &str) -> Option<&str> {
    ["3", "4", "4.0", "4.1", "4.2"]
        .into_iter()
        .find(|known| *known == version)
}

/// What is told of a version that is none.
fn no_version(key: &str, version: &str) -> OptionRefused {
    match harmless(version) && version.len() <= 8 {
        true => OptionRefused::Version(version.to_owned(), key.to_owned()),
        false => OptionRefused::Value(format!("{key:?}")),
    }
}

fn harmless(value: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]%".contains(&byte);
    !value.is_empty() && value.len() <= 128 && value.bytes().all(letter)
}

/// An option's name, or its place if it has none that can be shown.
fn named(word: &str, place: usize) -> String {
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    let letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    let shown = !name.is_empty() && name.len() <= 32 && name.bytes().all(letter);
    match shown {
        true => format!("{name:?}"),
        false => format!("number {place}"),
    }
}

/// The options that volumes of a share were made with: deleting one brings none of its own.
#[derive(Debug, Default)]
pub(super) struct Remembered(Mutex<BTreeMap<Export, MountPlan>>);

impl Remembered {
    /// More shares than anybody has; beyond it the options come from secrets.
    const MOST: usize = 1024;

    pub(super) fn keep(&self, export: &Export, plan: &MountPlan) {
        let mut plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if plans.len() < Self::MOST || plans.contains_key(export) {
            plans.insert(export.clone(), plan.clone());
        }
    }

    pub(super) fn of(&self, export: &Export) -> MountPlan {
        let plans = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        plans.get(export).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_tried_from_the_best_unless_one_is_named() {
        let versions = |text| MountPlan::parse([text]).unwrap().versions().join(" ");
        assert_eq!(versions(""), "4.2 4.1 4.0 3");
        assert_eq!(versions("vers=4"), "4.2 4.1 4.0");
        assert_eq!(versions("nfsvers=4.1,hard"), "4.1");
        assert_eq!(versions("vers=4,minorversion=1"), "4.1");
        assert_eq!(versions("v3"), "3");
    }

    #[test]
    fn how_a_server_is_reached_is_told_by_whatever_says_so_last() {
        for (text, transport) in [
            ("", Transport::Tcp),
            ("hard,proto=tcp6", Transport::Tcp),
            ("rdma,port=20049", Transport::Rdma),
            ("proto=rdma6", Transport::Rdma),
            ("udp", Transport::Udp),
            ("proto=udp,timeo=7", Transport::Udp),
            ("rdma,tcp", Transport::Tcp),
            ("tcp,proto=rdma", Transport::Rdma),
        ] {
            let plan = MountPlan::parse([text]).unwrap();
            assert_eq!(plan.transport(), transport, "{text}");
        }
    }

    #[test]
    fn options_go_to_the_client_the_mount_or_nowhere() {
        let plan = MountPlan::parse(["hard,timeo=600,_netdev", "ro,noexec", "bg"]).unwrap();
        assert_eq!(plan.value("timeo"), Some("600"));
        assert_eq!(plan.options.len(), 2);
        let restrictions = plan.restrictions();
        assert!(restrictions.read_only && restrictions.no_exec && !restrictions.no_suid);
        let work = plan.for_work();
        assert!(!work.restrictions().read_only);
        assert_eq!(work.options.last(), Some(&("nolock".to_owned(), None)));
    }

    #[test]
    fn a_share_is_mounted_as_it_was_before_where_nobody_says_how() {
        let (here, there) = (
            Export::parse("s", "/a").unwrap(),
            Export::parse("s", "/b").unwrap(),
        );
        let remembered = Remembered::default();
        let plan = MountPlan::parse(["port=2050,sec=krb5"]).unwrap();
        remembered.keep(&here, &plan);
        assert_eq!(remembered.of(&here), plan);
        assert_eq!(remembered.of(&there), MountPlan::default());
    }

    #[test]
    fn a_value_that_an_option_cannot_have_is_told_as_one() {
        for (text, told) in [
            (
                "nfsvers=5",
                "\"5\" of mount option \"nfsvers\" is none of 3, 4, 4.0, 4.1, 4.2",
            ),
            ("vers=2", "\"2\" of mount option \"vers\" is none of"),
            ("vers=4.3", "\"4.3\" of mount option \"vers\" is none of"),
            (
                "vers=4,minorversion=9",
                "\"9\" of mount option \"minorversion\" is none of",
            ),
            (
                "rsize=lots",
                "\"rsize\" has the value \"lots\", which is no number",
            ),
            ("timeo=-1", "\"timeo\" has the value \"-1\""),
            ("sec=a b", "\"sec\" has a value"),
        ] {
            let error = MountPlan::parse([text]).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }

    #[test]
    fn labels_of_selinux_go_to_the_kernel_with_their_commas() {
        let label = "system_u:object_r:container_file_t:s0:c127,c456";
        let text = format!("hard,context=\"{label}\",rsize=4096");
        let plan = MountPlan::parse([text.as_str()]).unwrap();
        assert_eq!(plan.value("context"), Some(label));
        assert_eq!(plan.value("rsize"), Some("4096"));
        for key in ["fscontext", "defcontext", "rootcontext"] {
            let text = format!("{key}=system_u:object_r:nfs_t:s0");
            assert!(MountPlan::parse([text.as_str()]).is_ok());
        }
        assert!(MountPlan::parse(["context=a\nb"]).is_err());
    }

    #[test]
    fn other_options_are_refused_without_their_value() {
        for (text, told) in [
            ("addr=1.2.3.4", "\"addr\""),
            ("mountaddr=1.2.3.4,vers=3", "\"mountaddr\" is not allowed"),
            ("mounthost=1.2.3.4", "\"mounthost\" is not allowed"),
            ("bind", "\"bind\""),
            ("vers=Secret!", "\"vers\""),
            ("timeo=1 2", "\"timeo\""),
            ("Secret", "number 1"),
            ("hard,-o", "number 2"),
        ] {
            let error = MountPlan::parse([text]).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
            assert!(
                !error.contains("1.2.3.4") && !error.contains("Secret"),
                "{error}"
            );
        }
    }
}
