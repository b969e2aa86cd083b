//! What keeps volumes from a claim, in words: the binder tells it on claims, the scheduler on pods.

use std::fmt::Display;

use super::Mismatch;
use crate::{access::AccessMode, claim::Claim, quantity::Quantity, volume::Volume};

/// The largest of the free volumes of a class that would do, whatever its labels and wherever
/// it is. `of_class` says which class that is, as [`of_class`] does.
///
/// # Errors
/// What keeps all of them from the claim, the first thing in the order in which a volume is
/// judged, and what there is instead.
pub fn shortage<'a>(
    claim: &Claim,
    volumes: impl IntoIterator<Item = &'a Volume>,
    of_class: &str,
) -> Result<&'a Volume, String> {
    let (going, left): (Vec<_>, Vec<_>) = volumes
        .into_iter()
        .partition(|volume| volume.metadata.is_deleting());
    among(claim, left, of_class).map_err(|told| {
        let mut would_do = going
            .into_iter()
            .filter(|volume| super::fits_while_there(claim, volume));
        would_do.next().map_or(told, |volume| {
            let name = &volume.metadata.name;
            format!("volume \"{name}\" would fit, but is being deleted")
        })
    })
}

fn among<'a>(
    claim: &Claim,
    mut left: Vec<&'a Volume>,
    of_class: &str,
) -> Result<&'a Volume, String> {
    let Some(first) = left.first() else {
        return Err(format!("there is no free volume {of_class}"));
    };
    let other = first.volume_mode();
    left.retain(|v| v.volume_mode() == claim.volume_mode());
    if left.is_empty() {
        let wanted = claim.volume_mode();
        return Err(format!(
            "no free volume {of_class} has volumeMode {wanted:?}; there are such with {other:?}"
        ));
    }
    left.retain(|v| super::same_attributes_class(claim, v));
    if left.is_empty() {
        let wanted = match claim.spec.volume_attributes_class_name.as_deref() {
            None | Some("") => "is without volumeAttributesClassName".to_owned(),
            Some(name) => format!("has volumeAttributesClassName \"{name}\""),
        };
        return Err(format!("no free volume {of_class} {wanted}"));
    }
    let mut offered: Vec<String> = left.iter().map(|v| modes(&v.spec.access_modes)).collect();
    left.retain(|v| super::grants_access(claim, v));
    let Some(largest) = left.into_iter().max_by_key(|v| v.capacity_bytes()) else {
        offered.sort();
        offered.dedup();
        let (wanted, offered) = (modes(&claim.spec.access_modes), offered.join(" or "));
        return Err(format!(
            "no free volume {of_class} offers {wanted}; there are such with {offered}"
        ));
    };
    if largest.capacity_bytes() < claim.requested_bytes() {
        let (has, asks) = (size(largest), request(claim));
        let name = &largest.metadata.name;
        return Err(format!(
            "the largest free volume {of_class} that would do is \"{name}\" with {has}, and the \
             claim asks for {asks}"
        ));
    }
    Ok(largest)
}

/// Which class is meant.
pub fn of_class(class: &str) -> String {
    match class {
        "" => "without a class".to_owned(),
        class => format!("of class \"{class}\""),
    }
}

impl Mismatch {
    /// What the two sides of it are.
    pub fn sides(self, claim: &Claim, volume: &Volume) -> Option<String> {
        let sides = |has: &dyn Display, asks: &dyn Display| {
            Some(format!("the volume has {has}, the claim asks for {asks}"))
        };
        let quoted = |name: &str| format!("\"{name}\"");
        match self {
            Self::Deleting => None,
            Self::Size => sides(&size(volume), &request(claim)),
            Self::Class => sides(
                &quoted(volume.class()),
                &quoted(claim.class().unwrap_or_default()),
            ),
            Self::AttributesClass => {
                let name = |name: &Option<String>| quoted(name.as_deref().unwrap_or_default());
                sides(
                    &name(&volume.spec.volume_attributes_class_name),
                    &name(&claim.spec.volume_attributes_class_name),
                )
            }
            Self::Mode => {
                let mode = |mode| format!("{mode:?}");
                sides(&mode(volume.volume_mode()), &mode(claim.volume_mode()))
            }
            Self::Access => sides(
                &modes(&volume.spec.access_modes),
                &modes(&claim.spec.access_modes),
            ),
        }
    }
}

fn modes(modes: &[AccessMode]) -> String {
    let names: Vec<String> = modes.iter().map(|mode| format!("{mode:?}")).collect();
    names.join(",")
}

fn size(volume: &Volume) -> String {
    quantity(volume.spec.capacity.storage())
}

fn request(claim: &Claim) -> String {
    quantity(claim.spec.resources.requests.storage())
}

fn quantity(quantity: Option<&Quantity>) -> String {
    quantity.map_or_else(|| "0".to_owned(), ToString::to_string)
}
