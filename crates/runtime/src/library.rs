//! What several processes of one program read in the very same words is kept once.
//!
//! Each role of `orlop up` has caches of its own, of what its own account may see. The embedded API
//! server writes a version of an object once, for all who read it; so whoever reads it second finds it
//! read. Nothing is shown to anybody that they haven't read themselves.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    hash::{BuildHasher, Hash, Hasher, RandomState},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use orlop_model::Kind;

/// How many are remembered before those are looked for that nobody has any more.
const FIRST_SWEEP: usize = 1024;

/// Two hashes by secret keys: nobody can write an object that is taken for another.
type Words = (u64, u64);

/// What was read, for as long as somebody has it; clones share it.
#[derive(Clone, Default)]
pub struct Library {
    keys: [RandomState; 2],
    shelves: Arc<Mutex<Shelves>>,
}

struct Shelves {
    by_words: HashMap<Words, Weak<dyn Any + Send + Sync>>,
    /// The words of each object, by its uid: those of an older version are let go of.
    newest: HashMap<u64, Words>,
    sweep_at: usize,
}

impl Default for Shelves {
    fn default() -> Self {
        Self {
            by_words: HashMap::new(),
            newest: HashMap::new(),
            sweep_at: FIRST_SWEEP,
        }
    }
}

impl Shelves {
    fn keep(&mut self, uid: u64, words: Words, object: Weak<dyn Any + Send + Sync>) {
        if let Some(before) = self.newest.insert(uid, words).filter(|w| *w != words) {
            self.by_words.remove(&before);
        }
        self.by_words.insert(words, object);
        if self.by_words.len() > self.sweep_at {
            self.by_words.retain(|_, object| object.strong_count() > 0);
            let by_words = &self.by_words;
            self.newest.retain(|_, words| by_words.contains_key(words));
            self.sweep_at = FIRST_SWEEP.max(2 * self.by_words.len());
        }
    }
}

impl Library {
    fn hash(&self, which: usize, of: TypeId, bytes: &[u8]) -> u64 {
        let mut hasher = self.keys[which].build_hasher();
        of.hash(&mut hasher);
        hasher.write(bytes);
        hasher.finish()
    }

    /// Reads an object, or finds it read.
    pub(crate) fn read<K: Kind>(&self, json: &[u8]) -> Result<Arc<K>, serde_json::Error> {
        let kind = TypeId::of::<K>();
        let words = (self.hash(0, kind, json), self.hash(1, kind, json));
        let found = {
            let shelves = self.shelves.lock();
            let shelves = shelves.unwrap_or_else(PoisonError::into_inner);
            shelves.by_words.get(&words).and_then(Weak::upgrade)
        };
        if let Some(found) = found.and_then(|found| found.downcast::<K>().ok()) {
            return Ok(found);
        }
        let object = Arc::new(K::decode(json)?);
        let uid = self.hash(0, kind, object.meta().uid.as_bytes());
        let any: Arc<dyn Any + Send + Sync> = object.clone();
        let shelves = self.shelves.lock();
        let mut shelves = shelves.unwrap_or_else(PoisonError::into_inner);
        shelves.keep(uid, words, Arc::downgrade(&any));
        Ok(object)
    }
}

#[cfg(test)]
mod tests {
    use orlop_model::{Claim, Volume};
    use serde_json::json;

    use super::*;

    fn words(number: usize, version: usize) -> Vec<u8> {
        let name = format!("v{number}");
        json!({"metadata": {"name": name, "uid": name, "resourceVersion": version.to_string()}})
            .to_string()
            .into_bytes()
    }

    #[test]
    fn the_same_words_are_one_object_and_others_are_another() {
        let library = Library::default();
        let other = library.clone();
        let first = library.read::<Volume>(&words(1, 1)).unwrap();
        let second = other.read::<Volume>(&words(1, 1)).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        let newer = library.read::<Volume>(&words(1, 2)).unwrap();
        assert_eq!(newer.metadata.resource_version, "2");
        let claim = library.read::<Claim>(&words(1, 1)).unwrap();
        assert_eq!(claim.metadata.name, "v1");
        assert!(library.read::<Volume>(b"no object").is_err());
    }

    #[test]
    fn what_nobody_has_any_more_is_let_go_of() {
        let library = Library::default();
        let kept = library.read::<Volume>(&words(0, 1)).unwrap();
        for version in 0..3 {
            for number in 1..=FIRST_SWEEP {
                library.read::<Volume>(&words(number, version)).unwrap();
            }
        }
        let remembered = library.shelves.lock().unwrap().by_words.len();
        assert!(remembered <= FIRST_SWEEP + 1, "{remembered} are remembered");
        let again = library.read::<Volume>(&words(0, 1)).unwrap();
        assert!(Arc::ptr_eq(&kept, &again));
    }
}
