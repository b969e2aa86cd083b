//! The PersistentVolume that records what a driver made.

use std::collections::BTreeMap;

use orlop_csi::proto;
use orlop_model::{
    Claim, Key, Kind, Meta, ObjectRef, Quantity, Resources, StorageClass, Volume,
    selector::{NodeSelector, NodeSelectorTerm, Requirement},
    volume::{CsiSource, SecretRef, VolumeNodeAffinity, VolumeSpec},
    well_known::{
        DELETION_SECRET_NAME, DELETION_SECRET_NAMESPACE, EXTERNAL_PROVISIONER, MIGRATED_TO,
        MODIFY_SECRET_NAME, MODIFY_SECRET_NAMESPACE, PROVISIONED_BY, PROVISIONER_IDENTITY,
    },
};

use super::request::Plan;

/// What a volume object is made up from.
pub(super) struct Made<'a> {
    pub(super) driver: &'a str,
    pub(super) identity: &'a str,
    pub(super) claim: &'a Claim,
    pub(super) class: &'a StorageClass,
    pub(super) plan: &'a Plan,
    pub(super) answer: &'a proto::Volume,
}

/// Why a driver's answer can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum AnswerError {
    #[error(
        "the driver answered CreateVolume without a volume id, so that what it made can't be named; \
         this is an error of the driver"
    )]
    NoId,
    #[error(
        "the driver made a volume of {got} bytes where {asked} were asked for; this is an error of the driver"
    )]
    TooSmall { got: i64, asked: i64 },
    #[error("volume content source missing: the driver does not say that it filled the volume")]
    NotFilled,
}

/// Whether the answer is what was asked for.
pub(super) fn check(plan: &Plan, answer: &proto::Volume) -> Result<(), AnswerError> {
    if answer.volume_id.is_empty() {
        return Err(AnswerError::NoId);
    }
    let asked = asked_bytes(plan);
    let got = answer.capacity_bytes;
    if got != 0 && got < asked {
        return Err(AnswerError::TooSmall { got, asked });
    }
    if plan.content.is_some() && answer.content_source.is_none() {
        return Err(AnswerError::NotFilled);
    }
    Ok(())
}

fn asked_bytes(plan: &Plan) -> i64 {
    plan.request
        .capacity_range
        .as_ref()
        .map_or(0, |r| r.required_bytes)
}

impl Made<'_> {
    /// The volume object, reserved for the claim that asked for it.
    pub(super) fn volume(&self) -> Volume {
        let Self {
            driver,
            identity,
            claim,
            class,
            plan,
            answer,
        } = self;
        // Zero means that the driver doesn't know.
        let bytes = match answer.capacity_bytes {
            0 => asked_bytes(plan),
            known => known,
        };
        let mut volume_attributes = answer.volume_context.clone();
        volume_attributes.insert(PROVISIONER_IDENTITY.to_owned(), (*identity).to_owned());
        let csi = CsiSource {
            driver: (*driver).to_owned(),
            volume_handle: answer.volume_id.clone(),
            read_only: plan.readonly,
            fs_type: plan.fs_type.clone(),
            volume_attributes,
            controller_publish_secret_ref: plan.controller_publish_secret.clone(),
            node_stage_secret_ref: plan.node_stage_secret.clone(),
            node_publish_secret_ref: plan.node_publish_secret.clone(),
            controller_expand_secret_ref: plan.controller_expand_secret.clone(),
            node_expand_secret_ref: plan.node_expand_secret.clone(),
        };
        Volume {
            metadata: self.metadata(),
            spec: VolumeSpec {
                capacity: Resources::of_storage(Quantity::bytes(bytes)),
                access_modes: claim.spec.access_modes.clone(),
                claim_ref: Some(ObjectRef {
                    field_path: String::new(),
                    ..claim.reference()
                }),
                persistent_volume_reclaim_policy: Some(class.reclaim_policy()),
                storage_class_name: class.metadata.name.clone(),
                mount_options: class.mount_options.clone(),
                volume_mode: Some(claim.volume_mode()),
                node_affinity: affinity(&answer.accessible_topology),
                volume_attributes_class_name: plan.attributes_class.clone(),
                csi: Some(csi),
                ..VolumeSpec::default()
            },
            ..Volume::default()
        }
    }

    fn metadata(&self) -> Meta {
        // Present even when empty: it says that there is no secret, rather than that the
        // class must be asked.
        let secret = self.plan.provision_secret.clone().unwrap_or_default();
        let SecretRef { name, namespace } = secret;
        let mut annotations = vec![
            (PROVISIONED_BY, self.class.provisioner.clone()),
            (DELETION_SECRET_NAME, name),
            (DELETION_SECRET_NAMESPACE, namespace),
        ];
        if self.class.provisioner != self.driver {
            annotations.push((MIGRATED_TO, self.driver.to_owned()));
        }
        if let Some(SecretRef { name, namespace }) = self.plan.controller_modify_secret.clone() {
            annotations.push((MODIFY_SECRET_NAME, name));
            annotations.push((MODIFY_SECRET_NAMESPACE, namespace));
        }
        Meta {
            annotations: annotations
                .into_iter()
                .map(|(key, value)| (key.to_owned(), value))
                .collect::<BTreeMap<_, _>>(),
            finalizers: vec![EXTERNAL_PROVISIONER.to_owned()],
            ..Meta::named(&Key::cluster(self.plan.request.name.clone()))
        }
    }
}

/// One term per place; any of them reaches the volume.
fn affinity(places: &[proto::Topology]) -> Option<VolumeNodeAffinity> {
    let term = |place: &proto::Topology| NodeSelectorTerm {
        match_expressions: place
            .segments
            .iter()
            .map(|(key, value)| Requirement {
                key: key.clone(),
                operator: "In".to_owned(),
                values: vec![value.clone()],
            })
            .collect(),
        ..NodeSelectorTerm::default()
    };
    let terms: Vec<_> = places
        .iter()
        .filter(|p| !p.segments.is_empty())
        .map(term)
        .collect();
    (!terms.is_empty()).then_some(VolumeNodeAffinity {
        required: Some(NodeSelector {
            node_selector_terms: terms,
        }),
    })
}

#[cfg(test)]
mod tests;
