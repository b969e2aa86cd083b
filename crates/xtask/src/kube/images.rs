//! The container images of the tests: two of Debian's busybox-static, made on the spot, and the names of
//! those of our binary.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::json;

use crate::image::{
    Names,
    archive::{self, Tar},
};

/// The image for tests' containers.
pub(crate) const BUSYBOX: &str = "orlop.test/busybox:1";
/// The image that holds a pod's namespaces.
pub(super) const PAUSE: &str = "orlop.test/pause:1";

/// The image that holds our binary, and what the local driver runs.
pub(crate) const ORLOP: &str = "orlop.test/orlop:1";
/// How the tests name the images of our binary.
pub(super) const OURS: Names<'_> = Names {
    registry: "orlop.test/",
    tag: "1",
};

/// The commands that tests' containers use.
const COMMANDS: [&str; 16] = [
    "cat", "cp", "dd", "df", "echo", "grep", "ls", "mkdir", "mount", "rm", "sh", "sleep", "stat",
    "sync", "test", "touch",
];

/// Writes an archive with both images.
pub(super) fn write(file: &Path) -> Result<()> {
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
    archive::write(file, &layer.finish(), &images)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
