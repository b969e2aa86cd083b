//! Parts of times and durations.

use jiff::Timestamp;
use jiff::tz::{Offset, TimeZone};

use super::{Made, no_overload};
use crate::definitions::rules::value::Value;

pub(super) fn call(name: &str, arguments: &[Value]) -> Option<Made> {
    if !name.starts_with("get") {
        return None;
    }
    match arguments {
        [Value::Timestamp(at)] => part(name, *at, &TimeZone::UTC),
        [Value::Timestamp(at), Value::Text(zone)] => match named(zone) {
            Ok(zone) => part(name, *at, &zone),
            Err(error) => Some(Err(error)),
        },
        [Value::Duration(nanos)] => Some(Ok(Value::Int(match name {
            "getHours" => nanos / 3_600_000_000_000,
            "getMinutes" => nanos / 60_000_000_000,
            "getSeconds" => nanos / 1_000_000_000,
            "getMilliseconds" => nanos / 1_000_000,
            _ => return Some(Err(no_overload())),
        }))),
        _ => None,
    }
}

fn part(name: &str, at: Timestamp, zone: &TimeZone) -> Option<Made> {
    let at = at.to_zoned(zone.clone());
    let number = match name {
        "getFullYear" => i64::from(at.year()),
        "getMonth" => i64::from(at.month()) - 1,
        "getDayOfYear" => i64::from(at.day_of_year()) - 1,
        "getDayOfMonth" => i64::from(at.day()) - 1,
        "getDate" => i64::from(at.day()),
        "getDayOfWeek" => i64::from(at.weekday().to_sunday_zero_offset()),
        "getHours" => i64::from(at.hour()),
        "getMinutes" => i64::from(at.minute()),
        "getSeconds" => i64::from(at.second()),
        "getMilliseconds" => i64::from(at.millisecond()),
        _ => return None,
    };
    Some(Ok(Value::Int(number)))
}

/// A zone by its name, or as hours and minutes from UTC.
fn named(name: &str) -> Result<TimeZone, String> {
    if matches!(name, "" | "UTC") {
        return Ok(TimeZone::UTC);
    }
    let (negative, rest) = match name.strip_prefix(['-', '+']) {
        Some(rest) => (name.starts_with('-'), rest),
        None => (false, name),
    };
    let offset = rest.split_once(':').and_then(|(hours, minutes)| {
        let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
        let seconds = hours
            .checked_mul(3600)?
            .checked_add(minutes.checked_mul(60)?)?;
        Offset::from_seconds(if negative { -seconds } else { seconds }).ok()
    });
    match offset {
        Some(offset) => Ok(TimeZone::fixed(offset)),
        None => TimeZone::get(name).map_err(|_| format!("unknown time zone {name}")),
    }
}
