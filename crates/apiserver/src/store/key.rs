//! Where an object lives: its resource, namespace and name.

use std::fmt;
use std::sync::Arc;

/// The address of one stored object. Cluster-scoped objects have an empty namespace.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The resource as `plural` or `plural.group`, e.g. `storageclasses.storage.k8s.io`.
    pub resource: Arc<str>,
    /// The namespace, empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// The object's name.
    pub name: Arc<str>,
}

impl Key {
    /// A key from its parts.
    pub fn new(resource: &str, namespace: &str, name: &str) -> Self {
        Self {
            resource: resource.into(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// How many bytes its parts have.
    pub(super) fn len(&self) -> usize {
        self.resource.len() + self.namespace.len() + self.name.len()
    }

    /// The form written to disk; none of the parts may contain a NUL, which names can't.
    pub(super) fn to_disk(&self) -> String {
        format!("{}\0{}\0{}", self.resource, self.namespace, self.name)
    }

    pub(super) fn from_disk(text: &str) -> Option<Self> {
        let mut parts = text.split('\0');
        let key = Self::new(parts.next()?, parts.next()?, parts.next()?);
        parts.next().is_none().then_some(key)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{}/{}", self.resource, self.name)
        } else {
            write!(f, "{}/{}/{}", self.resource, self.namespace, self.name)
        }
    }
}
