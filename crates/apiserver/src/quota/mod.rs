//! How much of a namespace's quotas is used, and whether there is room for more.
//!
//! What is used is never stored for deciding: it is counted from the objects themselves and
//! kept up to date by their events, so it can't leak and needs no repair after a crash. Writes
//! that were let through and aren't visible yet are counted, too: two that fit only one at a
//! time are never both let through. A quota's `status` shows the same count, written by the
//! collector; nothing is decided by it.

mod charges;
mod rules;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use self::charges::{CLAIMS, PODS, SERVICES, add, shown, subtract};
use self::rules::Rules;
use crate::kinds::KindInfo;
use crate::refusal::Refusal;
use crate::registry::{Part, Target, resource_of, text};
use crate::store::{Event, Key, State, Store};

pub(crate) use self::charges::{Amounts, amounts, pod_total};

/// The resource that quotas are stored as.
pub(crate) const RESOURCE: &str = "resourcequotas";

/// The quotas of all namespaces; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Quotas {
    books: Arc<Mutex<Books>>,
}

#[derive(Debug, Default)]
struct Books {
    /// By namespace and name.
    tallies: BTreeMap<(String, String), Tally>,
    pending: BTreeMap<u64, Pending>,
    next: u64,
}

/// How much of one quota is used, by what is visible at a revision.
#[derive(Debug)]
struct Tally {
    rules: Rules,
    at: u64,
    used: Amounts,
}

/// A write that was let through and may not be visible yet.
#[derive(Debug)]
struct Pending {
    key: Key,
    write: Charged,
}

/// What a write makes of an object.
#[derive(Debug)]
struct Charged {
    /// The object before, and its revision; none if the write makes it.
    before: Option<(u64, Value)>,
    after: Value,
}

/// Room for one write, held until it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    quotas: Quotas,
    id: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.quotas.books().pending.remove(&self.id);
    }
}

/// Whether a change of an object can change what it is charged for.
pub(crate) fn heeds(kind: &KindInfo, part: Part) -> bool {
    kind.group.is_empty()
        && match part {
            Part::Main => matches!(kind.plural, CLAIMS | SERVICES | PODS),
            Part::Status => kind.plural == CLAIMS,
            Part::Finalize | Part::Binding => false,
        }
}

impl Quotas {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Room for a write in all quotas of its namespace, or a refusal; none if no quota counts
    /// the object.
    pub(crate) fn reserve(
        &self,
        store: &Store,
        target: &Target,
        (before, after): (Option<(u64, &Value)>, &Value),
    ) -> Result<Option<Reservation>, Refusal> {
        if target.namespace.is_empty() || !are_in(&store.read(), &target.namespace) {
            return Ok(None);
        }
        // In this order everywhere: the books, then the state.
        let mut books = self.books();
        let state = store.read();
        let write = Charged {
            before: before.map(|(revision, object)| (revision, object.clone())),
            after: after.clone(),
        };
        let resource = resource_of(target.kind);
        let mut counted = false;
        for quota in quotas(&state, &target.namespace) {
            counted |= books.admit(&state, target, &quota, (&resource, &write))?;
        }
        if !counted {
            return Ok(None);
        }
        drop(state);
        books.next += 1;
        let id = books.next;
        let key = target.key();
        books.pending.insert(id, Pending { key, write });
        let quotas = self.clone();
        Ok(Some(Reservation { quotas, id }))
    }

    /// How much of each quota of a namespace is used, with the quotas as they are stored.
    pub(crate) fn used(&self, store: &Store, namespace: &str) -> Vec<(Value, Amounts)> {
        let mut books = self.books();
        let state = store.read();
        books
            .tallies
            .retain(|(place, name), _| state.get(&Key::new(RESOURCE, place, name)).is_some());
        quotas(&state, namespace)
            .map(|quota| {
                let tally = books.tally(&state, namespace, Rules::read(&quota));
                let used = tally.used.clone();
                (quota, used)
            })
            .collect()
    }
}

/// Whether a namespace has quotas.
pub(crate) fn are_in(state: &State, namespace: &str) -> bool {
    state.list(RESOURCE, Some(namespace)).next().is_some()
}

/// The quotas of a namespace, by name.
fn quotas<'s>(state: &'s State, namespace: &'s str) -> impl Iterator<Item = Value> + use<'s> {
    state
        .list(RESOURCE, Some(namespace))
        .map(|(_, _, quota)| quota.value())
}

impl Books {
    /// Whether a quota counts what is written; a refusal if there is no room for it.
    fn admit(
        &mut self,
        state: &State,
        target: &Target,
        quota: &Value,
        (resource, write): (&str, &Charged),
    ) -> Result<bool, Refusal> {
        let rules = Rules::read(quota);
        if !rules.covers(resource, &write.after) {
            return Ok(false);
        }
        let refuse = |why: String| Err(Refusal::forbidden(target.kind, &target.name, why));
        if resource == PODS
            && write.before.is_none()
            && let Some(unsaid) = rules.unsaid(&write.after)
        {
            return refuse(format!("failed quota: {}: {unsaid}", rules.name));
        }
        let charged = rules.charges(resource, &write.after);
        let negative = charged.iter().filter(|(_, amount)| amount.is_negative());
        let negative: Vec<&str> = negative.map(|(name, _)| name.as_str()).collect();
        if !negative.is_empty() {
            let names = negative.join(",");
            return refuse(format!("quota usage is negative for resource(s): {names}"));
        }
        let requested = write.increase(&rules, resource);
        if requested.is_empty() {
            // A smaller object must not take room from others while it is on its way.
            return Ok(write.before.is_none());
        }
        let mut taken = Amounts::new();
        for pending in self.pending.values() {
            if *pending.key.namespace == *target.namespace && pending.is_unseen(state) {
                add(
                    &mut taken,
                    &pending.write.increase(&rules, &pending.key.resource),
                );
            }
        }
        let tally = self.tally(state, &target.namespace, rules);
        let mut used = tally.used.clone();
        add(&mut used, &taken);
        let limits = &tally.rules.hard;
        let exceeds = |name: &String, more: crate::amount::Amount| {
            used.get(name).copied().unwrap_or_default().plus(more) > limits[name]
        };
        let exceeded: Amounts = requested
            .into_iter()
            .filter(|(name, more)| exceeds(name, *more))
            .collect();
        if exceeded.is_empty() {
            return Ok(true);
        }
        let of = |amounts: &Amounts| {
            let named = exceeded.keys();
            let named =
                named.map(|name| (name.clone(), amounts.get(name).copied().unwrap_or_default()));
            shown(&named.collect())
        };
        refuse(format!(
            "exceeded quota: {}, requested: {}, used: {}, limited: {}",
            tally.rules.name,
            shown(&exceeded),
            of(&used),
            of(limits)
        ))
    }

    /// What is used of a quota in this state.
    fn tally(&mut self, state: &State, namespace: &str, rules: Rules) -> &Tally {
        let place = (namespace.to_owned(), rules.name.clone());
        let known = self.tallies.remove(&place);
        let known = known.filter(|tally| tally.rules == rules);
        let brought = known.and_then(|tally| tally.brought_to(state, namespace));
        let tally = brought.unwrap_or_else(|| Tally::counted(state, namespace, rules));
        self.tallies.entry(place).or_insert(tally)
    }
}

impl Tally {
    /// Counts all objects.
    fn counted(state: &State, namespace: &str, rules: Rules) -> Self {
        let mut used = rules.nothing();
        for resource in rules.resources() {
            for (_, _, object) in state.list(resource, Some(namespace)) {
                add(&mut used, &rules.charges(resource, &object.value()));
            }
        }
        let at = state.revision();
        Self { rules, at, used }
    }

    /// Counts what has changed since; none if that is forgotten.
    fn brought_to(mut self, state: &State, namespace: &str) -> Option<Self> {
        let of_ours = |event: &&Arc<Event>| *event.key.namespace == *namespace;
        for resource in self.rules.resources() {
            let events = state.events_after(resource, self.at).ok()?;
            for event in events.filter(of_ours) {
                if let Some(before) = &event.before {
                    let less = self.rules.charges(resource, &before.value());
                    subtract(&mut self.used, &less);
                }
                if !event.deleted {
                    let more = self.rules.charges(resource, &event.object.value());
                    add(&mut self.used, &more);
                }
            }
        }
        self.at = state.revision();
        Some(self)
    }
}

impl Charged {
    /// What the object counts more than before.
    fn increase(&self, rules: &Rules, resource: &str) -> Amounts {
        let mut more = rules.charges(resource, &self.after);
        if let Some((_, before)) = &self.before {
            let before = rules.charges(resource, before);
            subtract(&mut more, &before);
        }
        more.retain(|_, amount| !amount.is_zero() && !amount.is_negative());
        more
    }
}

impl Pending {
    /// Whether what is visible doesn't have the write yet.
    fn is_unseen(&self, state: &State) -> bool {
        let found = state.get(&self.key);
        match &self.write.before {
            Some((revision, _)) => found.is_some_and(|found| found.revision == *revision),
            None => {
                let uid = text(&self.write.after, "/metadata/uid");
                found.is_none_or(|found| found.meta.uid() != &*uid)
            }
        }
    }
}
