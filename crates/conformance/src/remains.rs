//! What a driver left of a case: what is still there, and what the suite took away in its stead.

use std::path::PathBuf;

/// What is left after a case's cleaning up.
#[derive(Debug, Default)]
pub(crate) struct Remains {
    /// Still there.
    pub(crate) left: Vec<Remain>,
    /// The driver left it, and the suite has taken it away.
    pub(crate) taken_away: Vec<String>,
}

/// One thing that is still there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remain {
    /// What, and why.
    pub(crate) words: String,
    /// Where, if it is at a path and gone with it.
    pub(crate) path: Option<PathBuf>,
}

impl Remain {
    /// Something that only the driver can tell of.
    pub(crate) fn at_driver(words: String) -> Self {
        Self { words, path: None }
    }

    /// Something at a path.
    pub(crate) fn at_path(path: impl Into<PathBuf>, words: String) -> Self {
        let path = Some(path.into());
        Self { words, path }
    }

    /// Whether it is still there, as far as that can be seen without the driver.
    pub(crate) fn is_there(&self) -> bool {
        let there = |path: &PathBuf| path.symlink_metadata().is_ok();
        self.path.as_ref().is_none_or(there)
    }
}

impl Remains {
    /// Leaves out what has gone since.
    pub(crate) fn settle(mut self) -> Self {
        self.left.retain(Remain::is_there);
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.left.is_empty() && self.taken_away.is_empty()
    }

    /// All of it, as the driver left it.
    pub(crate) fn words(&self) -> Vec<&str> {
        let left = self.left.iter().map(|remain| remain.words.as_str());
        left.chain(self.taken_away.iter().map(String::as_str))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_gone_with_its_path_is_not_left() {
        let folder = tempfile::tempdir().unwrap();
        let remains = Remains {
            left: vec![
                Remain::at_path(folder.path(), "here".to_owned()),
                Remain::at_path(folder.path().join("gone"), "gone".to_owned()),
                Remain::at_driver("volume".to_owned()),
            ],
            taken_away: vec!["a mount".to_owned()],
        };
        assert_eq!(remains.settle().words(), ["here", "volume", "a mount"]);
    }
}
