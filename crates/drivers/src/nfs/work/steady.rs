//! Writing much, and not falling silent at its end.
//!
//! The kernel's client keeps what is written in memory, as much as there is, and passes it on when the
//! file is synced at the latest. Over a slow link that is one call of an hour, in which nobody hears
//! that the work goes on. So what is written is synced in pieces.

use std::fs::File;
use std::io::{self, Write};

use super::Pulse;

/// How much is written from one sync to the next.
const PIECE: u64 = 128 << 20;

/// A file that is written.
pub(super) struct Steady<'a> {
    to: &'a File,
    pulse: &'a Pulse<'a>,
    /// Bytes since the last sync.
    unsynced: u64,
}

impl<'a> Steady<'a> {
    pub(super) fn new(to: &'a File, pulse: &'a Pulse<'a>) -> Self {
        Self {
            to,
            pulse,
            unsynced: 0,
        }
    }

    /// So much has been written, in whatever way.
    pub(super) fn wrote(&mut self, length: usize) -> io::Result<()> {
        self.pulse.beat();
        self.unsynced += length as u64;
        if self.unsynced >= PIECE {
            self.unsynced = 0;
            self.to.sync_data()?;
            self.pulse.reached();
        }
        Ok(())
    }

    /// All has been written. Nobody hears what closing a file says of what is only in memory.
    pub(super) fn finish(self) -> io::Result<()> {
        self.to.sync_data()
    }
}

impl Write for Steady<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.to.write(bytes)?;
        self.wrote(length)?;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::nfs::order::Word;

    #[test]
    fn what_is_written_is_synced_in_pieces_and_told() {
        let beats = AtomicUsize::new(0);
        let count = |word| {
            if matches!(word, Word::Beat(_)) {
                beats.fetch_add(1, Ordering::Relaxed);
            }
        };
        let pulse = Pulse::new(&count);
        let piece = usize::try_from(PIECE).unwrap();
        let file = tempfile::tempfile().unwrap();
        let mut steady = Steady::new(&file, &pulse);
        for _ in 0..3 {
            steady.wrote(piece).unwrap();
        }
        assert!(beats.load(Ordering::Relaxed) >= 3);
        // This refuses to be synced, and nothing else.
        let file = File::options().write(true).open("/dev/null").unwrap();
        let mut steady = Steady::new(&file, &pulse);
        steady.write_all(&[0; 9]).unwrap();
        steady.wrote(piece - 10).unwrap();
        steady.wrote(1).unwrap_err();
    }
}
