//! Which pods a change brings a turn.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{MutexGuard, PoisonError},
};

use orlop_model::{Claim, Key, Kind, Node, Pod};
use orlop_runtime::Change;
use tokio::time::Instant;

use super::{HOLD, Item, Scheduler, under_way};
use crate::{
    assign,
    ledger::{Promise, Settled},
    volume_binding::Supply,
    waking::{News, Refused},
};

impl Scheduler {
    pub(super) fn subscribe(&self) {
        let role = self.clone();
        self.pods.subscribe(move |change| role.pod_changed(change));
        let role = self.clone();
        self.claims
            .subscribe(move |change| role.claim_changed(change));
        let role = self.clone();
        self.volumes.subscribe(move |change| {
            if let Some(owner) = &change.object().spec.claim_ref {
                role.wake_users(&owner.key());
            }
            role.tell(match change {
                Change::Applied { old, new } => News::of_volume(old.map(|old| &**old), new),
                Change::Deleted(volume) => Some(News::Went(&volume.metadata.name)),
            });
        });
        let role = self.clone();
        self.nodes
            .subscribe(move |change| role.node_changed(change));
        let role = self.clone();
        self.csi_nodes.subscribe(move |change| {
            if let Change::Applied { old, new } = change {
                role.tell(News::of_csi_node(old.map(|old| &**old), new));
            }
        });
        let role = self.clone();
        self.drivers.subscribe(move |change| match change {
            Change::Applied { old, new } => {
                role.tell(News::of_driver(old.map(|old| &**old), Some(new)));
            }
            Change::Deleted(old) => role.tell(News::of_driver(Some(old), None)),
        });
        let role = self.clone();
        self.classes.subscribe(move |change| {
            if let Change::Applied { old, new } = change {
                role.tell(News::of_class(old.map(|old| &**old), new));
            }
        });
        let role = self.clone();
        self.capacities.subscribe(move |change| {
            if let Change::Applied { old, new } = change {
                let made = role
                    .ledger()
                    .settled(&new.storage_class_name, Instant::now());
                let held = !made.is_empty();
                role.tell(News::of_capacity(old.map(|old| &**old), new, held));
            }
        });
        let role = self.clone();
        self.attachments.subscribe(move |change| {
            if let Change::Deleted(attachment) = change {
                role.tell(Some(News::Detached(&attachment.spec.attacher)));
            }
        });
    }

    /// Brings a turn to every refused pod that the news bears on.
    pub(super) fn tell(&self, news: Option<News<'_>>) {
        let Some(news) = news else { return };
        let mut woken = Vec::new();
        self.refused().retain(|key, refused| {
            let wakes = news.wakes(refused);
            if wakes {
                woken.push(key.clone());
            }
            !wakes
        });
        for key in woken {
            self.queue.add(Item::Pod(key));
        }
    }

    pub(super) fn refused(&self) -> MutexGuard<'_, BTreeMap<Key, Refused>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A pod takes nothing any more: not on its node, nor of what it was promised.
    pub(super) fn tell_left(&self, pod: &Pod, promise: Option<&Promise>) {
        let plan = promise.into_iter().flat_map(|promise| &promise.plan);
        let classes = plan.filter_map(|(claim, supply)| match supply {
            Supply::Reserve(volume) => Some(volume.class().to_owned()),
            Supply::Provision => self.claims.get(claim)?.class().map(str::to_owned),
        });
        let given_back: BTreeSet<String> = classes.collect();
        self.tell(Some(News::Left {
            pod,
            given_back: &given_back,
        }));
    }

    fn pod_changed(&self, change: &Change<'_, Pod>) {
        let pod = change.object();
        let key = pod.key();
        match change {
            Change::Deleted(_) => {
                let promise = self.ledger().forget(&key);
                self.refused().remove(&key);
                if promise.is_some() || (pod.is_placed() && !pod.is_finished()) {
                    self.tell_left(pod, promise.as_ref());
                }
            }
            Change::Applied { old, .. } => {
                let broken = self.ledger().see(pod);
                let was_running = old.is_some_and(|o| o.is_placed() && !o.is_finished());
                if (was_running && pod.is_finished()) || broken.is_some() {
                    self.tell_left(pod, broken.as_ref());
                }
                let same = |o: &Pod| o.metadata.uid == pod.metadata.uid && o.spec == pod.spec;
                if assign::is_ours(pod) && !old.is_some_and(|o| same(o)) {
                    self.queue.add(Item::Pod(key));
                }
            }
        }
    }

    fn claim_changed(&self, change: &Change<'_, Claim>) {
        let claim = change.object();
        match change {
            Change::Applied {
                old: Some(old),
                new,
            } => {
                self.note_made(old, new);
                // It was told its node, and is told so no more, without a volume.
                if !new.is_fully_bound() && old.selected_node() != new.selected_node() {
                    self.tell_room(under_way(old));
                }
            }
            Change::Applied { old: None, .. } => {}
            Change::Deleted(old) => self.tell_room(under_way(old)),
        }
        self.wake_users(&claim.key());
    }

    /// Room of these classes that was spoken for isn't any more.
    fn tell_room(&self, classes: Vec<String>) {
        for class in classes {
            self.tell(Some(News::Room(&class)));
        }
    }

    fn node_changed(&self, change: &Change<'_, Node>) {
        let node = change.object();
        let gone = matches!(change, Change::Deleted(_));
        if gone || !node.is_ready() {
            // Who was promised it must look elsewhere.
            for key in self.ledger().promised_to(&node.metadata.name) {
                self.queue.add(Item::Pod(key));
            }
        }
        if let Change::Applied { old, new } = change {
            self.tell(News::of_node(old.map(|old| &**old), new));
        }
    }

    fn wake_users(&self, claim: &Key) {
        for pod in self.pods_by_claim.get(&claim.to_string()) {
            if assign::is_ours(&pod) {
                self.queue.add(Item::Pod(pod.key()));
            }
        }
    }

    /// A claim that was told its node is bound: until its driver tells anew what is left, this
    /// is taken off.
    fn note_made(&self, old: &Claim, new: &Claim) {
        let (Some(class), Some(node)) = (new.class(), old.selected_node()) else {
            return;
        };
        let made = !old.is_fully_bound() && new.is_fully_bound();
        let provisioner = self.classes.named(class).map(|c| c.provisioner.clone());
        let driver = provisioner.and_then(|name| self.drivers.named(&name));
        if made && driver.is_some_and(|d| d.spec.storage_capacity == Some(true)) {
            self.ledger().settle(Settled {
                class: class.to_owned(),
                node: node.to_owned(),
                bytes: new.requested_bytes(),
                revision: new.metadata.revision(),
                until: Instant::now() + HOLD,
            });
            self.queue.add_after(Item::Room(class.to_owned()), HOLD);
        }
    }
}
