//! How an object changes: replacement, patch and apply, all as one read-edit-write loop.

use std::borrow::Cow;

use serde_json::Value;

use super::create::Fields;
use super::{Part, Registry, Target, WriteOptions, Written, convert, identity, strategy, text};
use crate::admission;
use crate::definitions;
use crate::patch::{self, ApplyError, ApplyOptions, PatchError, UpdateOptions};
use crate::quota;
use crate::refusal::{FieldError, PreconditionMismatch, Refusal};
use crate::schema;
use crate::store::{Change, Expect, Stored, Write, WriteError};

/// The formats of patches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchFormat {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' own, by the schema of the kind.
    Strategic,
}

impl Registry {
    /// Replaces an object, or the part of it.
    pub async fn replace(
        &self,
        target: &Target,
        part: Part,
        object: Value,
        options: &WriteOptions,
    ) -> Result<Written, Refusal> {
        let mut object = object;
        identity::drop_nulls(target.kind, &mut object);
        identity::settle_update(target, &mut object)?;
        let revision = text(&object, "/metadata/resourceVersion");
        let create = part == Part::Main
            && strategy::allows_create_on_update(target.kind)
            && self.store.get(&target.key()).is_none();
        if create && revision.is_empty() {
            return self
                .create_settled(target.kind, object, options, Fields::Track)
                .await;
        }
        if revision.is_empty() && !strategy::allows_unconditional_update(target.kind) {
            let error = FieldError::invalid(
                "metadata.resourceVersion",
                &Value::from(0),
                "must be specified for an update",
            );
            return Err(Refusal::invalid(target.kind, &target.name, &[error]));
        }
        self.edit(target, part, options, Fields::Track, |_| Ok(object.clone()))
            .await
    }

    /// Patches an object, or the part of it.
    pub async fn patch(
        &self,
        target: &Target,
        part: Part,
        (format, patch): (PatchFormat, &Value),
        options: &WriteOptions,
    ) -> Result<Written, Refusal> {
        self.edit(target, part, options, Fields::Track, |current| {
            let patched = match format {
                PatchFormat::Json => patch::json(current, patch),
                PatchFormat::Merge => Ok(patch::merge(current, patch)),
                PatchFormat::Strategic => patch::strategic(target.kind, current, patch),
            };
            patched
                .map_err(|error| match error {
                    PatchError::Malformed(_) | PatchError::Nameless(_) => {
                        Refusal::bad_request(error.to_string())
                    }
                    PatchError::TooLarge(_) => Refusal::too_large(error),
                    PatchError::Unprocessable(_) => Refusal::unprocessable(error.to_string()),
                })
                .and_then(|patched| same_uid(target, current, patched))
        })
        .await
    }

    /// Applies a configuration server-side, creating the object if it isn't there.
    pub async fn apply(
        &self,
        target: &Target,
        part: Part,
        (applied, force): (Value, bool),
        options: &WriteOptions,
    ) -> Result<Written, Refusal> {
        let mut applied = applied;
        identity::check_applied(target, &applied)?;
        identity::settle_update(target, &mut applied)?;
        let now = self.clock.stamp();
        let subresource = (part == Part::Status).then_some("status");
        let how = ApplyOptions {
            manager: &options.manager,
            force,
            subresource,
            now: &now,
        };
        loop {
            if self.store.get(&target.key()).is_none() {
                if part != Part::Main {
                    return Err(Refusal::not_found(target.kind, &target.name));
                }
                if let Some(uid) = applied.pointer("/metadata/uid").and_then(Value::as_str)
                    && !uid.is_empty()
                {
                    let why = format!(
                        "uid mismatch: the provided object specified uid {uid}, and no existing \
                         object was found"
                    );
                    return Err(Refusal::conflict(target.kind, &target.name, why));
                }
                let object = patch::server_side_apply(target.kind, None, &applied, how)
                    .map_err(|error| apply_refusal(&error))?;
                let created = self
                    .create_settled(target.kind, object, options, Fields::Tracked)
                    .await;
                match created {
                    Err(refusal) if refusal.reason == "AlreadyExists" => continue,
                    other => return other,
                }
            }
            let edited = self
                .edit(target, part, options, Fields::Tracked, |current| {
                    patch::server_side_apply(target.kind, Some(current), &applied, how)
                        .map_err(|error| apply_refusal(&error))
                })
                .await;
            match edited {
                Err(refusal) if refusal.reason == "NotFound" && part == Part::Main => {}
                other => return other,
            }
        }
    }

    /// Changes an object by a function of its current state.
    pub async fn change(
        &self,
        target: &Target,
        part: Part,
        options: &WriteOptions,
        edit: impl Fn(&Value) -> Result<Value, Refusal>,
    ) -> Result<Written, Refusal> {
        self.edit(target, part, options, Fields::Track, edit).await
    }

    /// Reads, edits and writes an object until nobody else wrote in between. An edit that
    /// names a resourceVersion is refused once the object is at another one.
    pub(super) async fn edit(
        &self,
        target: &Target,
        part: Part,
        options: &WriteOptions,
        fields: Fields,
        edit: impl Fn(&Value) -> Result<Value, Refusal>,
    ) -> Result<Written, Refusal> {
        let key = target.key();
        loop {
            let Some(stored) = self.store.get(&key) else {
                return Err(Refusal::not_found(target.kind, &target.name));
            };
            let before = stored.value();
            let now = (&*stored, &before);
            let step = self.decide_edit(target, part, now, &edit, (options, fields))?;
            let mut room = None;
            if let Edited::Changed(after) = &step
                && quota::heeds(convert::stored_kind(target.kind), part)
            {
                let before = (stored.revision, &before);
                room = self.make_room(target, part, (Some(before), after))?;
            }
            let (change, result) = match step {
                Edited::Same => return Ok(Written::Updated(stored)),
                Edited::Changed(after) if options.dry_run => {
                    return Ok(Written::Updated(super::unstored(&after, stored.revision)));
                }
                Edited::Changed(after) => (Change::Put(super::draft(&after)?), None),
                Edited::Finished(after) => {
                    let last = super::unstored(&after, stored.revision);
                    if options.dry_run {
                        return Ok(Written::Updated(last));
                    }
                    (Change::Delete, Some(last))
                }
            };
            let expect = Expect::Revision(stored.revision);
            let write = Write {
                key: key.clone(),
                change,
                expect,
                requires: None,
            };
            match self.write_within(room, write).await {
                Ok(object) => return Ok(Written::Updated(result.unwrap_or(object))),
                Err(WriteError::Changed(_) | WriteError::Gone(_)) => {}
                Err(error) => return Err(Refusal::store(&error)),
            }
        }
    }

    fn decide_edit(
        &self,
        target: &Target,
        part: Part,
        (stored, before): (&Stored, &Value),
        edit: &impl Fn(&Value) -> Result<Value, Refusal>,
        (options, fields): (&WriteOptions, Fields),
    ) -> Result<Edited, Refusal> {
        let kind = convert::stored_kind(target.kind);
        let served = convert::to_served(target.kind, Cow::Borrowed(before));
        let mut after = edit(&served)?;
        identity::drop_nulls(target.kind, &mut after);
        identity::settle_update(target, &mut after)?;
        let warnings = schema::decode(
            target.kind,
            &mut after,
            (options.validation, &options.source),
        )
        .map_err(|error| match options.source.is_patch() {
            true => Refusal::patch(target.kind, &target.name, error.what()),
            false => Refusal::bad_request(error.to_string()),
        })?;
        options.warnings.say(warnings);
        let mut after = convert::to_stored(target.kind, after);
        let wanted = text(&after, "/metadata/resourceVersion");
        if !wanted.is_empty() && wanted != text(before, "/metadata/resourceVersion") {
            return Err(Refusal::modified(target.kind, &target.name));
        }
        let uid = text(&after, "/metadata/uid");
        if !uid.is_empty() && uid != stored.meta.uid() {
            let mismatch = PreconditionMismatch::Uid {
                wanted: uid.to_owned(),
                found: stored.meta.uid().to_owned(),
            };
            return Err(Refusal::precondition(target.kind, &target.name, &mismatch));
        }
        let now = self.clock.stamp();
        strategy::before_update(kind, part, (before, &mut after), &now);
        admission::defaults(kind, &mut after);
        if definitions::is_definition(kind) && part == Part::Main {
            definitions::settle(&self.store.read(), Some(before), &mut after, &now);
        }
        strategy::count_generation(kind, part, before, &mut after);
        admission::admit_update(&self.store.read(), target, part, (before, &after))?;
        let errors = admission::validate_update(target.kind, part, before, &after);
        if !errors.is_empty() {
            return Err(Refusal::invalid(kind, &target.name, &errors));
        }
        // A binding is nobody's word on what the pod should be.
        if fields == Fields::Track && part != Part::Binding {
            let subresource = (part == Part::Status).then_some("status");
            let update = UpdateOptions {
                manager: &options.manager,
                subresource,
                now: &now,
            };
            after = convert::as_served(target.kind, after, |after| {
                patch::track_update(target.kind, Some(&served), after, update);
            });
        }
        self.fit_storage(target.kind, &mut after);
        super::metadata(&mut after).insert(
            "resourceVersion".to_owned(),
            stored.revision.to_string().into(),
        );
        if strategy::is_finished(kind, &after) {
            Ok(Edited::Finished(after))
        } else if after == *before {
            Ok(Edited::Same)
        } else {
            Ok(Edited::Changed(after))
        }
    }
}

/// A patch can't say that the object is another one.
fn same_uid(target: &Target, current: &Value, patched: Value) -> Result<Value, Refusal> {
    let uid = text(&patched, "/metadata/uid");
    if uid.is_empty() || uid == text(current, "/metadata/uid") {
        return Ok(patched);
    }
    let error = FieldError::invalid("metadata.uid", &uid.into(), "field is immutable");
    Err(Refusal::invalid(target.kind, &target.name, &[error]))
}

enum Edited {
    Same,
    Changed(Value),
    /// The last finalizer went: the object goes too.
    Finished(Value),
}

fn apply_refusal(error: &ApplyError) -> Refusal {
    match error {
        ApplyError::Conflict(conflicts) => {
            let causes: Vec<Value> = conflicts
                .iter()
                .map(|conflict| {
                    serde_json::json!({
                        "reason": "FieldManagerConflict",
                        "message": format!("conflict with {}", conflict.manager),
                        "field": conflict.field,
                    })
                })
                .collect();
            Refusal::apply_conflict(error.to_string(), &causes)
        }
        ApplyError::Invalid(_) => Refusal::bad_request(error.to_string()),
        ApplyError::Untyped(_) => Refusal::unclassified(error.to_string()),
    }
}
