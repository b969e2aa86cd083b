//! FlexVolume drivers as programs: where they are, how long they may take, and what their answers mean.
//! What to ask them for is their callers' business.

use std::time::Duration;

mod answer;
mod programs;

pub use answer::{Answer, Capabilities, Refusal, judge};
pub use programs::{Found, Programs, Stamp, find};

/// How much a driver may say.
pub const OUTPUT: usize = 1 << 20;

/// How long a command may take: attaching longer than others, since devices come when they come.
pub fn time_for(command: &str, usual: Duration) -> Duration {
    const TO_ATTACH: u32 = 5;
    match command {
        "attach" | "waitforattach" => usual * TO_ATTACH,
        _ => usual,
    }
}
