//! What we print for people. A reader that goes away (`orlop demo | head`) is no reason to
//! stop half way and leave things mounted: what can't be printed is dropped.

use std::io::{Write, stdout};

/// Prints a line.
pub(crate) fn say(line: &str) {
    let _nobody_listens = writeln!(stdout(), "{line}");
}
