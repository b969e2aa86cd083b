//! Durations as Go writes them: `1m30s`, `500ms`, `1.5h`.

use std::time::Duration;

/// The units, in nanoseconds.
const UNITS: [(&str, f64); 8] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("μs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3600e9),
];

/// Reads a duration. A negative one is none at all: no timer of ours can be set into the past.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    // The one number that needs no unit.
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut nanos = 0.0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let unit = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let (_, factor) = UNITS.iter().find(|(name, _)| *name == unit)?;
        if !number.contains(|c: char| c.is_ascii_digit()) {
            return None;
        }
        nanos += number.parse::<f64>().ok()? * factor;
        rest = after;
    }
    // Go counts in 64 bits of nanoseconds.
    if nanos >= 9_223_372_036_854_775_807.0 {
        return None;
    }
    if negative {
        return Some(Duration::ZERO);
    }
    Some(Duration::from_nanos(nanos.round() as u64))
}

/// Writes a duration as Go prints it.
pub(super) fn text(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds == 0 {
        let nanos = duration.subsec_nanos();
        return match nanos {
            0 => "0s".to_owned(),
            1..1_000 => format!("{nanos}ns"),
            1_000..1_000_000 => format!("{}µs", f64::from(nanos) / 1e3),
            _ => format!("{}ms", f64::from(nanos) / 1e6),
        };
    }
    let rest = (seconds % 60) as f64 + f64::from(duration.subsec_nanos()) / 1e9;
    match (seconds / 3600, seconds / 60 % 60) {
        (0, 0) => format!("{rest}s"),
        (0, minutes) => format!("{minutes}m{rest}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{rest}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_as_go_does() {
        for (written, millis, printed) in [
            ("0", 0, "0s"),
            ("0s", 0, "0s"),
            ("15s", 15_000, "15s"),
            ("1m30s", 90_000, "1m30s"),
            ("90s", 90_000, "1m30s"),
            ("1.5h", 5_400_000, "1h30m0s"),
            ("+500ms", 500, "500ms"),
            (".5s", 500, "500ms"),
            ("1h0m0.25s", 3_600_250, "1h0m0.25s"),
            ("-5s", 0, "0s"),
        ] {
            let read = parse(written);
            assert_eq!(read, Some(Duration::from_millis(millis)), "{written}");
            assert_eq!(text(read.unwrap_or_default()), printed, "{written}");
        }
        assert_eq!(text(Duration::from_micros(1500)), "1.5ms");
        for wrong in [
            "", "5", "s", "1x", "1m30", "-", ".s", "1..5s", "3000000h", "1 s",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
