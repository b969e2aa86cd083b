//! What a person is told about a claim: what is wrong, and what would help.
//!
//! A text begins with the original's own sentence, so that whoever searches for it finds what
//! is known of it, and goes on with what this cluster has to offer.

use std::{collections::BTreeSet, sync::Arc};

use orlop_model::{
    Claim, Kind, ReclaimPolicy, Volume, VolumePhase, matching,
    selector::{LabelSelector, Requirement},
};

use super::{News, claim::Because, recycle, spelling};

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
    /// The largest volume of each kind that is kept though its claim is gone.
    pub released: Vec<Arc<Volume>>,
    /// A free volume with nearly the name of the one that the claim names in vain.
    pub meant: Option<String>,
    /// The names of all classes.
    pub classes: Vec<String>,
    /// The names of all CSI drivers.
    pub drivers: Vec<String>,
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
            | Self::NoSuchVolume
            | Self::Taken { .. }
            | Self::Mismatch { .. } => true,
            Self::Fits
            | Self::Deleting
            | Self::DefaultClass
            | Self::NoConsumer { .. }
            | Self::Provisioning(_)
            | Self::BeingEmptied(_)
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
            let mut there = survey.largest.iter().chain(&survey.released);
            let told =
                there.any(|v| v.class() == class) || unfit_reservation(claim, survey).is_some();
            let message = match told {
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
                 verify that the provisioner is running and correctly registered.{}",
                no_such_driver(name, &survey.drivers)
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
                 there{}",
                did_you_mean(survey.meant.as_deref()).unwrap_or_default()
            ),
        ),
        Because::Mismatch { volume, why } => {
            let mut message = format!("Cannot bind to requested volume \"{volume}\": {why}");
            if let Some(detail) = survey.named.as_ref().and_then(|v| why.sides(claim, v)) {
                message = format!("{message} ({detail})");
            }
            News::warning("VolumeMismatch", message)
        }
        Because::Taken { volume, owner } => News::warning(
            "FailedBinding",
            format!(
                "volume \"{volume}\" already bound to a different claim. It belongs to {}.",
                owner_words(claim, owner, survey.named.as_deref())
            ),
        ),
        Because::BeingEmptied(volume) => News::warning(
            "FailedBinding",
            format!(
                "volume \"{volume}\" is still being scrubbed by pod {}; the claim is bound once \
                 that has ended",
                recycle::pod_key(volume)
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

/// The volumes that a person is told of by name.
pub fn named(news: &News, survey: &Survey) -> BTreeSet<String> {
    let surveyed = survey.largest.iter().chain(&survey.released);
    let names = surveyed.map(|volume| &volume.metadata.name);
    let names = names.chain(&survey.meant);
    let named = names.filter(|name| news.message.contains(&format!("\"{name}\"")));
    named.cloned().collect()
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
        let sides = why.sides(claim, volume);
        let more = sides.map_or(String::new(), |sides| format!(" ({sides})"));
        return Some(format!(
            "volume \"{name}\" is reserved for this claim, but {why}{more}"
        ));
    }
    let class = claim.class().unwrap_or_default();
    let of_class = matching::of_class(class);
    let largest = survey.largest.iter().map(|v| &**v);
    let free = largest.filter(|v| v.class() == class);
    let mut free = free.peekable();
    let elsewhere = match free.peek() {
        None => of_another_class(claim, survey),
        Some(_) => None,
    };
    let told = match matching::shortage(claim, free, &of_class) {
        Err(shortage) => shortage,
        Ok(largest) => {
            let selector = claim.spec.selector.as_ref()?;
            selection(selector, &survey.unmet, largest, &of_class)
        }
    };
    let hint = released(claim, survey).or(elsewhere);
    Some(hint.map_or(told.clone(), |hint| format!("{told}; {hint}")))
}

/// A free volume that only its class keeps from the claim.
fn of_another_class(claim: &Claim, survey: &Survey) -> Option<String> {
    let fits = |v: &&Arc<Volume>| matching::check_but_class(claim, v).is_ok() && selects(claim, v);
    let volume = survey.largest.iter().find(fits)?;
    let has = match volume.class() {
        "" => "has no class".to_owned(),
        class => format!("is of class \"{class}\""),
    };
    let name = &volume.metadata.name;
    Some(format!("volume \"{name}\" would fit, but {has}"))
}

/// A volume that only its former claim keeps from this one.
fn released(claim: &Claim, survey: &Survey) -> Option<String> {
    let fits = |v: &&Arc<Volume>| matching::check(claim, v).is_ok() && selects(claim, v);
    let volume = survey.released.iter().find(fits)?;
    let (name, owner) = (&volume.metadata.name, volume.spec.claim_ref.as_ref()?.key());
    Some(format!(
        "volume \"{name}\" would fit, but is Released and still names a former claim {owner}; \
         remove its spec.claimRef to offer it again"
    ))
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
    let mut judged = mine.filter_map(|v| Some((&**v, matching::check_but_class(claim, v).err()?)));
    judged.next()
}

fn selects(claim: &Claim, volume: &Volume) -> bool {
    let selector = claim.spec.selector.as_ref();
    selector.is_none_or(|s| s.matches(&volume.metadata.labels))
}

/// So many requirements of a selector are named.
const REQUIREMENTS: usize = 20;
/// So many classes are named to somebody who may have misspelt one.
const NAMED: usize = 5;

/// That a provisioner is no CSI driver of this cluster: it may be misspelt.
fn no_such_driver(name: &str, drivers: &[String]) -> String {
    if drivers.is_empty() || drivers.iter().any(|driver| driver == name) {
        return String::new();
    }
    let near = did_you_mean(spelling::meant(name, drivers.iter().map(String::as_str)));
    let hint = near.unwrap_or_else(|| {
        let drivers: Vec<&str> = drivers.iter().map(String::as_str).collect();
        format!("; there are {}", some_of(&drivers))
    });
    format!(" No CSIDriver of that name is registered{hint}")
}

fn other_classes(missing: &str, survey: &Survey) -> String {
    let classes: BTreeSet<&str> = survey.classes.iter().map(String::as_str).collect();
    let of_volumes = survey.largest.iter().map(|v| v.class());
    let of_volumes: BTreeSet<&str> = of_volumes
        .filter(|class| !class.is_empty() && !classes.contains(class))
        .collect();
    // Classes first: they make volumes, or somebody means to.
    let near = |names: &BTreeSet<&'_ str>| {
        let meant = spelling::meant(missing, names.iter().copied());
        did_you_mean(meant)
    };
    if let Some(hint) = near(&classes).or_else(|| near(&of_volumes)) {
        return hint;
    }
    let all: Vec<&str> = classes.into_iter().chain(of_volumes).collect();
    if all.is_empty() {
        return "; there is no class at all".to_owned();
    }
    format!("; there are {}", some_of(&all))
}

/// A few names, and how many more there are.
fn some_of(all: &[&str]) -> String {
    let named: Vec<String> = all.iter().take(NAMED).map(|n| format!("\"{n}\"")).collect();
    let more = match all.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", named.join(", "))
}

fn did_you_mean(name: Option<&str>) -> Option<String> {
    name.map(|name| format!("; did you mean \"{name}\"?"))
}

/// Whose a volume is that the claim names in vain.
fn owner_words(claim: &Claim, owner: &str, volume: Option<&Volume>) -> String {
    let released = volume.is_some_and(|v| v.phase() == VolumePhase::Released);
    let former = match *owner == claim.key().to_string() {
        // Another of that name can't be there at the same time.
        true => format!("an earlier claim {owner} that is gone"),
        false if released => format!("the claim {owner} that is gone"),
        false => return owner.to_owned(),
    };
    match volume.map(Volume::reclaim_policy) {
        Some(ReclaimPolicy::Delete) => {
            format!("{former}; its reclaim policy is Delete, so it will be deleted")
        }
        Some(ReclaimPolicy::Recycle) => {
            format!(
                "{former}; its reclaim policy is Recycle, so it will be scrubbed and offered again"
            )
        }
        _ => format!("{former}; remove the volume's spec.claimRef to offer it again"),
    }
}

#[cfg(test)]
mod tests;
