//! The guest's first root: a static busybox, a few modules and a script, as a `newc` archive.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context as _, Result};

/// What the first process does. The words to run are in the file `/run`; the folders of this machine
/// that lie below `/tmp`, which is the guest's own, but are to be seen, in `/seen`.
const INIT: &str = include_str!("init.sh");

/// Writes the archive.
pub(super) fn write(
    out: &mut impl Write,
    packages: &Path,
    modules: &[impl AsRef<Path>],
    run: &str,
    seen: &[impl AsRef<Path>],
) -> Result<()> {
    let mut archive = Archive { out, inode: 0 };
    for folder in [
        "bin", "dev", "proc", "sys", "tmp", "host", "packages", "new", "modules",
    ] {
        archive.folder(folder)?;
    }
    // Only what this machine lacks was unpacked.
    let busybox = [packages.join("usr/bin/busybox"), "/bin/busybox".into()];
    let busybox = busybox.iter().find(|path| path.is_file());
    let busybox = busybox.context("there is no busybox; run scripts/setup-vm")?;
    let busybox =
        std::fs::read(busybox).with_context(|| format!("could not read {}", busybox.display()))?;
    archive.program("bin/busybox", &busybox)?;
    archive.program("init", INIT.as_bytes())?;
    archive.program("run", run.as_bytes())?;
    let lines = seen
        .iter()
        .map(|folder| format!("{}\n", folder.as_ref().display()));
    archive.program("seen", lines.collect::<String>().as_bytes())?;
    for (number, module) in modules.iter().enumerate() {
        let module = module.as_ref();
        let bytes = std::fs::read(module)
            .with_context(|| format!("could not read {}", module.display()))?;
        archive.program(&format!("modules/{number:02}.ko"), &bytes)?;
    }
    archive.end()?;
    Ok(())
}

struct Archive<'a, W> {
    out: &'a mut W,
    inode: u32,
}

impl<W: Write> Archive<'_, W> {
    fn folder(&mut self, name: &str) -> io::Result<()> {
        self.entry(name, 0o040_755, &[])
    }

    fn program(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.entry(name, 0o100_755, bytes)
    }

    fn end(&mut self) -> io::Result<()> {
        self.entry("TRAILER!!!", 0, &[])
    }

    /// A header of hexadecimal fields, the name, the bytes; name and bytes are filled up to fours.
    fn entry(&mut self, name: &str, mode: u32, bytes: &[u8]) -> io::Result<()> {
        self.inode += 1;
        let size = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let named = u32::try_from(name.len() + 1).map_err(io::Error::other)?;
        let fields = [self.inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, named, 0];
        self.out.write_all(b"070701")?;
        for field in fields {
            write!(self.out, "{field:08x}")?;
        }
        self.out.write_all(name.as_bytes())?;
        self.out.write_all(b"\0")?;
        self.fill(110 + name.len() + 1)?;
        self.out.write_all(bytes)?;
        self.fill(bytes.len())
    }

    fn fill(&mut self, length: usize) -> io::Result<()> {
        let short = length.next_multiple_of(4) - length;
        self.out.write_all(&[0; 3][..short])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_a_header_of_110_bytes_then_name_and_content_in_fours() {
        let mut out = Vec::new();
        let mut archive = Archive {
            out: &mut out,
            inode: 0,
        };
        archive.program("init", b"hello").unwrap();
        assert_eq!(out.len(), 116 + 8);
        assert!(out.starts_with(b"07070100000001000081ed"));
        assert_eq!(&out[110..116], b"init\0\0");
        assert_eq!(&out[116..], b"hello\0\0\0");
    }
}
