//! How a pod gets its node: once, and as its own subresource.

use serde_json::{Value, json};

use super::create::Fields;
use super::{Part, Registry, Target, WriteOptions, metadata, section, text};
use crate::refusal::Refusal;

impl Registry {
    /// Places a pod on the node that a Binding names.
    pub async fn bind(
        &self,
        pod: &Target,
        binding: &Value,
        options: &WriteOptions,
    ) -> Result<(), Refusal> {
        let node = text(binding, "/target/name");
        if node.is_empty() {
            return Err(Refusal::bad_request("target.name: Required value"));
        }
        if !matches!(text(binding, "/target/kind"), "" | "Node") {
            return Err(Refusal::bad_request(
                "target.kind: Unsupported value: must be Node",
            ));
        }
        let now = self.clock.stamp();
        let edit = |current: &Value| place(pod, current, (binding, node), &now);
        self.edit(pod, Part::Binding, options, Fields::Track, edit)
            .await
            .map(|_| ())
    }
}

fn place(
    pod: &Target,
    current: &Value,
    (binding, node): (&Value, &str),
    now: &str,
) -> Result<Value, Refusal> {
    let refuse = |why: String| {
        let mut refusal = Refusal::conflict(pod.kind, &pod.name, &why);
        refusal.details["kind"] = "pods/binding".into();
        refusal.message = format!(
            "Operation cannot be fulfilled on pods/binding \"{}\": {why}",
            pod.name
        );
        refusal
    };
    let name = &pod.name;
    let uid = text(binding, "/metadata/uid");
    if !uid.is_empty() && uid != text(current, "/metadata/uid") {
        return Err(refuse(format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            text(current, "/metadata/uid")
        )));
    }
    if !text(current, "/metadata/deletionTimestamp").is_empty() {
        return Err(refuse(format!(
            "pod {name} is being deleted, cannot be assigned to a host"
        )));
    }
    let taken = text(current, "/spec/nodeName");
    if !taken.is_empty() {
        return Err(refuse(format!(
            "pod {name} is already assigned to node \"{taken}\""
        )));
    }
    let mut placed = current.clone();
    placed["spec"]["nodeName"] = node.into();
    if let Some(annotations) = binding["metadata"]["annotations"].as_object() {
        let all = metadata(&mut placed)
            .entry("annotations")
            .or_insert_with(|| json!({}));
        for (key, value) in annotations {
            all[key] = value.clone();
        }
    }
    let conditions = section(&mut placed, "status")
        .entry("conditions")
        .or_insert(json!([]));
    if let Some(conditions) = conditions.as_array_mut() {
        conditions.retain(|condition| condition["type"] != "PodScheduled");
        conditions.push(json!({
            "type": "PodScheduled",
            "status": "True",
            "lastProbeTime": null,
            "lastTransitionTime": now,
        }));
    }
    Ok(placed)
}
