//! Which objects are whose: by the controller that they name, and for those that name none, by
//! their labels.

use std::sync::Arc;

use orlop_model::{Kind, Meta, selector::LabelSelector};
use orlop_runtime::{ApiError, Cache, Cluster, Index, Patch, Process};
use serde_json::json;
use tracing::debug;

use crate::pods::controller_reference;

/// The name of the index by [`controller`].
const BY_CONTROLLER: &str = "by-controller";

/// What an object is found under: its controller, or the orphans of its namespace.
fn controller<K: Kind>(child: &K) -> Vec<String> {
    let meta = child.meta();
    vec![match meta.controller() {
        Some(owner) => owner.uid.clone(),
        None => orphans(&meta.namespace),
    }]
}

fn orphans(namespace: &str) -> String {
    format!("orphans of {namespace}")
}

/// How an object stands to one that could be its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tie {
    /// It is its own.
    Own,
    /// It is nobody's, and is selected.
    Orphan,
    /// It was its own, and isn't selected any more.
    Stray,
    /// It is another's, or nobody's and not selected.
    Foreign,
}

/// How an object stands to an owner with this selector.
pub(crate) fn tie(owner: &Meta, selector: &LabelSelector, child: &Meta) -> Tie {
    let selected = selector.matches(&child.labels);
    match child.controller() {
        Some(other) if other.uid != owner.uid => Tie::Foreign,
        Some(_) if selected || owner.is_deleting() => Tie::Own,
        Some(_) => Tie::Stray,
        None if selected && !owner.is_deleting() && !child.is_deleting() => Tie::Orphan,
        None => Tie::Foreign,
    }
}

/// The objects of a kind, by whose they are.
pub(crate) struct Children<C> {
    cluster: Cluster,
    pub(crate) all: Cache<C>,
    by_controller: Index<C>,
}

impl<C> Clone for Children<C> {
    fn clone(&self) -> Self {
        Self {
            cluster: self.cluster.clone(),
            all: self.all.clone(),
            by_controller: self.by_controller.clone(),
        }
    }
}

impl<C: Kind> Children<C> {
    pub(crate) fn of(process: &Process) -> Self {
        let all = process.cache::<C>();
        Self {
            cluster: process.cluster.clone(),
            by_controller: all.index(BY_CONTROLLER, controller),
            all,
        }
    }

    /// An owner's objects as the cache has them.
    pub(crate) fn owned_by(&self, uid: &str) -> Vec<Arc<C>> {
        self.by_controller.get(uid)
    }

    /// An owner's objects, after those that lost their owner were taken in and those that
    /// aren't selected any more were let go.
    pub(crate) async fn gather<O: Kind>(
        &self,
        owner: &O,
        selector: &LabelSelector,
        fits: impl Fn(&C) -> bool,
    ) -> Result<Vec<Arc<C>>, ApiError> {
        let meta = owner.meta();
        let mut own = Vec::new();
        let mut adopts = None;
        let mut candidates = self.by_controller.get(&meta.uid);
        candidates.extend(self.by_controller.get(&orphans(&meta.namespace)));
        for child in candidates {
            match tie(meta, selector, child.meta()) {
                Tie::Own => own.push(child),
                Tie::Orphan if fits(&child) => {
                    // The cache may not know yet that the owner is going.
                    let may = match adopts {
                        Some(may) => may,
                        None => {
                            let live = self.cluster.get::<O>(&meta.key()).await?;
                            live.is_some_and(|live| {
                                live.meta().uid == meta.uid && !live.meta().is_deleting()
                            })
                        }
                    };
                    adopts = Some(may);
                    if may {
                        own.push(self.adopt(owner, &child).await?);
                    }
                }
                Tie::Stray => self.release(meta, &child).await?,
                Tie::Orphan | Tie::Foreign => {}
            }
        }
        own.sort_by_key(|child| child.key());
        Ok(own)
    }

    async fn adopt<O: Kind>(&self, owner: &O, child: &C) -> Result<Arc<C>, ApiError> {
        let mut owners = child.meta().owner_references.clone();
        owners.push(controller_reference(owner));
        let adopted = self.set_owners(child, json!(owners)).await?;
        debug!(child = %child.key(), owner = %owner.key(), "taken in");
        self.all.absorb(adopted.clone());
        Ok(Arc::new(adopted))
    }

    async fn release(&self, owner: &Meta, child: &C) -> Result<(), ApiError> {
        let mut owners = child.meta().owner_references.clone();
        owners.retain(|reference| reference.uid != owner.uid);
        match self.set_owners(child, json!(owners)).await {
            Ok(released) => {
                debug!(child = %child.key(), owner = %owner.key(), "let go");
                self.all.absorb(released);
                Ok(())
            }
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn set_owners(&self, child: &C, owners: serde_json::Value) -> Result<C, ApiError> {
        let patch = Patch::merge_on(child, json!({"metadata": {"ownerReferences": owners}}));
        self.cluster.patch(&child.key(), &patch).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{deleting, pod, stateful_set};
    use crate::pods::controller_reference;

    #[test]
    fn an_object_is_its_controllers_and_an_orphan_whoevers_selector_finds_it() {
        let set = stateful_set("web");
        let selector = &set.spec.selector;
        let tie = |owner: &orlop_model::StatefulSet, pod: &orlop_model::Pod| {
            super::tie(&owner.metadata, selector, &pod.metadata)
        };
        let mut orphan = pod(&set, 0);
        orphan.metadata.owner_references.clear();
        assert_eq!(tie(&set, &orphan), Tie::Orphan);
        assert_eq!(tie(&set, &deleting(orphan.clone())), Tie::Foreign);
        assert_eq!(tie(&deleting(set.clone()), &orphan), Tie::Foreign);
        let mut own = orphan.clone();
        own.metadata.owner_references = vec![controller_reference(&set)];
        assert_eq!(tie(&set, &own), Tie::Own);
        let mut stray = own.clone();
        stray.metadata.labels.clear();
        assert_eq!(tie(&set, &stray), Tie::Stray);
        own.metadata.owner_references[0].uid = "another".into();
        assert_eq!(tie(&set, &own), Tie::Foreign);
    }
}
