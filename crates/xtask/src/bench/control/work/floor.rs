//! Attaching and moving by the requests that nobody can leave out: an attachment is made, its
//! forerunner deleted, the pod gets its event, and a node is told once of all its volumes. Nothing is
//! waited for: whoever has to learn what is wanted, and tells nodes as pods come, takes longer.

use std::collections::HashMap;

use http::Method;
use serde_json::{Value, json};

use super::{ATTACHMENTS, NODES, Phase, Places, Request, node, post};
use crate::bench::{
    lives::DRIVER,
    objects::{NAMESPACE, collection},
};

/// Adds a controller's requests to those of the client; gives those that tell the nodes.
pub(super) fn add(
    asks: &mut [Vec<Request>],
    phase: Phase,
    places: &Places,
    nodes: usize,
) -> Vec<Vec<Request>> {
    let moved = match phase {
        Phase::Bind | Phase::Stock => return Vec::new(),
        Phase::Attach => 0,
        Phase::Move => 1,
    };
    let mut lists: HashMap<String, Vec<Value>> = HashMap::new();
    for (volume, (claim, number)) in places {
        let place = node((number + moved) % nodes);
        let asked = &mut asks[*number];
        if moved > 0 {
            let old = format!("{ATTACHMENTS}/{claim}-a");
            asked.push((Method::DELETE, old, "{}".into()));
        }
        let name = format!("{claim}-{}", ["a", "b"][moved]);
        asked.push(attachment(&name, volume, &place));
        asked.push(event(&name, volume));
        let unique = format!("kubernetes.io/csi/{DRIVER}^{volume}");
        let list = lists.entry(place).or_default();
        list.push(json!({"name": unique, "devicePath": ""}));
    }
    let told = lists.into_iter().map(|(node, list)| {
        let status = json!({"status": {"volumesAttached": list}});
        let path = format!("{NODES}/{node}/status");
        vec![(Method::PATCH, path, status.to_string().into())]
    });
    told.collect()
}

fn attachment(name: &str, volume: &str, node: &str) -> Request {
    let body = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": name},
        "spec": {
            "attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": volume},
        },
    });
    post(ATTACHMENTS.to_owned(), &body)
}

fn event(pod: &str, volume: &str) -> Request {
    let body = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": format!("{pod}.attached"), "namespace": NAMESPACE},
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "name": pod, "namespace": NAMESPACE,
        },
        "type": "Normal", "reason": "SuccessfulAttachVolume",
        "message": format!("AttachVolume.Attach succeeded for volume \"{volume}\" "),
        "source": {"component": "attachdetach-controller"},
    });
    post(collection("events", NAMESPACE), &body)
}
