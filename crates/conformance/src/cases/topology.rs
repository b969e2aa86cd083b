//! Where volumes are: only where they were asked for, and where the driver can reach.

use orlop_csi::client::{ControllerCapability as Can, PluginService};
use orlop_csi::proto;
use tonic::Code;

use super::CREATE;
use crate::case::{Case, Need, Trouble, ensure};
use crate::spec;
use crate::trial::Trial;

const PLACES: Need = Need::Plugin(PluginService::VolumeAccessibilityConstraints);

/// The node's own place.
fn here(t: &Trial) -> Result<proto::Topology, Trouble> {
    let here = t.bench().topology.clone();
    here.filter(|here| !here.segments.is_empty())
        .ok_or_else(|| Trouble::Skip("NodeGetInfo tells no accessible_topology".to_owned()))
}

/// A place with the same keys that no node is in.
fn nowhere(t: &Trial) -> Result<proto::Topology, Trouble> {
    let mut place = here(t)?;
    for value in place.segments.values_mut() {
        *value = format!("orlop-conformance-nowhere-{}", t.bench().tag);
    }
    Ok(place)
}

/// Whether everything that `wanted` says holds at `place`.
fn lies_in(place: &proto::Topology, wanted: &proto::Topology) -> bool {
    let mut segments = wanted.segments.iter();
    segments.all(|(key, value)| place.segments.get(key) == Some(value))
}

fn request(
    t: &Trial,
    requisite: Vec<proto::Topology>,
    preferred: Vec<proto::Topology>,
) -> proto::CreateVolumeRequest {
    proto::CreateVolumeRequest {
        accessibility_requirements: Some(proto::TopologyRequirement {
            requisite,
            preferred,
        }),
        ..t.create_request("v")
    }
}

fn lies_here(volume: &proto::Volume, here: &proto::Topology) -> Result<(), Trouble> {
    let places = &volume.accessible_topology;
    ensure!(
        places.is_empty()
            || places
                .iter()
                .any(|place| lies_in(place, here) || lies_in(here, place)),
        "the volume was asked for at {:?}; accessible_topology says {places:?}",
        here.segments
    );
    Ok(())
}

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::must(
            "topology.volume_is_where_it_was_asked_for",
            spec::CREATE_VOLUME,
            "a volume that is asked for at the node's place is reachable there",
            &[CREATE, PLACES],
            |t| async move {
                let here = here(&t)?;
                let volume = t
                    .create(request(&t, vec![here.clone()], Vec::new()))
                    .await?;
                lies_here(&volume, &here)
            },
        ),
        Case::must(
            "topology.preferred_alone",
            spec::CREATE_VOLUME,
            "a volume with preferred places and no requisite ones is made",
            &[CREATE, PLACES],
            |t| async move {
                let here = here(&t)?;
                let volume = t.create(request(&t, Vec::new(), vec![here])).await?;
                t.call(t.delete_request(&volume.volume_id))
                    .await
                    .ok()
                    .map(drop)
            },
        ),
        Case::must(
            "topology.one_of_several",
            spec::CREATE_VOLUME,
            "a volume with several requisite places is made where the driver can",
            &[CREATE, PLACES],
            |t| async move {
                let (here, nowhere) = (here(&t)?, nowhere(&t)?);
                let request = request(&t, vec![nowhere, here.clone()], Vec::new());
                let volume = t.create(request).await?;
                lies_here(&volume, &here)
            },
        ),
        Case::must(
            "topology.nowhere_is_refused",
            spec::CREATE_VOLUME,
            "a volume in a place that the driver cannot reach is refused",
            &[CREATE, PLACES],
            |t| async move {
                let request = request(&t, vec![nowhere(&t)?], Vec::new());
                t.call(request).await.refused_with_any(
                    &[Code::ResourceExhausted, Code::InvalidArgument],
                    "there is no storage in the only place that was asked for",
                )
            },
        ),
        Case::must(
            "topology.no_capacity_nowhere",
            spec::GET_CAPACITY,
            "GetCapacity has nothing in a place that the driver cannot reach",
            &[PLACES, Need::Controller(Can::GetCapacity)],
            |t| async move {
                let request = proto::GetCapacityRequest {
                    accessible_topology: Some(nowhere(&t)?),
                    parameters: t.bench().settings.parameters.clone(),
                    ..Default::default()
                };
                let reply = t.call(request).await.ok()?;
                ensure!(
                    reply.available_capacity == 0,
                    "GetCapacity says {} bytes are available in a place that does not exist",
                    reply.available_capacity
                );
                Ok(())
            },
        ),
    ]
}
