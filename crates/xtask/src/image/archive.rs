//! The archive of container images that `docker load` and `ctr images import` read.
//!
//! It is a tar of a manifest, a config for each image and a layer, which is a tar itself. The images
//! of an archive share the one layer and differ in what they run.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Writes images of one layer, each with its name and configuration.
pub(crate) fn write(archive: &Path, layer: &[u8], images: &[(String, Value)]) -> Result<()> {
    let layer_digest = hex(layer);
    let mut archived = Tar::default();
    archived.file("layer.tar", layer, 0o644);
    let mut manifest = Vec::new();
    for (image, config) in images {
        let config = json!({
            "architecture": std::env::consts::ARCH.replace("x86_64", "amd64").replace("aarch64", "arm64"),
            "os": "linux",
            "config": config,
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

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A tar archive in the ustar format, with names of at most 100 characters.
#[derive(Default)]
pub(crate) struct Tar(Vec<u8>);

impl Tar {
    pub(crate) fn folder(&mut self, name: &str) {
        self.entry(name, b'5', 0o755, "", &[]);
    }

    pub(crate) fn file(&mut self, name: &str, content: &[u8], mode: u32) {
        self.entry(name, b'0', mode, "", content);
    }

    pub(crate) fn link(&mut self, name: &str, target: &str) {
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

    pub(crate) fn finish(mut self) -> Vec<u8> {
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
