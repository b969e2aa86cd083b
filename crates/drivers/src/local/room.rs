//! How much of a pool may still be promised.
//!
//! Pure. A thin volume is a promise that may be broken only if the pool's owner said so, by
//! overcommitting; a thick one has its blocks from the start. The reserve stays free for the host
//! whatever is promised.

use serde::{Deserialize, Serialize};

/// Whether a volume's blocks are its own from the start.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "camelCase")]
pub enum Allocation {
    /// Blocks are taken as they are written.
    #[default]
    Thin,
    /// All blocks are taken at once, and cannot run out later.
    Thick,
}

impl Allocation {
    /// The word for it in class parameters.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Thin => "thin",
            Self::Thick => "thick",
        }
    }

    /// The allocation with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        [Self::Thin, Self::Thick]
            .into_iter()
            .find(|it| it.name() == name)
    }
}

/// What stays free for the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// So many bytes.
    Bytes(u64),
    /// So much of the pool's file system.
    Percent(u8),
}

impl Reserve {
    fn bytes(self, total: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Percent(percent) => total / 100 * u64::from(percent),
        }
    }
}

/// How many times over thin volumes may be promised what the pool has.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Overcommit(f64);

impl Overcommit {
    /// Every promise can be kept.
    pub const NONE: Self = Self(1.0);

    /// A factor of at least one.
    #[must_use]
    pub fn new(factor: f64) -> Option<Self> {
        (factor.is_finite() && factor >= 1.0).then_some(Self(factor))
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "both are sizes and factors of at least one; a cast saturates"
    )]
    fn times(self, bytes: u64) -> u64 {
        if self == Self::NONE {
            return bytes;
        }
        (bytes as f64 * self.0) as u64
    }

    /// What so many promised bytes stand for.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "both are sizes and factors of at least one; a cast saturates"
    )]
    fn parts(self, bytes: u64) -> u64 {
        if self == Self::NONE {
            return bytes;
        }
        (bytes as f64 / self.0).ceil() as u64
    }
}

/// What a pool's owner decided about it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// For thin volumes.
    pub overcommit: Overcommit,
    /// For the host.
    pub reserve: Reserve,
}

/// Every promise can be kept, and nothing is kept back: a reserve is for whoever owns the disk to
/// ask for, as the command line of the driver does.
impl Default for Rules {
    fn default() -> Self {
        Self {
            overcommit: Overcommit::NONE,
            reserve: Reserve::Bytes(0),
        }
    }
}

/// Bytes promised to volumes, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Promised {
    pub thin: u64,
    pub thick: u64,
}

impl Promised {
    pub(super) fn add(&mut self, allocation: Allocation, bytes: u64) {
        let sum = self.of(allocation);
        *sum = sum.saturating_add(bytes);
    }

    pub(super) fn take(&mut self, allocation: Allocation, bytes: u64) {
        let sum = self.of(allocation);
        *sum = sum.saturating_sub(bytes);
    }

    fn of(&mut self, allocation: Allocation) -> &mut u64 {
        match allocation {
            Allocation::Thin => &mut self.thin,
            Allocation::Thick => &mut self.thick,
        }
    }
}

/// A pool's file system, as measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Measured {
    /// Its size.
    pub total: u64,
    /// What is free of it.
    pub free: u64,
    /// What our volumes take of it now.
    pub taken: u64,
}

/// The bytes that can still be promised to a volume of this kind.
pub(super) fn available(
    rules: Rules,
    promised: Promised,
    measured: Measured,
    allocation: Allocation,
) -> u64 {
    let ours = measured
        .free
        .saturating_add(measured.taken)
        .saturating_sub(rules.reserve.bytes(measured.total));
    match allocation {
        Allocation::Thin => rules
            .overcommit
            .times(ours.saturating_sub(promised.thick))
            .saturating_sub(promised.thin),
        // Blocks that are taken now must also be there now.
        Allocation::Thick => ours
            .saturating_sub(promised.thick)
            .saturating_sub(rules.overcommit.parts(promised.thin))
            .min(
                measured
                    .free
                    .saturating_sub(rules.reserve.bytes(measured.total)),
            ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn rules(factor: f64, reserve: Reserve) -> Rules {
        Rules {
            overcommit: Overcommit::new(factor).unwrap(),
            reserve,
        }
    }

    #[test]
    fn what_is_promised_is_not_promised_twice_however_little_of_it_is_written() {
        let plain = rules(1.0, Reserve::Bytes(0));
        let promised = Promised {
            thin: 6 * GIB,
            thick: 0,
        };
        for taken in [0, GIB, 6 * GIB] {
            let measured = Measured {
                total: 10 * GIB,
                free: 10 * GIB - taken,
                taken,
            };
            let left = available(plain, promised, measured, Allocation::Thin);
            assert_eq!(left, 4 * GIB, "{taken}");
        }
    }

    #[test]
    fn the_reserve_is_never_promised() {
        let measured = Measured {
            total: 100 * GIB,
            free: 10 * GIB,
            taken: 0,
        };
        let of = |reserve| {
            available(
                rules(1.0, reserve),
                Promised::default(),
                measured,
                Allocation::Thin,
            )
        };
        assert_eq!(of(Reserve::Bytes(4 * GIB)), 6 * GIB);
        assert_eq!(of(Reserve::Percent(5)), 5 * GIB);
        assert_eq!(of(Reserve::Percent(50)), 0);
    }

    #[test]
    fn thin_volumes_may_be_promised_more_than_there_is_and_thick_ones_never() {
        let twice = rules(2.0, Reserve::Bytes(0));
        let measured = Measured {
            total: 10 * GIB,
            free: 8 * GIB,
            taken: 2 * GIB,
        };
        let promised = Promised {
            thin: 4 * GIB,
            thick: 2 * GIB,
        };
        let of = |allocation| available(twice, promised, measured, allocation);
        assert_eq!(of(Allocation::Thin), 12 * GIB);
        assert_eq!(of(Allocation::Thick), 6 * GIB);
    }

    #[test]
    fn a_thick_volume_needs_blocks_that_are_free_now() {
        let twice = rules(2.0, Reserve::Bytes(0));
        let measured = Measured {
            total: 10 * GIB,
            free: GIB,
            taken: 9 * GIB,
        };
        let promised = Promised {
            thin: 10 * GIB,
            thick: 0,
        };
        assert_eq!(available(twice, promised, measured, Allocation::Thick), GIB);
    }

    #[test]
    fn a_factor_below_one_is_none() {
        for factor in [0.0, 0.99, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Overcommit::new(factor), None);
        }
    }
}
