//! The container images of our binary, as one archive: `cargo xtask image`.
//!
//! One layer: the binary, what the local driver runs, and the libraries of both. One image is called as it
//! is, and one by the name of each program whose place it takes, so that in a manifest that is there
//! already nothing but the image has to be changed. No container engine is needed to make it.

pub(crate) mod archive;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::json;

use archive::Tar;

/// The programs whose place our binary takes, each an image that is entered by its name.
const DROP_INS: [&str; 9] = [
    "csi-attacher",
    "csi-external-health-monitor-controller",
    "csi-node-driver-registrar",
    "csi-provisioner",
    "csi-resizer",
    "csi-snapshotter",
    "livenessprobe",
    "nfsplugin",
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

/// What to make.
#[derive(Debug, Args)]
pub(crate) struct Image {
    /// The archive's file.
    #[arg(long, default_value = "orlop-images.tar")]
    output: PathBuf,
    /// What stands before each name, such as `registry.example.com/storage`.
    #[arg(long, default_value = "")]
    registry: String,
    /// What stands behind each name.
    #[arg(long, default_value = "latest")]
    tag: String,
}

/// How the images are called.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names<'a> {
    /// With the slash at its end, if it is anything.
    pub(crate) registry: &'a str,
    pub(crate) tag: &'a str,
}

impl Names<'_> {
    fn of(self, program: &str) -> String {
        format!("{}{program}:{}", self.registry, self.tag)
    }
}

/// Builds the binary for release and writes the archive.
pub(crate) fn run(image: &Image) -> Result<ExitCode> {
    let mut registry = image.registry.clone();
    if !registry.is_empty() && !registry.ends_with('/') {
        registry.push('/');
    }
    let names = Names {
        registry: &registry,
        tag: &image.tag,
    };
    let orlop = crate::bench::build()?.join("orlop");
    write(&image.output, &orlop, names)?;
    let file = image.output.display();
    println!(
        "{file} has {}, and by the names of the programs whose place it takes:",
        names.of("orlop")
    );
    for name in DROP_INS {
        println!("  {}", names.of(name));
    }
    println!("Give it to a node: ctr --namespace k8s.io images import {file}");
    println!("Or to docker:      docker load --input {file}");
    Ok(ExitCode::SUCCESS)
}

/// Writes an archive with the images of our binary: one that is called as it is, and one by the
/// name of each program whose place it takes.
pub(crate) fn write(archive: &Path, orlop: &Path, names: Names<'_>) -> Result<()> {
    // Of a debug binary most is symbols.
    let stripped = archive.with_extension("stripped");
    succeed(Command::new("strip").arg("-o").arg(&stripped).arg(orlop))?;
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
    let mut images = vec![(names.of("orlop"), plain)];
    for name in DROP_INS {
        layer.link(name, "bin/orlop");
        let config = json!({"Entrypoint": [format!("/{name}")], "Env": environment});
        images.push((names.of(name), config));
    }
    archive::write(archive, &layer.finish(), &images)
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

fn succeed(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("could not run {program}"))?;
    if !output.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::path::Path;

    use super::libraries;

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
}
