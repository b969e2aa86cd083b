//! Which modules the guest loads before it has a root, in the order in which they need each other.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// What carries the root: the shared folders, the overlay over them, and the way out for words.
const NEEDED: [&str; 4] = ["virtio_pci", "virtiofs", "overlay", "virtio_console"];

/// The modules' files, each after those that it needs.
pub(super) fn to_load(packages: &Path, version: &str) -> Result<Vec<PathBuf>> {
    let folder = packages.join("usr/lib/modules").join(version);
    let table = folder.join("modules.dep");
    let text = std::fs::read_to_string(&table)
        .with_context(|| format!("could not read {}", table.display()))?;
    let files = order(&text, &NEEDED)?;
    Ok(files.into_iter().map(|file| folder.join(file)).collect())
}

/// Lines are `file: needed file …`, and what is needed first comes last.
fn order<'a>(table: &'a str, names: &[&str]) -> Result<Vec<&'a str>> {
    let lines: BTreeMap<&str, (&str, &str)> = table
        .lines()
        .filter_map(|line| {
            let (file, needs) = line.split_once(':')?;
            let name = file.rsplit('/').next()?.split('.').next()?;
            Some((name, (file, needs)))
        })
        .collect();
    let mut files = Vec::new();
    for name in names {
        let (file, needs) = lines
            .get(name)
            .with_context(|| format!("the guest's kernel has no module {name}"))?;
        let needs = needs.split_whitespace().rev();
        for file in needs.chain([*file]) {
            if !files.contains(&file) {
                files.push(file);
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_comes_once_and_after_those_that_it_needs() {
        let table = "k/a.ko: k/b.ko k/c.ko\nk/b.ko: k/c.ko\nk/c.ko:\nk/d.ko: k/c.ko\n";
        assert_eq!(
            order(table, &["a", "d"]).unwrap(),
            ["k/c.ko", "k/b.ko", "k/a.ko", "k/d.ko"]
        );
        assert!(order(table, &["e"]).is_err());
    }
}
