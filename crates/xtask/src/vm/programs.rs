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

/// Builds them, for release: emulated processors take ten times as long for everything, and what is not
/// optimized several times as long again.
pub(super) fn build() -> Result<Programs> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    eprintln!("building orlop and the guest's tests, for release");
    let built = Command::new(cargo)
        .args(["test", "--release", "--quiet", "--no-run"])
        .args(["--message-format=json", "--package=orlop", "--test=guest"])
        .arg("--manifest-path")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml"))
        .stderr(Stdio::inherit())
        .output()
        .context("could not run cargo")?;
    if !built.status.success() {
        bail!("orlop or the guest's tests do not build");
    }
    let said = String::from_utf8_lossy(&built.stdout);
    let executable = |name: &str| {
        said.lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter(|line| line["target"]["name"] == name)
            .find_map(|line| line["executable"].as_str().map(PathBuf::from))
            .with_context(|| format!("cargo does not say where {name} is"))
    };
    Ok(Programs {
        tests: executable("guest")?,
        orlop: executable("orlop")?,
    })
}
