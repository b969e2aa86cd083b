//! The two container images, made on the spot from Debian's busybox-static.
//!
//! An image archive is a tar of a manifest, a config and a layer, which is a tar itself. Both
//! images share the one layer: `/bin/busybox` and a link for each command.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use sha2::{Digest as _, Sha256};

/// The image for tests' containers.
pub(crate) const BUSYBOX: &str = "orlop.test/busybox:1";
/// The image that holds a pod's namespaces.
pub(super) const PAUSE: &str = "orlop.test/pause:1";

/// The commands that tests' containers use.
const COMMANDS: [&str; 16] = [
    "cat", "cp", "dd", "df", "echo", "grep", "ls", "mkdir", "mount", "rm", "sh", "sleep", "stat",
    "sync", "test", "touch",
];

/// Writes an archive with both images.
pub(super) fn write(archive: &Path) -> Result<()> {
    let busybox = std::fs::read("/bin/busybox")
        .context("could not read /bin/busybox; run scripts/setup-kube")?;
    if contains(&busybox, b"/lib64/ld-linux") || contains(&busybox, b"/lib/ld-linux") {
        bail!("/bin/busybox isn't static, so it can't run in a container; run scripts/setup-kube");
    }
    let mut layer = Tar::default();
    for folder in ["bin/", "data/", "etc/", "proc/", "sys/", "dev/", "tmp/"] {
        layer.folder(folder);
    }
    layer.file("bin/busybox", &busybox, 0o755);
    for command in COMMANDS {
        layer.link(&format!("bin/{command}"), "busybox");
    }
    let layer = layer.finish();
    let layer_digest = hex(&layer);

    let mut archived = Tar::default();
    archived.file("layer.tar", &layer, 0o644);
    let mut manifest = Vec::new();
    for (image, command) in [
        (BUSYBOX, ["/bin/sh", "-c", "true"]),
        (PAUSE, ["/bin/busybox", "sleep", "1000000"]),
    ] {
        let config = json!({
            "architecture": std::env::consts::ARCH.replace("x86_64", "amd64").replace("aarch64", "arm64"),
            "os": "linux",
            "config": {"Cmd": command, "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer_digest}")]},
        })
        .to_string();
        let name = format!("{}.json", hex(config.as_bytes()));
        archived.file(&name, config.as_bytes(), 0o644);
        manifest.push(json!({"Config": name, "RepoTags": [image], "Layers": ["layer.tar"]}));
    }
    archived.file(
        "manifest.json",
        json!(manifest).to_string().as_bytes(),
        0o644,
    );
    std::fs::write(archive, archived.finish())
        .with_context(|| format!("could not write {}", archive.display()))
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A tar archive in the ustar format, with names of at most 100 characters.
#[derive(Default)]
struct Tar(Vec<u8>);

impl Tar {
    fn folder(&mut self, name: &str) {
        self.entry(name, b'5', 0o755, "", &[]);
    }

    fn file(&mut self, name: &str, content: &[u8], mode: u32) {
        self.entry(name, b'0', mode, "", content);
    }

    fn link(&mut self, name: &str, target: &str) {
        self.entry(name, b'2', 0o777, target, &[]);
    }

    fn entry(&mut self, name: &str, kind: u8, mode: u32, target: &str, content: &[u8]) {
        let mut header = [0u8; 512];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, name.as_bytes());
        put(100, format!("{mode:07o}").as_bytes());
        put(108, b"0000000");
        put(116, b"0000000");
        put(124, format!("{:011o}", content.len()).as_bytes());
        put(136, b"00000000000");
        // The checksum counts its own field as spaces.
        put(148, b"        ");
        put(156, &[kind]);
        put(157, target.as_bytes());
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend_from_slice(&header);
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::process::Command;

    use super::Tar;

    #[test]
    fn the_systems_tar_reads_what_ours_wrote() {
        let mut tar = Tar::default();
        tar.folder("bin/");
        tar.file("bin/busybox", b"not a block long", 0o755);
        tar.link("bin/sh", "busybox");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tar");
        std::fs::write(&path, tar.finish()).unwrap();
        let unpacked = Command::new("tar")
            .arg("-xf")
            .arg(&path)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(unpacked.status.success(), "{unpacked:?}");
        let read = std::fs::read_to_string(folder.path().join("bin/sh")).unwrap();
        assert_eq!(read, "not a block long");
    }
}
