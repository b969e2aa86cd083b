//! POST, PUT, PATCH and DELETE.

use std::sync::Arc;

use axum::body::Body;
use http::{Response, StatusCode};
use serde_json::json;

use super::negotiate::Encoding;
use super::pieces::Pieces;
use super::writing::{Writing, delete_options};
use super::{Api, reply};
use crate::admission;
use crate::document::Document;
use crate::kinds::KindInfo;
use crate::patch::{self, UpdateOptions};
use crate::refusal::{FieldError, Refusal};
use crate::registry::{
    DeleteOptions, Deletion, PatchFormat, Served as _, WriteOptions, Written, text,
};

pub(super) const PATCH_TYPES: &str = "application/json-patch+json, application/merge-patch+json, \
    application/strategic-merge-patch+json, application/apply-patch+yaml";
const DEFINED_PATCH_TYPES: &str =
    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

impl Api {
    fn written(
        &self,
        writing: &Writing<'_>,
        written: &Written,
        options: &WriteOptions,
    ) -> Response<Body> {
        let code = match written {
            Written::Created(_) => StatusCode::CREATED,
            Written::Updated(_) => StatusCode::OK,
        };
        let body = self.render(
            writing.route.kind,
            writing.answer,
            writing.query,
            written.object(),
        );
        let content_type = writing.answer.encoding.content_type();
        let response = reply::with_type(code, content_type, body);
        reply::warned(response, &options.warnings.take())
    }

    pub(super) async fn post(&self, writing: &Writing<'_>) -> Result<Response<Body>, Refusal> {
        let route = writing.route;
        let options = writing.options();
        match (route.name.as_deref(), route.subresource.as_deref()) {
            (None, _) if route.kind.namespaced && route.namespace.is_empty() => {
                Err(Refusal::method_not_allowed())
            }
            (None, _) if !route.kind.is_stored() => {
                let mut review = writing.object()?.value;
                let now = self.registry.clock.stamp();
                let asked = UpdateOptions {
                    manager: &options.manager,
                    subresource: None,
                    now: &now,
                };
                patch::track_update(route.kind, None, &mut review, asked);
                let (kind, place) = (route.kind, route.namespace.as_str());
                let answer = self.gate().review(kind, place, writing.user, review)?;
                let encoding = writing.answer.encoding;
                Ok(reply::object(StatusCode::CREATED, encoding, &answer))
            }
            (None, _) => {
                let Document {
                    value: object,
                    source,
                } = writing.object()?;
                let options = WriteOptions { source, ..options };
                self.gate()
                    .escalates(writing.user, &writing.target(""), &object)?;
                let created = self
                    .registry
                    .create(route.kind, &route.namespace, object, &options)
                    .await?;
                Ok(self.written(writing, &created, &options))
            }
            (Some(pod), Some("binding")) => {
                let binding = writing.object()?.value;
                self.registry
                    .bind(&writing.target(pod), &binding, &options)
                    .await?;
                Ok(writing.success(StatusCode::CREATED, None))
            }
            (Some(account), Some("token")) => {
                let request = writing.object()?.value;
                let token = self.gate().token(&writing.target(account), request)?;
                let encoding = writing.answer.encoding;
                Ok(reply::object(StatusCode::CREATED, encoding, &token))
            }
            (Some(pod), Some("eviction")) => {
                let eviction = writing.object()?.value;
                let options = DeleteOptions::parse(&eviction["deleteOptions"])?;
                self.registry.delete(&writing.target(pod), &options).await?;
                Ok(writing.success(StatusCode::CREATED, None))
            }
            _ => Err(Refusal::method_not_allowed()),
        }
    }

    pub(super) async fn put(&self, writing: &Writing<'_>) -> Result<Response<Body>, Refusal> {
        let name = writing
            .route
            .name
            .as_deref()
            .ok_or_else(Refusal::method_not_allowed)?;
        let part = writing.part()?;
        let Document {
            value: object,
            source,
        } = writing.object()?;
        let options = WriteOptions {
            source,
            ..writing.options()
        };
        let target = writing.target(name);
        self.gate().escalates(writing.user, &target, &object)?;
        let written = self
            .registry
            .replace(&target, part, object, &options)
            .await?;
        Ok(self.written(writing, &written, &options))
    }

    pub(super) async fn patch(&self, writing: &Writing<'_>) -> Result<Response<Body>, Refusal> {
        let name = writing
            .route
            .name
            .as_deref()
            .ok_or_else(Refusal::method_not_allowed)?;
        let part = writing.part()?;
        let target = writing.target(name);
        let options = writing.options();
        let format = match writing.content_type() {
            "application/json-patch+json" => PatchFormat::Json,
            "application/merge-patch+json" => PatchFormat::Merge,
            "application/strategic-merge-patch+json" if target.kind.custom.is_none() => {
                PatchFormat::Strategic
            }
            "application/apply-patch+yaml" => {
                if writing.query.field_manager.is_empty() {
                    let why = "is required for apply patch";
                    let error = FieldError::required("fieldManager", why);
                    return Err(Refusal::invalid_named("PatchOptions.meta.k8s.io", &[error]));
                }
                let Document { value, source } = writing.configuration()?;
                let applied = (value, writing.query.force);
                let options = WriteOptions { source, ..options };
                if self.gate().must_watch(writing.user, &target) {
                    let dry = options.clone().dry();
                    let tried = self.registry.apply(&target, part, applied.clone(), &dry);
                    let outcome = tried.await?.object().value();
                    self.gate().escalates(writing.user, &target, &outcome)?;
                }
                let written = self
                    .registry
                    .apply(&target, part, applied, &options)
                    .await?;
                return Ok(self.written(writing, &written, &options));
            }
            "application/strategic-merge-patch+json" => {
                return Err(Refusal::unsupported_media_type(DEFINED_PATCH_TYPES));
            }
            _ => {
                let mut refusal = Refusal::unsupported_media_type(PATCH_TYPES);
                "415: Unsupported Media Type".clone_into(&mut refusal.message);
                refusal.details = json!({});
                return Err(refusal);
            }
        };
        let Document {
            value: patch,
            source,
        } = writing.patch(format)?;
        let options = WriteOptions { source, ..options };
        if self.gate().must_watch(writing.user, &target) {
            let dry = options.clone().dry();
            let tried = self.registry.patch(&target, part, (format, &patch), &dry);
            let outcome = tried.await?.object().value();
            self.gate().escalates(writing.user, &target, &outcome)?;
        }
        let written = self
            .registry
            .patch(&target, part, (format, &patch), &options)
            .await?;
        Ok(self.written(writing, &written, &options))
    }

    pub(super) async fn delete(&self, writing: &Writing<'_>) -> Result<Response<Body>, Refusal> {
        if writing.route.subresource.is_some() {
            return Err(Refusal::method_not_allowed());
        }
        let options = delete_options(writing)?;
        let Some(name) = writing.route.name.as_deref() else {
            return self.delete_collection(writing, &options).await;
        };
        let target = writing.target(name);
        admission::admit_delete(&target)?;
        let deletion = self.registry.delete(&target, &options).await?;
        Ok(match &deletion {
            Deletion::Removed(object) if !returns_deleted_object(target.kind) => {
                let mut details =
                    json!({ "name": name, "kind": target.kind.plural, "uid": object.meta.uid() });
                if !target.kind.group.is_empty() {
                    details["group"] = target.kind.group.into();
                }
                writing.success(StatusCode::OK, Some(details))
            }
            Deletion::Removed(object) | Deletion::Pending(object) => {
                let body = self.render(target.kind, writing.answer, writing.query, object);
                let content_type = writing.answer.encoding.content_type();
                reply::with_type(StatusCode::OK, content_type, body)
            }
        })
    }

    async fn delete_collection(
        &self,
        writing: &Writing<'_>,
        options: &DeleteOptions,
    ) -> Result<Response<Body>, Refusal> {
        let (kind, namespace) = (writing.route.kind, writing.route.namespace.as_str());
        let served = kind.verbs.contains(&"deletecollection");
        if !served || kind.namespaced && namespace.is_empty() {
            return Err(Refusal::method_not_allowed());
        }
        let selection = writing.query.selection(kind)?;
        let page = self
            .page((kind, namespace), writing.query, &selection)
            .await?;
        let mut items = Vec::with_capacity(page.objects.len());
        for object in &page.objects {
            let value = object.parsed(kind);
            let name = text(&value, "/metadata/name");
            match self.registry.delete(&writing.target(name), options).await {
                Ok(_) => items.push(Arc::clone(object)),
                // Somebody else was faster.
                Err(refusal) if refusal.reason == "NotFound" => {}
                Err(refusal) => return Err(refusal),
            }
        }
        let revision = self.registry.store.read().revision().to_string();
        let mut metadata = json!({ "resourceVersion": revision });
        if kind.custom.is_some() {
            metadata["continue"] = "".into();
        }
        let encoding = writing.answer.encoding;
        let pieces = match encoding {
            Encoding::Json => Pieces::list(kind, &metadata, items),
            Encoding::Protobuf => Pieces::list_message(kind, &metadata, items),
        };
        let content_type = encoding.content_type();
        Ok(reply::pieces(writing.headers, content_type, pieces))
    }
}

/// Kinds whose deletion answers with the object, as the original's do.
fn returns_deleted_object(kind: &KindInfo) -> bool {
    kind.custom.is_none() && kind.group == "storage.k8s.io"
        || matches!(
            kind.kind,
            "Pod"
                | "PersistentVolume"
                | "PersistentVolumeClaim"
                | "ResourceQuota"
                | "ServiceAccount"
        )
}
