//! Snapshots and groups of them.

use std::collections::BTreeMap;

use tonic::Code;

use super::{Backend, Refusal};

/// A snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The volume that it was cut from.
    pub source: String,
    /// The group that it is a member of.
    pub group: Option<String>,
}

impl Backend {
    /// What was cut, by id.
    pub fn snapshots(&self) -> &BTreeMap<String, Cut> {
        &self.snapshots
    }

    /// Groups and their members, by id.
    pub fn groups(&self) -> &BTreeMap<String, Vec<String>> {
        &self.groups
    }

    /// Cuts a volume, or finds what an earlier call cut.
    pub fn cut(&mut self, name: &str, source: &str) -> Result<String, Refusal> {
        let id = format!("snap-{name}");
        match self.snapshots.get(&id) {
            Some(found) if found.source == source => return Ok(id),
            Some(found) => {
                let what = format!("{id} is of {}, but asked for of {source}", found.source);
                return Err(self.breach("I20", Code::AlreadyExists, what));
            }
            None => {}
        }
        self.find(source)?;
        let cut = Cut {
            source: source.to_owned(),
            group: None,
        };
        self.snapshots.insert(id.clone(), cut);
        Ok(id)
    }

    /// Removes a snapshot; one that isn't there is fine.
    pub fn uncut(&mut self, id: &str) -> Result<(), Refusal> {
        let group = self.snapshots.get(id).and_then(|cut| cut.group.clone());
        if let Some(group) = group {
            let what = format!("DeleteSnapshot of {id}, a member of {group}");
            return Err(self.breach("I28", Code::InvalidArgument, what));
        }
        self.snapshots.remove(id);
        Ok(())
    }

    /// Cuts volumes together, or finds what an earlier call cut.
    pub fn cut_group(&mut self, name: &str, sources: &[String]) -> Result<String, Refusal> {
        let id = format!("group-{name}");
        if self.groups.contains_key(&id) {
            return Ok(id);
        }
        for source in sources {
            self.find(source)?;
        }
        let mut members = Vec::new();
        for source in sources {
            let member = format!("snap-{id}-{source}");
            let cut = Cut {
                source: source.clone(),
                group: Some(id.clone()),
            };
            self.snapshots.insert(member.clone(), cut);
            members.push(member);
        }
        self.groups.insert(id.clone(), members);
        Ok(id)
    }

    /// Removes a group and its members; one that isn't there is fine.
    pub fn uncut_group(&mut self, id: &str, members: &[String]) -> Result<(), Refusal> {
        let Some(found) = self.groups.get(id) else {
            return Ok(());
        };
        let mut asked = members.to_vec();
        asked.sort();
        let mut there = found.clone();
        there.sort();
        if asked != there {
            let what = format!("DeleteVolumeGroupSnapshot of {id} with {members:?}");
            return Err(self.breach("I28", Code::InvalidArgument, what));
        }
        self.groups.remove(id);
        self.snapshots
            .retain(|_, cut| cut.group.as_deref() != Some(id));
        Ok(())
    }
}
