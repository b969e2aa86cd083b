//! The log of a container, in the CRI's format: one line of the file per line
//! of output, `<RFC 3339 time> <stdout|stderr> <F|P> <text>`.
//!
//! `P` marks a piece of a line that has no end yet. Nothing is ever held back
//! longer than until the output pauses. A log that grows too long is put aside as
//! `log.1`, in the place of an older one: a container may fill neither the disk
//! nor stop because its log cannot grow. What a full disk refuses is lost.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

/// Longer lines are cut into pieces, as container runtimes do.
const LONGEST_PIECE: usize = 16 * 1024;

/// A log as long as this is put aside; the kubelet's default.
const LONGEST_LOG: u64 = 10 * 1024 * 1024;

/// Which output of the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// One line of a log file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line<'a> {
    /// When it was written.
    pub at: Timestamp,
    /// To which output.
    pub stream: Stream,
    /// Whether the output's line ends here; if not, the next piece follows.
    pub ends: bool,
    /// What was written, without the line's end.
    pub text: &'a [u8],
}

impl<'a> Line<'a> {
    /// Reads a line of a log file, without its line feed. `None` for anything
    /// that is not in the format.
    pub fn parse(raw: &'a [u8]) -> Option<Self> {
        let (at, rest) = split_at_blank(raw)?;
        let (stream, rest) = split_at_blank(rest)?;
        let (tag, text) = split_at_blank(rest)?;
        Some(Self {
            at: str::from_utf8(at).ok()?.parse().ok()?,
            stream: match stream {
                b"stdout" => Stream::Stdout,
                b"stderr" => Stream::Stderr,
                _ => return None,
            },
            ends: match tag {
                b"F" => true,
                b"P" => false,
                _ => return None,
            },
            text,
        })
    }
}

fn split_at_blank(raw: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = raw.iter().position(|byte| *byte == b' ')?;
    Some((&raw[..at], &raw[at + 1..]))
}

/// The log file, as the shim writes it.
pub(super) struct Log {
    path: PathBuf,
    file: File,
    length: u64,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Log {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        Ok(Self {
            path: path.to_owned(),
            length: file.metadata()?.len(),
            file,
            stdout: Vec::new(),
            stderr: Vec::new(),
        })
    }

    /// Takes output as it comes and writes the lines that are complete.
    pub(super) fn take(&mut self, stream: Stream, bytes: &[u8], now: Timestamp) {
        let pending = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        pending.extend_from_slice(bytes);
        let (lines, used) = pieces(pending, stream, now);
        pending.drain(..used);
        self.append(&lines);
    }

    /// Writes what has no line end and never will have one.
    pub(super) fn finish(&mut self, now: Timestamp) {
        let mut lines = Vec::new();
        for (stream, pending) in [
            (Stream::Stdout, &mut self.stdout),
            (Stream::Stderr, &mut self.stderr),
        ] {
            if !pending.is_empty() {
                write_line(&mut lines, stream, 'F', pending, now);
                pending.clear();
            }
        }
        self.append(&lines);
    }

    /// One write per batch, so that lines never mix. A failure loses the batch.
    fn append(&mut self, lines: &[u8]) {
        if lines.is_empty() {
            return;
        }
        let length = u64::try_from(lines.len()).unwrap_or(u64::MAX);
        if self.length > 0 && self.length.saturating_add(length) > LONGEST_LOG {
            // Without a new file the old one serves on; the next batch tries again.
            let _tried_again = self.put_aside();
        }
        let _lost_on_a_full_disk = self.file.write_all(lines);
        self.length = self.length.saturating_add(length);
    }

    /// Goes on with a new file. There is a file named `log` at every moment, and
    /// the old one is complete before the new one takes its name: a reader may
    /// rely on both.
    fn put_aside(&mut self) -> io::Result<()> {
        let fresh = self.path.with_extension("new");
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&fresh)?;
        file.set_len(0)?;
        let old = self.path.with_extension("1");
        // That the log stays short matters more than that the old part is kept.
        let _absent_the_first_time = fs::remove_file(&old);
        let _the_old_part_is_lost = fs::hard_link(&self.path, &old);
        fs::rename(&fresh, &self.path)?;
        self.file = file;
        self.length = 0;
        Ok(())
    }
}

/// The log lines for the complete pieces of `pending`, and how much they used.
fn pieces(pending: &[u8], stream: Stream, now: Timestamp) -> (Vec<u8>, usize) {
    let mut lines = Vec::new();
    let mut used = 0;
    loop {
        let rest = &pending[used..];
        let within = &rest[..rest.len().min(LONGEST_PIECE)];
        if let Some(end) = within.iter().position(|byte| *byte == b'\n') {
            write_line(&mut lines, stream, 'F', &rest[..end], now);
            used += end + 1;
        } else if rest.len() > LONGEST_PIECE {
            write_line(&mut lines, stream, 'P', within, now);
            used += LONGEST_PIECE;
        } else {
            return (lines, used);
        }
    }
}

fn write_line(lines: &mut Vec<u8>, stream: Stream, tag: char, text: &[u8], now: Timestamp) {
    // Nine digits always, so that lines sort by time as text.
    lines.extend_from_slice(format!("{now:.9} {} {tag} ", stream.name()).as_bytes());
    lines.extend_from_slice(text);
    lines.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-02T03:04:05.5Z".parse().expect("a time")
    }

    #[test]
    fn a_long_log_is_put_aside_and_one_old_part_is_kept() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let mut log = Log::open(&path).expect("a log");
        let line = [vec![b'x'; 1000], vec![b'\n']].concat();
        let mut written = 0;
        while written < LONGEST_LOG * 5 / 2 {
            log.take(Stream::Stdout, &line, now());
            written += 1001;
        }
        let length = |name: &str| {
            fs::metadata(folder.path().join(name))
                .expect("a file")
                .len()
        };
        assert!(length("log") < LONGEST_LOG);
        let old = length("log.1");
        assert!((LONGEST_LOG - 2000..=LONGEST_LOG).contains(&old), "{old}");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2);
        let text = fs::read(&path).expect("the log");
        assert!(
            text.strip_suffix(b"\n")
                .expect("whole lines")
                .split(|b| *b == b'\n')
                .all(|raw| Line::parse(raw).is_some())
        );
    }

    #[test]
    fn a_line_is_written_once_it_is_complete() {
        let (lines, used) = pieces(b"one\ntw", Stream::Stdout, now());
        assert_eq!(
            String::from_utf8_lossy(&lines),
            "2026-01-02T03:04:05.500000000Z stdout F one\n"
        );
        assert_eq!(used, 4);
    }

    #[test]
    fn a_long_line_comes_in_pieces_and_reads_back_whole() {
        let mut output = vec![b'x'; LONGEST_PIECE * 2 + 3];
        output.push(b'\n');
        let (lines, used) = pieces(&output, Stream::Stderr, now());
        assert_eq!(used, output.len());
        let parsed: Vec<_> = lines
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| Line::parse(line).expect("our own format"))
            .collect();
        assert_eq!(
            parsed.iter().map(|line| line.ends).collect::<Vec<_>>(),
            [false, false, true]
        );
        assert_eq!(
            parsed.iter().map(|line| line.text.len()).sum::<usize>(),
            output.len() - 1
        );
        assert!(
            parsed
                .iter()
                .all(|line| line.stream == Stream::Stderr && line.at == now())
        );
    }

    #[test]
    fn blanks_belong_to_the_text() {
        let line = Line::parse(b"2026-01-02T03:04:05Z stdout F  a b ").expect("a line");
        assert_eq!(line.text, b" a b ");
    }

    #[test]
    fn foreign_lines_are_refused() {
        for raw in [
            "",
            "hello",
            "2026-01-02T03:04:05Z stdin F x",
            "now stdout F x",
        ] {
            assert_eq!(Line::parse(raw.as_bytes()), None, "{raw}");
        }
    }
}
