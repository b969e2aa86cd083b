//! What the kernel knows of this process, under the names that Prometheus' clients give it.

use std::{fmt, fs};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};

/// The kernel's ticks per second, in all that it tells programs.
const TICKS: f64 = 100.0;

/// Asked at every look.
#[derive(Debug)]
pub(crate) struct ThisProcess;

/// What is read of `/proc`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Facts {
    started: f64,
    cpu: f64,
    resident: f64,
    virtual_memory: f64,
    open: f64,
    most_open: f64,
}

fn facts() -> Option<Facts> {
    let read = |path: &str| fs::read_to_string(path).ok();
    let open = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    understand(
        &read("/proc/self/stat")?,
        &read("/proc/stat")?,
        &read("/proc/self/status")?,
        &read("/proc/self/limits")?,
        open,
    )
}

fn understand(stat: &str, machine: &str, status: &str, limits: &str, open: usize) -> Option<Facts> {
    // The program's name stands in brackets and may hold anything.
    let (_, rest) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // The third field of all is the first here.
    let number = |field: usize| fields.get(field - 3)?.parse::<f64>().ok();
    let boot = word(machine, "btime", 1)?.parse::<f64>().ok()?;
    let kilobytes = |name| Some(word(status, name, 1)?.parse::<f64>().ok()? * 1024.0);
    let most_open = word(limits, "Max open files", 3)?;
    Some(Facts {
        started: boot + number(22)? / TICKS,
        cpu: (number(14)? + number(15)?) / TICKS,
        resident: kilobytes("VmRSS:")?,
        virtual_memory: kilobytes("VmSize:")?,
        open: open as f64,
        most_open: most_open.parse().unwrap_or(f64::INFINITY),
    })
}

/// A word of the line that begins so, counted from the line's own first.
fn word<'a>(text: &'a str, line: &str, index: usize) -> Option<&'a str> {
    let line = text.lines().find(|one| one.starts_with(line))?;
    line.split_whitespace().nth(index)
}

impl Collector for ThisProcess {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(facts) = facts() else {
            return Ok(());
        };
        let counter = encoder.encode_descriptor(
            "process_cpu_seconds",
            "Processor time that was used",
            None,
            MetricType::Counter,
        )?;
        ConstCounter::new(facts.cpu).encode(counter)?;
        for (name, help, value) in [
            (
                "process_start_time_seconds",
                "When the process began, since 1970",
                facts.started,
            ),
            (
                "process_resident_memory_bytes",
                "Memory in use",
                facts.resident,
            ),
            (
                "process_virtual_memory_bytes",
                "Memory that is mapped",
                facts.virtual_memory,
            ),
            ("process_open_fds", "Open files", facts.open),
            ("process_max_fds", "How many may be open", facts.most_open),
        ] {
            let gauge = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            ConstGauge::new(value).encode(gauge)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_understood() {
        let stat = "7 (a) b) S 1 7 7 0 -1 0 1 0 0 0 250 50 0 0 20 0 1 0 1234 9 9";
        let limits = "Limit  Soft Limit\nMax open files            1024   4096   files\n";
        let status = "Name:\ta\nVmSize:\t  20 kB\nVmRSS:\t  10 kB\n";
        let understood = understand(stat, "cpu 1\nbtime 1000\n", status, limits, 5);
        let expected = Facts {
            started: 1012.34,
            cpu: 3.0,
            resident: 10_240.0,
            virtual_memory: 20_480.0,
            open: 5.0,
            most_open: 1024.0,
        };
        assert_eq!(understood, Some(expected));
        assert!(facts().is_some_and(|facts| facts.resident > 0.0 && facts.started > 1e9));
    }
}
