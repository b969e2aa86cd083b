//! How large a volume becomes, given what was asked for.
//!
//! Pure.

use orlop_csi::proto::CapacityRange;

/// Sizes are whole blocks: anything else would be cut off by a loop device or a file system.
pub(super) const BLOCK: u64 = 4096;

/// The size of a volume for which no size was asked.
pub(super) const DEFAULT: u64 = 1 << 30;

/// The smallest volume of any kind.
pub(super) const SMALLEST: u64 = 8 << 20;

/// The largest size that can be told: whole blocks below what CSI's numbers hold.
const LARGEST: u64 = i64::MAX as u64 / BLOCK * BLOCK;

/// A size as Kubernetes writes it: whole bytes, or with a unit such as `Gi` or `G`.
#[must_use]
pub fn bytes(text: &str) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at(digits);
    let factor: u64 = match unit {
        "" => 1,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        _ => return None,
    };
    count.parse::<u64>().ok()?.checked_mul(factor)
}

/// The unit that a size is told in.
fn unit(bytes: u64) -> (&'static str, u64) {
    const UNITS: [(&str, u64); 4] = [
        ("TiB", 1 << 40),
        ("GiB", 1 << 30),
        ("MiB", 1 << 20),
        ("KiB", 1 << 10),
    ];
    let fits = UNITS.into_iter().find(|(_, unit)| bytes >= *unit);
    fits.unwrap_or(("bytes", 1))
}

/// Tenths of a unit as people write them.
fn tenths(tenths: u128, name: &str) -> String {
    match tenths % 10 {
        0 => format!("{} {name}", tenths / 10),
        some => format!("{}.{some} {name}", tenths / 10),
    }
}

/// A size as people read it, rounded down.
#[must_use]
pub fn human(bytes: u64) -> String {
    let (name, unit) = unit(bytes);
    tenths(u128::from(bytes) * 10 / u128::from(unit), name)
}

/// That less is left than is wanted, both in one unit if that tells anything of what is left.
///
/// What is left is told coarsely: it changes by the second, and would make every repetition of the
/// same trouble a new event.
pub(super) fn shortage(wanted: u64, left: u64, place: &dyn std::fmt::Display) -> String {
    let (name, of_wanted) = unit(wanted);
    let step = |of: u64| 1u64 << (of / 8).max(1).ilog2();
    let step = match step(wanted) {
        coarser if left < coarser => step(left),
        step => step,
    };
    let coarse = left / step * step;
    // Rounded apart, so that the two are never told as the same.
    let wanted = (u128::from(wanted) * 10).div_ceil(u128::from(of_wanted));
    let left = match u128::from(coarse) * 10 / u128::from(of_wanted) {
        0 if coarse > 0 => human(coarse),
        left => tenths(left, name),
    };
    format!(
        "{} are wanted and about {left} are left in {place}",
        tenths(wanted, name)
    )
}

/// A range of sizes that makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SizeRange {
    required: u64,
    limit: Option<u64>,
}

/// Why a size cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// A byte count below zero.
    #[error("a capacity is negative")]
    Negative,
    /// Neither bound is given.
    #[error("a capacity range needs required_bytes or limit_bytes")]
    Empty,
    /// The bounds contradict each other.
    #[error("required_bytes {required} is more than limit_bytes {limit}")]
    Contradiction {
        /// At least.
        required: u64,
        /// At most.
        limit: u64,
    },
    /// No size that we can make is in the range.
    #[error("{}", out_of_range(*smallest, *limit))]
    OutOfRange {
        /// What we could make; none if no number tells of anything so large.
        smallest: Option<u64>,
        /// What is allowed.
        limit: u64,
    },
}

fn out_of_range(smallest: Option<u64>, limit: u64) -> String {
    match smallest {
        Some(smallest) => format!(
            "the smallest possible size for this request is {smallest} bytes, and the limit is {limit}"
        ),
        None => format!("no volume has more than {LARGEST} bytes; ask for less"),
    }
}

impl SizeRange {
    /// Understands a range.
    pub(super) fn parse(range: &CapacityRange) -> Result<Self, SizeError> {
        let bytes = |count: i64| u64::try_from(count).map_err(|_| SizeError::Negative);
        let (required, limit) = (bytes(range.required_bytes)?, bytes(range.limit_bytes)?);
        match (required, limit) {
            (0, 0) => Err(SizeError::Empty),
            (required, 0) => Ok(Self {
                required,
                limit: None,
            }),
            (required, limit) if required > limit => {
                Err(SizeError::Contradiction { required, limit })
            }
            (required, limit) => Ok(Self {
                required,
                limit: Some(limit),
            }),
        }
    }

    /// The size to make, at least `smallest`.
    pub(super) fn choose(self, smallest: u64) -> Result<u64, SizeError> {
        let size = self.required.max(smallest).checked_next_multiple_of(BLOCK);
        let size = size.filter(|size| i64::try_from(*size).is_ok());
        match (size, self.limit) {
            (Some(size), Some(limit)) if size <= limit => Ok(size),
            (Some(size), None) => Ok(size),
            (size, limit) => Err(SizeError::OutOfRange {
                smallest: size,
                limit: limit.unwrap_or(LARGEST),
            }),
        }
    }

    /// Whether a size is in the range.
    #[must_use]
    pub(super) fn contains(self, size: u64) -> bool {
        size >= self.required && self.limit.is_none_or(|limit| size <= limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(required: i64, limit: i64) -> Result<SizeRange, SizeError> {
        SizeRange::parse(&CapacityRange {
            required_bytes: required,
            limit_bytes: limit,
        })
    }

    #[test]
    fn ranges_that_make_no_sense_are_refused() {
        assert_eq!(parse(-1, 0), Err(SizeError::Negative));
        assert_eq!(parse(1, -1), Err(SizeError::Negative));
        assert_eq!(parse(0, 0), Err(SizeError::Empty));
        assert_eq!(
            parse(2, 1),
            Err(SizeError::Contradiction {
                required: 2,
                limit: 1
            })
        );
    }

    #[test]
    fn the_size_is_the_smallest_whole_number_of_blocks_in_the_range() {
        let choose = |required, limit| parse(required, limit).unwrap().choose(SMALLEST);
        assert_eq!(choose(1 << 30, 0), Ok(1 << 30));
        assert_eq!(choose((1 << 30) + 1, 0), Ok((1 << 30) + BLOCK));
        assert_eq!(choose(1, 0), Ok(SMALLEST));
        assert_eq!(choose(0, 1 << 30), Ok(SMALLEST));
        assert_eq!(choose(1 << 30, 1 << 30), Ok(1 << 30));
        assert!(matches!(
            choose((1 << 30) + 1, (1 << 30) + 2),
            Err(SizeError::OutOfRange { .. })
        ));
        assert!(matches!(choose(1, 2), Err(SizeError::OutOfRange { .. })));
        let said = |required| choose(required, 0).map_err(|error| error.to_string());
        let most = 9_223_372_036_854_771_712;
        assert_eq!(said(most), Ok(LARGEST));
        // 8Ei, as an API server says it.
        let text = "no volume has more than 9223372036854771712 bytes; ask for less";
        assert_eq!(said(i64::MAX), Err(text.to_owned()));
    }

    #[test]
    fn sizes_are_read_as_kubernetes_writes_them() {
        assert_eq!(bytes("1Gi"), Some(1 << 30));
        assert_eq!(bytes("5G"), Some(5_000_000_000));
        assert_eq!(bytes("4096"), Some(4096));
        for wrong in ["", "Gi", "1.5Gi", "-1", "1 Gi", "1gb", "99999999Ti"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_shortage_is_told_the_same_when_little_changes_and_in_one_unit_if_that_tells_anything() {
        let told = |wanted, left| shortage(wanted, left, &"pool a");
        let (mib, gib) = (1 << 20, 1 << 30);
        for (wanted, left, words) in [
            (
                800 * mib,
                0,
                "800 MiB are wanted and about 0 MiB are left in pool a",
            ),
            (
                800 * mib,
                350 * mib,
                "800 MiB are wanted and about 320 MiB are left in pool a",
            ),
            (
                gib,
                gib - 1,
                "1 GiB are wanted and about 0.8 GiB are left in pool a",
            ),
            (
                gib + 40 * mib,
                gib + 39 * mib,
                "1.1 GiB are wanted and about 1 GiB are left in pool a",
            ),
            (
                100 * gib,
                99 * gib,
                "100 GiB are wanted and about 96 GiB are left in pool a",
            ),
            (
                5,
                3,
                "5 bytes are wanted and about 3 bytes are left in pool a",
            ),
            (
                100 << 40,
                36 * gib + 5 * mib,
                "100 TiB are wanted and about 36 GiB are left in pool a",
            ),
            (
                100 << 40,
                600 * gib,
                "100 TiB are wanted and about 0.5 TiB are left in pool a",
            ),
        ] {
            assert_eq!(told(wanted, left), words);
        }
        assert_eq!(told(gib, 300 * mib), told(gib, 301 * mib));
        assert_eq!(human(1536 * mib), "1.5 GiB");
        assert_eq!(human(u64::MAX), "16777215.9 TiB");
    }

    #[test]
    fn a_range_contains_its_bounds() {
        let range = parse(5, 7).unwrap();
        assert_eq!(
            [4, 5, 7, 8].map(|size| range.contains(size)),
            [false, true, true, false]
        );
        assert!(parse(5, 0).unwrap().contains(u64::MAX));
    }
}
