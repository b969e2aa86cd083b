//! Which options a class may give to mkfs.
//!
//! Pure. An allow-list of options and of what their values are made of: no option that names
//! another device or file, none that could be taken for one, no shell anywhere.

use orlop_host::FsKind;

/// An option that mkfs may not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MkfsError {
    /// Not on the list.
    #[error("option {option:?} is not allowed for {kind}; allowed are {}", allowed.join(" "))]
    Option {
        /// What was given.
        option: String,
        /// The file system.
        kind: FsKind,
        /// What could have been.
        allowed: Vec<&'static str>,
    },
    /// An option without its value.
    #[error("option {option} needs a value")]
    NoValue {
        /// The option.
        option: &'static str,
    },
    /// A value that the option may not have.
    #[error("{value:?} is not allowed for option {option}")]
    Value {
        /// The option.
        option: &'static str,
        /// What was given.
        value: String,
    },
}

/// What the value of an option is made of.
#[derive(Clone, Copy, Debug)]
enum Value {
    /// A number, with a suffix for its unit if need be.
    Number,
    /// One of these words.
    Word(&'static [&'static str]),
    /// These words, with `^` before one that is turned off.
    Features(&'static [&'static str]),
    /// `key=number`, with these keys.
    Pairs(&'static [&'static str]),
}

fn allowed(kind: FsKind) -> &'static [(&'static str, Value)] {
    match kind {
        FsKind::Ext4 => &[
            ("-b", Value::Number),
            ("-i", Value::Number),
            ("-I", Value::Number),
            ("-m", Value::Number),
            ("-N", Value::Number),
            ("-G", Value::Number),
            ("-J", Value::Pairs(&["size"])),
            (
                "-T",
                Value::Word(&[
                    "default",
                    "small",
                    "big",
                    "huge",
                    "largefile",
                    "largefile4",
                    "news",
                ]),
            ),
            (
                "-O",
                Value::Features(&[
                    "64bit",
                    "bigalloc",
                    "casefold",
                    "dir_index",
                    "encrypt",
                    "extent",
                    "fast_commit",
                    "flex_bg",
                    "has_journal",
                    "huge_file",
                    "inline_data",
                    "large_dir",
                    "metadata_csum",
                    "orphan_file",
                    "project",
                    "quota",
                    "sparse_super2",
                    "uninit_bg",
                    "verity",
                ]),
            ),
        ],
        FsKind::Xfs => &[
            ("-b", Value::Pairs(&["size"])),
            (
                "-d",
                Value::Pairs(&["agcount", "agsize", "su", "sw", "sunit", "swidth"]),
            ),
            ("-i", Value::Pairs(&["size", "maxpct", "sparse", "nrext64"])),
            ("-l", Value::Pairs(&["size", "su", "sunit", "lazy-count"])),
            (
                "-m",
                Value::Pairs(&[
                    "crc",
                    "finobt",
                    "reflink",
                    "rmapbt",
                    "bigtime",
                    "inobtcount",
                ]),
            ),
            ("-n", Value::Pairs(&["size", "ftype"])),
        ],
        FsKind::Btrfs => &[
            ("-n", Value::Number),
            ("-s", Value::Number),
            ("-m", Value::Word(&["single", "dup"])),
            ("-d", Value::Word(&["single", "dup"])),
            (
                "--csum",
                Value::Word(&["crc32c", "xxhash", "sha256", "blake2"]),
            ),
            (
                "-O",
                Value::Features(&[
                    "mixed-bg",
                    "extref",
                    "skinny-metadata",
                    "no-holes",
                    "free-space-tree",
                    "block-group-tree",
                    "quota",
                ]),
            ),
        ],
    }
}

impl Value {
    fn fits(self, value: &str) -> bool {
        let number = |text: &str| {
            let digits = text.strip_suffix(['k', 'K', 'm', 'M', 'g', 'G', 's', 'b']);
            let digits = digits.unwrap_or(text);
            !digits.is_empty() && digits.len() <= 15 && digits.bytes().all(|b| b.is_ascii_digit())
        };
        match self {
            Self::Number => number(value),
            Self::Word(words) => words.contains(&value),
            Self::Features(words) => value
                .split(',')
                .all(|word| words.contains(&word.strip_prefix('^').unwrap_or(word))),
            Self::Pairs(keys) => value.split(',').all(|pair| {
                pair.split_once('=')
                    .is_some_and(|(key, value)| keys.contains(&key) && number(value))
            }),
        }
    }
}

/// Understands options that are separated by blanks, as on a command line but without quotes.
pub(super) fn parse(text: &str, kind: FsKind) -> Result<Vec<String>, MkfsError> {
    let mut words = text.split_ascii_whitespace();
    let mut arguments = Vec::new();
    while let Some(word) = words.next() {
        let list = allowed(kind);
        let Some((option, value)) = list.iter().find(|(option, _)| *option == word) else {
            return Err(MkfsError::Option {
                option: word.to_owned(),
                kind,
                allowed: list.iter().map(|(option, _)| *option).collect(),
            });
        };
        let given = words.next().ok_or(MkfsError::NoValue { option })?;
        if !value.fits(given) {
            return Err(MkfsError::Value {
                option,
                value: given.to_owned(),
            });
        }
        arguments.extend([(*option).to_owned(), given.to_owned()]);
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_the_list_becomes_arguments() {
        let cases = [
            (FsKind::Ext4, "-b 4096  -m 1 -O ^has_journal,verity", 6),
            (FsKind::Xfs, "-i size=512,maxpct=25 -m reflink=0", 4),
            (FsKind::Btrfs, "--csum xxhash -m dup", 4),
            (FsKind::Ext4, "", 0),
        ];
        for (kind, text, arguments) in cases {
            let parsed = parse(text, kind).unwrap();
            assert_eq!(parsed.len(), arguments, "{text}");
            assert_eq!(
                parsed.join(" "),
                text.split_whitespace().collect::<Vec<_>>().join(" ")
            );
        }
    }

    #[test]
    fn what_could_reach_out_of_the_image_is_refused() {
        let cases = [
            (FsKind::Ext4, "-d /etc"),
            (FsKind::Ext4, "-J device=/dev/sda1"),
            (FsKind::Ext4, "-J size=1,device=/dev/sda1"),
            (FsKind::Ext4, "/dev/sda"),
            (FsKind::Ext4, "--"),
            (FsKind::Ext4, "-b"),
            (FsKind::Ext4, "-b ;reboot"),
            (FsKind::Ext4, "-O journal_dev"),
            (FsKind::Ext4, "-n 1"),
            (FsKind::Ext4, "-z /undo"),
            (FsKind::Xfs, "-l logdev=/dev/sda"),
            (FsKind::Xfs, "-d name=/dev/sda"),
            (FsKind::Xfs, "-p /protofile"),
            (FsKind::Xfs, "-c options=/x"),
            (FsKind::Btrfs, "--rootdir /etc"),
            (FsKind::Btrfs, "-b -1"),
        ];
        for (kind, text) in cases {
            assert!(parse(text, kind).is_err(), "{kind} {text}");
        }
    }
}
