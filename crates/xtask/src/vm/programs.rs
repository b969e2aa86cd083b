//! What runs in the guest: our binary and the test program, built here.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// The programs, and others that are used if they are there.
pub(super) struct Programs {
    pub(super) tests: PathBuf,
    orlop: PathBuf,
}

impl Programs {
    /// What the tests are told about where they are.
    pub(super) fn environment(&self) -> Vec<(String, String)> {
        let kube = super::fitness::cache().join("../kube");
        let value = |path: &Path| path.display().to_string();
        vec![
            ("ORLOP_GUEST".to_owned(), "1".to_owned()),
            ("ORLOP".to_owned(), value(&self.orlop)),
            ("ORLOP_PEERS".to_owned(), value(&kube)),
            ("RUST_BACKTRACE".to_owned(), "1".to_owned()),
        ]
    }
}

/// Builds them in the profile that this one was built in.
pub(super) fn build() -> Result<Programs> {
    let this = std::env::current_exe()?;
    let profile = this.parent().context("this program lies in no folder")?;
    let release = profile.ends_with("release");
    let cargo = |words: &[&str]| {
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command
            .args(words)
            .arg("--manifest-path")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml"));
        if release {
            command.arg("--release");
        }
        command
    };
    eprintln!("building orlop and the guest's tests");
    let built = cargo(&["build", "--quiet", "--package", "orlop"]).status();
    if !built.context("could not run cargo")?.success() {
        bail!("orlop does not build");
    }
    let words = [
        "test",
        "--quiet",
        "--no-run",
        "--message-format=json",
        "--package",
        "orlop",
        "--test",
        "guest",
    ];
    let built = cargo(&words).stderr(Stdio::inherit()).output()?;
    if !built.status.success() {
        bail!("the guest's tests do not build");
    }
    let tests = String::from_utf8_lossy(&built.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|line| line["target"]["name"] == "guest")
        .find_map(|line| line["executable"].as_str().map(PathBuf::from))
        .context("cargo does not say where the guest's tests are")?;
    Ok(Programs {
        tests,
        orlop: profile.join("orlop"),
    })
}
