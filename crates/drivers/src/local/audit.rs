//! What is left of a driver: for proofs that nothing is.

use std::io;

use orlop_host::{MountTable, loopdev};

use super::pools::Pools;

/// Everything in the kernel and on disk that belongs to these pools, one line each; empty if all
/// volumes are gone without a trace.
pub fn leftovers(pools: &Pools) -> io::Result<Vec<String>> {
    let mounts = MountTable::read()?;
    let devices = loopdev::list()?;
    let mut left = Vec::new();
    for (_, pool) in pools.pools() {
        for listed in devices
            .iter()
            .filter(|it| it.backing_path.starts_with(pool.directory()))
        {
            left.push(format!(
                "loop{}: {}",
                listed.number,
                listed.backing_path.display()
            ));
            let source = format!("/dev/loop{}", listed.number);
            for mount in mounts
                .iter()
                .filter(|mount| mount.source.as_os_str() == source.as_str())
            {
                left.push(format!("mount: {} of {source}", mount.point.display()));
            }
        }
        const PARTS: [&str; 6] = [
            "volumes",
            "snapshots",
            "groups",
            "frozen",
            "unfinished",
            "doomed",
        ];
        for part in PARTS {
            for entry in std::fs::read_dir(pool.directory().join(part))? {
                left.push(format!("file: {}", entry?.path().display()));
            }
        }
    }
    Ok(left)
}
