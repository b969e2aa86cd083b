//! Asking for attachments: as many as a node can bear, those on their way counted.

use std::{collections::BTreeMap, sync::Arc};

use orlop_model::{Key, VolumeAttachment, flex, network_disk};
use orlop_runtime::{ApiError, EventType, Outcome, Refusal};
use tracing::{debug, info};

use super::{
    AttachDetach,
    memory::{Asked, Fate},
};
use crate::{
    attach_detach::{
        actual::{self, Room},
        by_word,
        decide::{Verdict, VolumeView, decide_volume},
        desired::Wish,
    },
    turn,
};

impl AttachDetach {
    /// One look at some storage.
    pub(super) async fn volume_turn(&self, unique: String) -> Outcome {
        self.settle_volume(&unique)
            .await
            .unwrap_or_else(|error| turn::retry(&error))
    }

    async fn settle_volume(&self, unique: &str) -> Result<Outcome, ApiError> {
        self.learn_what_was_asked(unique).await?;
        if !self.serves(unique) {
            self.forget(unique);
            return Ok(Outcome::Done);
        }
        let unit = self.known.unit(unique);
        if unit.wishes.is_empty() && unit.attachments.is_empty() {
            self.forget(unique);
            self.memory.came_off(unique);
            return Ok(Outcome::Done);
        }
        let view = VolumeView {
            exclusive: unit.exclusive,
            attachable: self.is_attachable(unique),
            wishes: self.known.grantable(unit.wishes),
            attachments: self.with_granted(unique, unit.attachments),
            rooms: BTreeMap::new(),
        };
        // What nobody wants is given back by its node's turn.
        for attachment in &view.attachments {
            let node = &attachment.spec.node_name;
            if !view.attachable || !view.wishes.contains_key(node) {
                self.node_queue.add(node.clone());
            }
        }
        let rooms = view.wishes.keys();
        let rooms = rooms.map(|node| (node.clone(), self.room(node, unique)));
        let view = VolumeView {
            rooms: rooms.collect(),
            ..view
        };
        let mut outcome = Outcome::Done;
        let mut awaited = false;
        for (node, verdict) in decide_volume(&view) {
            debug!(storage = unique, node, ?verdict, "decided");
            let wishes = &view.wishes[&node];
            // Others may have asked since for what room there was.
            let verdict = match (verdict, self.room(&node, unique)) {
                (Verdict::Attach, Room::Full(limit)) => Verdict::Full(limit),
                (verdict, _) => verdict,
            };
            let Some(verdict) = self.as_its_driver_may(unique, &node, verdict) else {
                continue;
            };
            match &verdict {
                // A warning that is untrue the next moment helps nobody.
                Verdict::Elsewhere(elsewhere) if elsewhere.is_let_go() => {
                    awaited = true;
                    match self.memory.no_news_yet(unique) {
                        Some(left) => outcome = Outcome::After(left),
                        None => self.tell_pods(wishes, &verdict),
                    }
                }
                verdict => self.tell_pods(wishes, verdict),
            }
            match verdict {
                Verdict::Attach => self.attach(unique, &wishes[0]).await?,
                Verdict::Full(_) | Verdict::NoDriver => {
                    self.memory.is_short(&node, unique);
                    // It may have come free, or registered, in between.
                    if self.room(&node, unique) == Room::Free {
                        return Ok(Outcome::Retry);
                    }
                }
                Verdict::Held
                | Verdict::Leaving { .. }
                | Verdict::Elsewhere(_)
                | Verdict::Refused(_) => {}
            }
        }
        if !awaited {
            self.memory.came_off(unique);
        }
        Ok(outcome)
    }

    /// With the nodes that are about to be told of a disk that they reach by themselves.
    fn with_granted(
        &self,
        unique: &str,
        mut attachments: Vec<Arc<VolumeAttachment>>,
    ) -> Vec<Arc<VolumeAttachment>> {
        let memory = self.memory.lock();
        let granted = memory.granted.iter();
        for (_, node) in granted.filter(|(disk, _)| disk == unique) {
            let exists = self.known.nodes.named(node).is_some();
            if exists && !attachments.iter().any(|a| a.spec.node_name == *node) {
                attachments.push(Arc::new(by_word::standing(unique, node)));
            }
        }
        attachments
    }

    fn tell_pods(&self, wishes: &[Wish], verdict: &Verdict) {
        for wish in wishes {
            if let Some(message) = verdict.news(&wish.volume.metadata.name, &wish.pod) {
                let reason = "FailedAttachVolume";
                self.recorder
                    .say(&*wish.pod, EventType::Warning, reason, message);
            }
        }
    }

    /// Whether some storage is of a kind that is served here.
    fn serves(&self, unique: &str) -> bool {
        let flex = self.flex.is_some() && flex::parts(unique).is_some();
        flex || actual::parts(unique).is_some() || network_disk::plugin(unique).is_some()
    }

    /// Whether the node can bear one more volume of the driver. Only CSI drivers say how many.
    fn room(&self, node: &str, unique: &str) -> Room {
        let Some((driver, _)) = actual::parts(unique) else {
            return Room::Free;
        };
        let there = self.known.attachments_by_node.get(node);
        let there = there.iter().filter(|a| a.spec.attacher == driver).count();
        let seen = |name: &str| self.known.attachments.named(name).is_some();
        let coming = self.memory.asked_on(node, driver, seen);
        let csi_node = self.known.csi_nodes.named(node);
        actual::room(csi_node.as_deref(), driver, there + coming)
    }

    async fn attach(&self, unique: &str, wish: &Wish) -> Result<(), ApiError> {
        let Some(attachment) = wish.attachment() else {
            // Its node is told, and that is all.
            let node = &wish.pod.spec.node_name;
            let mut memory = self.memory.lock();
            memory.granted.insert((unique.to_owned(), node.clone()));
            self.node_queue.add(node.clone());
            return Ok(());
        };
        let (name, spec) = (attachment.metadata.name.clone(), &attachment.spec);
        let asked = Asked {
            storage: unique.to_owned(),
            driver: spec.attacher.clone(),
            node: spec.node_name.clone(),
            fate: Fate::Sent,
        };
        self.memory.lock().asked.insert(name.clone(), asked);
        self.memory.begins(&name);
        match self.cluster.create(&attachment).await {
            Ok(made) => {
                let (volume, node) = (&wish.volume.metadata.name, &spec.node_name);
                info!(volume, node, "attachment asked for");
                self.known.attachments.absorb(made);
                self.memory.lock().asked.remove(&name);
                Ok(())
            }
            Err(error) => {
                let mut memory = self.memory.lock();
                match error.refusal {
                    Refusal::Lost(_) | Refusal::Unreadable(_) | Refusal::AlreadyExists(_) => {
                        if let Some(asked) = memory.asked.get_mut(&name) {
                            asked.fate = Fate::Doubtful;
                        }
                    }
                    _ => {
                        memory.asked.remove(&name);
                        memory.begun.remove(&name);
                    }
                }
                Err(error)
            }
        }
    }

    /// Asks the server what became of requests whose answers were lost.
    async fn learn_what_was_asked(&self, unique: &str) -> Result<(), ApiError> {
        let doubtful: Vec<String> = {
            let memory = self.memory.lock();
            let asked = memory.asked.iter();
            let ours = asked.filter(|(_, a)| a.storage == unique && a.fate == Fate::Doubtful);
            ours.map(|(name, _)| name.clone()).collect()
        };
        for name in doubtful {
            let key = Key::cluster(&name);
            let now = self.cluster.get::<VolumeAttachment>(&key).await?;
            if let Some(now) = now {
                self.known.attachments.absorb(now);
            }
            self.memory.lock().asked.remove(&name);
        }
        Ok(())
    }
}
