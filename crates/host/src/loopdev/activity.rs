//! Whether anything was written through a loop device since a former look.
//!
//! The kernel counts what each device has done. A count that has not changed, with nothing under way
//! at either look, means that the file behind the device was not touched in between.

use std::fs;
use std::io;

use super::LoopDevice;

/// What was done to a device up to a moment at which nothing was under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    writes: u64,
    discards: u64,
}

impl LoopDevice {
    /// What was done so far; none if something is under way, or if the kernel does not count.
    pub fn activity(&self) -> io::Result<Option<Activity>> {
        let directory = format!("/sys/block/loop{}", self.number);
        let counted = fs::read_to_string(format!("{directory}/queue/iostats"))?;
        if counted.trim() != "1" {
            return Ok(None);
        }
        Ok(parse(&fs::read_to_string(format!("{directory}/stat"))?))
    }
}

/// Understands a line of `/sys/block/*/stat`.
fn parse(line: &str) -> Option<Activity> {
    let field = |index: usize| {
        line.split_ascii_whitespace()
            .nth(index)?
            .parse::<u64>()
            .ok()
    };
    let under_way = field(8)?;
    let activity = Activity {
        writes: field(4)?,
        // Kernels before 4.18 do not tell of them, and then they are no loop device's.
        discards: field(11).unwrap_or(0),
    };
    (under_way == 0).then_some(activity)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::loopdev::{Access, Lifetime};

    #[test]
    fn what_is_under_way_is_no_moment_of_rest() {
        let line = "1 2 3 4 50 6 7 8 0 9 10 70 11 12 13 14 15";
        let (writes, discards) = (50, 70);
        assert_eq!(parse(line), Some(Activity { writes, discards }));
        assert_eq!(parse("1 2 3 4 50 6 7 8 1 9 10 70 11 12 13"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_write_is_seen_and_a_read_is_not() {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(16 << 20).unwrap();
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let device =
            LoopDevice::attach(image.as_file(), Access::ReadWrite, Lifetime::LastClose).unwrap();
        let opened = fs::File::options()
            .read(true)
            .write(true)
            .open(device.path())
            .unwrap();
        // Somebody may have told the kernel not to count for this number; ask for it.
        let _ = fs::write(
            format!("/sys/block/loop{}/queue/iostats", device.number),
            "1",
        );
        let rest = || {
            // Somebody may look at a new device, and be under way.
            let looked = (0..1000).find_map(|_| {
                let activity = device.activity().unwrap();
                if activity.is_none() {
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                activity
            });
            looked.unwrap()
        };
        let before = rest();
        opened.read_exact_at(&mut [0; 4096], 1 << 20).unwrap();
        assert_eq!(rest(), before);
        opened.write_all_at(&[1; 4096], 1 << 20).unwrap();
        opened.sync_all().unwrap();
        assert_ne!(rest(), before);
    }
}
