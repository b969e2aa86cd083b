//! What a person is told about a claim: what is wrong, and what would help.
//!
//! A text begins with the original's own sentence, so that whoever searches for it finds what
//! is known of it, and goes on with what this cluster has to offer.

use std::{collections::BTreeSet, fmt::Display, sync::Arc};

use orlop_model::{
    AccessMode, Claim, Quantity, Volume, matching,
    selector::{LabelSelector, Requirement},
};

use super::{News, claim::Because};

/// What there would be. Only its largest volume stands for a shelf, so that a survey costs the
/// same however many volumes there are.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    /// The largest free volume of each class, mode and set of access modes.
    pub largest: Vec<Arc<Volume>>,
    /// Volumes that name the claim.
    pub reserved: Vec<Arc<Volume>>,
    /// The volume that the claim names.
    pub named: Option<Arc<Volume>>,
    /// The names of all classes.
    pub classes: Vec<String>,
    /// What the claim's selector asks for and no free volume has that would fit otherwise.
    pub unmet: Vec<Requirement>,
}

impl Because {
    /// Whether a person is better told with a survey.
    pub fn wants_survey(&self) -> bool {
        match self {
            Self::NoSuchClass(_)
            | Self::NoProvisioner(_)
            | Self::NothingFits
            | Self::Mismatch { .. } => true,
            Self::Fits
            | Self::Deleting
            | Self::DefaultClass
            | Self::NoConsumer { .. }
            | Self::Provisioning(_)
            | Self::NoSuchVolume
            | Self::Taken { .. }
            | Self::LostReference
            | Self::LostVolume
            | Self::Misbound
            | Self::Lost
            | Self::Unconfirmed => false,
        }
    }
}

/// What a person is told.
pub fn news(claim: &Claim, because: &Because, survey: &Survey) -> Option<News> {
    let named = &claim.spec.volume_name;
    Some(match because {
        Because::NoConsumer { pods } if pods.is_empty() => News::normal(
            "WaitForFirstConsumer",
            "waiting for first consumer to be created before binding",
        ),
        Because::NoConsumer { pods } => {
            let noun = if pods.len() == 1 { "pod" } else { "pods" };
            let message = format!("waiting for {noun} {} to be scheduled", pods.join(","));
            News::normal("WaitForPodScheduled", message)
        }
        Because::NoSuchClass(class) => {
            let missing = format!("storageclass.storage.k8s.io \"{class}\" not found");
            // Volumes may have a class that there is no object of: then it is they who don't fit.
            let message = match survey.largest.iter().any(|v| v.class() == class) {
                true => with_offer(missing, claim, survey),
                false => format!("{missing}{}", other_classes(class, survey)),
            };
            News::warning("ProvisioningFailed", message)
        }
        Because::NoProvisioner(name) => {
            let missing = format!("no volume plugin matched name: {name}");
            News::warning("ProvisioningFailed", with_offer(missing, claim, survey))
        }
        Because::Provisioning(name) => News::normal(
            "ExternalProvisioning",
            format!(
                "Waiting for a volume to be created either by the external provisioner '{name}' \
                 or manually by the system administrator. If volume creation is delayed, please \
                 verify that the provisioner is running and correctly registered."
            ),
        ),
        Because::NothingFits => {
            let missing = "no persistent volumes available for this claim and no storage class \
                           is set";
            News::normal("FailedBinding", with_offer(missing.into(), claim, survey))
        }
        Because::NoSuchVolume => News::normal(
            "FailedBinding",
            format!(
                "volume \"{named}\" not found; the claim asks for that one and waits until it is \
                 there"
            ),
        ),
        Because::Mismatch { volume, why } => {
            let mut message = format!("Cannot bind to requested volume \"{volume}\": {why}");
            if let Some(detail) = survey.named.as_ref().and_then(|v| detail(claim, v, *why)) {
                message = format!("{message} ({detail})");
            }
            News::warning("VolumeMismatch", message)
        }
        Because::Taken { volume, owner } => News::warning(
            "FailedBinding",
            format!(
                "volume \"{volume}\" already bound to a different claim. It belongs to {owner}."
            ),
        ),
        Because::LostReference => News::warning(
            "ClaimLost",
            "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!",
        ),
        Because::LostVolume => News::warning(
            "ClaimLost",
            "Bound claim has lost its PersistentVolume. Data on the volume is lost!",
        ),
        Because::Misbound => News::warning(
            "ClaimMisbound",
            "Two claims are bound to the same volume, this one is bound incorrectly",
        ),
        Because::Fits
        | Because::Deleting
        | Because::DefaultClass
        | Because::Lost
        | Because::Unconfirmed => return None,
    })
}

fn with_offer(message: String, claim: &Claim, survey: &Survey) -> String {
    match offer(claim, survey) {
        Some(offer) => format!("{message}; {offer}"),
        None => message,
    }
}

/// What keeps the volumes that there are from the claim, the first thing in the order in which
/// a volume is judged.
fn offer(claim: &Claim, survey: &Survey) -> Option<String> {
    if let Some((volume, why)) = unfit_reservation(claim, survey) {
        let name = &volume.metadata.name;
        let more = detail(claim, volume, why).map_or(String::new(), |d| format!(" ({d})"));
        return Some(format!(
            "volume \"{name}\" is reserved for this claim, but {why}{more}"
        ));
    }
    let class = claim.class().unwrap_or_default();
    let of_class = class_words(class);
    let mut left: Vec<&Volume> = survey.largest.iter().map(|v| &**v).collect();
    left.retain(|v| v.class() == class);
    if left.is_empty() {
        let elsewhere = survey.largest.iter().find(|v| {
            let why = matching::check(claim, v);
            why == Err(matching::Mismatch::Class) && selects(claim, v)
        });
        let hint = elsewhere.map_or(String::new(), |v| {
            let has = match v.class() {
                "" => "has no class".to_owned(),
                class => format!("is of class \"{class}\""),
            };
            format!("; volume \"{}\" would fit, but {has}", v.metadata.name)
        });
        return Some(format!("there is no free volume {of_class}{hint}"));
    }
    let mut other = left
        .iter()
        .filter(|v| v.volume_mode() != claim.volume_mode());
    let other = other.next().map(|v| v.volume_mode());
    left.retain(|v| v.volume_mode() == claim.volume_mode());
    if let (true, Some(other)) = (left.is_empty(), other) {
        return Some(format!(
            "no free volume {of_class} has volumeMode {:?}; there are such with {other:?}",
            claim.volume_mode()
        ));
    }
    let attributes = |name: &Option<String>| name.clone().unwrap_or_default();
    let wanted = attributes(&claim.spec.volume_attributes_class_name);
    left.retain(|v| attributes(&v.spec.volume_attributes_class_name) == wanted);
    if left.is_empty() {
        let wanted = match wanted.as_str() {
            "" => "is without volumeAttributesClassName".to_owned(),
            name => format!("has volumeAttributesClassName \"{name}\""),
        };
        return Some(format!("no free volume {of_class} {wanted}"));
    }
    let offered: Vec<String> = left.iter().map(|v| modes(&v.spec.access_modes)).collect();
    let wanted = &claim.spec.access_modes;
    left.retain(|v| wanted.iter().all(|mode| v.spec.access_modes.contains(mode)));
    let Some(largest) = left.iter().max_by_key(|v| v.capacity_bytes()) else {
        let (wanted, offered) = (modes(wanted), offered.join(" or "));
        return Some(format!(
            "no free volume {of_class} offers {wanted}; there are such with {offered}"
        ));
    };
    if largest.capacity_bytes() < claim.requested_bytes() {
        let (has, asks) = (size(largest), request(claim));
        let name = &largest.metadata.name;
        return Some(format!(
            "the largest free volume {of_class} that would do is \"{name}\" with {has}, and the \
             claim asks for {asks}"
        ));
    }
    let selector = claim.spec.selector.as_ref()?;
    Some(selection(selector, &survey.unmet, largest, &of_class))
}

/// What of a selector keeps a volume that would fit otherwise from the claim.
fn selection(
    selector: &LabelSelector,
    unmet: &[Requirement],
    volume: &Volume,
    of_class: &str,
) -> String {
    let labels = &volume.metadata.labels;
    let all: Vec<Requirement> = selector.requirements().collect();
    let (missing, words) = match unmet {
        [] => (&all[..], (" and ", "satisfies all that")),
        unmet => (unmet, (" or ", "satisfies what")),
    };
    let has = missing.iter().find(|r| !r.matches(labels)).map(|r| {
        let value = labels.get(&r.key);
        value.map_or(format!("has no label {}", r.key), |value| {
            format!("has {}={value}", r.key)
        })
    });
    let has = has.map_or(String::new(), |has| format!(", but {has}"));
    let told = missing.iter().take(REQUIREMENTS);
    let told: Vec<String> = told.map(|r| format!("\"{r}\"")).collect();
    let more = match missing.len().saturating_sub(REQUIREMENTS) {
        0 => String::new(),
        more => format!("{}{more} more", words.0),
    };
    let told = format!("{}{more}", told.join(words.0));
    let (name, words) = (&volume.metadata.name, words.1);
    format!(
        "volume \"{name}\" would fit otherwise{has}; no free volume {of_class} that is large \
         enough {words} the claim's selector asks for: {told}"
    )
}

fn unfit_reservation<'a>(
    claim: &Claim,
    survey: &'a Survey,
) -> Option<(&'a Volume, matching::Mismatch)> {
    let mine = survey.reserved.iter().filter(|v| v.is_reserved_for(claim));
    // Its class doesn't matter.
    let judged = mine.filter_map(|v| Some((&**v, matching::check(claim, v).err()?)));
    judged
        .into_iter()
        .find(|(_, why)| *why != matching::Mismatch::Class)
}

fn selects(claim: &Claim, volume: &Volume) -> bool {
    let selector = claim.spec.selector.as_ref();
    selector.is_none_or(|s| s.matches(&volume.metadata.labels))
}

/// What the two sides of a mismatch are.
fn detail(claim: &Claim, volume: &Volume, why: matching::Mismatch) -> Option<String> {
    use matching::Mismatch;
    let sides = |has: &dyn Display, asks: &dyn Display| {
        Some(format!("the volume has {has}, the claim asks for {asks}"))
    };
    let quoted = |name: &str| format!("\"{name}\"");
    match why {
        Mismatch::Deleting => None,
        Mismatch::Size => sides(&size(volume), &request(claim)),
        Mismatch::Class => sides(
            &quoted(volume.class()),
            &quoted(claim.class().unwrap_or_default()),
        ),
        Mismatch::AttributesClass => {
            let name = |name: &Option<String>| quoted(name.as_deref().unwrap_or_default());
            sides(
                &name(&volume.spec.volume_attributes_class_name),
                &name(&claim.spec.volume_attributes_class_name),
            )
        }
        Mismatch::Mode => {
            let mode = |mode| format!("{mode:?}");
            sides(&mode(volume.volume_mode()), &mode(claim.volume_mode()))
        }
        Mismatch::Access => sides(
            &modes(&volume.spec.access_modes),
            &modes(&claim.spec.access_modes),
        ),
    }
}

fn class_words(class: &str) -> String {
    match class {
        "" => "without a class".to_owned(),
        class => format!("of class \"{class}\""),
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

/// So many requirements of a selector are named.
const REQUIREMENTS: usize = 20;
/// So many classes are named to somebody who may have misspelt one.
const NAMED: usize = 5;
/// So many letters may be wrong in a name that was meant.
const MISSPELT: usize = 2;

fn other_classes(missing: &str, survey: &Survey) -> String {
    let of_volumes = survey.largest.iter().map(|v| v.class());
    let of_volumes = of_volumes.filter(|class| !class.is_empty());
    let classes = survey.classes.iter().map(String::as_str);
    let classes: BTreeSet<&str> = classes.chain(of_volumes).collect();
    let near = classes.iter().map(|name| (distance(missing, name), name));
    let nearest = near.min().filter(|(wrong, _)| *wrong <= MISSPELT);
    if let Some((_, name)) = nearest {
        return format!("; did you mean \"{name}\"?");
    }
    if classes.is_empty() {
        return "; there is no class at all".to_owned();
    }
    let named: Vec<String> = classes
        .iter()
        .take(NAMED)
        .map(|n| format!("\"{n}\""))
        .collect();
    let more = match classes.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("; there are {}{more}", named.join(", "))
}

/// How many letters must be added, dropped, changed or swapped with their neighbour to get from
/// one name to the other.
fn distance(from: &str, to: &str) -> usize {
    let (from, to): (Vec<char>, Vec<char>) = (from.chars().collect(), to.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=to.len()).collect()];
    for (i, letter) in from.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, wanted) in to.iter().enumerate() {
            let changed = rows[i][j] + usize::from(letter != wanted);
            let mut least = changed.min(rows[i][j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *letter == to[j - 1] && from[i - 1] == *wanted {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[from.len()][to.len()]
}

#[cfg(test)]
mod tests;
