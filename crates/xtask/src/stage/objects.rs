//! Making, reading, awaiting and deleting objects, as the administrator.

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, WatchEvent, WatchParams},
};
use serde_json::Value;

use super::{Kind, NAMESPACE, POD, Stage, lock};

impl Stage {
    fn api(&self, kind: Kind, namespace: Option<&str>) -> Api<DynamicObject> {
        let client = self.client.clone();
        match namespace {
            Some(namespace) if kind.namespaced => {
                Api::namespaced_with(client, namespace, &kind.resource())
            }
            _ if kind.namespaced => {
                Api::namespaced_with(client, self.namespace(), &kind.resource())
            }
            _ => Api::all_with(client, &kind.resource()),
        }
    }

    /// Applies objects. Those without a namespace get the scenario's; cluster-wide ones are
    /// deleted when the scenario ends.
    pub(crate) async fn apply(&self, yaml: &str) -> Result<()> {
        for object in documents(yaml)? {
            self.apply_value(object).await?;
        }
        Ok(())
    }

    /// Applies one object.
    pub(crate) async fn apply_value(&self, object: Value) -> Result<()> {
        if let Some(made) = self.apply_shared(object).await?
            && made.0 != NAMESPACE
        {
            lock(&self.made).push(made);
        }
        Ok(())
    }

    /// Applies an object that other scenarios may use as well, and that therefore stays. Answers
    /// with what it is if it is cluster-wide.
    pub(super) async fn apply_shared(&self, object: Value) -> Result<Option<(Kind, String)>> {
        let text = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (version, name) = (text("/apiVersion"), text("/metadata/name").to_owned());
        let kind = Kind::of(version, text("/kind"));
        let kind = kind.with_context(|| {
            format!(
                "{version} {} is not in stage/kinds.rs; add it",
                text("/kind")
            )
        })?;
        let namespace = object
            .pointer("/metadata/namespace")
            .and_then(Value::as_str);
        let params = PatchParams::apply("scenario").force();
        self.api(kind, namespace)
            .patch(&name, &params, &Patch::Apply(&object))
            .await
            .with_context(|| format!("could not apply {} {name}", kind.name))?;
        Ok((!kind.namespaced).then_some((kind, name)))
    }

    /// Reads an object, of the scenario's namespace if its kind has one.
    pub(crate) async fn get(&self, kind: Kind, name: &str) -> Result<Option<Value>> {
        let found = self.api(kind, None).get_opt(name).await;
        let found = found.with_context(|| format!("could not read {} {name}", kind.name))?;
        Ok(found.map(serde_json::to_value).transpose()?)
    }

    /// Lists objects, of the scenario's namespace if their kind has one.
    pub(crate) async fn list(&self, kind: Kind) -> Result<Vec<Value>> {
        self.list_in(kind, self.namespace()).await
    }

    /// Lists objects of a namespace.
    pub(crate) async fn list_in(&self, kind: Kind, namespace: &str) -> Result<Vec<Value>> {
        let api = self.api(kind, Some(namespace));
        let all = api.list(&ListParams::default()).await;
        let all = all.with_context(|| format!("could not list {}s", kind.name))?;
        Ok(all
            .items
            .into_iter()
            .map(serde_json::to_value)
            .collect::<Result<_, _>>()?)
    }

    /// The names of all objects of a kind, of the scenario's namespace if their kind has one.
    pub(crate) async fn names(&self, kind: Kind) -> Result<Vec<String>> {
        let all = self.list(kind).await?;
        let name = |object: &Value| object["metadata"]["name"].as_str().map(str::to_owned);
        Ok(all.iter().filter_map(name).collect())
    }

    /// Merges fields into an object.
    pub(crate) async fn merge(&self, kind: Kind, name: &str, fields: &Value) -> Result<()> {
        let patched = self
            .api(kind, None)
            .patch(name, &PatchParams::default(), &Patch::Merge(fields))
            .await;
        patched.with_context(|| format!("could not change {} {name}", kind.name))?;
        Ok(())
    }

    /// Merges fields into an object's status, in the place of who writes that.
    pub(crate) async fn merge_status(&self, kind: Kind, name: &str, fields: &Value) -> Result<()> {
        let patched = self
            .api(kind, None)
            .patch_status(name, &PatchParams::default(), &Patch::Merge(fields))
            .await;
        patched.with_context(|| format!("could not change the status of {} {name}", kind.name))?;
        Ok(())
    }

    /// Ends a pod that no node runs.
    pub(crate) async fn end_pod(&self, name: &str) -> Result<()> {
        let now = DeleteParams::default().grace_period(0);
        let ended = self.api(POD, None).delete(name, &now).await;
        ended.with_context(|| format!("could not delete Pod {name}"))?;
        self.gone(POD, name).await
    }

    /// Asks the API server what it would make of an object, strictly: a field that it does not
    /// know is an error.
    pub(crate) async fn try_strictly(&self, object: &Value) -> Result<()> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let (version, name) = (text("/apiVersion"), text("/metadata/name"));
        let named = version.zip(text("/kind"));
        let kind = named.and_then(|(version, kind)| Kind::of(version, kind));
        let (Some(kind), Some(name)) = (kind, name) else {
            bail!("this is no object that stage/kinds.rs knows: {object}");
        };
        let params = PatchParams::apply("scenario")
            .force()
            .dry_run()
            .validation_strict();
        self.api(kind, text("/metadata/namespace"))
            .patch(name, &params, &Patch::Apply(object))
            .await
            .with_context(|| format!("the API server does not take {} {name}", kind.name))?;
        Ok(())
    }

    /// Asks for an object's deletion; it may be gone already.
    pub(crate) async fn delete(&self, kind: Kind, name: &str) -> Result<()> {
        self.delete_in(self.namespace(), kind, name).await
    }

    /// The same in another namespace. A pod there gets no time to end well.
    pub(crate) async fn delete_in(&self, namespace: &str, kind: Kind, name: &str) -> Result<()> {
        let params = if kind == POD && namespace != self.namespace() {
            DeleteParams::default().grace_period(0)
        } else {
            DeleteParams::default()
        };
        match self.api(kind, Some(namespace)).delete(name, &params).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => {
                Err(error).with_context(|| format!("could not delete {} {name}", kind.name))
            }
        }
    }

    /// Waits until an object is there and fulfils a condition; answers with it.
    pub(crate) async fn until(
        &self,
        kind: Kind,
        name: &str,
        what: &str,
        condition: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let what = format!("{} {name} is {what}", kind.name);
        let api = self.api(kind, None);
        let seen = watched(&api, kind, name, |object| {
            object.filter(|object| condition(object)).cloned()
        });
        self.bounded(&what, seen).await
    }

    /// The same in another namespace.
    pub(crate) async fn until_in(
        &self,
        namespace: &str,
        kind: Kind,
        name: &str,
        what: &str,
        condition: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let what = format!("{} {namespace}/{name} is {what}", kind.name);
        let api = self.api(kind, Some(namespace));
        let seen = watched(&api, kind, name, |object| {
            object.filter(|object| condition(object)).cloned()
        });
        self.bounded(&what, seen).await
    }

    /// Waits until an object is gone.
    pub(crate) async fn gone(&self, kind: Kind, name: &str) -> Result<()> {
        let what = format!("{} {name} is gone", kind.name);
        let api = self.api(kind, None);
        let seen = watched(&api, kind, name, |object| object.is_none().then_some(()));
        self.bounded(&what, seen).await
    }
}

/// Reads an object, then watches it, until `pick` takes something from what there is.
async fn watched<T>(
    api: &Api<DynamicObject>,
    kind: Kind,
    name: &str,
    pick: impl Fn(Option<&Value>) -> Option<T>,
) -> Result<T> {
    let only = format!("metadata.name={name}");
    loop {
        let list = api.list(&ListParams::default().fields(&only)).await;
        let list = list.with_context(|| format!("could not read {} {name}", kind.name))?;
        let version = list.metadata.resource_version.unwrap_or_default();
        let current = list
            .items
            .into_iter()
            .next()
            .map(serde_json::to_value)
            .transpose()?;
        if let Some(picked) = pick(current.as_ref()) {
            return Ok(picked);
        }
        let events = api
            .watch(&WatchParams::default().fields(&only).timeout(20), &version)
            .await;
        let Ok(events) = events else {
            continue;
        };
        let mut events = events.boxed();
        while let Ok(Some(event)) = events.try_next().await {
            let object = match event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    Some(serde_json::to_value(object)?)
                }
                WatchEvent::Deleted(_) => None,
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(_) => break,
            };
            if let Some(picked) = pick(object.as_ref()) {
                return Ok(picked);
            }
        }
    }
}

/// The objects of a YAML text.
pub(crate) fn documents(yaml: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(yaml).context("could not read YAML")?;
    let documents: Vec<Value> = documents
        .into_iter()
        .filter(|document| !document.is_null())
        .collect();
    if documents.is_empty() {
        bail!("there is no object in this YAML");
    }
    Ok(documents)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::documents;

    #[test]
    fn a_yaml_text_may_hold_many_objects() {
        let read = documents("# first\nkind: A\n---\n# nothing\n---\nkind: B\n").unwrap();
        assert_eq!(
            read.iter()
                .map(|object| &object["kind"])
                .collect::<Vec<_>>(),
            ["A", "B"]
        );
        assert!(documents("# nothing").is_err());
    }
}
