//! One cache per kind, shared by every role of the process.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    sync::{Arc, Mutex},
};

use orlop_model::{Key, Kind};
use tokio::task::AbortHandle;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    cache::Cache,
    cluster::{Cluster, Collection},
    library::Library,
    watch::reflect,
};

/// The caches of a process. A kind costs one list and one watch, however many roles
/// look at it, and nothing until the first one does.
#[derive(Clone)]
pub struct Informers {
    cluster: Cluster,
    reads_at: Option<Library>,
    shared: Arc<Mutex<Shared>>,
}

#[derive(Default)]
struct Shared {
    caches: HashMap<(TypeId, String), Box<dyn Any + Send>>,
    tasks: Vec<AbortOnDropHandle<()>>,
    followed: Vec<AbortHandle>,
}

/// One object that is watched for as long as this lives.
pub struct Followed<K> {
    /// The object and nothing else, once it is there.
    pub cache: Cache<K>,
    _watch: AbortOnDropHandle<()>,
}

impl Informers {
    pub(crate) fn new(cluster: Cluster, library: Option<Library>) -> Self {
        Self {
            cluster,
            reads_at: library,
            shared: Arc::default(),
        }
    }

    /// The cache of a kind.
    pub fn of<K: Kind>(&self) -> Cache<K> {
        self.selected("")
    }

    /// The cache of a kind's objects that match a field selector, such as
    /// `spec.nodeName=a`.
    pub fn fields<K: Kind>(&self, selector: &str) -> Cache<K> {
        self.selected(&format!("&fieldSelector={}", selector.replace('=', "%3D")))
    }

    fn selected<K: Kind>(&self, selector: &str) -> Cache<K> {
        let mut shared = self
            .shared
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let id = (TypeId::of::<K>(), selector.to_owned());
        if let Some(cache) = shared
            .caches
            .get(&id)
            .and_then(|c| c.downcast_ref::<Cache<K>>())
        {
            return cache.clone();
        }
        let cache = Cache::<K>::reading_from(self.reads_at.clone());
        let from = Collection::of::<K>(None);
        let task = reflect(
            self.cluster.clone(),
            from,
            selector.to_owned(),
            cache.clone(),
        );
        shared
            .tasks
            .push(AbortOnDropHandle::new(tokio::spawn(task)));
        shared.caches.insert(id, Box::new(cache.clone()));
        cache
    }

    /// Follows one object. It costs a watch of its own: for objects of which there are many
    /// and few are of interest, and which one role alone looks at.
    pub fn follow<K: Kind>(&self, key: &Key) -> Followed<K> {
        let cache = Cache::<K>::reading_from(self.reads_at.clone());
        let from = Collection::of::<K>(Some(&key.namespace));
        let selector = format!("&fieldSelector=metadata.name%3D{}", key.name);
        let task = tokio::spawn(reflect(self.cluster.clone(), from, selector, cache.clone()));
        let mut shared = self
            .shared
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        shared.followed.retain(|watch| !watch.is_finished());
        shared.followed.push(task.abort_handle());
        Followed {
            cache,
            _watch: AbortOnDropHandle::new(task),
        }
    }

    /// Stops every watch.
    pub(crate) fn stop(&self) {
        let mut shared = self
            .shared
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        shared.tasks.clear();
        for watch in shared.followed.drain(..) {
            watch.abort();
        }
    }
}
