//! What moves one volume towards where its pods want it. Pure.
//!
//! ```text
//!            wanted: reported in use -> attached -> staged -> grown -> published per pod,
//!                    its files given to the pod's group, published again where that is due
//!        not wanted: unpublished per pod -> unstaged -> forgotten (no longer in use)
//! ```
//! A volume that lives with its pod is neither attached nor staged.
//!
//! Taking away comes before bringing: a path that a dead pod leaves must not wait for a
//! new pod's trouble.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::{Device, Grouped, Hold, Lifetime};
use crate::layout::PodUid;

/// What is known when a decision is taken.
pub(super) struct View<'a> {
    pub(super) device: &'a Device,
    pub(super) driver: DriverState,
    pub(super) attachment: Attachment,
    /// Pods whose step has just failed.
    pub(super) skip: &'a BTreeSet<PodUid>,
    /// Whether it is smaller here than its claim says.
    pub(super) grows: bool,
    pub(super) now: Timestamp,
}

/// Whether the driver can be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DriverState {
    /// It has not registered.
    Missing,
    /// It has; and it does or does not stage volumes.
    Present { stages: bool },
}

/// How far attach-detach is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attachment {
    NotNeeded,
    /// The node has not yet said that it uses the volume.
    NotReported,
    Pending,
    Attached,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Everything is as it should be.
    Rest,
    /// Everything is as it should be, until then.
    Until(Timestamp),
    /// Nothing can be done before something happens.
    Wait(Because),
    Stage,
    /// Make it as large as its claim says.
    Grow,
    /// Publish it, for the first time or again.
    Publish(PodUid),
    /// Give its files to the pod's group.
    Own(PodUid),
    Unpublish(PodUid),
    Unstage,
    /// Nothing of it is left here.
    Forget,
}

/// Why nothing can be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Because {
    NoDriver,
    NotReported,
    NotAttached,
    /// It is mounted for other pods with another SELinux label.
    OtherLabel,
}

impl Because {
    /// For people.
    pub(super) fn words(self, driver: &str, node: &str) -> String {
        match self {
            Self::NoDriver => format!(
                "driver {driver} has not registered on node {node}; start it with its registration socket"
            ),
            Self::NotReported => "the volume is being reported as in use".to_owned(),
            Self::NotAttached => format!("waiting for the volume to be attached to node {node}"),
            Self::OtherLabel => {
                "conflicting SELinux labels: other pods on this node use the volume with another \
                 label; give the pods the same seLinuxOptions, or wait for those to end"
                    .to_owned()
            }
        }
    }
}

/// Decides the next step of one volume.
pub(super) fn decide(view: &View<'_>) -> Step {
    let device = view.device;
    let unwanted =
        |pod: &&PodUid| !device.wants.contains_key(*pod) && !device.undecided.contains(*pod);
    let mut leftovers = device.publications.keys().filter(unwanted);
    if let Some(pod) = leftovers.find(|pod| !view.skip.contains(*pod)) {
        return with_driver(view, |_| Step::Unpublish(pod.clone()));
    }
    if !device.wants.is_empty() {
        return bring(view);
    }
    if !device.publications.is_empty() {
        return Step::Rest;
    }
    match device.staging {
        None => Step::Forget,
        Some(_) => with_driver(view, |_| Step::Unstage),
    }
}

/// The way towards the pods.
fn bring(view: &View<'_>) -> Step {
    let device = view.device;
    let persists = device.lifetime == Lifetime::Persistent;
    match view.attachment {
        Attachment::NotReported if persists => return Step::Wait(Because::NotReported),
        Attachment::Pending if persists => return Step::Wait(Because::NotAttached),
        _ => {}
    }
    with_driver(view, |stages| {
        let stages = stages && persists;
        let fits = |pod: &PodUid| {
            let want = device.wants.get(pod);
            want.is_some_and(|want| want.label == device.label)
        };
        // One label for all who use it at a time.
        let mounted = device.staging.is_some() || !device.publications.is_empty();
        if mounted && !device.wants.keys().any(fits) {
            if !device.publications.is_empty() {
                return Step::Wait(Because::OtherLabel);
            }
            return Step::Unstage;
        }
        if stages && device.staging != Some(Hold::Certain) {
            return Step::Stage;
        }
        // Before anybody uses it, where that can be: some drivers can't do it later.
        if stages && view.grows {
            return Step::Grow;
        }
        let missing = device.wants.keys().find(|pod| {
            let published = device
                .publications
                .get(*pod)
                .map(|publication| publication.hold);
            let fits = !mounted || fits(pod);
            published != Some(Hold::Certain) && !view.skip.contains(*pod) && fits
        });
        if let Some(pod) = missing {
            return Step::Publish(pod.clone());
        }
        let wanted = || {
            let here = device.publications.iter();
            here.filter(|(pod, _)| device.wants.contains_key(*pod) && !view.skip.contains(*pod))
        };
        let open = |group: Grouped| matches!(group, Grouped::Open { .. });
        if let Some((pod, _)) = wanted().find(|(_, publication)| open(publication.group)) {
            return Step::Own(pod.clone());
        }
        let mut publications = device.publications.values();
        if view.grows && publications.any(|p| p.hold == Hold::Certain) {
            return Step::Grow;
        }
        let due = wanted().filter_map(|(pod, publication)| Some((publication.again_at?, pod)));
        match due.min() {
            Some((at, pod)) if at <= view.now => Step::Publish(pod.clone()),
            Some((at, _)) => Step::Until(at),
            None if mounted && !device.wants.keys().all(fits) => Step::Wait(Because::OtherLabel),
            None => Step::Rest,
        }
    })
}

fn with_driver(view: &View<'_>, step: impl FnOnce(bool) -> Step) -> Step {
    match view.driver {
        DriverState::Missing => Step::Wait(Because::NoDriver),
        DriverState::Present { stages } => step(stages),
    }
}
