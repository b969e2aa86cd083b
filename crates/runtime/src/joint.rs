//! Live lists that many need at once, read once for all of them.
//!
//! Whoever asks gets the answer to a request that was sent after they asked: as good as one of their own.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use orlop_model::Kind;

use crate::{cluster::Cluster, error::ApiError};

/// Lists of one kind, by namespace; clones share their reads.
#[derive(Clone)]
pub struct Joint<K> {
    cluster: Cluster,
    /// What they are narrowed to, if they are.
    fields: Option<Arc<str>>,
    rounds: Arc<Mutex<Rounds<K>>>,
}

/// The rounds that somebody waits for, and how many do.
type Rounds<K> = BTreeMap<Option<String>, (usize, Arc<Round<K>>)>;

/// One list, read by one after the other of those who aren't served yet.
struct Round<K> {
    asked: AtomicU64,
    last: tokio::sync::Mutex<Last<K>>,
}

/// The last answer, and how many of those who asked it is for.
struct Last<K> {
    serves: u64,
    answer: Result<Arc<Vec<K>>, ApiError>,
}

impl<K> Default for Round<K> {
    fn default() -> Self {
        Self {
            asked: AtomicU64::default(),
            last: tokio::sync::Mutex::new(Last {
                serves: 0,
                answer: Ok(Arc::default()),
            }),
        }
    }
}

impl<K: Kind> Joint<K> {
    /// Reads from there.
    pub fn new(cluster: Cluster) -> Self {
        Self {
            cluster,
            fields: None,
            rounds: Arc::default(),
        }
    }

    /// Reads from there what matches a field selector, such as `spec.nodeName=a`.
    pub fn matching(cluster: Cluster, fields: &str) -> Self {
        Self {
            fields: Some(fields.into()),
            ..Self::new(cluster)
        }
    }

    /// All objects of a namespace, or (with `None`) of all, as they were at some moment after the call.
    ///
    /// # Errors
    /// Any failure.
    pub async fn list(&self, namespace: Option<&str>) -> Result<Arc<Vec<K>>, ApiError> {
        let visit = Visit::begin(self, namespace.map(str::to_owned));
        let round = &visit.round;
        let place = round.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let mut last = round.last.lock().await;
        if last.serves < place {
            // Whoever has asked by now did so before the request leaves.
            let serves = round.asked.load(Ordering::SeqCst);
            let answer = match &self.fields {
                Some(fields) => self.cluster.list_where(namespace, fields).await,
                None => self.cluster.list(namespace).await,
            };
            let answer = answer.map(Arc::new);
            *last = Last { serves, answer };
        }
        match &last.answer {
            Ok(all) => Ok(all.clone()),
            Err(error) => Err(error.retold()),
        }
    }
}

/// Somebody who waits. With the last of them the round goes, and its answer.
struct Visit<'a, K> {
    rounds: &'a Mutex<Rounds<K>>,
    namespace: Option<String>,
    round: Arc<Round<K>>,
}

impl<'a, K> Visit<'a, K> {
    fn begin(joint: &'a Joint<K>, namespace: Option<String>) -> Self {
        let mut rounds = lock(&joint.rounds);
        let (waiting, round) = rounds.entry(namespace.clone()).or_default();
        *waiting += 1;
        Self {
            round: round.clone(),
            rounds: &joint.rounds,
            namespace,
        }
    }
}

impl<K> Drop for Visit<'_, K> {
    fn drop(&mut self) {
        let mut rounds = lock(self.rounds);
        if let Some((waiting, _)) = rounds.get_mut(&self.namespace) {
            *waiting -= 1;
            if *waiting == 0 {
                rounds.remove(&self.namespace);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
