//! Every call of the protocol, in one table: its name on the wire, its
//! service, its request and its reply.

use std::fmt;

use crate::proto;
use crate::secrets::Sensitive;

/// A service of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Service {
    /// Who the driver is.
    Identity,
    /// Volumes and snapshots.
    Controller,
    /// Group snapshots.
    GroupController,
    /// Changed blocks.
    SnapshotMetadata,
    /// Volumes on one node.
    Node,
}

/// What a request says about itself to spans and errors; written by the build.
pub trait About {
    /// The id or name of what the request is about; empty if nothing in particular.
    fn subject(&self) -> &str {
        ""
    }

    /// The volume that it is about, where it names one by id.
    fn volume_id(&self) -> Option<&str> {
        None
    }

    /// Gathers the request's secrets; only this crate's client can read them.
    fn sensitive(&self, _found: &mut Sensitive) {}
}

/// A request of the protocol, which knows its call and its reply.
pub trait CsiRequest: About + prost::Message + Default + 'static {
    /// What the driver answers with; one or, for a stream, many of it.
    type Reply: prost::Message + Default + 'static;
    /// The call that it is the request of.
    const METHOD: Method;
}

/// A request that is answered by one reply.
pub trait Unary: CsiRequest {}

/// A request that is answered by a stream of replies.
pub trait Streams: CsiRequest {}

/// A test's look at message types.
#[cfg(test)]
pub(crate) trait MessageVisitor {
    fn visit<M: prost::Message + Default + fmt::Debug>(&mut self, name: &str);
}

macro_rules! methods {
    ($($service:ident: $shape:ident { $($method:ident: $request:ident => $reply:ident,)+ })+) => {
        /// A call of the protocol.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Method {
            $($(
                #[doc = concat!("`", stringify!($service), ".", stringify!($method), "`")]
                $method,
            )+)+
        }

        impl Method {
            /// All of them, service by service.
            pub const ALL: &'static [Self] = &[$($(Self::$method,)+)+];

            /// The name alone, such as `CreateVolume`.
            pub const fn name(self) -> &'static str {
                match self { $($(Self::$method => stringify!($method),)+)+ }
            }

            /// The name on the wire, such as `/csi.v1.Controller/CreateVolume`.
            pub const fn path(self) -> &'static str {
                match self {
                    $($(Self::$method => concat!(
                        "/csi.v1.", stringify!($service), "/", stringify!($method)
                    ),)+)+
                }
            }

            /// The service that it belongs to.
            pub const fn service(self) -> Service {
                match self { $($(Self::$method => Service::$service,)+)+ }
            }
        }

        $($(
            impl CsiRequest for proto::$request {
                type Reply = proto::$reply;
                const METHOD: Method = Method::$method;
            }

            impl $shape for proto::$request {}
        )+)+

        /// Shows every request and reply type to a test.
        #[cfg(test)]
        pub(crate) fn visit_messages(visitor: &mut impl MessageVisitor) {
            $($(
                visitor.visit::<proto::$request>(stringify!($request));
                visitor.visit::<proto::$reply>(stringify!($reply));
            )+)+
        }

        /// The types of every call, for comparison with the proto.
        #[cfg(test)]
        pub(crate) const TYPES: &[(Method, &str, &str, &str)] = &[$($(
            (Method::$method, stringify!($request), stringify!($reply), stringify!($shape)),
        )+)+];
    };
}

methods! {
    Identity: Unary {
        GetPluginInfo: GetPluginInfoRequest => GetPluginInfoResponse,
        GetPluginCapabilities: GetPluginCapabilitiesRequest => GetPluginCapabilitiesResponse,
        Probe: ProbeRequest => ProbeResponse,
    }
    Controller: Unary {
        CreateVolume: CreateVolumeRequest => CreateVolumeResponse,
        DeleteVolume: DeleteVolumeRequest => DeleteVolumeResponse,
        ControllerPublishVolume: ControllerPublishVolumeRequest => ControllerPublishVolumeResponse,
        ControllerUnpublishVolume:
            ControllerUnpublishVolumeRequest => ControllerUnpublishVolumeResponse,
        ValidateVolumeCapabilities:
            ValidateVolumeCapabilitiesRequest => ValidateVolumeCapabilitiesResponse,
        ListVolumes: ListVolumesRequest => ListVolumesResponse,
        GetCapacity: GetCapacityRequest => GetCapacityResponse,
        ControllerGetCapabilities:
            ControllerGetCapabilitiesRequest => ControllerGetCapabilitiesResponse,
        CreateSnapshot: CreateSnapshotRequest => CreateSnapshotResponse,
        DeleteSnapshot: DeleteSnapshotRequest => DeleteSnapshotResponse,
        ListSnapshots: ListSnapshotsRequest => ListSnapshotsResponse,
        GetSnapshot: GetSnapshotRequest => GetSnapshotResponse,
        ControllerExpandVolume: ControllerExpandVolumeRequest => ControllerExpandVolumeResponse,
        ControllerGetVolume: ControllerGetVolumeRequest => ControllerGetVolumeResponse,
        ControllerModifyVolume: ControllerModifyVolumeRequest => ControllerModifyVolumeResponse,
    }
    GroupController: Unary {
        GroupControllerGetCapabilities:
            GroupControllerGetCapabilitiesRequest => GroupControllerGetCapabilitiesResponse,
        CreateVolumeGroupSnapshot:
            CreateVolumeGroupSnapshotRequest => CreateVolumeGroupSnapshotResponse,
        DeleteVolumeGroupSnapshot:
            DeleteVolumeGroupSnapshotRequest => DeleteVolumeGroupSnapshotResponse,
        GetVolumeGroupSnapshot: GetVolumeGroupSnapshotRequest => GetVolumeGroupSnapshotResponse,
    }
    SnapshotMetadata: Streams {
        GetMetadataAllocated: GetMetadataAllocatedRequest => GetMetadataAllocatedResponse,
        GetMetadataDelta: GetMetadataDeltaRequest => GetMetadataDeltaResponse,
    }
    Node: Unary {
        NodeStageVolume: NodeStageVolumeRequest => NodeStageVolumeResponse,
        NodeUnstageVolume: NodeUnstageVolumeRequest => NodeUnstageVolumeResponse,
        NodePublishVolume: NodePublishVolumeRequest => NodePublishVolumeResponse,
        NodeUnpublishVolume: NodeUnpublishVolumeRequest => NodeUnpublishVolumeResponse,
        NodeGetVolumeStats: NodeGetVolumeStatsRequest => NodeGetVolumeStatsResponse,
        NodeExpandVolume: NodeExpandVolumeRequest => NodeExpandVolumeResponse,
        NodeGetCapabilities: NodeGetCapabilitiesRequest => NodeGetCapabilitiesResponse,
        NodeGetInfo: NodeGetInfoRequest => NodeGetInfoResponse,
    }
}

impl Method {
    /// The call with this name on the wire.
    pub fn from_path(path: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|method| method.path() == path)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests;
