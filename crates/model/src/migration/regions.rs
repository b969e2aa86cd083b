//! The region in which zones lie, by their names.

use std::collections::BTreeSet;

use super::Untranslatable;

/// `us-central1-a` lies in `us-central1`.
pub(super) fn gce(zones: &[String]) -> Result<String, Untranslatable> {
    one(zones, |zone| {
        let parts: Vec<&str> = zone.split('-').collect();
        (parts.len() == 3).then(|| parts[..2].join("-"))
    })
}

/// `us-west-2a` and `us-gov-east-1a`; local zones and wavelengths have longer names.
pub(super) fn aws(zones: &[String]) -> Result<String, Untranslatable> {
    one(zones, |zone| {
        let parts: Vec<&str> = zone.split('-').collect();
        match (parts.len(), parts.last()) {
            (3 | 4, Some(last)) if last.len() == 2 => {
                let letter = zone.chars().next_back()?;
                zone.strip_suffix(letter).map(str::to_owned)
            }
            (5 | 7, _) => Some(parts[..3].join("-")),
            _ => None,
        }
    })
}

/// The region of all of them.
fn one(
    zones: &[String],
    region: impl Fn(&String) -> Option<String>,
) -> Result<String, Untranslatable> {
    let all: Option<BTreeSet<String>> = zones.iter().map(region).collect();
    let mut all = all.unwrap_or_default().into_iter();
    match (all.next(), all.next()) {
        (Some(region), None) => Ok(region),
        _ => Err(Untranslatable::Zones(zones.to_vec())),
    }
}
