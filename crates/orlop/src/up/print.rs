//! What `orlop up` prints: where things are, then one line per thing that happens to a volume.

use crate::voice::say;
use jiff::{Timestamp, tz::TimeZone};
use tokio::sync::mpsc;

use crate::{demo::millis, life::Happening};

/// One aligned line about a part that came up.
pub(crate) fn part(name: &str, what: &str) {
    say(&format!("{name:<12} {what}"));
}

/// Prints happenings until there are no more.
pub(crate) async fn happenings(mut news: mpsc::UnboundedReceiver<Happening>) {
    while let Some(happening) = news.recv().await {
        say(&line(&happening, Timestamp::now()));
    }
}

fn line(happening: &Happening, now: Timestamp) -> String {
    let time = now.to_zoned(TimeZone::UTC).strftime("%H:%M:%S%.3f");
    let mut line = format!(
        "{time}  {:<13} {:<27} {}",
        happening.step.actor(),
        happening.step.words(),
        happening.object
    );
    if !happening.detail.is_empty() {
        line = format!("{line} {}", happening.detail);
    }
    if let Some(took) = happening.took {
        line = format!("{line} ({})", millis(took));
    }
    line
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::life::{Answer, Step};

    #[test]
    fn a_line_says_when_who_what_and_how_long() {
        let happening = Happening {
            at: Instant::now(),
            step: Step::Call(orlop_csi::Method::NodeStageVolume, Answer::Ok),
            object: "v-1".into(),
            detail: String::new(),
            took: Some(Duration::from_micros(12_340)),
        };
        assert_eq!(
            line(&happening, Timestamp::UNIX_EPOCH),
            "00:00:00.000  driver        NodeStageVolume             v-1 (12.3 ms)"
        );
    }
}
