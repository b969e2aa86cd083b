//! How an object comes to be.

use std::time::Duration;

use serde_json::Value;

use super::names::{self, NameFormat};
use super::{
    Part, Registry, Target, WriteOptions, Written, convert, identity, metadata, strategy, text,
};
use crate::admission;
use crate::definitions;
use crate::kinds::KindInfo;
use crate::patch::{self, UpdateOptions};
use crate::refusal::{FieldError, Refusal};
use crate::schema;
use crate::store::{Change, Expect, Key, Write, WriteError};

/// How often a generated name may turn out to be taken.
const NAME_TRIES: usize = 8;

/// The account that every namespace has.
const DEFAULT_ACCOUNT: &str = "default";
/// How long a pod may wait for it; about as long as the original's tries take.
const ACCOUNT_PATIENCE: Duration = Duration::from_secs(2);

/// Who keeps `metadata.managedFields` of the object that is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fields {
    /// An ordinary write: to be tracked.
    Track,
    /// Server-side apply did so already.
    Tracked,
}

impl Registry {
    /// Creates an object.
    pub async fn create(
        &self,
        kind: &'static KindInfo,
        namespace: &str,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Written, Refusal> {
        let mut object = object;
        identity::drop_nulls(kind, &mut object);
        identity::settle(kind, namespace, &mut object)?;
        let mut warnings = schema::decode(kind, &mut object, (options.validation, &options.source))
            .map_err(|error| Refusal::bad_request(error.to_string()))?;
        if definitions::is_definition(kind) {
            warnings.extend(definitions::warnings(&object));
        }
        options.warnings.say(warnings);
        self.create_settled(kind, object, options, Fields::Track)
            .await
    }

    /// Creates an object whose apiVersion, kind and namespace are in order.
    pub(super) async fn create_settled(
        &self,
        kind: &'static KindInfo,
        object: Value,
        options: &WriteOptions,
        fields: Fields,
    ) -> Result<Written, Refusal> {
        let prefix = text(&object, "/metadata/generateName").to_owned();
        let generated = text(&object, "/metadata/name").is_empty() && !prefix.is_empty();
        if !generated {
            return self.create_named(kind, object, options, fields).await;
        }
        let mut tries = 0;
        loop {
            tries += 1;
            let mut candidate = object.clone();
            let name = names::generate(&prefix, self.entropy.draw());
            metadata(&mut candidate).insert("name".to_owned(), name.into());
            match self.create_named(kind, candidate, options, fields).await {
                Err(refusal) if refusal.reason == "AlreadyExists" && tries < NAME_TRIES => {}
                other => return other,
            }
        }
    }

    async fn create_named(
        &self,
        kind: &'static KindInfo,
        object: Value,
        options: &WriteOptions,
        fields: Fields,
    ) -> Result<Written, Refusal> {
        let target = Target {
            kind,
            namespace: text(&object, "/metadata/namespace").to_owned(),
            name: text(&object, "/metadata/name").to_owned(),
        };
        if self.gives_account(kind) {
            self.await_default_account(&object).await;
        }
        let object = self.prepare_create(&target, object, options, fields)?;
        let room = self.make_room(&target, Part::Main, (None, &object))?;
        let key = target.key();
        if options.dry_run {
            return match self.store.get(&key) {
                Some(_) => Err(Refusal::already_exists(kind, &target.name)),
                None => Ok(Written::Created(super::unstored(
                    &object,
                    self.store.read().revision(),
                ))),
            };
        }
        let requires = kind
            .namespaced
            .then(|| Key::new("namespaces", "", &target.namespace));
        let change = Change::Put(super::draft(&object)?);
        let write = Write {
            key,
            change,
            expect: Expect::Absent,
            requires,
        };
        match self.write_within(room, write).await {
            Ok(object) => Ok(Written::Created(object)),
            Err(WriteError::Exists(_)) => Err(Refusal::already_exists(kind, &target.name)),
            Err(WriteError::Required(_)) => {
                Err(admission::namespace_refusal(&self.store.read(), &target))
            }
            Err(error) => Err(Refusal::store(&error)),
        }
    }

    /// Whether objects of a kind run as an account.
    fn gives_account(&self, kind: &KindInfo) -> bool {
        self.policy.service_accounts && kind.group.is_empty() && kind.kind == "Pod"
    }

    /// A namespace that was just made has its account in a moment; who can't wait that long
    /// should not have to try again.
    async fn await_default_account(&self, pod: &Value) {
        let name = text(pod, "/spec/serviceAccountName");
        if !matches!(name, "" | DEFAULT_ACCOUNT) {
            return;
        }
        let namespace = text(pod, "/metadata/namespace");
        let account = Key::new("serviceaccounts", namespace, DEFAULT_ACCOUNT);
        let mut revisions = self.store.revisions();
        let is_coming = || {
            let namespace = self.store.get(&Key::new("namespaces", "", namespace));
            namespace.is_some_and(|namespace| !namespace.meta.deleting())
                && self.store.get(&account).is_none()
        };
        let there = async { while is_coming() && revisions.changed().await.is_ok() {} };
        // Admission tells what is missing after this.
        let _ = tokio::time::timeout(ACCOUNT_PATIENCE, there).await;
    }

    /// Everything between the body and the store: defaults, admission, identity, validation.
    fn prepare_create(
        &self,
        target: &Target,
        object: Value,
        options: &WriteOptions,
        fields: Fields,
    ) -> Result<Value, Refusal> {
        let kind = convert::stored_kind(target.kind);
        let mut object = convert::to_stored(target.kind, object);
        if !text(&object, "/metadata/resourceVersion").is_empty() {
            return Err(Refusal::unclassified(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        admission::defaults(kind, &mut object);
        let now = self.clock.stamp();
        if fields == Fields::Track {
            metadata(&mut object).remove("managedFields");
            let manager = options.manager.as_str();
            let update = UpdateOptions {
                manager,
                subresource: None,
                now: &now,
            };
            // What admission adds below is nobody's: a client that applies its own part
            // later must not take it away.
            object = convert::as_served(target.kind, object, |object| {
                patch::track_update(target.kind, None, object, update);
            });
        }
        admission::admit_create(&self.store.read(), target, &mut object)?;
        if self.gives_account(kind) {
            let volume = || names::generate(admission::TOKEN_VOLUME, self.entropy.draw());
            admission::admit_account(&self.store.read(), target, &mut object, volume)?;
        }
        let fresh = metadata(&mut object);
        for theirs in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "generation",
            "selfLink",
        ] {
            fresh.remove(theirs);
        }
        fresh.insert("uid".to_owned(), self.entropy.uid().into());
        fresh.insert("creationTimestamp".to_owned(), now.as_str().into());
        strategy::before_create(kind, &mut object, &now);
        if definitions::is_definition(kind) {
            definitions::settle(&self.store.read(), None, &mut object, &now);
        }
        // What the stored version adds is nobody's, too.
        self.fit_storage(target.kind, &mut object);
        let mut errors = name_errors(kind, &object);
        errors.extend(admission::validate_create(target.kind, &object));
        if !errors.is_empty() {
            return Err(Refusal::invalid(kind, &target.name, &errors));
        }
        Ok(object)
    }
}

fn name_errors(kind: &KindInfo, object: &Value) -> Vec<FieldError> {
    let format = NameFormat::of(kind);
    let prefix = &object["metadata"]["generateName"];
    let fault = prefix.as_str().and_then(|given| format.prefix_fault(given));
    let fault = fault.map(|fault| FieldError::invalid("metadata.generateName", prefix, fault));
    let mut errors: Vec<FieldError> = fault.into_iter().collect();
    let name = &object["metadata"]["name"];
    match name.as_str() {
        None | Some("") => errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        )),
        Some(given) => errors.extend(
            format
                .fault(given)
                .map(|fault| FieldError::invalid("metadata.name", name, fault)),
        ),
    }
    errors
}
