//! Writing past the kernel's cache: what goes to the medium at once anyway gets there sooner.
//!
//! The kernel takes whole blocks only, from memory at a whole block's address. So the beginning of
//! the last block is kept here and written again with what follows it, as the cache would do it;
//! the end of that block is zeros, as is all that lies behind the last frame.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

/// A block, as large as any disk's or a multiple of it.
const BLOCK: usize = 4096;
/// More than this is better left to the cache.
const LONGEST: usize = 256 << 10;

/// A way past the cache.
#[derive(Debug)]
pub(super) struct Direct {
    file: File,
    /// The beginning of the block that the next bytes go to.
    tail: Vec<u8>,
    /// Memory to write from, and one block more, for the place in it to be even.
    memory: Vec<u8>,
}

impl Direct {
    /// Opens a file to write from its beginning. None where there is no such way.
    pub(super) fn open(path: &Path) -> Option<Self> {
        let flags = i32::try_from(OFlags::DIRECT.bits()).ok()?;
        let opened = OpenOptions::new()
            .write(true)
            .custom_flags(flags)
            .open(path);
        Some(Self {
            file: opened.ok()?,
            tail: Vec::new(),
            memory: Vec::new(),
        })
    }

    /// The file ends here now; it is read to see what its last block begins with.
    pub(super) fn restart(&mut self, cached: &File, length: u64) -> io::Result<()> {
        let inside = length as usize % BLOCK;
        self.tail.resize(inside, 0);
        cached.read_exact_at(&mut self.tail, length - inside as u64)
    }

    /// Takes note of bytes that were written otherwise.
    pub(super) fn passed(&mut self, bytes: &[u8]) {
        let end = self.tail.len() + bytes.len();
        let inside = end % BLOCK;
        if bytes.len() >= inside {
            self.tail.clear();
            self.tail.extend_from_slice(&bytes[bytes.len() - inside..]);
        } else {
            // Still the same block.
            self.tail.extend_from_slice(bytes);
        }
    }

    /// Writes bytes behind the first `length`; answers whether it could be done this way.
    pub(super) fn write(&mut self, length: u64, bytes: &[u8]) -> io::Result<bool> {
        if bytes.len() > LONGEST {
            return Ok(false);
        }
        let filled = self.tail.len() + bytes.len();
        let whole = filled.next_multiple_of(BLOCK);
        if self.memory.len() < whole + BLOCK {
            self.memory = vec![0; whole + BLOCK];
        }
        let even = self.memory.as_ptr().align_offset(BLOCK);
        let Some(blocks) = self.memory.get_mut(even..even + whole) else {
            return Ok(false);
        };
        blocks[..self.tail.len()].copy_from_slice(&self.tail);
        blocks[self.tail.len()..filled].copy_from_slice(bytes);
        blocks[filled..].fill(0);
        let begin = length - self.tail.len() as u64;
        match self.file.write_all_at(blocks, begin) {
            Ok(()) => Ok(true),
            // Not every file system that opens a file this way writes it so.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INVAL.raw_os_error()) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}
