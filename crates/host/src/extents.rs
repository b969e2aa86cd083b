//! Where a file's bytes are: its extents, and what differs between two files.
//!
//! Two ranges at the same place of the disk are equal without being read. All others are read and
//! compared: so the answer is exact whether the files share blocks or not, and takes as long as
//! they differ.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

mod kernel;

/// What is compared and told at the finest.
pub const BLOCK: u64 = 4096;

/// A range of a file and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Its first byte in the file.
    pub logical: u64,
    /// Its length.
    pub length: u64,
    /// What is there.
    pub holds: Holds,
    /// Whether other files have the same blocks.
    pub shared: bool,
}

/// What an extent holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Blocks that were set aside and never written: zeros.
    Unwritten,
    /// Data, byte for byte at this place of the device.
    DataAt(u64),
    /// Data in a form that cannot be told by its place: compressed, inline, not on disk yet.
    Data,
}

impl Extent {
    fn end(&self) -> u64 {
        self.logical.saturating_add(self.length)
    }
}

/// The extents of a file, in order. Holes are what lies between them.
#[derive(Debug)]
pub struct Extents<'a> {
    file: &'a File,
    at: u64,
    batch: std::vec::IntoIter<Extent>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Dirty pages are written out before the first look.
    Fresh,
    More,
    Done,
}

impl<'a> Extents<'a> {
    /// Those that end after `from`. What is in memory is written out first.
    #[must_use]
    pub fn of(file: &'a File, from: u64) -> Self {
        Self {
            file,
            at: from,
            batch: Vec::new().into_iter(),
            state: State::Fresh,
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let sync = self.state == State::Fresh;
        let (batch, last) = match kernel::map(self.file, self.at, sync) {
            Ok(found) => found,
            Err(Errno::OPNOTSUPP | Errno::NOTTY) => self.by_seeking()?,
            Err(error) => return Err(error.into()),
        };
        self.state = if last || batch.is_empty() {
            State::Done
        } else {
            State::More
        };
        self.at = batch.last().map_or(self.at, Extent::end);
        self.batch = batch.into_iter();
        Ok(())
    }

    /// For file systems that tell only where data is, not where on the device.
    fn by_seeking(&self) -> io::Result<(Vec<Extent>, bool)> {
        let size = self.file.metadata()?.len();
        let data = crate::image::next_data(self.file, self.at, size)?;
        let extent = data.map(|data| Extent {
            logical: data.start,
            length: data.end - data.start,
            holds: Holds::Data,
            shared: false,
        });
        Ok((extent.into_iter().collect(), extent.is_none()))
    }
}

impl Iterator for Extents<'_> {
    type Item = io::Result<Extent>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(extent) = self.batch.next() {
                return Some(Ok(extent));
            }
            if self.state == State::Done {
                return None;
            }
            if let Err(error) = self.fill() {
                self.state = State::Done;
                return Some(Err(error));
            }
        }
    }
}

/// The ranges of a file that hold data, in order, merged, from `from` on and within `size`.
pub fn allocated(
    file: &File,
    from: u64,
    size: u64,
) -> impl Iterator<Item = io::Result<Range<u64>>> {
    let data = Extents::of(file, from).filter_map(move |extent| match extent {
        Ok(Extent {
            holds: Holds::Unwritten,
            ..
        }) => None,
        Ok(extent) => {
            let range = extent.logical.max(from)..extent.end().min(size);
            (!range.is_empty()).then_some(Ok(range))
        }
        Err(error) => Some(Err(error)),
    });
    Merged::new(data)
}

/// The ranges in which `target` differs from `base`, in order, merged, from `from` on and within
/// `size`. What lies beyond a file's end counts as zeros. Whole blocks.
pub fn changed<'a>(
    base: &'a File,
    target: &'a File,
    from: u64,
    size: u64,
) -> impl Iterator<Item = io::Result<Range<u64>>> + 'a {
    let suspects = Suspects {
        base: Cursor::new(Extents::of(base, from)),
        target: Cursor::new(Extents::of(target, from)),
        at: from,
        size,
    };
    let differences = suspects.flat_map(move |suspect| {
        let (range, error) = match suspect {
            Ok(range) => (range, None),
            Err(error) => (0..0, Some(Err(error))),
        };
        Differences::new(base, target, range).chain(error)
    });
    Merged::new(differences)
}

/// One file's extents, walked along.
struct Cursor<'a> {
    extents: Extents<'a>,
    current: Option<Extent>,
}

/// What a file has at one place, and up to where.
#[derive(Clone, Copy, PartialEq, Eq)]
enum There {
    Zeros,
    DataAt(u64),
    Data,
}

impl<'a> Cursor<'a> {
    fn new(extents: Extents<'a>) -> Self {
        Self {
            extents,
            current: None,
        }
    }

    fn look(&mut self, at: u64) -> io::Result<(There, u64)> {
        while self.current.is_none_or(|extent| extent.end() <= at) {
            match self.extents.next() {
                Some(extent) => self.current = Some(extent?),
                None => return Ok((There::Zeros, u64::MAX)),
            }
        }
        let Some(extent) = self.current else {
            return Ok((There::Zeros, u64::MAX));
        };
        if extent.logical > at {
            return Ok((There::Zeros, extent.logical));
        }
        let there = match extent.holds {
            Holds::Unwritten => There::Zeros,
            Holds::Data => There::Data,
            Holds::DataAt(place) => There::DataAt(place + (at - extent.logical)),
        };
        Ok((there, extent.end()))
    }
}

/// Ranges that are not the same blocks in both files.
struct Suspects<'a> {
    base: Cursor<'a>,
    target: Cursor<'a>,
    at: u64,
    size: u64,
}

impl Iterator for Suspects<'_> {
    type Item = io::Result<Range<u64>>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.at < self.size {
            let start = self.at;
            let looked = self
                .base
                .look(start)
                .and_then(|base| Ok((base, self.target.look(start)?)));
            let ((base, base_end), (target, target_end)) = match looked {
                Ok(looked) => looked,
                Err(error) => {
                    self.at = self.size;
                    return Some(Err(error));
                }
            };
            self.at = base_end.min(target_end).min(self.size);
            if base != target || base == There::Data {
                return Some(Ok(start..self.at));
            }
        }
        None
    }
}

/// The blocks of one range that read differently.
struct Differences<'a> {
    base: &'a File,
    target: &'a File,
    left: Range<u64>,
    found: std::vec::IntoIter<Range<u64>>,
}

impl<'a> Differences<'a> {
    fn new(base: &'a File, target: &'a File, range: Range<u64>) -> Self {
        Self {
            base,
            target,
            left: range,
            found: Vec::new().into_iter(),
        }
    }

    fn compare(&mut self) -> io::Result<()> {
        const STEP: u64 = 256 << 10;
        let start = self.left.start;
        let end = self.left.end.min(start.saturating_add(STEP));
        let base = read(self.base, start..end)?;
        let target = read(self.target, start..end)?;
        self.left.start = end;
        let block = usize::try_from(BLOCK).unwrap_or(usize::MAX);
        let pairs = base.chunks(block).zip(target.chunks(block));
        self.found = (start..end)
            .step_by(block)
            .zip(pairs)
            .filter(|(_, (base, target))| base != target)
            .map(|(at, (base, _))| at..at + base.len() as u64)
            .collect::<Vec<_>>()
            .into_iter();
        Ok(())
    }
}

impl Iterator for Differences<'_> {
    type Item = io::Result<Range<u64>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(range) = self.found.next() {
                return Some(Ok(range));
            }
            if self.left.is_empty() {
                return None;
            }
            if let Err(error) = self.compare() {
                self.left = 0..0;
                return Some(Err(error));
            }
        }
    }
}

/// The bytes of a range, with zeros for what is beyond the end.
fn read(file: &File, range: Range<u64>) -> io::Result<Vec<u8>> {
    let length = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], range.start + filled as u64) {
            Ok(0) => break,
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}

/// Ranges that touch become one.
struct Merged<I> {
    ranges: I,
    pending: Option<io::Result<Range<u64>>>,
}

impl<I: Iterator<Item = io::Result<Range<u64>>>> Merged<I> {
    fn new(ranges: I) -> Self {
        Self {
            ranges,
            pending: None,
        }
    }
}

impl<I: Iterator<Item = io::Result<Range<u64>>>> Iterator for Merged<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<Self::Item> {
        let mut current = match self.pending.take().or_else(|| self.ranges.next())? {
            Ok(range) => range,
            Err(error) => return Some(Err(error)),
        };
        for next in self.ranges.by_ref() {
            match next {
                Ok(next) if next.start <= current.end => current.end = current.end.max(next.end),
                next => {
                    self.pending = Some(next);
                    break;
                }
            }
        }
        Some(Ok(current))
    }
}

#[cfg(test)]
mod tests;
