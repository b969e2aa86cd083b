//! Writing past the kernel's cache: what goes to the medium at once anyway gets there sooner.
//!
//! The kernel takes whole blocks only, from memory at a whole block's address. So the beginning of
//! the last block is kept here and written again with what follows it, as the cache would do it;
//! the end of that block is zeros, as is all that lies behind the last frame.

use std::io;

use super::medium::Medium;

/// A block, as large as any disk's or a multiple of it.
pub(super) const BLOCK: usize = 4096;
/// More than this is better left to the cache.
const LONGEST: usize = 256 << 10;

/// A way past the cache, for what is added at the end of a file.
#[derive(Debug, Default)]
pub(super) struct Direct {
    /// The beginning of the block that the next bytes go to.
    tail: Vec<u8>,
    /// Memory to write from, and one block more, for the place in it to be even.
    memory: Vec<u8>,
}

impl Direct {
    /// The file ends here now; it is read to see what its last block begins with.
    pub(super) fn restart(&mut self, file: &dyn Medium, length: u64) -> io::Result<()> {
        let inside = length as usize % BLOCK;
        self.tail.resize(inside, 0);
        file.read_at(&mut self.tail, length - inside as u64)
    }

    /// Takes note of bytes that were written, this way or otherwise.
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
    pub(super) fn write(
        &mut self,
        file: &dyn Medium,
        length: u64,
        bytes: &[u8],
    ) -> io::Result<bool> {
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
        match file.write_past_cache(blocks, begin) {
            Ok(()) => Ok(true),
            // Not every file system that opens a file this way writes it so.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(false),
            Err(error) => Err(error),
        }
    }
}
