//! Durations as Go writes them: `1h30m`, `-1.5s`.

/// Nanoseconds; none if the text is no duration or too long to count.
pub(super) fn parse(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(digits);
        let end = after.find(|c: char| c.is_ascii_digit() || c == '.');
        let (unit, after) = after.split_at(end.unwrap_or(after.len()));
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() > 20 || fraction.contains('.') || whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let whole: i128 = if whole.is_empty() {
            0
        } else {
            whole.parse().ok()?
        };
        total = total.checked_add(whole.checked_mul(unit)?)?;
        let mut scale = unit;
        for digit in fraction.bytes().take(18) {
            scale /= 10;
            total += i128::from(digit - b'0') * scale;
        }
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, found) in [
            ("1h30m", Some(5_400_000_000_000)),
            ("-1.5s", Some(-1_500_000_000)),
            ("0", Some(0)),
            ("10ms", Some(10_000_000)),
            (".5m", Some(30_000_000_000)),
            ("1", None),
            ("", None),
            ("1.s.", None),
            ("99999999999h", None),
            ("1d", None),
        ] {
            assert_eq!(parse(text), found, "{text}");
        }
    }
}
