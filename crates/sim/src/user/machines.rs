//! What an administrator does with nodes.

use orlop_model::{Key, Node, Pod, well_known};
use orlop_runtime::{Patch, Preconditions};
use serde_json::{Value, json};

use super::User;

impl User {
    /// Cuts a node off; its pods go on.
    pub fn cut_off(&self, node: u8) {
        self.machines.cut_off(node);
    }

    /// Takes a node's power away.
    pub fn power_off(&self, node: u8) {
        self.machines.power_off(node);
    }

    /// Brings a node back.
    pub fn bring_back(&self, node: u8) {
        self.machines.back(node);
    }

    /// Vouches that a node is off, or takes that back.
    pub async fn out_of_service(&self, node: &str, off: bool) {
        let taint = json!([{"key": well_known::OUT_OF_SERVICE, "effect": "NoExecute"}]);
        let taints = if off { taint } else { Value::Null };
        let patch = Patch::Merge(json!({"spec": {"taints": taints}}));
        let patched = self
            .cluster
            .patch::<Node>(&Key::cluster(node), &patch)
            .await;
        patched.expect("the node is there");
        self.witness.look();
    }

    /// Writes down that nobody has heard of a node, as the control plane does.
    pub async fn unheard_of(&self, node: &str) {
        let ready = json!([{"type": "Ready", "status": "Unknown"}]);
        let patch = Patch::Merge(json!({"status": {"conditions": ready}}));
        let key = Key::cluster(node);
        let patched = self.cluster.patch_status::<Node>(&key, &patch).await;
        patched.expect("the node is there");
        self.witness.look();
    }

    /// Deletes a node's object.
    pub async fn delete_node(&self, node: &str) {
        self.delete::<Node>(&Key::cluster(node)).await;
    }

    /// Deletes a pod without waiting for its node.
    pub async fn delete_pod_now(&self, name: &str) {
        let now = Preconditions {
            grace_period_seconds: Some(0),
            ..Preconditions::default()
        };
        let key = Key::namespaced("default", name);
        let deleted = self.cluster.delete::<Pod>(&key, &now).await;
        deleted.expect("the user may delete anything");
        self.witness.look();
    }
}
