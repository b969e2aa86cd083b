//! Who waits for the end of which content.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use orlop_model::{Key, Kind as _};
use orlop_runtime::Cache;

use super::wish::Wish;

/// Which contents those that go have seen off: the end of a known one needs no reading to be believed.
#[derive(Debug, Default)]
pub(super) struct Parting(Mutex<BTreeMap<Key, Pair>>);

/// The uids of one that goes and of its content.
#[derive(Debug)]
struct Pair {
    wish: String,
    content: String,
}

impl Parting {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Pair>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begun<W: Wish>(&self, wish: &W, content: &W::Content) {
        let pair = Pair {
            wish: wish.meta().uid.clone(),
            content: content.meta().uid.clone(),
        };
        self.lock().insert(wish.key(), pair);
    }

    pub(super) fn is_over<W: Wish>(&self, wish: &W, contents: &Cache<W::Content>) -> bool {
        let pairs = self.lock();
        let pair = pairs
            .get(&wish.key())
            .filter(|pair| pair.wish == wish.meta().uid);
        pair.is_some_and(|pair| contents.saw_end_of(&pair.content))
    }

    pub(super) fn over(&self, wish: &Key) {
        self.lock().remove(wish);
    }
}
