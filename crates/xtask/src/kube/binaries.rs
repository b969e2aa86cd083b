//! Building Kubernetes and its friends from their Go modules, once.
//!
//! `go/` beside this crate's sources pins each module by `go.mod` and `go.sum`. What is built
//! from it lies in the cache under a key of all that went into it, so that a changed pin is built
//! anew and an unchanged one never again.

use std::{
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use rustix::fs::FlockOperation;
use sha2::{Digest as _, Sha256};

/// How often a long build says that it is still at it.
const STILL: Duration = Duration::from_secs(30);

/// One Go module of ours, and what is built from it.
struct Module {
    name: &'static str,
    /// Binaries and the packages they come from.
    builds: &'static [(&'static str, &'static str)],
    /// What the linker is told besides to leave symbols out.
    stamps: &'static str,
}

/// A Kubernetes without a version takes itself for 0.0, and refuses its own feature gates.
const KUBERNETES_STAMPS: &str = "-X k8s.io/component-base/version.gitVersion=v1.37.1 \
     -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37 \
     -X k8s.io/client-go/pkg/version.gitVersion=v1.37.1 \
     -X k8s.io/client-go/pkg/version.gitMajor=1 -X k8s.io/client-go/pkg/version.gitMinor=37";

const MODULES: [Module; 6] = [
    Module {
        name: "etcd",
        builds: &[("etcd", "go.etcd.io/etcd/server/v3")],
        stamps: "",
    },
    Module {
        name: "csi-test",
        builds: &[(
            "csi-sanity",
            "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity",
        )],
        stamps: "",
    },
    Module {
        name: "external-provisioner",
        builds: &[(
            "csi-provisioner",
            "github.com/kubernetes-csi/external-provisioner/v5/cmd/csi-provisioner",
        )],
        stamps: "",
    },
    Module {
        name: "external-resizer",
        builds: &[(
            "csi-resizer",
            "github.com/kubernetes-csi/external-resizer/cmd/csi-resizer",
        )],
        stamps: "",
    },
    Module {
        name: "external-snapshotter",
        builds: &[
            (
                "csi-snapshotter",
                "github.com/kubernetes-csi/external-snapshotter/v8/cmd/csi-snapshotter",
            ),
            (
                "snapshot-controller",
                "github.com/kubernetes-csi/external-snapshotter/v8/cmd/snapshot-controller",
            ),
        ],
        stamps: "",
    },
    Module {
        name: "kubernetes",
        builds: &[
            ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
            (
                "kube-controller-manager",
                "k8s.io/kubernetes/cmd/kube-controller-manager",
            ),
            ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
            ("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
            ("mock-driver", "./mock-driver"),
        ],
        stamps: KUBERNETES_STAMPS,
    },
];

/// Programs that no module proxy gives, which a person may put into the cache by hand.
pub(crate) const BROUGHT: [&str; 3] = [
    "csi-attacher",
    "csi-node-driver-registrar",
    "hostpathplugin",
];

/// The Go toolchain, if there is one.
pub(super) fn go() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/local/go/bin")])
        .map(|folder| folder.join("go"))
        .find(|go| go.is_file())
}

/// Where built and brought binaries lie, outside of the checkout.
pub(super) fn cache() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME") {
        Some(base) if !base.is_empty() => PathBuf::from(base),
        _ => PathBuf::from(
            std::env::var_os("HOME").context("HOME is not set; set it or XDG_CACHE_HOME")?,
        )
        .join(".cache"),
    };
    Ok(base.join("orlop/kube"))
}

/// Where a person puts what can't be built here.
pub(super) fn brought() -> Result<PathBuf> {
    Ok(cache()?.join("brought"))
}

/// Builds what isn't in the cache; answers with the path of every binary, and of every brought one.
pub(super) fn build(go: &Path) -> Result<Vec<PathBuf>> {
    let cache = cache()?;
    let bin = cache.join("bin");
    fs::create_dir_all(&bin).with_context(|| format!("could not make {}", bin.display()))?;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("go");
    let version = Command::new(go)
        .arg("version")
        .output()
        .context("could not run go")?;

    let mut binaries = Vec::new();
    for module in &MODULES {
        let source = sources.join(module.name);
        let key = key(module, &source, &version.stdout)?;
        let built = bin.join(format!("{}-{key}", module.name));
        if !built.is_dir() {
            // Two commands at once build once: the second waits here and finds it done.
            let _lock = lock(&cache)?;
            if !built.is_dir() {
                build_module(go, module, &source, &bin, &built)?;
            }
        }
        binaries.extend(module.builds.iter().map(|(name, _)| built.join(name)));
    }
    let brought = brought()?;
    binaries.extend(
        BROUGHT
            .iter()
            .map(|name| brought.join(name))
            .filter(|path| path.is_file()),
    );
    Ok(binaries)
}

/// A key of all that goes into a module's binaries.
fn key(module: &Module, source: &Path, version: &[u8]) -> Result<String> {
    let mut hash = Sha256::new();
    let mut add = |part: &[u8]| {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    };
    add(version);
    add(module.stamps.as_bytes());
    let mut files = vec![source.join("go.mod"), source.join("go.sum")];
    for (name, package) in module.builds {
        add(name.as_bytes());
        add(package.as_bytes());
        if let Some(own) = package.strip_prefix("./") {
            files.push(source.join(own).join("main.go"));
        }
    }
    for file in files {
        add(&fs::read(&file).with_context(|| format!("could not read {}", file.display()))?);
    }
    Ok(hash
        .finalize()
        .iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

fn lock(cache: &Path) -> Result<File> {
    let lock = File::create(cache.join("lock")).context("could not open the cache's lock")?;
    if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        eprintln!("waiting for another command that builds");
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)
            .context("could not lock the cache")?;
    }
    Ok(lock)
}

/// Builds beside, then renames: what has its final name is whole.
fn build_module(go: &Path, module: &Module, source: &Path, bin: &Path, built: &Path) -> Result<()> {
    let beside = bin.join(".building");
    let _ = fs::remove_dir_all(&beside);
    fs::create_dir_all(&beside).with_context(|| format!("could not make {}", beside.display()))?;
    for (name, package) in module.builds {
        build_one(go, module, source, &beside.join(name), package)?;
    }
    fs::rename(&beside, built).with_context(|| format!("could not make {}", built.display()))
}

fn build_one(
    go: &Path,
    module: &Module,
    source: &Path,
    binary: &Path,
    package: &str,
) -> Result<()> {
    let name = binary.file_name().unwrap_or_default().to_string_lossy();
    let begin = Instant::now();
    eprintln!("building {name} from {package}");
    let log = binary.with_extension("log");
    let output =
        File::create(&log).with_context(|| format!("could not write {}", log.display()))?;
    let mut child = Command::new(go)
        .current_dir(source)
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-mod=readonly")
        .args(["build", "-trimpath", "-ldflags"])
        .arg(format!("-s -w {}", module.stamps))
        .arg("-o")
        .arg(binary)
        .arg(package)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .context("could not run go")?;
    let mut said = begin;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if said.elapsed() > STILL {
            said = Instant::now();
            eprintln!("  … {name} for {} s", begin.elapsed().as_secs());
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    if !status.success() {
        let _ = std::io::stderr().flush();
        bail!(
            "go could not build {name} from {package} ({status}):\n{}",
            super::logs::end(&log, 20)
        );
    }
    fs::remove_file(&log)?;
    eprintln!("  {name} took {} s", begin.elapsed().as_secs());
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_key_changes_with_everything_that_goes_into_a_binary() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("go.mod", "one");
        write("go.sum", "sum");
        let module = |stamps| Module {
            name: "m",
            builds: &[("b", "p")],
            stamps,
        };
        let first = key(&module(""), folder.path(), b"go1").unwrap();
        assert_eq!(first, key(&module(""), folder.path(), b"go1").unwrap());
        assert_ne!(first, key(&module(""), folder.path(), b"go2").unwrap());
        assert_ne!(first, key(&module("-X"), folder.path(), b"go1").unwrap());
        write("go.sum", "other");
        assert_ne!(first, key(&module(""), folder.path(), b"go1").unwrap());
    }

    #[test]
    fn every_module_is_pinned() {
        for module in &MODULES {
            let source = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("go")
                .join(module.name);
            assert!(key(module, &source, b"").is_ok(), "{}", module.name);
        }
    }
}
