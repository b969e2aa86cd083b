//! The templates that a workload had, each kept as a revision: what pods were made from, and
//! what an undo goes back to.

use std::sync::Arc;

use orlop_model::{ControllerRevision, Key, Kind, Meta, well_known};
use orlop_runtime::{ApiError, Cache, Cluster, Patch, Preconditions};
use serde_json::{Value, json};

use crate::{names, pods::controller_reference};

/// Label: the hash of the revision's template.
const HASH: &str = "controller.kubernetes.io/hash";
/// How many revisions are kept unless it is said.
const LIMIT: i32 = 10;
/// How often a name may turn out to be another's.
const COLLISIONS: i32 = 16;

/// What becomes of the revision of a workload's present template.
#[derive(Debug, PartialEq)]
pub(crate) enum Plan {
    /// It is the newest.
    Use(Arc<ControllerRevision>),
    /// It is there, and becomes the newest again.
    Renumber(Arc<ControllerRevision>, i64),
    /// It has to be made, with this number.
    Create(i64),
}

/// The patch that brings a template back, as `kubectl rollout undo` applies it.
pub(crate) fn data(template: &Value) -> Value {
    let mut template = template.clone();
    template["$patch"] = json!("replace");
    json!({ "spec": { "template": template } })
}

/// The template that a revision keeps.
pub(crate) fn template(revision: &ControllerRevision) -> Value {
    let mut template = revision.data["spec"]["template"].clone();
    if let Some(fields) = template.as_object_mut() {
        fields.remove("$patch");
    }
    template
}

/// The hash by which a revision goes.
pub(crate) fn hash(revision: &ControllerRevision) -> &str {
    let hash = revision.metadata.labels.get(HASH);
    hash.map_or("", String::as_str)
}

/// Decides about the revision of a template.
pub(crate) fn plan(present: &Value, revisions: &[Arc<ControllerRevision>]) -> Plan {
    let wanted = data(present);
    let newest = revisions.iter().max_by_key(|revision| revision.revision);
    let next = newest.map_or(1, |newest| newest.revision + 1);
    let equal = revisions.iter().filter(|revision| revision.data == wanted);
    match equal.max_by_key(|revision| revision.revision) {
        Some(found) if found.revision + 1 == next => Plan::Use(found.clone()),
        Some(found) => Plan::Renumber(found.clone(), next),
        None => Plan::Create(next),
    }
}

/// The revisions that may be forgotten: the oldest of those that nobody needs, beyond the
/// limit.
pub(crate) fn surplus(
    revisions: &[Arc<ControllerRevision>],
    limit: Option<i32>,
    needed: impl Fn(&ControllerRevision) -> bool,
) -> Vec<&Arc<ControllerRevision>> {
    let mut spare: Vec<_> = revisions
        .iter()
        .filter(|revision| !needed(revision))
        .collect();
    spare.sort_by_key(|revision| revision.revision);
    let limit = usize::try_from(limit.unwrap_or(LIMIT)).unwrap_or(usize::MAX);
    spare.truncate(spare.len().saturating_sub(limit));
    spare
}

/// Writes revisions.
#[derive(Clone)]
pub(crate) struct History {
    pub(crate) cluster: Cluster,
    pub(crate) revisions: Cache<ControllerRevision>,
}

impl History {
    /// Makes the revision of a template the newest of an owner's; with the count of names that
    /// turned out to be another's.
    pub(crate) async fn record<O: Kind>(
        &self,
        owner: &O,
        present: &Value,
        (known, collisions): (&[Arc<ControllerRevision>], i32),
    ) -> Result<(Arc<ControllerRevision>, i32), ApiError> {
        match plan(present, known) {
            Plan::Use(revision) => Ok((revision, collisions)),
            Plan::Renumber(revision, number) => {
                let patch = Patch::merge_on(&*revision, json!({ "revision": number }));
                let renumbered: ControllerRevision =
                    self.cluster.patch(&revision.key(), &patch).await?;
                self.revisions.absorb(renumbered.clone());
                Ok((Arc::new(renumbered), collisions))
            }
            Plan::Create(number) => self.create(owner, present, (number, collisions)).await,
        }
    }

    async fn create<O: Kind>(
        &self,
        owner: &O,
        present: &Value,
        (number, mut collisions): (i64, i32),
    ) -> Result<(Arc<ControllerRevision>, i32), ApiError> {
        loop {
            let revision = revision_of(owner, present, (number, collisions));
            let error = match self.cluster.create(&revision).await {
                Ok(made) => {
                    self.revisions.absorb(made.clone());
                    return Ok((Arc::new(made), collisions));
                }
                Err(error) => error,
            };
            if !error.is_already_exists() || collisions >= COLLISIONS {
                return Err(error);
            }
            let there: Option<ControllerRevision> = self.cluster.get(&revision.key()).await?;
            match there {
                // An earlier request of ours, whose answer was lost.
                Some(there)
                    if there.data == revision.data
                        && there.metadata.controller().map(|owner| &owner.uid)
                            == Some(&owner.meta().uid) =>
                {
                    self.revisions.absorb(there.clone());
                    return Ok((Arc::new(there), collisions));
                }
                Some(_) => collisions += 1,
                None => {}
            }
        }
    }

    /// Forgets a revision.
    pub(crate) async fn forget(&self, revision: &ControllerRevision) -> Result<(), ApiError> {
        let same = Preconditions::same_object(revision);
        self.cluster
            .delete::<ControllerRevision>(&revision.key(), &same)
            .await
    }
}

fn revision_of<O: Kind>(
    owner: &O,
    present: &Value,
    (number, collisions): (i64, i32),
) -> ControllerRevision {
    let meta = owner.meta();
    let data = data(present);
    let hash = names::hash(&data, collisions);
    let name = names::revision(&meta.name, &hash);
    let labels = serde_json::from_value(present["metadata"]["labels"].clone());
    let mut annotations = meta.annotations.clone();
    annotations.remove(well_known::LAST_APPLIED);
    let mut revision = ControllerRevision {
        metadata: Meta {
            labels: labels.unwrap_or_default(),
            annotations,
            owner_references: vec![controller_reference(owner)],
            ..Meta::named(&Key::namespaced(&meta.namespace, name))
        },
        data,
        revision: number,
    };
    revision.metadata.labels.insert(HASH.to_owned(), hash);
    revision
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::stateful_set;

    fn revision(image: &str, number: i64) -> Arc<ControllerRevision> {
        let present = json!({ "spec": { "image": image } });
        Arc::new(revision_of(&stateful_set("web"), &present, (number, 0)))
    }

    #[test]
    fn a_template_that_was_there_before_becomes_the_newest_again() {
        let all = [revision("a", 1), revision("b", 2)];
        let of = |image: &str| plan(&json!({ "spec": { "image": image } }), &all);
        assert_eq!(of("b"), Plan::Use(all[1].clone()));
        assert_eq!(of("a"), Plan::Renumber(all[0].clone(), 3));
        assert_eq!(of("c"), Plan::Create(3));
        assert_eq!(plan(&json!({}), &[]), Plan::Create(1));
    }

    #[test]
    fn only_old_revisions_that_nobody_needs_are_forgotten() {
        let all = [
            revision("a", 1),
            revision("b", 2),
            revision("c", 3),
            revision("d", 4),
        ];
        let spare = surplus(&all, Some(1), |r| r.revision == 1 || r.revision == 4);
        assert_eq!(spare, [&all[1]]);
        assert!(surplus(&all, None, |_| false).is_empty());
    }

    #[test]
    fn a_revision_gives_its_template_back() {
        let present = json!({ "spec": { "image": "a" } });
        let kept = revision_of(&stateful_set("web"), &present, (1, 0));
        assert_eq!(template(&kept), present);
        assert_eq!(kept.metadata.name, format!("web-{}", hash(&kept)));
    }
}
