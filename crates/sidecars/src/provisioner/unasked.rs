//! Claims that are taken before the binder asks, which spares a request.
//!
//! orlop's binder marks the claims that it asks for, and gives a provisioner of ours a moment to take
//! further ones by itself. Other binders ask at once: there it would only make their request fail.

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use orlop_model::{
    Claim, Kind, StorageClass, Volume, matching,
    well_known::{GIVES_WAY, PROVISIONING},
};
use orlop_runtime::{Cache, Index};

use super::decide::{self, Unasked};

/// What is known of the binder, from the claims that it asked for. Lost in a crash, and learned again.
#[derive(Debug, Clone, Default)]
pub(super) struct Binder(Arc<AtomicBool>);

impl Binder {
    /// A claim of this driver was seen.
    pub(super) fn asked(&self, claim: &Claim) {
        let meta = &claim.metadata;
        let gives_way = meta.annotations.contains_key(GIVES_WAY);
        // What stands on others may be of long ago, or our own.
        let fresh = claim.spec.volume_name.is_empty() && !meta.has_finalizer(PROVISIONING);
        if gives_way || fresh {
            self.0.store(gives_way, Ordering::Relaxed);
        }
    }

    /// Whether it gives way.
    pub(super) fn gives_way(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Where volumes are looked for that the binder might choose.
pub(super) struct Shelves {
    free: Index<Volume>,
    claimed: Index<Volume>,
}

impl Shelves {
    pub(super) fn new(volumes: &Cache<Volume>) -> Self {
        Self {
            free: volumes.index(matching::FREE, matching::free_shelf),
            claimed: volumes.index(matching::BY_CLAIMANT, matching::claimant),
        }
    }

    /// What may be done for a claim that nobody asked for.
    pub(super) fn unasked(&self, claim: &Claim, class: Option<&StorageClass>) -> Unasked {
        // Late claims' volumes are chosen with their node.
        let late = class.is_some_and(StorageClass::waits_for_consumer);
        let reserved = !self.claimed.get(&claim.key().to_string()).is_empty();
        match !decide::is_unasked(claim) || reserved || (!late && self.any_fits(claim)) {
            true => Unasked::Wait,
            false => Unasked::Take,
        }
    }

    fn any_fits(&self, claim: &Claim) -> bool {
        let (place, timing) = (matching::Place::Anywhere, matching::Timing::Now);
        matching::stretches(claim).any(|(from, prefix)| {
            let found = self.free.scan(&from, &prefix, |volume| {
                match matching::best(claim, [&**volume], place, timing) {
                    Some(_) => ControlFlow::Break(()),
                    None => ControlFlow::Continue(()),
                }
            });
            found.is_some()
        })
    }
}
