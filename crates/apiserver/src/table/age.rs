//! How long ago something was, as the original abbreviates it: two or three
//! significant figures.

use jiff::Timestamp;
use serde_json::Value;

const MINUTE: i64 = 60;
const HOUR: i64 = 60 * MINUTE;

/// The age of an object.
pub(super) fn of(object: &Value, now: Timestamp) -> Value {
    since(super::at(object, "/metadata/creationTimestamp"), now).into()
}

/// The time since an RFC 3339 time; empty or unreadable text is `<unknown>`.
pub(super) fn since(time: &str, now: Timestamp) -> String {
    match time.parse::<Timestamp>() {
        // Rounded towards zero, like the division the original does.
        Ok(then) => human(now.duration_since(then).as_secs()),
        Err(_) => "<unknown>".to_owned(),
    }
}

/// Seconds in words; a clock that is a second behind is tolerated.
pub(super) fn human(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / MINUTE, seconds / HOUR, seconds / HOUR / 24);
    let years = days / 365;
    let pair = |big: i64, unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{big}{unit}"),
        small => format!("{big}{unit}{small}{small_unit}"),
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        _ if seconds < 2 * MINUTE => format!("{seconds}s"),
        _ if minutes < 10 => pair(minutes, "m", seconds % MINUTE, "s"),
        _ if minutes < 3 * 60 => format!("{minutes}m"),
        _ if hours < 8 => pair(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => pair(days, "d", hours % 24, "h"),
        _ if days < 365 * 2 => format!("{days}d"),
        _ if days < 365 * 8 => pair(years, "y", days % 365, "d"),
        _ => format!("{years}y"),
    }
}
