//! Kubernetes quantities (`1Gi`, `500M`, `2e9`) as bytes.

use std::{cmp::Ordering, collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An amount, compared by value, printed as it was written.
#[derive(Debug, Clone)]
pub struct Quantity {
    text: Box<str>,
    value: i64,
}

/// Why a text is no quantity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// No number, or an unknown suffix.
    #[error(
        "{0:?} is not a quantity: write a number with an optional suffix such as Ki, Mi, Gi, k, M, G"
    )]
    Malformed(String),
    /// Larger than 2^63-1.
    #[error("{0:?} does not fit into 63 bits")]
    TooLarge(String),
}

impl Quantity {
    /// An amount of bytes, printed with the largest binary suffix that divides it.
    pub fn bytes(value: i64) -> Self {
        const SUFFIXES: [(&str, u32); 6] = [
            ("Ei", 60),
            ("Pi", 50),
            ("Ti", 40),
            ("Gi", 30),
            ("Mi", 20),
            ("Ki", 10),
        ];
        let text = SUFFIXES
            .iter()
            .find(|(_, shift)| value != 0 && value % (1i64 << shift) == 0)
            .map_or_else(
                || value.to_string(),
                |(suffix, shift)| format!("{}{suffix}", value >> shift),
            );
        Self {
            text: text.into(),
            value,
        }
    }

    /// The value, rounded up to a whole number.
    pub fn value(&self) -> i64 {
        self.value
    }

    /// A thousand times the value, rounded up: how processors are counted. What is too
    /// large to say so stays at the largest number.
    pub fn milli(&self) -> i64 {
        parse(&self.text, 1000).unwrap_or(i64::MAX)
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Ok(Self {
            text: text.into(),
            value: parse(text, 1)?,
        })
    }
}

/// `times` the value of the text, rounded up.
fn parse(text: &str, times: i128) -> Result<i64, QuantityError> {
    let malformed = || QuantityError::Malformed(text.to_owned());
    let end = text
        .find(|c: char| !matches!(c, '0'..='9' | '.' | '+' | '-'))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (negative, digits) = match number.as_bytes().first() {
        Some(b'-') => (true, &number[1..]),
        Some(b'+') => (false, &number[1..]),
        _ => (false, number),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !all_digits(whole) || !all_digits(fraction) {
        return Err(malformed());
    }
    let (numerator, denominator) = scale(suffix).ok_or_else(malformed)?;
    let too_large = || QuantityError::TooLarge(text.to_owned());
    // Digits beyond the eighteenth after the point are below any unit we can count.
    let fraction = &fraction[..fraction.len().min(18)];
    let places = 10i128.pow(u32::try_from(fraction.len()).map_err(|_| malformed())?);
    let parse = |s: &str| {
        if s.is_empty() {
            Ok(0)
        } else {
            s.parse::<i128>()
        }
    };
    let units = parse(whole)
        .ok()
        .and_then(|w| w.checked_mul(places))
        .zip(parse(fraction).ok())
        .and_then(|(w, f)| w.checked_add(f))
        .ok_or_else(too_large)?;
    let scaled = units
        .checked_mul(numerator)
        .and_then(|s| s.checked_mul(times))
        .ok_or_else(too_large)?;
    let divisor = places.checked_mul(denominator).ok_or_else(too_large)?;
    let rounded = scaled / divisor + i128::from(scaled % divisor != 0);
    let signed = if negative { -rounded } else { rounded };
    i64::try_from(signed).map_err(|_| too_large())
}

/// The factor of a suffix as a fraction.
fn scale(suffix: &str) -> Option<(i128, i128)> {
    Some(match suffix {
        "" => (1, 1),
        "n" => (1, 1_000_000_000),
        "u" => (1, 1_000_000),
        "m" => (1, 1_000),
        "k" => (1_000, 1),
        "M" => (1_000_000, 1),
        "G" => (1_000_000_000, 1),
        "T" => (1_000_000_000_000, 1),
        "P" => (1_000_000_000_000_000, 1),
        "E" => (1_000_000_000_000_000_000, 1),
        "Ki" => (1 << 10, 1),
        "Mi" => (1 << 20, 1),
        "Gi" => (1 << 30, 1),
        "Ti" => (1 << 40, 1),
        "Pi" => (1 << 50, 1),
        "Ei" => (1 << 60, 1),
        exponent => {
            let digits = exponent.strip_prefix(['e', 'E'])?;
            let power: i32 = digits.parse().ok()?;
            let factor = 10i128.checked_pow(power.unsigned_abs())?;
            if power < 0 { (1, factor) } else { (factor, 1) }
        }
    })
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.value.cmp(&other.value)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Text(String),
            Whole(i64),
            Fraction(f64),
        }
        let text = match Written::deserialize(deserializer)? {
            Written::Text(text) => text,
            Written::Whole(number) => number.to_string(),
            Written::Fraction(number) => number.to_string(),
        };
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Amounts by resource name, as in `resources.requests` and `status.capacity`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Resources(pub BTreeMap<String, Quantity>);

impl Resources {
    /// Just an amount of storage.
    pub fn of_storage(quantity: Quantity) -> Self {
        Self(BTreeMap::from([("storage".to_owned(), quantity)]))
    }

    /// The amount of storage.
    pub fn storage(&self) -> Option<&Quantity> {
        self.0.get("storage")
    }

    /// The amount of a resource.
    pub fn get(&self, name: &str) -> Option<&Quantity> {
        self.0.get(name)
    }

    /// Whether nothing is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> i64 {
        text.parse::<Quantity>().unwrap().value()
    }

    #[test]
    fn suffixes_scale_as_kubernetes_does() {
        for (text, expected) in [
            ("0", 0),
            ("1Gi", 1 << 30),
            ("1.5Gi", 3 << 29),
            (".5Ki", 512),
            ("1k", 1000),
            ("2e3", 2000),
            ("2E3", 2000),
            ("1E", 1_000_000_000_000_000_000),
            ("1500m", 2),
            ("-3Mi", -(3 << 20)),
            ("7Ei", 7 << 60),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
    }

    #[test]
    fn processors_are_counted_in_thousandths() {
        for (text, expected) in [
            ("250m", 250),
            ("2", 2000),
            ("0.1", 100),
            ("100u", 1),
            ("8E", i64::MAX),
        ] {
            assert_eq!(
                text.parse::<Quantity>().unwrap().milli(),
                expected,
                "{text}"
            );
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "", "Gi", "1gi", "1 Gi", "1..2", "--1", "1Gi2", ".", "1e", "0x10", "8Ei", "1e40",
        ] {
            assert!(text.parse::<Quantity>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_text_survives_and_values_compare() {
        let a: Quantity = "1024Mi".parse().unwrap();
        assert_eq!(a, Quantity::bytes(1 << 30));
        assert_eq!(a.to_string(), "1024Mi");
        assert_eq!(Quantity::bytes(1 << 30).to_string(), "1Gi");
        assert_eq!(Quantity::bytes((1 << 30) + 1).to_string(), "1073741825");
        assert_eq!(serde_json::from_str::<Quantity>("5").unwrap().value(), 5);
    }
}
