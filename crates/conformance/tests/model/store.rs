//! Where the model keeps data: a tmpfs per file system volume, an image per block volume.
//!
//! A tmpfs has a size that `statvfs` shows, grows while in use, and is made in microseconds; an
//! image behind a loop device is a real block device.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use orlop_host::mount::{self, FsOption, NewMount, Restrictions};
use orlop_host::{MountTable, Place, remove_tree_one_fs};
use rustix::fs::SeekFrom;
use rustix::mount::MountFlags;

/// The unit in which images are compared.
pub(crate) const PAGE: u64 = 4096;

/// As files or as a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Mount,
    Block,
}

/// The model's own folder. What is in it goes when it is dropped.
#[derive(Debug)]
pub(crate) struct Store {
    root: PathBuf,
}

impl Store {
    /// A store in a new tmpfs, so that images have holes and nothing reaches a disk.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        mount_tmpfs(root, 1 << 30)?;
        for folder in ["data", "snapshots"] {
            fs::create_dir(root.join(folder))?;
        }
        Ok(Self {
            root: root.to_owned(),
        })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// A volume's folder or image.
    pub(crate) fn volume(&self, id: &str) -> PathBuf {
        self.root.join("data").join(id)
    }

    /// A snapshot's folder or image.
    pub(crate) fn snapshot(&self, id: &str) -> PathBuf {
        self.root.join("snapshots").join(id)
    }

    /// Makes an empty volume of that many bytes.
    pub(crate) fn make(&self, id: &str, form: Form, bytes: i64) -> io::Result<()> {
        let at = self.volume(id);
        match form {
            Form::Mount => {
                fs::create_dir(&at)?;
                mount_tmpfs(&at, bytes)
            }
            Form::Block => File::create_new(&at)?.set_len(bytes.unsigned_abs()),
        }
    }

    /// Makes a volume as large as it shall be.
    pub(crate) fn resize(&self, id: &str, form: Form, bytes: i64) -> io::Result<()> {
        let at = self.volume(id);
        match form {
            Form::Mount => {
                let size = std::ffi::CString::new(format!("size={bytes}"))?;
                rustix::mount::mount_remount(&at, MountFlags::empty(), size.as_c_str())?;
                Ok(())
            }
            Form::Block => File::options()
                .write(true)
                .open(at)?
                .set_len(bytes.unsigned_abs()),
        }
    }

    /// Removes a volume; fine if it is not there.
    pub(crate) fn remove(&self, id: &str) -> io::Result<()> {
        remove(&self.volume(id))
    }

    /// Removes a snapshot; fine if it is not there.
    pub(crate) fn remove_snapshot(&self, id: &str) -> io::Result<()> {
        remove(&self.snapshot(id))
    }

    /// Makes a snapshot's folder or image hold what `from` holds.
    pub(crate) fn cut(&self, from: &Path, id: &str, form: Form) -> io::Result<()> {
        let to = self.snapshot(id);
        match form {
            Form::Mount => fs::create_dir(&to)?,
            Form::Block => drop(File::create_new(&to)?),
        }
        copy(from, &to, form)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        unmount_all(&self.root);
    }
}

/// Takes away every mount at and below a folder. What stays is seen by whoever checks for leaks.
pub(crate) fn unmount_all(folder: &Path) {
    let Ok(table) = MountTable::read() else {
        return;
    };
    let points: Vec<_> = table.iter().map(|mount| mount.point.clone()).collect();
    for point in points
        .iter()
        .rev()
        .filter(|point| point.starts_with(folder))
    {
        if let Ok(place) = Place::at(point) {
            let _ = mount::unmount(&place);
        }
    }
}

fn mount_tmpfs(at: &Path, bytes: i64) -> io::Result<()> {
    let option = |key: &str, value: String| FsOption {
        key: key.to_owned(),
        value: Some(value),
    };
    let new = NewMount {
        fs_type: "tmpfs",
        source: Path::new("model"),
        restrictions: Restrictions::default(),
        options: &[
            option("size", bytes.to_string()),
            option("mode", "0777".to_owned()),
        ],
    };
    mount::mount(&new, Place::at(at)?.open()?).map_err(io::Error::other)
}

fn remove(at: &Path) -> io::Result<()> {
    mount::unmount(&Place::at(at)?)?;
    match fs::symlink_metadata(at) {
        Ok(found) if found.is_dir() => remove_tree_one_fs(at).map_err(io::Error::other),
        Ok(_) => fs::remove_file(at),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Copies a folder's entries or an image's data.
pub(crate) fn copy(from: &Path, to: &Path, form: Form) -> io::Result<()> {
    match form {
        Form::Mount => copy_tree(from, to),
        Form::Block => copy_image(from, to),
    }
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_symlink() {
            symlink(fs::read_link(entry.path())?, target)?;
        } else if kind.is_dir() {
            fs::create_dir(&target)?;
            fs::set_permissions(&target, entry.metadata()?.permissions())?;
            copy_tree(&entry.path(), &target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

fn copy_image(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (File::open(from)?, File::options().write(true).open(to)?);
    let length = from.metadata()?.len();
    if to.metadata()?.len() < length {
        to.set_len(length)?;
    }
    for (offset, size) in data(&from)? {
        let mut buffer = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
        from.read_exact_at(&mut buffer, offset)?;
        to.write_all_at(&buffer, offset)?;
    }
    Ok(())
}

/// Empties a volume.
pub(crate) fn wipe(at: &Path, form: Form) -> io::Result<()> {
    match form {
        Form::Block => {
            let image = File::options().write(true).open(at)?;
            let length = image.metadata()?.len();
            image.set_len(0)?;
            image.set_len(length)
        }
        Form::Mount => {
            for entry in fs::read_dir(at)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    fs::remove_dir_all(entry.path())?;
                } else {
                    fs::remove_file(entry.path())?;
                }
            }
            Ok(())
        }
    }
}

/// Changes one byte in the first thing with a byte that is found.
pub(crate) fn corrupt(at: &Path, form: Form) -> io::Result<()> {
    match form {
        Form::Block => {
            let image = File::options().read(true).write(true).open(at)?;
            match data(&image)?.first() {
                Some((offset, _)) => flip(&image, *offset),
                None => Ok(()),
            }
        }
        Form::Mount => {
            for entry in fs::read_dir(at)? {
                let path = entry?.path();
                let found = fs::symlink_metadata(&path)?;
                if found.is_file() && found.len() > 0 {
                    fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
                    return flip(&File::options().read(true).write(true).open(path)?, 0);
                }
            }
            Ok(())
        }
    }
}

fn flip(file: &File, offset: u64) -> io::Result<()> {
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset)?;
    file.write_all_at(&[!byte[0]], offset)
}

/// Where an image has data, as offsets and sizes in whole pages, in order.
pub(crate) fn data(image: &File) -> io::Result<Vec<(u64, u64)>> {
    let length = image.metadata()?.len();
    let (mut found, mut at) = (Vec::new(), 0);
    while at < length {
        let start = match rustix::fs::seek(image, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(image, SeekFrom::Hole(start))?.min(length);
        found.push((start, end - start));
        at = end;
    }
    Ok(found)
}

/// Where two images differ, page by page, neighbours merged.
pub(crate) fn differences(old: &File, new: &File) -> io::Result<Vec<(u64, u64)>> {
    let length = old.metadata()?.len().max(new.metadata()?.len());
    let mut touched = data(old)?;
    touched.extend(data(new)?);
    touched.sort_unstable();
    let mut found: Vec<(u64, u64)> = Vec::new();
    let mut at = 0;
    for (start, size) in touched {
        at = at.max(start / PAGE * PAGE);
        while at < start + size {
            let differ = page(old, at)? != page(new, at)?;
            let size = PAGE.min(length - at);
            match found.last_mut() {
                Some(last) if differ && last.0 + last.1 == at => last.1 += size,
                _ if differ => found.push((at, size)),
                _ => {}
            }
            at += PAGE;
        }
    }
    Ok(found)
}

/// A page's content; zeros beyond the end.
fn page(image: &File, at: u64) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; 4096];
    let mut filled = 0;
    while filled < buffer.len() {
        match image.read_at(&mut buffer[filled..], at + filled as u64)? {
            0 => break,
            more => filled += more,
        }
    }
    Ok(buffer)
}
