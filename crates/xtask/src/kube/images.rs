//! The container images, made on the spot: two of Debian's busybox-static, and those of our binary.
//!
//! An image archive is a tar of a manifest, a config for each image and a layer, which is a tar
//! itself. The images of an archive share the one layer and differ in what they run.

use std::{collections::BTreeSet, path::Path, process::Command};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// The image for tests' containers.
pub(crate) const BUSYBOX: &str = "orlop.test/busybox:1";
/// The image that holds a pod's namespaces.
pub(super) const PAUSE: &str = "orlop.test/pause:1";

/// The image that holds our binary, and what the local driver runs.
pub(crate) const ORLOP: &str = "orlop.test/orlop:1";
/// The programs whose place our binary takes, each an image that is entered by its name.
const DROP_INS: [&str; 8] = [
    "csi-attacher",
    "csi-external-health-monitor-controller",
    "csi-node-driver-registrar",
    "csi-provisioner",
    "csi-resizer",
    "csi-snapshotter",
    "livenessprobe",
    "snapshot-controller",
];
/// What the local driver runs or reads; those that are not here are left out.
const TOOLS: [&str; 6] = [
    "/usr/sbin/mkfs.ext4",
    "/usr/sbin/e2fsck",
    "/usr/sbin/resize2fs",
    "/usr/sbin/mkfs.xfs",
    "/usr/sbin/xfs_growfs",
    "/etc/mke2fs.conf",
];

/// The image of a program whose place our binary takes.
fn drop_in(name: &str) -> String {
    format!("orlop.test/{name}:1")
}

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
    let image = |name: &str, command: [&str; 3]| {
        let config = json!({"Cmd": command, "Env": ["PATH=/bin"]});
        (name.to_owned(), config)
    };
    let images = [
        image(BUSYBOX, ["/bin/sh", "-c", "true"]),
        image(PAUSE, ["/bin/busybox", "sleep", "1000000"]),
    ];
    write_archive(archive, &layer.finish(), &images)
}

/// Writes an archive with the images of our binary: one that is called as it is, and one by the
/// name of each program whose place it takes.
pub(super) fn write_ours(archive: &Path, orlop: &Path) -> Result<()> {
    // Of a debug binary most is symbols.
    let stripped = archive.with_extension("stripped");
    run(Command::new("strip").arg("-o").arg(&stripped).arg(orlop))?;
    let mut files = BTreeSet::new();
    for tool in TOOLS.iter().filter(|tool| Path::new(tool).exists()) {
        files.insert((*tool).to_owned());
        files.extend(libraries(Path::new(tool))?);
    }
    files.extend(libraries(&stripped)?);

    let mut layer = Tar::default();
    for folder in [
        "bin/", "csi/", "dev/", "etc/", "proc/", "run/", "sys/", "tmp/",
    ] {
        layer.folder(folder);
    }
    let above: BTreeSet<&Path> = files
        .iter()
        .flat_map(|file| Path::new(file).ancestors().skip(1))
        .filter(|folder| folder.parent().is_some() && *folder != Path::new("/etc"))
        .collect();
    for folder in above {
        layer.folder(&format!("{}/", inside(folder)?));
    }
    for file in &files {
        let read = std::fs::read(file).with_context(|| format!("could not read {file}"))?;
        layer.file(&inside(Path::new(file))?, &read, 0o755);
    }
    layer.file("bin/orlop", &std::fs::read(&stripped)?, 0o755);
    std::fs::remove_file(&stripped)?;
    let environment = json!(["PATH=/bin:/usr/sbin"]);
    let plain = json!({"Entrypoint": ["/bin/orlop"], "Env": environment});
    let mut images = vec![(ORLOP.to_owned(), plain)];
    for name in DROP_INS {
        layer.link(name, "bin/orlop");
        let config = json!({"Entrypoint": [format!("/{name}")], "Env": environment});
        images.push((drop_in(name), config));
    }
    write_archive(archive, &layer.finish(), &images)
}

/// A path as a layer has it.
fn inside(path: &Path) -> Result<String> {
    Ok(path.strip_prefix("/")?.display().to_string())
}

/// The libraries that a program is loaded with; none if it is no such program.
fn libraries(program: &Path) -> Result<Vec<String>> {
    let listed = Command::new("ldd")
        .arg(program)
        .output()
        .context("could not run ldd")?;
    let listed = String::from_utf8_lossy(&listed.stdout);
    let words = listed.lines().filter_map(|line| {
        line.split_whitespace()
            .find(|word| word.starts_with('/') && !word.ends_with(':'))
    });
    Ok(words.map(str::to_owned).collect())
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("could not run {program}"))?;
    if !output.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Writes images of one layer, each with its name and configuration.
fn write_archive(archive: &Path, layer: &[u8], images: &[(String, Value)]) -> Result<()> {
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
    use std::path::Path;
    use std::process::Command;

    use super::{Tar, libraries};

    #[test]
    fn a_programs_libraries_are_files_and_a_text_has_none() {
        let found = libraries(&std::env::current_exe().unwrap()).unwrap();
        assert!(
            found.iter().any(|file| file.contains("libc.so")),
            "{found:?}"
        );
        assert!(
            found.iter().all(|file| Path::new(file).exists()),
            "{found:?}"
        );
        let none = libraries(&Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
        assert!(none.is_empty(), "{none:?}");
    }

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
