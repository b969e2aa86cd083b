//! The folder of one cluster: who holds it, and where things lie in it.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use rustix::fs::FlockOperation;

const LOCK: &str = "lock";
/// The longest base folder with which all sockets' paths still fit into a socket address.
const LONGEST_BASE: usize = 40;

/// From when on a folder without a name is abandoned.
const UNFINISHED: Duration = Duration::from_secs(60);

/// One cluster's folder. Everything that the cluster writes lies in it.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

/// A held folder: as long as this lives, no other process takes the folder for abandoned.
#[derive(Debug)]
pub(crate) struct Hold {
    _lock: File,
}

/// Where all clusters' folders lie, checked to be fit for them.
fn base() -> Result<PathBuf> {
    let temporary = std::env::temp_dir();
    fit(&temporary)?;
    Ok(temporary.join("orlop-kube"))
}

fn fit(temporary: &Path) -> Result<()> {
    let shown = temporary.display();
    if !temporary.is_absolute() {
        bail!("TMPDIR is {shown}, which isn't absolute; unset it or name a whole path");
    }
    if temporary.as_os_str().len() > LONGEST_BASE {
        bail!(
            "TMPDIR is {shown}, too long for the sockets below it; use one of at most {LONGEST_BASE} characters"
        );
    }
    let system = rustix::fs::statfs(temporary)
        .with_context(|| format!("TMPDIR is {shown}, which can't be read; unset it"))?;
    const OVERLAY: u64 = 0x794c_7630;
    if u64::try_from(system.f_type) == Ok(OVERLAY) {
        bail!(
            "TMPDIR is {shown}, on an overlay, which containers can't be kept on; name a folder on a disk"
        );
    }
    Ok(())
}

/// Removes folders whose maker was killed before they got their names. Making one takes
/// milliseconds, so that an old one is nobody's.
fn forget_unfinished(base: &Path) {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with('.')) {
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let age = modified.ok().and_then(|time| time.elapsed().ok());
        if age.is_some_and(|age| age > UNFINISHED) {
            // Somebody else may be removing it, too.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

impl Folder {
    /// Makes a new one and holds it. It gets its name last: one that can be seen is held, or
    /// abandoned.
    pub(crate) fn create() -> Result<(Self, Hold)> {
        let base = base()?;
        forget_unfinished(&base);
        let stamp = jiff::Zoned::now().strftime("%m%d-%H%M%S").to_string();
        let id = format!("{stamp}-{:04x}", fastrand::u16(..));
        let (unseen, path) = (base.join(format!(".{id}")), base.join(id));
        for below in [
            "bin",
            "components",
            "config",
            "kubelet",
            "log",
            "pki",
            "stages",
            "var",
            "work",
        ] {
            fs::create_dir_all(unseen.join(below))
                .with_context(|| format!("could not make {}", unseen.display()))?;
        }
        File::create(unseen.join(LOCK)).context("could not make a lock")?;
        let Some(hold) = Self::at(unseen.clone()).hold()? else {
            bail!("{} is held by somebody else", unseen.display());
        };
        fs::rename(&unseen, &path).with_context(|| format!("could not make {}", path.display()))?;
        Ok((Self { path }, hold))
    }

    /// The folder at this path.
    pub(crate) fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// All folders there are, oldest first.
    pub(crate) fn all() -> Result<Vec<Self>> {
        let entries = match fs::read_dir(base()?) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).context("could not list the clusters' folders"),
        };
        let mut all: Vec<Self> = entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
            .map(|entry| Self::at(entry.path()))
            .collect();
        all.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(all)
    }

    /// Takes the folder, or says that somebody has it, be it only to remove it.
    pub(crate) fn hold(&self) -> Result<Option<Hold>> {
        let path = self.path.join(LOCK);
        let lock = match File::open(&path) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => {
                return Err(error).with_context(|| format!("could not open {}", path.display()));
            }
        };
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Hold { _lock: lock })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("could not lock {}", path.display())),
        }
    }

    /// Removes everything in it but these, and the folder itself if none of these is left. The
    /// lock goes last, so that nobody takes what is half removed.
    pub(crate) fn remove_all_but(&self, kept: &[&str]) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            match entry.file_name().to_str() {
                Some(name) if name == LOCK || kept.contains(&name) => {}
                _ if entry.file_type()?.is_dir() => fs::remove_dir_all(entry.path())?,
                _ => fs::remove_file(entry.path())?,
            }
        }
        if kept.is_empty() {
            fs::remove_file(self.path.join(LOCK))?;
            fs::remove_dir(&self.path)?;
        }
        Ok(())
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// What tells this cluster from others.
    pub(crate) fn id(&self) -> String {
        self.path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    /// The name of its cgroup in every hierarchy.
    pub(crate) fn cgroup(&self) -> String {
        format!("orlop-kube-{}", self.id())
    }

    /// A path below it.
    pub(crate) fn join(&self, below: impl AsRef<Path>) -> PathBuf {
        self.path.join(below)
    }

    /// The log of a component or program.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.path.join("log").join(format!("{name}.log"))
    }

    /// A program's binary.
    pub(crate) fn binary(&self, name: &str) -> PathBuf {
        self.path.join("bin").join(name)
    }

    /// The administrator's kubeconfig.
    pub(crate) fn admin(&self) -> PathBuf {
        self.join("admin.kubeconfig")
    }

    /// Writes a small note: a file with one word or text in it.
    pub(crate) fn note(&self, name: &str, text: &str) -> Result<()> {
        let path = self.path.join(name);
        let beside = self.path.join(format!(".{name}"));
        fs::write(&beside, text)
            .and_then(|()| fs::rename(&beside, &path))
            .with_context(|| format!("could not write {}", path.display()))
    }

    /// Reads a note.
    pub(crate) fn noted(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.path.join(name)).ok()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_held_folder_is_not_taken_twice() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::at(temporary.path().to_owned());
        assert!(folder.hold().unwrap().is_none(), "it has no lock yet");
        File::create(temporary.path().join(LOCK)).unwrap();
        let hold = folder.hold().unwrap();
        assert!(hold.is_some());
        assert!(folder.hold().unwrap().is_none());
        drop(hold);
        assert!(folder.hold().unwrap().is_some());
    }

    #[test]
    fn what_is_kept_of_a_folder_stays_with_its_lock() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::at(temporary.path().join("one"));
        fs::create_dir_all(folder.join("log")).unwrap();
        fs::create_dir_all(folder.join("pki/more")).unwrap();
        File::create(folder.join(LOCK)).unwrap();
        folder.remove_all_but(&["log"]).unwrap();
        assert!(folder.join("log").exists() && folder.join(LOCK).exists());
        assert!(!folder.join("pki").exists());
        folder.remove_all_but(&[]).unwrap();
        assert!(!folder.path().exists());
    }

    #[test]
    fn an_unfit_temporary_folder_is_refused_with_its_name() {
        for unfit in [
            "relative",
            "/a/very/long/path/that/no/socket/below/it/fits",
            "/no/such/folder",
        ] {
            let refusal = fit(Path::new(unfit)).unwrap_err().to_string();
            assert!(refusal.contains(unfit), "{refusal}");
        }
        fit(Path::new("/")).unwrap();
    }
}
