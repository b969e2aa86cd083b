//! What may happen to objects: creation, update, deletion, with identity, timestamps,
//! generations, finalizers and preconditions.
//!
//! It owns the rules that hold for every kind and calls `crate::admission` for those of
//! one kind. It must never speak HTTP.

mod binding;
mod convert;
mod create;
mod delete;
mod identity;
mod names;
mod room;
mod strategy;
mod update;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde_json::Value;

use crate::definitions::Catalog;
use crate::document::Source;
use crate::kinds::{KindInfo, Kinds};
use crate::quota::Quotas;
use crate::refusal::Refusal;
use crate::schema::{self, FieldValidation};
use crate::store::{Draft, Key, Store, Stored};

pub use convert::{Served, resource_of};
pub use delete::{DeleteOptions, Deletion, Propagation};
pub(crate) use delete::{FOREGROUND, ORPHAN};
pub use names::{DNS_1035_LABEL, DNS_LABEL, DNS_SUBDOMAIN, NameFormat};
pub use update::PatchFormat;

/// Tells the time.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

/// Gives 128 fresh random bits per call.
#[derive(Clone)]
pub struct Entropy(Arc<dyn Fn() -> u128 + Send + Sync>);

impl Clock {
    /// A clock that asks this function.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }

    /// The time in whole seconds, as `metadata.creationTimestamp` has it.
    pub fn stamp(&self) -> String {
        stamp(self.now())
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new(Timestamp::now)
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

impl Entropy {
    /// A source that asks this function.
    pub fn new(draw: impl Fn() -> u128 + Send + Sync + 'static) -> Self {
        Self(Arc::new(draw))
    }

    pub(crate) fn draw(&self) -> u128 {
        (self.0)()
    }

    /// A fresh uid.
    pub fn uid(&self) -> String {
        uuid::Builder::from_random_bytes(self.draw().to_le_bytes())
            .into_uuid()
            .to_string()
    }
}

impl Default for Entropy {
    fn default() -> Self {
        Self::new(|| uuid::Uuid::new_v4().as_u128())
    }
}

impl fmt::Debug for Entropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entropy")
    }
}

/// A time as Kubernetes writes it in whole seconds.
pub fn stamp(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// What a cluster does to objects if its administrator wants it.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// The ServiceAccount admission: a pod runs as an account that exists, and its containers
    /// find a token of it.
    pub service_accounts: bool,
    /// The certificate that clients know the server by, for `kube-root-ca.crt` in every
    /// namespace; none leaves namespaces without it.
    pub root_certificate: Option<String>,
}

/// The rules over a store.
#[derive(Debug, Clone)]
pub struct Registry {
    /// The objects.
    pub store: Store,
    /// The time for stamps.
    pub clock: Clock,
    /// The source of uids and name suffixes.
    pub entropy: Entropy,
    /// The kinds that users defined.
    pub catalog: Arc<Catalog>,
    /// What is done to objects besides.
    pub policy: Arc<Policy>,
    /// How much of what there may be.
    pub(crate) quotas: Quotas,
}

impl Registry {
    /// Brings an object of a defined kind into the form of the version that it is stored in:
    /// what that has no place for is dropped, and its defaults are filled in.
    fn fit_storage(&self, kind: &KindInfo, object: &mut Value) {
        let stored = kind.custom.and_then(|custom| {
            let version = custom.storage_version;
            let other = version != kind.version;
            let kinds = other.then(|| self.kinds())?;
            kinds.find(kind.group, version, kind.plural)
        });
        if let Some(stored) = stored {
            let how = (FieldValidation::Ignore, &Source::default());
            // What doesn't fit is judged by the version that it was sent in.
            let _ = schema::decode(stored, object, how);
            crate::admission::defaults(stored, object);
        }
    }

    /// All kinds that are served now.
    pub fn kinds(&self) -> Kinds {
        self.catalog.kinds(&self.store)
    }
}

/// One object, as a request names it.
#[derive(Debug, Clone)]
pub struct Target {
    /// Its kind, as served.
    pub kind: &'static KindInfo,
    /// Its namespace, empty for cluster-scoped kinds.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Target {
    /// Where it is stored.
    pub fn key(&self) -> Key {
        Key::new(&resource_of(self.kind), &self.namespace, &self.name)
    }
}

/// Which part of an object a write is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Everything but the status, where the kind has a status of its own.
    Main,
    /// The status, and of the metadata what people may set.
    Status,
    /// The finalizers of a namespace.
    Finalize,
    /// The node of a pod, written once.
    Binding,
}

/// How a write is to be done.
#[derive(Debug, Clone)]
pub struct WriteOptions {
    /// Go through everything and store nothing.
    pub dry_run: bool,
    /// Who writes, for `metadata.managedFields`.
    pub manager: String,
    /// What becomes of fields that the kind does not have.
    pub validation: FieldValidation,
    /// The text that the object or patch was read from.
    pub source: Source,
    /// What to tell the client besides.
    pub warnings: Warnings,
}

/// What a write has to tell besides its outcome; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Says these and nothing else: a write that was tried again says it once.
    fn say(&self, warnings: Vec<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = warnings;
    }

    /// What was said.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl WriteOptions {
    /// The same write, stored nowhere.
    #[must_use]
    pub fn dry(mut self) -> Self {
        self.dry_run = true;
        self
    }
}

/// What a write to an object led to.
#[derive(Debug, Clone)]
pub enum Written {
    /// There is a new object.
    Created(Arc<Stored>),
    /// The object is at a new revision, or was as wanted already.
    Updated(Arc<Stored>),
}

impl Written {
    /// The object.
    pub fn object(&self) -> &Arc<Stored> {
        match self {
            Self::Created(object) | Self::Updated(object) => object,
        }
    }
}

/// The longest object that is stored, the original's default.
const LONGEST: usize = 3 << 19;

/// An object as it is to be stored.
fn draft(object: &Value) -> Result<Draft, Refusal> {
    let draft = Draft::new(object);
    if draft.len() > LONGEST {
        let why = format!(
            "the object has {} bytes, and {LONGEST} are stored at most",
            draft.len()
        );
        return Err(Refusal::too_large(why));
    }
    Ok(draft)
}

/// An object that a dry run didn't store.
fn unstored(object: &Value, revision: u64) -> Arc<Stored> {
    Arc::new(Draft::new(object).at(revision))
}

/// A string field, empty if absent.
pub(crate) fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or("")
}

/// The `metadata` of an object, made if absent.
pub(crate) fn metadata(object: &mut Value) -> &mut serde_json::Map<String, Value> {
    section(object, "metadata")
}

/// A top-level map of an object, made if absent.
pub(crate) fn section<'v>(
    object: &'v mut Value,
    name: &str,
) -> &'v mut serde_json::Map<String, Value> {
    if !object.is_object() {
        *object = Value::Object(serde_json::Map::new());
    }
    let entry = &mut object[name];
    if !entry.is_object() {
        *entry = Value::Object(serde_json::Map::new());
    }
    entry.as_object_mut().expect("it was made an object above")
}
