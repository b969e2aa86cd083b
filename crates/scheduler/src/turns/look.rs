//! What the caches and the ledger say of a pod, its claims and the nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::ControlFlow,
    sync::Arc,
};

use orlop_model::{
    Claim, CsiDriver, Key, Kind, Node, Pod, driver::CsiNodeDriver, matching, migration,
};
use tokio::time::Instant;

use super::{BINDING, Scheduler};
use crate::{
    assign::{NodeFacts, View},
    ledger::Ledger,
    limits::{self, Attached},
    restrictions,
    room::Draw,
    volume_binding::{ClaimFacts, Supply},
};

impl Scheduler {
    pub(super) fn view(&self, pod: &Arc<Pod>) -> View {
        let claims: Vec<ClaimFacts> = pod
            .claims()
            .map(|(volume, key)| {
                let mut facts = self.claim_facts(pod, key);
                facts.ephemeral = volume.ephemeral.is_some();
                facts
            })
            .collect();
        let nodes = self.nodes.all();
        let nodes = nodes
            .into_iter()
            .map(|node| self.node_facts(pod, node))
            .collect();
        let drivers = self.drivers.all().into_iter();
        let demands =
            |driver: &Arc<CsiDriver>| driver.spec.prevent_pod_scheduling_if_missing == Some(true);
        let demanding = drivers.filter(demands);
        let demanding = demanding.map(|driver| driver.metadata.name.clone());
        let demanding = demanding.collect();
        let ledger = self.ledger();
        let promise = ledger.promised(&pod.key());
        let promise = promise.filter(|p| p.uid == pod.metadata.uid);
        View {
            demanding,
            overdue: promise.is_some_and(|p| p.since.elapsed() >= BINDING),
            promise: promise.cloned(),
            pod: pod.clone(),
            claims,
            nodes,
        }
    }

    fn claim_facts(&self, pod: &Pod, key: Key) -> ClaimFacts {
        let Some(claim) = self.claims.get(&key) else {
            return ClaimFacts {
                key,
                ..ClaimFacts::default()
            };
        };
        let mut users = self.pods_by_claim.get(&key.to_string());
        users.retain(|user| user.metadata.uid != pod.metadata.uid && !user.is_finished());
        let user_keys: Vec<Key> = users.iter().map(|user| user.key()).collect();
        let class = claim.class().and_then(|name| self.classes.named(name));
        let driver = class
            .as_ref()
            .and_then(|c| self.drivers.named(&c.provisioner));
        let mut ledger = self.ledger();
        let mut users = users.iter();
        let user = users.find(|user| user.is_placed() || ledger.promised(&user.key()).is_some());
        let mut facts = ClaimFacts {
            volume: self.volumes.named(&claim.spec.volume_name),
            used_by_another: user.is_some(),
            user: user.map(|user| match user.is_placed() {
                true => format!("pod {} on {}", user.metadata.name, user.spec.node_name),
                false => format!("pod {}", user.metadata.name),
            }),
            class,
            driver,
            ..ClaimFacts::default()
        };
        if !claim.is_fully_bound() {
            let class = claim.class().unwrap_or_default();
            facts.promised = ledger.promised_claim(&key, &user_keys);
            facts.candidates = self.claimed_volumes.get(&key.to_string());
            // A volume that another user of this very claim was promised is this claim's too.
            let mine = match &facts.promised {
                Some((_, Supply::Reserve(volume))) => volume.metadata.name.clone(),
                Some((_, Supply::Provision)) | None => String::new(),
            };
            let pod_key = pod.key();
            let shelves = matching::shelves(class);
            self.free_volumes.scan(&shelves, &shelves, |volume| {
                let name = &volume.metadata.name;
                if *name == mine || !ledger.is_promised_to_another(name, &pod_key) {
                    facts.candidates.push(volume.clone());
                }
                ControlFlow::<()>::Continue(())
            });
            facts.capacities = self.capacities_by_class.get(class);
            if !facts.capacities.is_empty() {
                facts.draws = self.draws(pod, class, &mut ledger);
            }
        }
        ClaimFacts {
            claim: Some(claim),
            key,
            ..facts
        }
    }

    /// What of a class's room others were promised.
    fn draws(&self, pod: &Pod, class: &str, ledger: &mut Ledger) -> Vec<Draw> {
        let own: BTreeSet<Key> = pod.claims().map(|(_, key)| key).collect();
        let mut draws = BTreeMap::new();
        let mut draw = |key: Key, node: &str, bytes| {
            if let Some(node) = self.nodes.named(node).filter(|_| !own.contains(&key)) {
                let settled = None;
                draws.insert(
                    key,
                    Draw {
                        node,
                        bytes,
                        settled,
                    },
                );
            }
        };
        for claim in self.claims_under_way.get(class) {
            let node = claim.selected_node().unwrap_or_default();
            draw(claim.key(), node, claim.requested_bytes());
        }
        for (node, key) in ledger.to_provision() {
            let claim = self.claims.get(key);
            let unbound = |claim: &Claim| claim.class() == Some(class) && !claim.is_fully_bound();
            if let Some(claim) = claim.filter(|claim| unbound(claim)) {
                draw(key.clone(), node, claim.requested_bytes());
            }
        }
        let mut draws: Vec<Draw> = draws.into_values().collect();
        for made in ledger.settled(class, Instant::now()) {
            if let Some(node) = self.nodes.named(&made.node) {
                draws.push(Draw {
                    node,
                    bytes: made.bytes,
                    settled: Some(made.revision),
                });
            }
        }
        draws
    }

    fn node_facts(&self, pod: &Pod, node: Arc<Node>) -> NodeFacts {
        let name = &node.metadata.name;
        let csi_node = self.csi_nodes.named(name);
        let limited = csi_node.as_ref().is_some_and(|n| {
            let limit =
                |d: &CsiNodeDriver| d.allocatable.as_ref().is_some_and(|a| a.count.is_some());
            n.spec.drivers.iter().any(limit)
        });
        let tally = self.ledger().tally(name);
        NodeFacts {
            tally,
            attached: match limited {
                true => self.attached(name),
                false => Attached::new(),
            },
            neighbours: match restrictions::names_disks(pod) {
                true => self.pods_of(name),
                false => Vec::new(),
            },
            csi_node,
            node,
        }
    }

    /// The pods of a node that run or will, and those that were promised to it.
    fn pods_of(&self, node: &str) -> Vec<Arc<Pod>> {
        let mut pods = self.pods_by_node.get(node);
        pods.retain(|pod| !pod.is_finished());
        let promised = self.ledger().promised_to(node);
        pods.extend(promised.iter().filter_map(|key| self.pods.get(key)));
        pods
    }

    /// The volumes on a node: those of its pods, of pods that it was promised to, and those
    /// that are still attached from before.
    fn attached(&self, node: &str) -> Attached {
        let pods = self.pods_of(node);
        let mut attached = Attached::new();
        let mut put = |driver: &str, volume: &str| {
            let of_driver = attached.entry(driver.to_owned()).or_default();
            of_driver.insert(volume.to_owned());
        };
        for (driver, handle) in pods.iter().flat_map(|pod| limits::named(pod)) {
            put(&driver, &handle);
        }
        for (_, key) in pods.iter().flat_map(|pod| pod.claims()) {
            let Some(claim) = self.claims.get(&key) else {
                continue;
            };
            let volume = self.volumes.named(&claim.spec.volume_name);
            match volume.as_deref().and_then(migration::source) {
                Some(csi) => put(&csi.driver, &csi.volume_handle),
                None => {
                    if let Some(class) = claim.class().and_then(|c| self.classes.named(c)) {
                        put(limits::driver_of(&class.provisioner), &key.to_string());
                    }
                }
            }
        }
        for attachment in self.attachments_by_node.get(node) {
            let volume = self.volumes.named(attachment.volume_name());
            if let Some(csi) = volume.as_deref().and_then(migration::source) {
                put(&csi.driver, &csi.volume_handle);
            }
        }
        attached
    }
}
