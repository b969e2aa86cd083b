//! Wiping a device: what is done to which part of it, in which order.

use crate::config::Wipe;

/// At a time, and between two looks whether to go on.
const PIECE: u64 = 64 << 20;
/// Where file systems, partitions and the like are known by: beginning (past Btrfs' second
/// superblock) and end.
const HEAD: u64 = 128 << 20;
const TAIL: u64 = 16 << 20;

/// What is done to a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The device is told that it isn't needed; if it has no use for that, never mind.
    TryDiscard,
    /// The device is told that it isn't needed, and must understand.
    Discard,
    /// It reads as zeros.
    Zero,
    /// It has random bytes.
    Randomise,
}

/// A piece of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// What.
    pub action: Action,
    /// From which byte on.
    pub from: u64,
    /// How much.
    pub bytes: u64,
}

/// All the work on a device of a size, in pieces and in order.
pub fn pieces(wipe: Wipe, size: u64) -> impl Iterator<Item = Piece> {
    spans(wipe, size).into_iter().flat_map(|span| {
        let starts = (0..span.bytes).step_by(PIECE as usize);
        starts.map(move |start| Piece {
            from: span.from + start,
            bytes: PIECE.min(span.bytes - start),
            ..span
        })
    })
}

/// How much work that is.
pub fn total(wipe: Wipe, size: u64) -> u64 {
    spans(wipe, size).iter().map(|span| span.bytes).sum()
}

fn spans(wipe: Wipe, size: u64) -> Vec<Piece> {
    let all = |action| Piece {
        action,
        from: 0,
        bytes: size,
    };
    match wipe {
        Wipe::Discard => vec![all(Action::Discard)],
        Wipe::Zero => vec![all(Action::Zero)],
        Wipe::Shred(passes) => {
            let mut spans = vec![all(Action::Randomise); passes as usize];
            spans.push(all(Action::Zero));
            spans
        }
        Wipe::Quick if size <= HEAD + TAIL => vec![all(Action::Zero)],
        Wipe::Quick => {
            let zero = |from, bytes| Piece {
                action: Action::Zero,
                from,
                bytes,
            };
            vec![
                all(Action::TryDiscard),
                zero(0, HEAD),
                zero(size - TAIL, TAIL),
            ]
        }
    }
}

/// The name of a way to wipe, as it stands in records, events and metrics.
pub fn name(wipe: Wipe) -> String {
    match wipe {
        Wipe::Quick => "quick".to_owned(),
        Wipe::Discard => "discard".to_owned(),
        Wipe::Zero => "zero".to_owned(),
        Wipe::Shred(passes) => format!("shred-{passes}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_gets_its_turn_once_per_pass() {
        const MIB: u64 = 1 << 20;
        for size in [512, PIECE, PIECE + 512, 10 * PIECE - 4096] {
            for (wipe, passes) in [(Wipe::Zero, 1), (Wipe::Discard, 1), (Wipe::Shred(2), 3)] {
                let mut at = 0;
                for piece in pieces(wipe, size) {
                    assert_eq!(piece.from, at % size);
                    at += piece.bytes;
                }
                assert_eq!((at, total(wipe, size)), (passes * size, passes * size));
            }
        }
        let last = pieces(Wipe::Shred(2), 512).last().unwrap();
        assert_eq!(last.action, Action::Zero);
        let quick: Vec<Piece> = pieces(Wipe::Quick, 1000 * MIB).collect();
        let zeroed = quick.iter().filter(|piece| piece.action == Action::Zero);
        assert_eq!(zeroed.map(|piece| piece.bytes).sum::<u64>(), HEAD + TAIL);
        let small = pieces(Wipe::Quick, MIB).collect::<Vec<_>>();
        assert_eq!(small.len(), 1);
        assert_eq!(small[0].action, Action::Zero);
    }
}
