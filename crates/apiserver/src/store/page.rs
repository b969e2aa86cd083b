//! Some objects of a resource, at a revision, from a place on.
//!
//! What the past differs in is laid over the present, so that a page costs what is on it and what
//! was changed since, not what there is.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;

use super::object::Stored;
use super::state::{Expired, State};

/// The place of an object in its resource: its namespace and name.
pub type Place = (Arc<str>, Arc<str>);

/// What is wanted of a resource.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'w> {
    /// One namespace, or all.
    pub namespace: Option<&'w str>,
    /// The revision; not a later one than the newest.
    pub revision: u64,
    /// The place behind which to begin.
    pub after: Option<(&'w str, &'w str)>,
    /// How many objects at most.
    pub limit: usize,
}

/// Some objects of a resource, ordered by namespace and name.
#[derive(Debug, Default)]
pub struct Page {
    /// The objects and their places.
    pub objects: Vec<(Place, Arc<Stored>)>,
    /// How many follow.
    pub remaining: usize,
}

impl State {
    /// The objects wanted, or why their revision isn't known any more.
    pub fn page(&self, resource: &str, wanted: &Wanted<'_>) -> Result<Page, Expired> {
        let mut then: BTreeMap<Place, Option<Arc<Stored>>> = BTreeMap::new();
        if wanted.revision < self.revision() {
            for event in self.events_after(resource, wanted.revision)? {
                let place = (
                    Arc::clone(&event.key.namespace),
                    Arc::clone(&event.key.name),
                );
                // What it was before the first change since is what it was then.
                then.entry(place).or_insert_with(|| event.before.clone());
            }
        }
        let covers = |(namespace, name): &Place| {
            wanted.namespace.is_none_or(|only| only == &**namespace)
                && wanted.after.is_none_or(|after| after < (namespace, name))
        };
        let then = then.into_iter().filter(|(place, _)| covers(place));
        let mut merged = Merged {
            now: self
                .list_after(resource, wanted.namespace, wanted.after)
                .peekable(),
            then: then.peekable(),
        };
        let objects = merged.by_ref().take(wanted.limit);
        let objects = objects.map(Found::owned).collect();
        Ok(Page {
            objects,
            remaining: merged.count(),
        })
    }

    fn list_after<'s>(
        &'s self,
        resource: &str,
        namespace: Option<&'s str>,
        after: Option<(&str, &str)>,
    ) -> impl Iterator<Item = (&'s Arc<str>, &'s Arc<str>, &'s Arc<Stored>)> + use<'s> {
        let (begun, from) = match after {
            Some((namespace, name)) => {
                let names = self.names(resource, namespace);
                let rest = (Bound::Excluded(name), Bound::Unbounded);
                let rest = names.map(|(at, names)| {
                    names
                        .range::<str, _>(rest)
                        .map(move |(name, object)| (at, name, object))
                });
                (rest, Bound::Excluded(namespace))
            }
            None => (None, Bound::Unbounded),
        };
        let others = self.namespaces_from(resource, from);
        let others = others
            .flat_map(|(at, names)| names.iter().map(move |(name, object)| (at, name, object)));
        begun
            .into_iter()
            .flatten()
            .chain(others)
            .filter(move |(at, _, _)| namespace.is_none_or(|wanted| wanted == &***at))
    }
}

/// An object of a page. It is kept only if it is on the page: the others are but counted.
enum Found<'s> {
    Now(&'s Arc<str>, &'s Arc<str>, &'s Arc<Stored>),
    Then(Place, Arc<Stored>),
}

impl Found<'_> {
    fn owned(self) -> (Place, Arc<Stored>) {
        match self {
            Self::Now(namespace, name, object) => {
                let place = (Arc::clone(namespace), Arc::clone(name));
                (place, Arc::clone(object))
            }
            Self::Then(place, object) => (place, object),
        }
    }
}

/// The present with the past laid over it, both in order.
struct Merged<N: Iterator, T: Iterator> {
    now: Peekable<N>,
    then: Peekable<T>,
}

impl<'s, N, T> Iterator for Merged<N, T>
where
    N: Iterator<Item = (&'s Arc<str>, &'s Arc<str>, &'s Arc<Stored>)>,
    T: Iterator<Item = (Place, Option<Arc<Stored>>)>,
{
    type Item = Found<'s>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let order = match (self.now.peek(), self.then.peek()) {
                (None, None) => return None,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((namespace, name, _)), Some(((at, called), _))) => {
                    (*namespace, *name).cmp(&(at, called))
                }
            };
            if order != Ordering::Greater
                && let Some((namespace, name, object)) = self.now.next()
                && order == Ordering::Less
            {
                return Some(Found::Now(namespace, name, object));
            }
            if order != Ordering::Less
                && let Some((place, Some(object))) = self.then.next()
            {
                return Some(Found::Then(place, object));
            }
        }
    }
}
