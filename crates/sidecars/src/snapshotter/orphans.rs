//! Cuts whose content was taken away by force, its finalizer with it: nothing tells of them any more
//! but this process. They are found, by asking once more, and deleted.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use orlop_model::{Key, snapshot::DeletionPolicy};
use orlop_runtime::{ApiError, Outcome, spoken};
use tracing::{info, warn};

use super::{
    AGAIN, Config,
    content::{Content, Failure, Handles},
    desk::Desk,
};
use crate::words::words;

/// The contents whose cut was asked for, until its outcome is on record.
pub(super) struct UnderWay<K>(Mutex<BTreeMap<Key, Cut<K>>>);

/// A cut that may exist.
pub(super) struct Cut<K> {
    content: Arc<K>,
    /// What the driver calls it, if it has said so.
    made: Option<Handles>,
}

impl<K> Default for UnderWay<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Content> UnderWay<K> {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Cut<K>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The driver is about to be asked.
    pub(super) fn begun(&self, content: &K) {
        let cut = Cut {
            content: Arc::new(content.clone()),
            made: None,
        };
        self.lock().insert(content.key(), cut);
    }

    /// The driver has cut it.
    pub(super) fn made(&self, content: &K, made: Handles) {
        if let Some(cut) = self.lock().get_mut(&content.key()) {
            cut.made = Some(made);
        }
    }

    /// The outcome is on record, or there is none.
    pub(super) fn over(&self, key: &Key) {
        self.lock().remove(key);
    }

    /// The cut of a content that is gone, or was replaced by one for another snapshot.
    pub(super) fn orphan(&self, key: &Key, now: Option<&K>, config: &Config) -> Option<Cut<K>> {
        let mut all = self.lock();
        let cut = all.get(key)?;
        let uid = |content: &K| content.meta().uid.clone();
        match now {
            Some(now) if uid(now) == uid(&cut.content) => None,
            // Made anew for the same snapshot: it finds what was cut by its name.
            Some(now) if now.name(config) == cut.content.name(config) => {
                all.remove(key);
                None
            }
            _ => Some(Cut {
                content: cut.content.clone(),
                made: cut.made.clone(),
            }),
        }
    }
}

impl<K: Content> Desk<K> {
    /// Deletes what was cut for a content that is gone.
    pub(super) async fn undo(&self, orphan: &Cut<K>) -> Result<Outcome, ApiError> {
        let (content, key) = (&*orphan.content, orphan.content.key());
        let live = self.cluster.get::<K>(&key).await?;
        if live.is_some_and(|live| live.meta().uid == content.meta().uid) {
            // It is there after all.
            self.look_again(&key).await?;
            return Ok(AGAIN);
        }
        let word = K::NAMES.word;
        if content.view().policy != DeletionPolicy::Delete {
            warn!(content = %key, "its content is gone: the driver keeps a {word} that nothing tells of");
            self.under_way.over(&key);
            return Ok(Outcome::Done);
        }
        match self.find_and_delete(orphan).await {
            Ok(()) => {
                warn!(content = %key, "its content was taken away by force: its {word} was deleted");
                self.under_way.over(&key);
                Ok(AGAIN)
            }
            Err(failure) => {
                let wait = self.wait(content, failure.setback());
                warn!(
                    content = %key, error = words(&failure),
                    "the {word} of a content that is gone could not be deleted yet; next try in {}",
                    spoken(wait)
                );
                Ok(Outcome::After(wait))
            }
        }
    }

    async fn find_and_delete(&self, orphan: &Cut<K>) -> Result<(), Failure> {
        let content = &*orphan.content;
        let made = match &orphan.made {
            Some(made) => made.clone(),
            None => {
                let order = self.order(content).await?;
                match K::cut(self, content, order).await {
                    Ok(told) => K::named(&told),
                    Err(failure) if failure.is_the_end(false) => return Ok(()),
                    Err(failure) => return Err(failure),
                }
            }
        };
        info!(content = %content.key(), id = made.id, "deleting what nothing tells of");
        let secrets = self.secrets(content).await?;
        K::delete(self, made, secrets).await?;
        Ok(())
    }
}
