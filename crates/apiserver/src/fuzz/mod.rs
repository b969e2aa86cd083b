//! Random bytes for everything that reads what clients send.
//!
//! Each target mutates a small corpus for a bounded time and asserts a property of what
//! comes out. A failure prints the seed and the input; `ORLOP_FUZZ_SEED` repeats it, and
//! `ORLOP_FUZZ_MILLIS` goes on for longer than a test run has time for.

mod mutate;
mod objects;
mod texts;

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

pub(crate) use mutate::Random;
use mutate::mutated;

/// How long a target runs, unless it is told otherwise.
const MILLIS: u64 = 400;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs a property on mutations of the corpus.
pub(crate) fn run(name: &str, corpus: &[&[u8]], property: impl Fn(&[u8])) {
    let seed =
        setting("ORLOP_FUZZ_SEED").unwrap_or_else(|| RandomState::new().build_hasher().finish());
    let time = Duration::from_millis(setting("ORLOP_FUZZ_MILLIS").unwrap_or(MILLIS));
    let mut random = Random::new(seed);
    let mut alive: Vec<Vec<u8>> = corpus.iter().map(|text| text.to_vec()).collect();
    let (begun, mut round) = (Instant::now(), 0_u64);
    while begun.elapsed() < time || usize::try_from(round).unwrap_or(0) <= corpus.len() {
        // First of all, the corpus as it is.
        let input = match usize::try_from(round).ok().and_then(|at| corpus.get(at)) {
            Some(text) => text.to_vec(),
            None => mutated(&mut random, &alive),
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| property(&input)));
        if let Err(panic) = outcome {
            let text = String::from_utf8_lossy(&input);
            eprintln!("{name}: ORLOP_FUZZ_SEED={seed}, round {round}, input {text:?} = {input:?}");
            resume_unwind(panic);
        }
        // Mutations of mutations reach further; the first inputs stay.
        if random.below(16) == 0 && input.len() < 4096 {
            if alive.len() < corpus.len() + 64 {
                alive.push(input);
            } else {
                let at = corpus.len() + random.below(64);
                alive[at] = input;
            }
        }
        round += 1;
    }
}
