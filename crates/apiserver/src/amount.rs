//! Quantities exactly as the original counts and writes them.
//!
//! `orlop_model::Quantity` is what roles compute with: whole bytes. The server keeps what a
//! client wrote, so it needs all of it: billionths, and the form of the suffix.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

/// A billionth is the smallest amount; less is rounded up to it.
const UNIT: i128 = 1_000_000_000;
/// The largest amount; what is larger counts as this.
const MOST: i128 = i64::MAX as i128 * UNIT;

/// How an amount was written, and is written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Form {
    /// `k`, `M`, `m`.
    #[default]
    Decimal,
    /// `Ki`, `Mi`.
    Binary,
    /// `e3`.
    Exponent,
}

/// An amount of something; compared by value.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Amount {
    /// In billionths.
    nano: i128,
    form: Form,
}

/// Why a text is no amount.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)]
pub(crate) struct NoAmount;

impl Amount {
    /// So many of something.
    pub(crate) fn count(of: usize) -> Self {
        let nano = i128::try_from(of).map_or(MOST, |of| of.saturating_mul(UNIT));
        Self {
            nano,
            form: Form::Decimal,
        }
    }

    /// The amount in a field; none if there is none.
    pub(crate) fn of(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => text.parse().ok(),
            Value::Number(number) => number.to_string().parse().ok(),
            _ => None,
        }
    }

    pub(crate) fn is_zero(self) -> bool {
        self.nano == 0
    }

    pub(crate) fn is_negative(self) -> bool {
        self.nano < 0
    }

    /// Whether nothing is left over beyond whole ones.
    pub(crate) fn is_whole(self) -> bool {
        self.nano % UNIT == 0
    }

    /// The next whole amount.
    pub(crate) fn rounded_up(self) -> Self {
        Self {
            nano: ceil(self.nano, UNIT) * UNIT,
            ..self
        }
    }

    /// The next whole thousandth, to which lists of resources are kept.
    pub(crate) fn in_thousandths(self) -> Self {
        const THOUSANDTH: i128 = UNIT / 1000;
        Self {
            nano: ceil(self.nano, THOUSANDTH) * THOUSANDTH,
            ..self
        }
    }

    /// Both together, in the form of the first that is something.
    pub(crate) fn plus(self, other: Self) -> Self {
        let form = if self.is_zero() {
            other.form
        } else {
            self.form
        };
        let nano = self.nano.saturating_add(other.nano);
        Self { nano, form }
    }

    /// What is left of it; may be below nothing.
    pub(crate) fn minus(self, other: Self) -> Self {
        let form = if self.is_zero() {
            other.form
        } else {
            self.form
        };
        let nano = self.nano.saturating_sub(other.nano);
        Self { nano, form }
    }

    /// How often another goes into it.
    pub(crate) fn ratio(self, other: Self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a ratio is shown to six digits")]
        let ratio = self.nano as f64 / other.nano as f64;
        ratio
    }
}

fn ceil(value: i128, by: i128) -> i128 {
    value.div_euclid(by) + i128::from(value.rem_euclid(by) != 0)
}

impl PartialEq for Amount {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Amount {}

impl PartialOrd for Amount {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Amount {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.nano.cmp(&other.nano)
    }
}

impl FromStr for Amount {
    type Err = NoAmount;

    fn from_str(text: &str) -> Result<Self, NoAmount> {
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || whole.is_empty() && fraction.is_empty() {
            return Err(NoAmount);
        }
        let (form, scale) = scale(suffix).ok_or(NoAmount)?;
        let nano = magnitude(whole, fraction, scale);
        let nano = if negative { -nano } else { nano };
        Ok(Self { nano, form })
    }
}

/// What a suffix multiplies by.
#[derive(Debug, Clone, Copy)]
enum Scale {
    /// So many times two.
    Two(u32),
    /// So many times ten, or a tenth.
    Ten(i32),
}

fn scale(suffix: &str) -> Option<(Form, Scale)> {
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    const DECIMAL: [(&str, i32); 10] = [
        ("", 0),
        ("n", -9),
        ("u", -6),
        ("m", -3),
        ("k", 3),
        ("M", 6),
        ("G", 9),
        ("T", 12),
        ("P", 15),
        ("E", 18),
    ];
    if let Some((_, power)) = DECIMAL.iter().find(|(name, _)| *name == suffix) {
        return Some((Form::Decimal, Scale::Ten(*power)));
    }
    for (shift, name) in (1..).zip(BINARY) {
        if name == suffix {
            return Some((Form::Binary, Scale::Two(10 * shift)));
        }
    }
    let power = suffix.strip_prefix(['e', 'E'])?;
    Some((Form::Exponent, Scale::Ten(power.parse().ok()?)))
}

/// The billionths of a number, rounded up and at most [`MOST`].
fn magnitude(whole: &str, fraction: &str, scale: Scale) -> i128 {
    let digits: String = [whole, fraction].concat();
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() {
        return 0;
    }
    let places = i64::try_from(fraction.len()).unwrap_or(i64::MAX);
    let (shift, power) = match scale {
        Scale::Two(shift) => (shift, 0),
        Scale::Ten(power) => (0, i64::from(power)),
    };
    // The number is digits * 2^shift * 10^power, in billionths.
    let power = power.saturating_add(9).saturating_sub(places);
    let length = i64::try_from(digits.len()).unwrap_or(i64::MAX);
    if length.saturating_add(power) > 30 {
        return MOST;
    }
    // Digits that can't be counted any more only round up.
    let most = if shift > 0 { 18 } else { 24 };
    let (kept, rest) = digits.split_at(digits.len().min(most));
    let power = power.saturating_add(i64::try_from(rest.len()).unwrap_or(i64::MAX));
    let mut over = rest.bytes().any(|digit| digit != b'0');
    let Ok(mut value) = kept.parse::<i128>() else {
        return MOST;
    };
    if shift > 0 {
        match value.checked_mul(1 << shift) {
            Some(shifted) => value = shifted,
            None => return MOST,
        }
    }
    match u32::try_from(power.unsigned_abs())
        .ok()
        .and_then(|power| 10i128.checked_pow(power))
    {
        Some(factor) if power >= 0 => match value.checked_mul(factor) {
            Some(scaled) => value = scaled,
            None => return MOST,
        },
        Some(factor) => {
            over |= value % factor != 0;
            value /= factor;
        }
        None if power >= 0 => return MOST,
        None => {
            over = true;
            value = 0;
        }
    }
    (value + i128::from(over)).min(MOST)
}

impl fmt::Display for Amount {
    /// The shortest form: whole numbers with the largest suffix that leaves them whole.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nano == 0 {
            return f.write_str("0");
        }
        let small = self.nano.abs() < 1024 * UNIT;
        if self.form == Form::Binary && self.is_whole() && !small {
            const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
            let (mut value, mut at) = (self.nano / UNIT, 0);
            while value % 1024 == 0 && at + 1 < SUFFIXES.len() {
                value /= 1024;
                at += 1;
            }
            return write!(f, "{value}{}", SUFFIXES[at]);
        }
        const SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        let (mut value, mut at) = (self.nano, 0);
        while value % 1000 == 0 && at + 1 < SUFFIXES.len() {
            value /= 1000;
            at += 1;
        }
        match (self.form, at) {
            (Form::Exponent, 0..=2) => write!(f, "{value}e-{}", 9 - 3 * at),
            (Form::Exponent, 4..) => write!(f, "{value}e{}", 3 * at - 9),
            _ => write!(f, "{value}{}", SUFFIXES[at]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> String {
        text.parse::<Amount>().unwrap().to_string()
    }

    #[test]
    fn amounts_are_written_as_the_original_writes_them() {
        for (given, canonical) in [
            ("0", "0"),
            ("0Gi", "0"),
            ("1024Mi", "1Gi"),
            ("1500Mi", "1500Mi"),
            ("1.5Gi", "1536Mi"),
            ("512", "512"),
            ("0.5Ki", "512"),
            ("1024", "1024"),
            ("1Ki", "1Ki"),
            ("1.3Ki", "1331200m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("0.1", "100m"),
            ("100000", "100k"),
            ("1e3", "1e3"),
            ("1E3", "1e3"),
            ("1E", "1E"),
            ("12e-3", "12e-3"),
            ("1e-1", "100e-3"),
            ("+5", "5"),
            ("-5Ki", "-5Ki"),
            (".5", "500m"),
            ("5.", "5"),
            ("0.0000000001", "1n"),
            ("1.00000000000000000000000000001", "1000000001n"),
            ("1e40", "9223372036854775807"),
            ("9223372036854775807", "9223372036854775807"),
            ("100E", "9223372036854775807"),
            ("16Ei", "9223372036854775807"),
        ] {
            assert_eq!(written(given), canonical, "{given}");
        }
    }

    #[test]
    fn nonsense_is_no_amount() {
        for text in [
            "", "Gi", "1gi", "1 Gi", "1..2", "--1", "1Gi2", ".", "1e", "0x10", "1.2.3",
        ] {
            assert!(text.parse::<Amount>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn sums_keep_the_form_of_what_is_there() {
        let amount = |text: &str| text.parse::<Amount>().unwrap();
        assert_eq!(Amount::default().plus(amount("1Gi")).to_string(), "1Gi");
        assert_eq!(
            amount("1Gi")
                .plus(amount("1G"))
                .minus(amount("1G"))
                .to_string(),
            "1Gi"
        );
        assert_eq!(Amount::count(2).plus(Amount::count(1)).to_string(), "3");
        assert_eq!(amount("1500m").rounded_up().to_string(), "2");
        assert!(amount("1Gi") > amount("1G"));
    }
}
