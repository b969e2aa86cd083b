//! Which faults a sweep tries at which call. Pure.

use std::time::Duration;

use crate::faults::{Answer, Fault, Member, Phase};
use crate::wire::{Call, Nature};

/// Which faults a sweep tries at a call of a process.
pub type Strikes = fn(Member, &Call) -> Vec<Fault>;

/// On either side of an effect, once at a look.
fn around(call: &Call, fault: impl Fn(Phase) -> Fault) -> Vec<Fault> {
    match call.nature {
        Nature::Effect => Phase::ALL.map(fault).to_vec(),
        Nature::Look => vec![fault(Phase::Before)],
    }
}

fn around_effects(call: &Call, fault: impl Fn(Phase) -> Fault) -> Vec<Fault> {
    match call.nature {
        Nature::Effect => around(call, fault),
        Nature::Look => Vec::new(),
    }
}

/// A crash at every call: on either side of an effect, once at a look.
pub fn crashes(_: Member, call: &Call) -> Vec<Fault> {
    around(call, Fault::Crash)
}

/// A crash on either side of every effect.
pub fn crashes_at_effects(_: Member, call: &Call) -> Vec<Fault> {
    around_effects(call, Fault::Crash)
}

/// A crash on either side of every effect, after which the caches begin in the past.
pub fn travels(_: Member, call: &Call) -> Vec<Fault> {
    around_effects(call, Fault::Travel)
}

/// An error on either side of every effect, and in place of every look.
pub fn errors(_: Member, call: &Call) -> Vec<Fault> {
    around(call, |phase| Fault::Refused(phase, Answer::Error))
}

/// A conflict, or a plea to come later, on either side of every effect and in place of every
/// look that isn't a watch.
pub fn conflicts(_: Member, call: &Call) -> Vec<Fault> {
    if call.is_watch() {
        return Vec::new();
    }
    let mut faults = around_effects(call, |phase| Fault::Refused(phase, Answer::Conflict));
    faults.extend(around(call, |phase| Fault::Refused(phase, Answer::Busy)));
    faults
}

/// A watch that ends at once, or after its first piece, that tells everything late, or tells
/// nothing for a while and then has to be begun anew.
pub fn poor_watches(_: Member, call: &Call) -> Vec<Fault> {
    if call.is_watch() {
        let late = [2, 10].map(|seconds| Fault::Late(Duration::from_secs(seconds)));
        let blind = [1, 20].map(|seconds| Fault::Blind(Duration::from_secs(seconds)));
        let cut = [0, 1].map(Fault::Cut);
        cut.into_iter().chain(late).chain(blind).collect()
    } else {
        Vec::new()
    }
}

/// Another takes over on either side of every effect, while the old one goes on.
pub fn successions(member: Member, call: &Call) -> Vec<Fault> {
    if member.is_elected() {
        around_effects(call, Fault::Deposed)
    } else {
        Vec::new()
    }
}

/// The user meddles before every call, and while the process is away after a crash on
/// either side of every effect.
pub fn meddlings(_: Member, call: &Call) -> Vec<Fault> {
    let mut faults = around_effects(call, Fault::MeddledAway);
    faults.push(Fault::Meddled);
    faults
}
