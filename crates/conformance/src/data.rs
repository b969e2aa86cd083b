//! Data at a published path: written, read back, measured.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use crate::case::Trouble;

/// How much each seed writes.
pub(crate) const LENGTH: usize = 64 * 1024;
/// Where a seed's data is on a device.
const SPACING: u64 = 1024 * 1024;

fn pattern(seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; LENGTH];
    random.fill(&mut bytes);
    bytes
}

fn against(what: &str, target: &str) -> impl Fn(std::io::Error) -> Trouble {
    let what = format!("{what} at {target}");
    move |error| Trouble::Against(format!("{what}: {error}"))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Trouble> + Send + 'static,
) -> Result<T, Trouble> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(Trouble::Against(format!(
            "the suite's own work failed: {error}"
        ))),
    }
}

/// A file of the volume for file systems, the device itself otherwise.
fn open(target: &str, seed: u64, options: &OpenOptions) -> std::io::Result<File> {
    let path = Path::new(target);
    if path.is_dir() {
        return options.clone().open(file_of(target, seed));
    }
    let mut device = options.clone().create(false).truncate(false).open(path)?;
    device.seek(SeekFrom::Start(seed * SPACING))?;
    Ok(device)
}

fn file_of(target: &str, seed: u64) -> PathBuf {
    Path::new(target).join(format!("orlop-conformance-{seed}"))
}

/// Writes what `seed` stands for, and waits until it is stored.
pub(crate) async fn write(target: &str, seed: u64) -> Result<(), Trouble> {
    let target = target.to_owned();
    blocking(move || {
        let written = || -> std::io::Result<()> {
            let mut file = open(
                &target,
                seed,
                OpenOptions::new().write(true).create(true).truncate(true),
            )?;
            file.write_all(&pattern(seed))?;
            file.sync_all()
        };
        written().map_err(against("could not write into the volume", &target))
    })
    .await
}

/// Has a file system's own accounts written: some bring them up to date only with that.
pub(crate) async fn settle(target: &str) -> Result<(), Trouble> {
    let target = target.to_owned();
    blocking(move || {
        let settled = File::open(&target).and_then(|folder| Ok(rustix::fs::syncfs(folder)?));
        settled.map_err(against("could not sync the volume", &target))
    })
    .await
}

/// Overwrites what `seed` stands for with something else.
pub(crate) async fn spoil(target: &str, seed: u64) -> Result<(), Trouble> {
    let target = target.to_owned();
    blocking(move || {
        let written = || -> std::io::Result<()> {
            let mut file = open(
                &target,
                seed,
                OpenOptions::new().write(true).create(true).truncate(true),
            )?;
            file.write_all(&pattern(!seed))?;
            file.sync_all()
        };
        written().map_err(against("could not write into the volume", &target))
    })
    .await
}

/// Whether what `seed` stands for is there, whole.
pub(crate) async fn holds(target: &str, seed: u64) -> Result<bool, Trouble> {
    let target = target.to_owned();
    blocking(move || {
        let mut bytes = vec![0; LENGTH];
        let read = open(&target, seed, OpenOptions::new().read(true))
            .and_then(|mut file| file.read_exact(&mut bytes));
        match read {
            Ok(()) => Ok(bytes == pattern(seed)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(against("could not read the volume", &target)(error)),
        }
    })
    .await
}

/// A place that no case writes to, and that the smallest test volume still has.
const UNUSED: u64 = 6;

/// Tries to change the volume; the error if that is refused, as it is for a read-only one.
pub(crate) async fn try_write(target: &str) -> Result<(), std::io::ErrorKind> {
    let target = target.to_owned();
    let tried = tokio::task::spawn_blocking(move || {
        let mut file = open(
            &target,
            UNUSED,
            OpenOptions::new().write(true).create(true).truncate(true),
        )?;
        file.write_all(&pattern(UNUSED))?;
        file.sync_all()
    });
    match tried.await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.kind()),
        Err(_) => Err(std::io::ErrorKind::Other),
    }
}

/// The size that a workload sees: the file system's, or the device's.
pub(crate) async fn size_at(target: &str) -> Result<i64, Trouble> {
    let target = target.to_owned();
    blocking(move || {
        let path = Path::new(&target);
        let size = if path.is_dir() {
            orlop_host::filesystem::usage(path).map(|usage| usage.total_bytes)
        } else {
            File::open(path).and_then(|mut file| file.seek(SeekFrom::End(0)))
        };
        let size = size.map_err(against("could not measure the volume", &target))?;
        Ok(i64::try_from(size).unwrap_or(i64::MAX))
    })
    .await
}
