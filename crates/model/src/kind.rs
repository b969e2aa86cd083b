//! What makes a type a Kubernetes kind: where its objects live on the API server.

use serde_json::Value;

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
///
/// Reading and writing JSON are methods here, not bounds: the code for them is large, and
/// is then made once, in this crate, rather than in every crate that reads an object.
pub trait Kind: Clone + Send + Sync + std::fmt::Debug + 'static {
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

    /// Reads an object.
    ///
    /// # Errors
    /// If it isn't one of this kind.
    fn decode(json: &[u8]) -> Result<Self, serde_json::Error>;

    /// The object as the API server takes it, without its API version and kind.
    ///
    /// # Errors
    /// If a map in it has keys that JSON can't have.
    fn encode(&self) -> Result<Value, serde_json::Error>;

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

            fn decode(json: &[u8]) -> Result<Self, serde_json::Error> {
                serde_json::from_slice(json)
            }

            fn encode(&self) -> Result<serde_json::Value, serde_json::Error> {
                serde_json::to_value(self)
            }

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
