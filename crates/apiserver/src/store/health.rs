//! Whether a store takes writes, and why not.

use std::fmt;
use std::io;
use std::sync::Arc;

/// How a store is. Reads go on whatever it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Health {
    /// It takes writes.
    #[default]
    Well,
    /// There is no room for more. What leads to less, a deletion, is taken.
    Full(Arc<str>),
    /// The last write failed and left no trace. The next one may succeed.
    Failing(Arc<str>),
    /// After a failed flush nobody knows what is on the medium, so no later write may claim to
    /// follow it. A restart reads the truth from the file.
    Broken(Arc<str>),
}

impl Health {
    /// What a failure that left no trace says of the store.
    pub(super) fn after(error: &io::Error) -> Self {
        if is_full(error) {
            Self::Full(error.to_string().into())
        } else {
            Self::Failing(error.to_string().into())
        }
    }

    /// Whether it takes writes.
    pub fn is_well(&self) -> bool {
        *self == Self::Well
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Well => write!(f, "the store takes writes"),
            Self::Full(why) => write!(
                f,
                "the store has no room ({why}): free some space on its disk; objects can be \
                 deleted meanwhile"
            ),
            Self::Failing(why) => {
                write!(
                    f,
                    "the store can't be written ({why}); mend that and try again"
                )
            }
            Self::Broken(why) => write!(
                f,
                "the store can't be written since an earlier failure ({why}); restart to go on"
            ),
        }
    }
}

/// Whether there was no room, or none that we may take.
pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}
