//! What must be true before anything is started. Each failure says what to do.

use std::{fs, net::SocketAddr, path::Path};

use anyhow::{Context, Result, bail, ensure};
use orlop_host::{Lock, LockError};
use tokio::net::TcpListener;

use super::layout::Layout;

/// Programs that the local driver runs, and the Debian packages that have them.
const PROGRAMS: [(&str, &str); 2] = [
    ("/usr/sbin/mkfs.ext4", "e2fsprogs"),
    ("/usr/sbin/resize2fs", "e2fsprogs"),
];

/// This process may mount.
pub(crate) fn root() -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "orlop mounts file systems and must run as root: try again with sudo"
    );
    Ok(())
}

/// This machine can do what the local driver asks of it.
pub(crate) fn local_driver() -> Result<()> {
    fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/loop-control")
        .context(
            "there is no loop device here, which the local driver keeps its volumes on: \
         run 'modprobe loop', or in a container give it /dev/loop-control and the loop devices",
        )?;
    let missing: Vec<_> = PROGRAMS
        .iter()
        .filter(|(path, _)| !Path::new(path).exists())
        .collect();
    if let Some((path, package)) = missing.first() {
        bail!("{path} is missing: run 'apt-get install -y {package}'");
    }
    Ok(())
}

/// This machine can run pods.
pub(crate) fn pods() -> Result<()> {
    let known =
        fs::read_to_string("/proc/filesystems").context("could not read /proc/filesystems")?;
    let overlay = known
        .lines()
        .any(|line| line.split_whitespace().last() == Some("overlay"));
    ensure!(
        overlay,
        "this kernel has no overlay file system, which pods run on: run 'modprobe overlay'"
    );
    Ok(())
}

/// The data folder is ours alone, for as long as the lock lives.
pub(crate) fn claim(layout: &Layout) -> Result<Lock> {
    let root = layout.root();
    fs::create_dir_all(root)
        .with_context(|| format!("could not make the data folder {}", root.display()))?;
    fs::set_permissions(root, std::os::unix::fs::PermissionsExt::from_mode(0o700))
        .with_context(|| format!("could not protect the data folder {}", root.display()))?;
    Lock::try_acquire(&layout.lock()).map_err(|error| match error {
        LockError::Held { holder, .. } => anyhow::anyhow!(
            "the data folder {} is used by another instance, {holder}: stop that one, or take \
             another folder with --data-dir",
            root.display()
        ),
        other @ LockError::Io { .. } => other.into(),
    })
}

/// Sockets in the data folder have paths that the kernel takes.
pub(crate) fn socket_paths(layout: &Layout, node: &str, driver: &str) -> Result<()> {
    if let Some(path) = layout.too_long(node, driver) {
        bail!(
            "{} is too long a path for a socket (107 bytes at most): \
             take a shorter folder with --data-dir",
            path.display()
        );
    }
    Ok(())
}

/// The API server's address is free.
pub(crate) async fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!("could not listen on {address}: take another address with --listen (port 0: any)")
    })
}
