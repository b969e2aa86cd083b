//! The pools in words, for whoever starts the driver.

use std::fmt;
use std::path::{Path, PathBuf};

use orlop_host::MountTable;

use crate::local::home::Home;
use crate::local::pool::Pool;
use crate::local::pools::Pools;
use crate::local::room::Allocation;
use crate::local::size;

/// A pool as it is now.
#[derive(Debug)]
pub struct PoolSight {
    home: Home,
    folder: PathBuf,
    file_system: Option<String>,
    /// Its size and what can be promised of it, or why nothing is known.
    room: Result<(u64, u64), String>,
}

impl fmt::Display for PoolSight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pool {} at {}: ", self.home.pool, self.folder.display())?;
        if let Some(kind) = &self.file_system {
            write!(f, "{kind}, ")?;
        }
        match &self.room {
            Ok((total, left)) => write!(
                f,
                "{} in all, {} for new volumes",
                size::human(*total),
                size::human(*left)
            ),
            Err(why) => write!(f, "not to be had now: {why}"),
        }
    }
}

impl Pools {
    /// Looks at every pool. Blocks.
    #[must_use]
    pub fn look(&self) -> Vec<PoolSight> {
        let table = MountTable::read().unwrap_or_default();
        let sight = |(home, pool): (&Home, &Pool)| PoolSight {
            home: home.clone(),
            folder: pool.directory().to_owned(),
            file_system: file_system(&table, pool.directory()),
            room: pool
                .usage()
                .map_err(|error| error.to_string())
                .and_then(|usage| {
                    let left = self.available(home, Allocation::Thin);
                    let left = left.map_err(|error| error.to_string())?;
                    Ok((usage.total_bytes, left))
                }),
        };
        self.pools().map(sight).collect()
    }
}

/// The kind of the file system that a folder is on.
fn file_system(table: &MountTable, folder: &Path) -> Option<String> {
    let mount = folder.ancestors().find_map(|at| table.at(at))?;
    Some(mount.fs_type.to_string_lossy().into_owned())
}
