//! What makes a type a Kubernetes kind: where its objects live on the API server.

use serde::{Serialize, de::DeserializeOwned};

use crate::meta::{Key, Meta, ObjectRef};

/// Whether a kind's objects live in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// One set for the whole cluster.
    Cluster,
    /// One set per namespace.
    Namespaced,
}

/// A kind that the API server serves, as one of our projections.
pub trait Kind:
    Serialize + DeserializeOwned + Clone + Send + Sync + std::fmt::Debug + 'static
{
    /// API group; empty for the core group.
    const GROUP: &'static str;
    /// Version within the group.
    const VERSION: &'static str;
    /// The kind's name.
    const KIND: &'static str;
    /// The resource name in URLs.
    const PLURAL: &'static str;
    /// Where the objects live.
    const SCOPE: Scope;

    /// The object's metadata.
    fn meta(&self) -> &Meta;

    /// The object's metadata, to be changed.
    fn meta_mut(&mut self) -> &mut Meta;

    /// `v1` or `storage.k8s.io/v1`.
    fn api_version() -> String {
        if Self::GROUP.is_empty() {
            Self::VERSION.to_owned()
        } else {
            format!("{}/{}", Self::GROUP, Self::VERSION)
        }
    }

    /// Namespace and name.
    fn key(&self) -> Key {
        self.meta().key()
    }

    /// A reference to this very object (uid and version included), for events and owners.
    fn reference(&self) -> ObjectRef {
        let meta = self.meta();
        ObjectRef {
            api_version: Self::api_version(),
            kind: Self::KIND.to_owned(),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            resource_version: meta.resource_version.clone(),
            field_path: String::new(),
        }
    }
}

/// Declares where a projection's objects live.
macro_rules! kind {
    ($type:ty, $group:literal, $version:literal, $kind:literal, $plural:literal, $scope:ident) => {
        impl $crate::kind::Kind for $type {
            const GROUP: &'static str = $group;
            const VERSION: &'static str = $version;
            const KIND: &'static str = $kind;
            const PLURAL: &'static str = $plural;
            const SCOPE: $crate::kind::Scope = $crate::kind::Scope::$scope;

            fn meta(&self) -> &$crate::meta::Meta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut $crate::meta::Meta {
                &mut self.metadata
            }
        }
    };
}
pub(crate) use kind;
