//! PersistentVolumeClaim.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    access::{AccessMode, VolumeMode},
    kind::kind,
    meta::Meta,
    quantity::{Quantity, Resources},
    selector::LabelSelector,
    well_known,
};

/// A user's request for storage.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Claim {
    /// Metadata.
    pub metadata: Meta,
    /// What is asked for.
    pub spec: ClaimSpec,
    /// What was given.
    pub status: ClaimStatus,
}
kind!(
    Claim,
    "",
    "v1",
    "PersistentVolumeClaim",
    "persistentvolumeclaims",
    Namespaced
);

/// What a claim asks for.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSpec {
    /// All of them must be allowed by the volume.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub access_modes: Vec<AccessMode>,
    /// How much.
    pub resources: ClaimResources,
    /// `None`: the default class; `Some("")`: no class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// The volume that the claim is, or wants to be, bound to.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub volume_name: String,
    /// Files or a device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_mode: Option<VolumeMode>,
    /// Restricts the volumes by their labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// The performance class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume_attributes_class_name: Option<String>,
    /// Where the volume's first content comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_source: Option<serde_json::Value>,
    /// The newer form of `data_source`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_source_ref: Option<serde_json::Value>,
}

/// The amounts that a claim names.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ClaimResources {
    /// At least this much.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub requests: Resources,
    /// At most this much.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub limits: Resources,
}

/// What a claim was given.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimStatus {
    /// How far binding is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<ClaimPhase>,
    /// The bound volume's modes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub access_modes: Vec<AccessMode>,
    /// The bound volume's size.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub capacity: Resources,
    /// What an expansion goes, or went, for.
    #[serde(skip_serializing_if = "Resources::is_empty")]
    pub allocated_resources: Resources,
    /// How far an expansion is, by resource; absent when none is under way.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub allocated_resource_statuses: BTreeMap<String, ResizeStatus>,
    /// The attributes class that the volume has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_volume_attributes_class_name: Option<String>,
    /// How far a change of the attributes class is; absent when none is under way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modify_volume_status: Option<ModifyVolumeStatus>,
    /// Whether no pod uses the claim, if that was told. The only one of the conditions that is kept.
    #[serde(
        rename = "conditions",
        with = "unused",
        skip_serializing_if = "Option::is_none"
    )]
    pub unused: Option<bool>,
}

/// Condition: no pod uses the claim.
pub const UNUSED: &str = "Unused";

/// A claim's conditions, of which [`UNUSED`] counts.
mod unused {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Default, Serialize, Deserialize)]
    #[serde(default)]
    struct Condition {
        #[serde(rename = "type")]
        type_: String,
        status: String,
    }

    #[expect(clippy::ref_option, reason = "serde calls it so")]
    pub(super) fn serialize<S: Serializer>(
        unused: &Option<bool>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let condition = |unused: &bool| Condition {
            type_: super::UNUSED.to_owned(),
            status: if *unused { "True" } else { "False" }.to_owned(),
        };
        let all: Vec<Condition> = unused.iter().map(condition).collect();
        all.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<bool>, D::Error> {
        let all = Option::<Vec<Condition>>::deserialize(deserializer)?.unwrap_or_default();
        let mut told = all.iter().filter(|one| one.type_ == super::UNUSED);
        Ok(told.next().map(|one| one.status == "True"))
    }
}

/// How far an expansion is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ResizeStatus {
    /// The backend is, or may have been, asked.
    ControllerResizeInProgress,
    /// The backend will never do it.
    ControllerResizeInfeasible,
    /// The backend's part is done, a node must do its own.
    NodeResizePending,
    /// A node is at it.
    NodeResizeInProgress,
    /// A node will never do it.
    NodeResizeInfeasible,
    /// One that we don't know.
    #[serde(other)]
    Other,
}

/// A change of the attributes class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModifyVolumeStatus {
    /// How far it is.
    pub status: ModifyStatus,
    /// The class that is being applied.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub target_volume_attributes_class_name: String,
}

/// How far a change of the attributes class is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModifyStatus {
    /// It can't begin, for example because the class does not exist.
    Pending,
    /// The backend is, or may have been, asked.
    InProgress,
    /// The backend will never do it.
    Infeasible,
    /// One that we don't know.
    #[serde(other)]
    Other,
}

/// How far a claim's binding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClaimPhase {
    /// Not bound.
    Pending,
    /// Bound to a volume.
    Bound,
    /// Its volume is gone; data may be lost. There is no way back.
    Lost,
}

impl Claim {
    /// The class asked for: the legacy annotation wins. `None` means that nothing was said.
    pub fn class(&self) -> Option<&str> {
        self.metadata
            .annotation(well_known::BETA_STORAGE_CLASS)
            .or(self.spec.storage_class_name.as_deref())
    }

    /// Bytes asked for; 0 if the claim names no amount.
    pub fn requested_bytes(&self) -> i64 {
        self.spec
            .resources
            .requests
            .storage()
            .map_or(0, Quantity::value)
    }

    /// Bytes that the claim has; 0 before it is bound.
    pub fn capacity_bytes(&self) -> i64 {
        self.status.capacity.storage().map_or(0, Quantity::value)
    }

    /// Bytes that the last expansion goes, or went, for.
    pub fn allocated_bytes(&self) -> Option<i64> {
        self.status
            .allocated_resources
            .storage()
            .map(Quantity::value)
    }

    /// How far an expansion is; `None` when none is under way.
    pub fn resize_status(&self) -> Option<ResizeStatus> {
        self.status
            .allocated_resource_statuses
            .get("storage")
            .copied()
    }

    /// Files or a device.
    pub fn volume_mode(&self) -> VolumeMode {
        self.spec.volume_mode.unwrap_or_default()
    }

    /// Whether binding was finished once.
    pub fn bind_completed(&self) -> bool {
        self.metadata
            .annotations
            .contains_key(well_known::BIND_COMPLETED)
    }

    /// Whether the binder, not a person, pointed it to its volume.
    pub fn bound_by_controller(&self) -> bool {
        self.metadata
            .annotations
            .contains_key(well_known::BOUND_BY_CONTROLLER)
    }

    /// Whether the claim names a volume and binding was finished.
    pub fn is_fully_bound(&self) -> bool {
        !self.spec.volume_name.is_empty() && self.bind_completed()
    }

    /// The phase; a claim without one is pending.
    pub fn phase(&self) -> ClaimPhase {
        self.status.phase.unwrap_or(ClaimPhase::Pending)
    }

    /// The provisioner that shall act for this claim.
    pub fn provisioner(&self) -> Option<&str> {
        self.metadata
            .annotation(well_known::STORAGE_PROVISIONER)
            .or_else(|| {
                self.metadata
                    .annotation(well_known::BETA_STORAGE_PROVISIONER)
            })
    }

    /// The node that the scheduler chose.
    pub fn selected_node(&self) -> Option<&str> {
        self.metadata
            .annotation(well_known::SELECTED_NODE)
            .filter(|n| !n.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_of_a_newer_kubernetes_hides_nothing_else() {
        let json = serde_json::json!({"status": {
            "capacity": {"storage": "1Gi"},
            "allocatedResources": {"storage": "2Gi"},
            "allocatedResourceStatuses": {"storage": "ResizeOfTomorrow"},
            "modifyVolumeStatus": {"status": "SomethingNew"},
            "conditions": [{"type": "Resizing", "status": "True"},
                           {"type": "Unused", "status": "False", "reason": "PodUsingPVC"}],
        }});
        let claim: Claim = serde_json::from_value(json).expect("it is read");
        assert_eq!(claim.capacity_bytes(), 1 << 30);
        assert_eq!(claim.allocated_bytes(), Some(2 << 30));
        assert_eq!(claim.status.unused, Some(false));
        assert_eq!(claim.resize_status(), Some(ResizeStatus::Other));
        let modify = claim.status.modify_volume_status.expect("it is there");
        assert_eq!(modify.status, ModifyStatus::Other);
    }
}
