//! What a process has used, as the kernel counts it.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result};

/// In which the kernel tells times, on every architecture.
const TICKS_PER_SECOND: u64 = 100;

/// What processes used together.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Usage {
    /// Processor time, in user and kernel mode.
    pub(super) processor: Duration,
    /// Bytes of memory in use now.
    pub(super) memory: u64,
    /// The most memory that was ever in use.
    pub(super) peak: u64,
}

/// Reads what these processes used so far.
pub(super) fn of(processes: impl IntoIterator<Item = u32>) -> Result<Usage> {
    let mut all = Usage::default();
    for process in processes {
        let read = |file: &str| {
            let path = format!("/proc/{process}/{file}");
            fs::read_to_string(&path).with_context(|| format!("could not read {path}"))
        };
        all.processor += processor_time(&read("stat")?).context("an odd /proc/…/stat")?;
        let status = read("status")?;
        all.memory += kibibytes(&status, "VmRSS:").context("no VmRSS")? << 10;
        all.peak += kibibytes(&status, "VmHWM:").context("no VmHWM")? << 10;
    }
    Ok(all)
}

/// The processor time of all threads that a process has now, to the nanosecond.
pub(super) fn fine(process: u32) -> Result<Duration> {
    let tasks = format!("/proc/{process}/task");
    let mut all = 0;
    for task in fs::read_dir(&tasks).with_context(|| format!("could not read {tasks}"))? {
        // One that ends meanwhile has no more to tell.
        let told = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        let first = told.split_whitespace().next();
        all += first.map_or(Ok(0), str::parse::<u64>)?;
    }
    Ok(Duration::from_nanos(all))
}

fn processor_time(stat: &str) -> Option<Duration> {
    // The name in parentheses may hold anything, even a parenthesis.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let ticks: u64 = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}

fn kibibytes(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn this_process_uses_time_and_memory() {
        let usage = of([std::process::id()]).unwrap();
        assert!(usage.memory > 100 << 10 && usage.peak >= usage.memory);
        assert!(of([u32::MAX]).is_err());
        let fine = fine(std::process::id()).unwrap();
        assert!(fine > Duration::ZERO && fine < Duration::from_secs(3600));
    }

    #[test]
    fn a_process_may_be_called_anything() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0";
        assert_eq!(processor_time(stat), Some(Duration::from_secs(3)));
    }
}
