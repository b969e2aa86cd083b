//! The storage behind the fake driver: what exists, and where it is attached, staged and
//! published. It outlives every crash of a role.
//!
//! Pure state, no I/O and no waiting. Beside answering, it holds the caller to the
//! contract: a call that may not be made in the present state is refused as a real driver
//! would, and also written down as a [`Breach`]. It must never repair what callers do wrong.

use std::collections::BTreeMap;

use tonic::Code;

mod snapshots;

pub use snapshots::Cut;

/// A rule that somebody broke, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    /// The invariant's short name, such as `I10`.
    pub rule: &'static str,
    /// What happened.
    pub what: String,
}

/// The backend's "no".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The code that the driver answers with.
    pub code: Code,
    /// Why.
    pub message: String,
}

/// How many nodes may have a volume at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// One.
    OneNode,
    /// Any number.
    ManyNodes,
}

/// What a volume shall be. Two requests for one name must agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The caller's name for it.
    pub name: String,
    /// Its size.
    pub bytes: i64,
    /// The class's parameters.
    pub parameters: BTreeMap<String, String>,
    /// The attributes that it is made with.
    pub attributes: BTreeMap<String, String>,
    /// The nodes that it may be reached from, best first; empty if any will do.
    pub places: Vec<String>,
    /// How it is used.
    pub sharing: Sharing,
    /// The volume that it is filled from.
    pub source: Option<String>,
}

/// A volume and everything that was done with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// What was ordered.
    pub order: Order,
    /// Its size now.
    pub bytes: i64,
    /// Its attributes now.
    pub attributes: BTreeMap<String, String>,
    /// The size of the file system on it, which only a node can change.
    pub file_system: i64,
    /// The only node that can reach it, if the order named any.
    pub place: Option<String>,
    /// The nodes that it is attached to.
    pub attached: BTreeMap<String, Attachment>,
    /// What each node did with it.
    pub nodes: BTreeMap<String, OnNode>,
}

/// An attachment to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attachment {
    /// Whether it may only be read there.
    pub readonly: bool,
}

/// What one node did with a volume.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OnNode {
    /// Where it is staged.
    pub staged: Option<String>,
    /// Where it is published.
    pub targets: BTreeMap<String, Attachment>,
}

/// A place on a node: which volume, which node, which path.
#[derive(Debug, Clone, Copy)]
pub struct Spot<'a> {
    /// The volume's id.
    pub volume: &'a str,
    /// The node's id.
    pub node: &'a str,
    /// The path there.
    pub path: &'a str,
}

/// The storage.
#[derive(Debug, Default)]
pub struct Backend {
    volumes: BTreeMap<String, Stored>,
    snapshots: BTreeMap<String, Cut>,
    groups: BTreeMap<String, Vec<String>>,
    breaches: Vec<Breach>,
    made: u64,
}

impl Backend {
    /// What exists, by id.
    pub fn volumes(&self) -> &BTreeMap<String, Stored> {
        &self.volumes
    }

    /// The rules that were broken since the last time this was asked.
    pub fn take_breaches(&mut self) -> Vec<Breach> {
        std::mem::take(&mut self.breaches)
    }

    /// How many volumes were ever made.
    pub fn made(&self) -> u64 {
        self.made
    }

    /// Makes a volume, or finds the one that an earlier call made.
    pub fn create(&mut self, order: Order) -> Result<String, Refusal> {
        let id = format!("vol-{}", order.name);
        if let Some(found) = self.volumes.get(&id) {
            if found.answers(&order) {
                return Ok(id);
            }
            let what = format!("volume {id} is {found:?}, but asked for as {order:?}");
            return Err(self.breach("I20", Code::AlreadyExists, what));
        }
        if let Some(source) = &order.source
            && !self.volumes.contains_key(source)
            && !self.snapshots.contains_key(source)
        {
            let what = format!("{id} asked for as a clone of {source}, which is not there");
            return Err(self.breach("I12", Code::NotFound, what));
        }
        self.made += 1;
        let place = order.places.first().cloned();
        let stored = Stored {
            bytes: order.bytes,
            file_system: order.bytes,
            attributes: order.attributes.clone(),
            order,
            place,
            attached: BTreeMap::new(),
            nodes: BTreeMap::new(),
        };
        self.volumes.insert(id.clone(), stored);
        Ok(id)
    }

    /// Removes a volume; one that isn't there is fine.
    pub fn delete(&mut self, id: &str) -> Result<(), Refusal> {
        let Some(volume) = self.volumes.get(id) else {
            return Ok(());
        };
        if let Some(node) = volume.used_on() {
            let what = format!("DeleteVolume of {id} while node {node} uses it");
            return Err(self.breach("I04", Code::FailedPrecondition, what));
        }
        self.volumes.remove(id);
        Ok(())
    }

    /// Grows a volume, or finds it large enough; a node's part must follow.
    pub fn expand(&mut self, id: &str, bytes: i64) -> Result<i64, Refusal> {
        let volume = self.change(id)?;
        volume.bytes = volume.bytes.max(bytes);
        Ok(volume.bytes)
    }

    /// Gives a volume other attributes; those that aren't named stay.
    pub fn modify(
        &mut self,
        id: &str,
        attributes: BTreeMap<String, String>,
    ) -> Result<(), Refusal> {
        self.change(id)?.attributes.extend(attributes);
        Ok(())
    }

    /// Grows the file system to what the volume has.
    pub fn expand_on_node(&mut self, spot: Spot<'_>, bytes: i64) -> Result<i64, Refusal> {
        let Spot {
            volume: id,
            node,
            path,
        } = spot;
        let volume = self.find(id)?;
        let has = volume.bytes;
        let here = volume
            .nodes
            .get(node)
            .is_some_and(|on| on.staged.as_deref() == Some(path) || on.targets.contains_key(path));
        if !here {
            let what = format!("NodeExpandVolume of {id} on {node} at {path}, where it is not");
            return Err(self.breach("I10", Code::NotFound, what));
        }
        if bytes > has {
            let what = format!("NodeExpandVolume of {id} to {bytes}, but the backend has {has}");
            return Err(self.breach("I13", Code::OutOfRange, what));
        }
        self.change(id)?.file_system = has;
        Ok(has)
    }

    /// Attaches a volume to a node.
    pub fn attach(&mut self, id: &str, node: &str, wanted: Attachment) -> Result<(), Refusal> {
        let volume = self.find(id)?;
        if volume.place.as_deref().is_some_and(|place| place != node) {
            let what = format!("{id} cannot be reached from node {node}");
            return Err(self.breach("I10", Code::FailedPrecondition, what));
        }
        match volume.attached.get(node) {
            Some(found) if *found == wanted => return Ok(()),
            Some(found) => {
                let what = format!("{id} is on node {node} as {found:?}, now asked as {wanted:?}");
                return Err(self.breach("I20", Code::AlreadyExists, what));
            }
            None => {}
        }
        if volume.order.sharing == Sharing::OneNode
            && let Some(other) = volume.attached.keys().next()
        {
            let what = format!("{id} asked for node {node} while it is attached to {other}");
            return Err(self.breach("I06", Code::FailedPrecondition, what));
        }
        self.change(id)?.attached.insert(node.to_owned(), wanted);
        Ok(())
    }

    /// Detaches a volume from a node, or from all for an empty node.
    pub fn detach(&mut self, id: &str, node: &str) -> Result<(), Refusal> {
        let Some(volume) = self.volumes.get(id) else {
            return Ok(());
        };
        let used = volume
            .nodes
            .iter()
            .find(|(at, on)| (node.is_empty() || node == *at) && on.in_use())
            .map(|(at, _)| at.clone());
        if let Some(at) = used {
            let what = format!("{id} asked to be detached from {at} while it is staged there");
            return Err(self.breach("I09", Code::FailedPrecondition, what));
        }
        let attached = &mut self.change(id)?.attached;
        if node.is_empty() {
            attached.clear();
        } else {
            attached.remove(node);
        }
        Ok(())
    }

    /// A node has lost its power: what it had mounted is not mounted any more.
    pub fn lose(&mut self, node: &str) {
        for volume in self.volumes.values_mut() {
            volume.nodes.remove(node);
        }
    }

    /// Stages a volume on a node.
    pub fn stage(&mut self, spot: Spot<'_>) -> Result<(), Refusal> {
        let Spot {
            volume: id,
            node,
            path,
        } = spot;
        let volume = self.find(id)?;
        if !volume.attached.contains_key(node) {
            let what = format!("NodeStageVolume of {id} on {node} before it is attached");
            return Err(self.breach("I10", Code::FailedPrecondition, what));
        }
        match volume.nodes.get(node).and_then(|on| on.staged.as_deref()) {
            Some(found) if found == path => return Ok(()),
            Some(found) => {
                let what = format!("{id} is staged on {node} at {found}, now asked at {path}");
                return Err(self.breach("I10", Code::AlreadyExists, what));
            }
            None => {}
        }
        self.on(id, node)?.staged = Some(path.to_owned());
        Ok(())
    }

    /// Takes a staged volume away; one that isn't staged is fine.
    pub fn unstage(&mut self, spot: Spot<'_>) -> Result<(), Refusal> {
        let Spot {
            volume: id,
            node,
            path,
        } = spot;
        let Some(on) = self
            .volumes
            .get(id)
            .and_then(|volume| volume.nodes.get(node))
        else {
            return Ok(());
        };
        if let Some(target) = on.targets.keys().next() {
            let what = format!("NodeUnstageVolume of {id} on {node} while published at {target}");
            return Err(self.breach("I10", Code::FailedPrecondition, what));
        }
        match on.staged.as_deref() {
            Some(found) if found != path => {
                let what = format!("{id} is staged on {node} at {found}, unstaged at {path}");
                return Err(self.breach("I10", Code::InvalidArgument, what));
            }
            _ => self.on(id, node)?.staged = None,
        }
        self.forget_idle(id, node);
        Ok(())
    }

    /// Publishes a staged volume at a path.
    pub fn publish(
        &mut self,
        spot: Spot<'_>,
        staging: &str,
        wanted: Attachment,
    ) -> Result<(), Refusal> {
        let Spot {
            volume: id,
            node,
            path,
        } = spot;
        let volume = self.find(id)?;
        let on = volume.nodes.get(node);
        let staged = on.and_then(|on| on.staged.as_deref());
        if staged != Some(staging) {
            let what = format!(
                "NodePublishVolume of {id} on {node} from {staging}, but it is staged at {staged:?}"
            );
            return Err(self.breach("I10", Code::FailedPrecondition, what));
        }
        match on.and_then(|on| on.targets.get(path)) {
            Some(found) if *found == wanted => return Ok(()),
            Some(_) => {
                let what = format!("{id} is published at {path} with other options");
                return Err(self.breach("I20", Code::AlreadyExists, what));
            }
            None => {}
        }
        self.on(id, node)?.targets.insert(path.to_owned(), wanted);
        Ok(())
    }

    /// Takes a published volume away; one that isn't published is fine.
    pub fn unpublish(&mut self, spot: Spot<'_>) -> Result<(), Refusal> {
        let Spot {
            volume: id,
            node,
            path,
        } = spot;
        if self
            .volumes
            .get(id)
            .is_some_and(|volume| volume.nodes.contains_key(node))
        {
            self.on(id, node)?.targets.remove(path);
            self.forget_idle(id, node);
        }
        Ok(())
    }

    fn find(&self, id: &str) -> Result<&Stored, Refusal> {
        self.volumes.get(id).ok_or_else(|| unknown(id))
    }

    fn change(&mut self, id: &str) -> Result<&mut Stored, Refusal> {
        self.volumes.get_mut(id).ok_or_else(|| unknown(id))
    }

    fn on(&mut self, id: &str, node: &str) -> Result<&mut OnNode, Refusal> {
        Ok(self.change(id)?.nodes.entry(node.to_owned()).or_default())
    }

    fn forget_idle(&mut self, id: &str, node: &str) {
        if let Some(volume) = self.volumes.get_mut(id)
            && volume.nodes.get(node).is_some_and(|on| !on.in_use())
        {
            volume.nodes.remove(node);
        }
    }

    fn breach(&mut self, rule: &'static str, code: Code, what: String) -> Refusal {
        self.breaches.push(Breach {
            rule,
            what: what.clone(),
        });
        Refusal {
            code,
            message: what,
        }
    }
}

impl Stored {
    /// Whether it is what an order asks for: the same, and within reach of one of the places.
    fn answers(&self, order: &Order) -> bool {
        let within = match &self.place {
            Some(place) => order.places.is_empty() || order.places.contains(place),
            None => true,
        };
        within
            && Order {
                places: self.order.places.clone(),
                ..order.clone()
            } == self.order
    }

    /// A node that still has something of it.
    fn used_on(&self) -> Option<&str> {
        let staged = self
            .nodes
            .iter()
            .find(|(_, on)| on.in_use())
            .map(|(node, _)| node);
        staged
            .or_else(|| self.attached.keys().next())
            .map(String::as_str)
    }
}

impl OnNode {
    fn in_use(&self) -> bool {
        self.staged.is_some() || !self.targets.is_empty()
    }
}

fn unknown(id: &str) -> Refusal {
    Refusal {
        code: Code::NotFound,
        message: format!("there is no volume {id}"),
    }
}

#[cfg(test)]
mod tests;
