//! How the demo looks on a terminal.

use crate::voice::say;
use std::{
    collections::BTreeSet,
    io::{IsTerminal, stdout},
    time::{Duration, Instant},
};

use super::lesson;
use crate::life::{Answer, Happening, Step};

/// Prints steps as they happen.
pub(super) struct Screen {
    started: Instant,
    last: Instant,
    colour: bool,
    brief: bool,
    explained: BTreeSet<Step>,
}

impl Screen {
    pub(super) fn new(brief: bool) -> Self {
        let colour = stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        let now = Instant::now();
        Self {
            started: now,
            last: now,
            colour,
            brief,
            explained: BTreeSet::new(),
        }
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// A chapter's heading.
    pub(super) fn chapter(&mut self, title: &str) {
        say(&format!("\n{}", self.paint("1", title)));
        self.last = Instant::now();
    }

    /// A line of the demo's own.
    pub(super) fn say(&self, text: &str) {
        say(&format!("  {text}"));
    }

    /// A line that shows something to be true.
    pub(super) fn proof(&self, holds: bool, text: &str) {
        let mark = if holds {
            self.paint("32", "✓")
        } else {
            self.paint("31", "✗")
        };
        say(&format!("  {mark} {text}"));
    }

    /// One step, with the time since the last one.
    pub(super) fn step(&mut self, happening: &Happening) {
        let since = happening.at.saturating_duration_since(self.last);
        self.last = happening.at;
        let words = match happening.step {
            Step::Call(_, Answer::Refused) => self.paint("33", happening.step.words()),
            Step::Call(..) => self.paint("36", happening.step.words()),
            _ => happening.step.words().to_owned(),
        };
        // Colour codes take no room on the screen but count as characters.
        let pad = 28usize.saturating_sub(happening.step.words().chars().count());
        let mut tail = happening.object.clone();
        if !happening.detail.is_empty() {
            tail = format!("{tail} {}", happening.detail);
        }
        if let Some(took) = happening.took {
            tail = format!(
                "{tail} {}",
                self.paint("2", &format!("(the call took {})", millis(took)))
            );
        }
        say(&format!(
            "  {:>9}  {}  {words}{:pad$}{tail}",
            format!("+{}", millis(since)),
            self.paint("2", &format!("{:<13}", happening.step.actor())),
            "",
        ));
        if !self.brief
            && self.explained.insert(happening.step)
            && let Some(text) = lesson::of(happening.step)
        {
            for line in wrap(text, 72) {
                say(&format!("{:28}{}", "", self.paint("2", &line)));
            }
        }
    }

    /// Since the beginning.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}

/// A duration in milliseconds, with one decimal below a hundred.
pub(crate) fn millis(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1000.0;
    if ms < 100.0 {
        format!("{ms:.1} ms")
    } else {
        format!("{ms:.0} ms")
    }
}

/// Breaks a text into lines.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_broken_between_words() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("a-very-long-word b", 4), ["a-very-long-word", "b"]);
    }
}
