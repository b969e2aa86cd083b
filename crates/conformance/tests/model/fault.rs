//! The ways in which the model breaks the contract: one clause each.

macro_rules! faults {
    ($($name:ident: $told:literal by $cases:literal,)+) => {
        /// One clause that the model breaks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Fault {
            $(#[doc = $told] $name,)+
        }

        impl Fault {
            /// Every fault.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// What the model does, as a sentence.
            pub(crate) fn told(self) -> &'static str {
                match self { $(Self::$name => $told,)+ }
            }

            /// The case, or the group of cases, that finds it, after those that lead there.
            pub(crate) fn caught_by(self) -> Vec<&'static str> {
                let cases = match self { $(Self::$name => $cases,)+ };
                cases.split_whitespace().collect()
            }
        }
    };
}

faults! {
    // Identity
    PluginNameTooLong: "the plugin's name has 64 characters" by "identity.name_is_a_domain_name",
    PluginNameMalformed: "the plugin's name has an underscore and ends with a dash" by "identity.name_is_a_domain_name",
    PluginNameEmpty: "the plugin has no name" by "cannot.run",
    VersionEmpty: "the plugin has no version" by "identity.vendor_version_is_set",
    ManifestTooLarge: "the manifest is larger than 4 KiB" by "identity.manifest_is_small",
    PluginCapabilityUnknown: "a plugin capability of type UNKNOWN is advertised" by "identity.capabilities_are_known",
    PluginCapabilitiesVary: "the plugin capabilities differ from call to call" by "identity.info_never_changes",
    ProbeNeverReady: "the probe says for ever that the driver starts up" by "identity.probe_says_ready",

    // CreateVolume: fields
    CreateWithoutName: "CreateVolume accepts an empty name" by "required.create_volume_name",
    CreateWithoutCapabilities: "CreateVolume accepts no capabilities" by "required.create_volume_capabilities",
    CreateWithoutAccessType: "CreateVolume accepts a capability without access type" by "required.create_volume_access_type",
    CreateWithoutAccessMode: "CreateVolume accepts a capability without access mode" by "required.create_volume_access_mode",
    CreateUnknownMode: "CreateVolume accepts an access mode that does not exist" by "required. wire.",
    CreateNameTooLong: "CreateVolume accepts a name of 129 bytes" by "names.volume_129_bytes",
    CreateLongNameRefused: "CreateVolume refuses a name of 128 bytes" by "names.volume_128_bytes",
    CreateUnicodeRefused: "CreateVolume refuses names beyond ASCII" by "names.volume_",
    CreateSlashRefused: "CreateVolume refuses names with a slash" by "names.volume_",
    CreateControlCharacter: "CreateVolume accepts control characters in a name" by "names.banned_",
    CreateParametersTooLarge: "CreateVolume accepts parameters larger than 4 KiB" by "names.parameters_over_4_kib",
    CreateNameIsPath: "CreateVolume makes a folder at the path that a name spells" by "paths.volume_name_is_no_path",

    // CreateVolume: names
    CreateForgetsNames: "CreateVolume makes a second volume for the same name" by "create.repeat_is_idempotent",
    CreateRepeatOtherContext: "a repeated CreateVolume answers another volume context" by "create.repeat_gives_equal_answer",
    CreateRepeatOtherSize: "CreateVolume answers OK for a name that exists with another size" by "create.same_name_other_size_is_refused",
    CreateRepeatOtherParameters: "CreateVolume answers OK for a name that exists with other parameters" by "create.same_name_other_parameters",
    CreateRepeatOtherSource: "CreateVolume answers OK for a name that exists from another source" by "sources.",
    CreateRepeatOtherForm: "CreateVolume answers OK for a name that exists with other capabilities" by "create.same_name_other_capabilities",
    CreateRepeatFails: "a repeated CreateVolume answers ALREADY_EXISTS" by "create.repeat_is_idempotent",
    CreateConflictIsInternal: "a conflicting name answers INTERNAL" by "create.same_name_other_size_is_refused",

    // CreateVolume: size
    CreateOverLimit: "the volume is larger than limit_bytes" by "capacity.",
    CreateTooSmall: "the volume is smaller than required_bytes" by "capacity.",
    CreateInvertedRange: "CreateVolume accepts a limit below what is required" by "capacity.",
    CreateNegativeSize: "CreateVolume accepts a negative size" by "capacity.",
    CreateHugeSize: "CreateVolume accepts more bytes than there are" by "capacity.",
    CreateNegativeCapacity: "CreateVolume answers a negative capacity" by "create.same_name_smaller_limit_is_refused",
    CreateFileSystemTooSmall: "the file system is a quarter of what was promised" by "capacity.is_seen_at_the_path",
    BlockTooSmall: "the block device is half of what was promised" by "block.has_its_size",

    // CreateVolume: answer
    CreateIdEmpty: "CreateVolume answers without a volume id" by "required.validate_capabilities",
    CreateIdTooLong: "CreateVolume answers a volume id of 129 bytes" by "required.validate_capabilities",
    CreateContextTooLarge: "CreateVolume answers a volume context larger than 4 KiB" by "create.works audit.",
    CreateSourceNotEchoed: "CreateVolume does not echo the content source" by "sources.",
    CreateSharesContexts: "CreateVolume answers another volume's context" by "list_volumes.tells_what_create_told",
    CreateMutableUnchecked: "CreateVolume accepts mutable parameters that it does not know" by "modify.create_with_unsupported_parameters",
    CreateTopologyIgnored: "CreateVolume accepts a topology that it cannot serve" by "topology.nowhere_is_refused",
    CreateTopologyElsewhere: "CreateVolume answers a topology that was not asked for" by "topology.volume_is_where_it_was_asked_for",

    // CreateVolume: sources
    RestoreUnknownIsInternal: "CreateVolume answers INTERNAL for an unknown snapshot" by "sources.",
    CloneUnknownIsInvalid: "CreateVolume answers INVALID_ARGUMENT for an unknown source volume" by "sources.",
    RestoreLosesData: "a volume restored from a snapshot is empty" by "sources. data.",
    RestoreCorruptsData: "a volume restored from a snapshot has one byte changed" by "data.",
    CloneLosesData: "a cloned volume is empty" by "data.",
    CloneSharesData: "a clone shares its data with its source" by "sources.",
    RestoreStaysSmall: "a volume restored to a larger size shows the old size" by "sources.",
    RestoreTooSmall: "a snapshot is restored into fewer bytes than it has" by "sources.",
    RestoreDiesWithSnapshot: "deleting a snapshot empties the volumes made from it" by "data.mount_restored_outlives",

    // DeleteVolume
    DeleteWithoutId: "DeleteVolume accepts an empty id" by "required.delete_volume_id",
    DeleteUnknownFails: "DeleteVolume answers NOT_FOUND for an unknown volume" by "delete.unknown_is_ok",
    DeleteTwiceFails: "the second DeleteVolume of a volume fails" by "delete.repeat_is_ok",
    DeleteKeepsVolume: "DeleteVolume answers OK and keeps the volume" by "create.name_is_free_after_delete",
    DeleteInUse: "DeleteVolume deletes a volume in use" by "delete.in_use_does_no_harm",
    DeleteInUseDamages: "DeleteVolume refuses a volume in use and empties it" by "delete.in_use_does_no_harm",
    DeleteTakesSnapshots: "DeleteVolume deletes the volume's snapshots too" by "delete.with_snapshots",
    DeleteTakesNeighbour: "DeleteVolume deletes another volume too" by "delete.others_stay",
    DeleteLeavesRoot: "DeleteVolume removes the folder that an id spells as a path" by "paths.delete_volume_is_no_path",

    // ControllerPublishVolume and its inverse
    AttachWithoutId: "ControllerPublishVolume accepts an empty volume id" by "required.controller_publish_volume_id",
    AttachWithoutNode: "ControllerPublishVolume accepts an empty node id" by "required.controller_publish_node_id",
    AttachWithoutCapability: "ControllerPublishVolume accepts no capability" by "required.controller_publish_capability",
    AttachUnknownVolumeIsInternal: "ControllerPublishVolume answers INTERNAL for an unknown volume" by "attach.unknown_volume",
    AttachUnknownNode: "ControllerPublishVolume accepts an unknown node" by "attach.unknown_node",
    AttachRepeatFails: "a repeated ControllerPublishVolume fails" by "attach.repeat_is_idempotent",
    AttachRepeatOtherContext: "a repeated ControllerPublishVolume answers another context" by "attach.repeat_is_idempotent",
    AttachOtherReadonly: "ControllerPublishVolume answers OK for another readonly flag" by "attach.read_only_is_another_request",
    AttachManyNodes: "ControllerPublishVolume gives a single-node volume to a second node" by "attach.second_node_is_refused",
    AttachOverLimit: "ControllerPublishVolume goes beyond the node's limit" by "attach.limit_is_kept",
    DetachWithoutId: "ControllerUnpublishVolume accepts an empty volume id" by "required.controller_unpublish_volume_id",
    DetachRepeatFails: "a repeated ControllerUnpublishVolume fails" by "attach.undone_twice",
    DetachNeverAttachedFails: "ControllerUnpublishVolume fails for a volume that was never attached" by "attach.undone_without_being_done",
    DetachKeeps: "ControllerUnpublishVolume answers OK and keeps the volume attached" by "attach.",
    DetachAllRefused: "ControllerUnpublishVolume refuses an empty node id" by "attach.undone_everywhere",
    DetachAllKeeps: "ControllerUnpublishVolume without a node detaches nothing" by "attach.undone_everywhere",
    DetachTakesAll: "ControllerUnpublishVolume of one node detaches from all nodes" by "attach.leaving_one_node",

    // ValidateVolumeCapabilities
    ValidateWithoutId: "ValidateVolumeCapabilities accepts an empty id" by "required.validate_volume_id",
    ValidateWithoutCapabilities: "ValidateVolumeCapabilities accepts no capabilities" by "required.validate_capabilities",
    ValidateUnknown: "ValidateVolumeCapabilities confirms for an unknown volume" by "validate.unknown_volume",
    ValidateConfirmsNothing: "ValidateVolumeCapabilities does not confirm what the volume was made for" by "validate.confirms_what_was_created",
    ValidateConfirmsUnknownMode: "ValidateVolumeCapabilities confirms an access mode that does not exist" by "validate.unsupported_file_system",
    ValidateConfirmsLess: "ValidateVolumeCapabilities confirms without naming the capabilities" by "validate.confirms_what_was_created",

    // ListVolumes, ControllerGetVolume, GetCapacity
    ListIgnoresMaximum: "ListVolumes answers more than max_entries" by "list_volumes.pages_of_",
    ListRepeats: "ListVolumes repeats the last entry of a page on the next" by "list_volumes.",
    ListLoses: "ListVolumes loses an entry between pages" by "list_volumes.",
    ListWithoutToken: "ListVolumes cuts the list without a token" by "list_volumes.",
    ListTokenForEver: "ListVolumes ends with a token that leads to the start" by "list_volumes.",
    ListBadToken: "ListVolumes accepts a token that it never gave" by "list_volumes.invalid_token",
    ListBadTokenIsInvalid: "ListVolumes answers INVALID_ARGUMENT for a token that it never gave" by "list_volumes.invalid_token",
    ListNegativeMaximum: "ListVolumes accepts a negative max_entries" by "list_volumes.negative_max_entries",
    ListOtherContext: "ListVolumes shows another volume context than CreateVolume" by "list_volumes.tells_what_create_told",
    ListOldSize: "ListVolumes shows the size from before an expansion" by "expand.is_listed",
    ListWithoutNodes: "ListVolumes does not show where a volume is published" by "attach.is_listed",
    ListWithoutNew: "ListVolumes does not show volumes made from a source" by "sources.snapshot_is_listed",
    ListWithoutSource: "ListVolumes does not show the content source" by "sources.volume_is_listed_with_it",
    GetVolumeWithoutId: "ControllerGetVolume accepts an empty id" by "required.controller_get_volume_id",
    GetVolumeUnknownIsInternal: "ControllerGetVolume answers INTERNAL for an unknown volume" by "get_volume.unknown",
    GetVolumeWithoutCondition: "ControllerGetVolume shows no condition" by "get_volume.tells_the_condition",
    GetVolumeWithoutNodes: "ControllerGetVolume does not show where the volume is published" by "get_volume.tells_nodes",
    GetVolumeOther: "ControllerGetVolume shows another volume's context" by "get_volume.tells_what_create_told",
    CapacityNegative: "GetCapacity answers a negative number" by "capacity.get_",
    CapacityIgnoresTopology: "GetCapacity has room in a place that does not exist" by "topology.no_capacity_nowhere",
    CapacityMaximumNegative: "GetCapacity answers a negative maximum_volume_size" by "capacity.get_bounds_are_sane",
    CapacityMinimumOverMaximum: "GetCapacity answers a minimum beyond the maximum" by "capacity.get_bounds_are_sane",

    // ControllerModifyVolume, ControllerExpandVolume
    ModifyWithoutId: "ControllerModifyVolume accepts an empty id" by "required.modify_volume_id",
    ModifyWithoutParameters: "ControllerModifyVolume accepts no parameters" by "required.modify_parameters",
    ModifyUnknownVolume: "ControllerModifyVolume answers OK for an unknown volume" by "modify.unknown_volume",
    ModifyUnknownKey: "ControllerModifyVolume accepts a key that it does not know" by "modify.unsupported_parameter",
    ModifyRepeatFails: "a repeated ControllerModifyVolume fails" by "modify.repeat_is_idempotent",
    ExpandWithoutId: "ControllerExpandVolume accepts an empty id" by "required.expand_volume_id",
    ExpandWithoutRange: "ControllerExpandVolume accepts no range" by "required.expand_capacity_range",
    ExpandUnknownIsInternal: "ControllerExpandVolume answers INTERNAL for an unknown volume" by "expand.unknown_volume",
    ExpandTooLittle: "ControllerExpandVolume answers the old size" by "expand.works",
    ExpandOverLimit: "ControllerExpandVolume goes beyond the limit" by "expand.keeps_to_the_limit",
    ExpandRepeatFails: "a repeated ControllerExpandVolume fails" by "expand.repeat_is_idempotent",
    ExpandRepeatGrows: "every repetition of ControllerExpandVolume grows the volume" by "expand.repeat_is_idempotent",
    ExpandShrinks: "ControllerExpandVolume shrinks a volume" by "expand.smaller_is_fine",
    ExpandHugeSize: "ControllerExpandVolume accepts more bytes than there are" by "expand.more_than_there_is",
    ExpandNegative: "ControllerExpandVolume accepts a negative size" by "expand.negative",

    // Snapshots
    SnapshotWithoutName: "CreateSnapshot accepts an empty name" by "required.create_snapshot_name",
    SnapshotWithoutSource: "CreateSnapshot accepts an empty source" by "required.create_snapshot_source",
    SnapshotNameTooLong: "CreateSnapshot accepts a name of 129 bytes" by "names.snapshot_129_bytes",
    SnapshotControlCharacter: "CreateSnapshot accepts control characters in a name" by "names.snapshot_banned",
    SnapshotForgetsNames: "CreateSnapshot makes a second snapshot for the same name" by "snapshot.repeat_is_idempotent",
    SnapshotOtherSource: "CreateSnapshot answers OK for a name that exists for another volume" by "snapshot.same_name_other_source",
    SnapshotUnknownSourceIsInternal: "CreateSnapshot answers INTERNAL for an unknown volume" by "snapshot.unknown_source",
    SnapshotNeverReady: "a snapshot is never ready" by "restart.snapshot_is_known",
    SnapshotWithoutTime: "a snapshot has no creation time" by "snapshot.",
    SnapshotFromTheFuture: "a snapshot's creation time is a day ahead" by "snapshot.time_is_now",
    SnapshotNegativeSize: "a snapshot's size is negative" by "snapshot. audit.",
    SnapshotWrongSource: "a snapshot names no source volume" by "snapshot.works",
    SnapshotIdTooLong: "a snapshot's id has 129 bytes" by "snapshot.",
    SnapshotIsLive: "a snapshot follows later writes to its volume" by "data.",
    SnapshotDeleteWithoutId: "DeleteSnapshot accepts an empty id" by "required.delete_snapshot_id",
    SnapshotDeleteUnknownFails: "DeleteSnapshot answers NOT_FOUND for an unknown snapshot" by "snapshot.delete_unknown_is_ok",
    SnapshotDeleteTwiceFails: "the second DeleteSnapshot of a snapshot fails" by "snapshot.delete",
    SnapshotDeleteKeeps: "DeleteSnapshot answers OK and keeps the snapshot" by "snapshot.delete",
    SnapshotListIgnoresId: "ListSnapshots ignores the filter by snapshot" by "list_snapshots.by_id",
    SnapshotListIgnoresSource: "ListSnapshots ignores the filter by source volume" by "list_snapshots.by_source",
    SnapshotListUnknownIdFails: "ListSnapshots answers NOT_FOUND for an unknown snapshot" by "list_snapshots.unknown_id_is_empty",
    SnapshotListUnknownSourceFails: "ListSnapshots answers NOT_FOUND for an unknown source" by "list_snapshots.unknown_source_is_empty",
    SnapshotListIgnoresMaximum: "ListSnapshots answers more than max_entries" by "list_snapshots.",
    SnapshotListRepeats: "ListSnapshots repeats the last entry of a page on the next" by "list_snapshots.",
    SnapshotListLoses: "ListSnapshots loses an entry between pages" by "list_snapshots.",
    SnapshotListBadToken: "ListSnapshots accepts a token that it never gave" by "list_snapshots.invalid_token",
    GetSnapshotWithoutId: "GetSnapshot accepts an empty id" by "required.get_snapshot_id",
    GetSnapshotUnknownEmpty: "GetSnapshot answers OK without a snapshot for an unknown id" by "snapshot.get_unknown",
    GetSnapshotOtherTime: "GetSnapshot shows another creation time than CreateSnapshot" by "snapshot.get_tells_what_create_told",

    // Groups
    GroupWithoutName: "CreateVolumeGroupSnapshot accepts an empty name" by "required.create_group_name",
    GroupWithoutSources: "CreateVolumeGroupSnapshot accepts no sources" by "required.create_group_sources",
    GroupForgetsNames: "CreateVolumeGroupSnapshot makes a second group for the same name" by "groups.repeat_is_idempotent",
    GroupRepeatIncomplete: "a repeated CreateVolumeGroupSnapshot answers fewer members" by "groups.repeat_gives_all_members",
    GroupOtherSources: "CreateVolumeGroupSnapshot answers OK for a name that exists with other sources" by "groups.same_name_other_sources_is_refused",
    GroupHalfMade: "a failed CreateVolumeGroupSnapshot leaves a snapshot behind" by "groups.failure_leaves_nothing",
    GroupMemberMissing: "a group lacks the snapshot of its last source" by "groups.has_a_member_for_every_source",
    GroupMemberWithoutGroup: "the members of a group do not name it" by "groups.answer_is_complete",
    GroupWithoutTime: "a group has no creation time" by "groups.answer_is_complete",
    GroupNotReady: "a group is never ready although its members are" by "groups.is_ready_with_its_members",
    GroupMemberDeleted: "DeleteSnapshot deletes a member of a group" by "groups.member_is_not_deleted_alone",
    GroupDeleteWithoutId: "DeleteVolumeGroupSnapshot accepts an empty id" by "required.delete_group_id",
    GroupDeleteUnknownFails: "DeleteVolumeGroupSnapshot fails for an unknown group" by "groups.delete_unknown",
    GroupDeleteKeepsMembers: "DeleteVolumeGroupSnapshot keeps the members" by "groups.delete_takes_the_members",
    GroupDeleteOtherIds: "DeleteVolumeGroupSnapshot accepts ids of other snapshots" by "groups.delete_with_other_snapshots",
    GroupDeleteWithoutIds: "DeleteVolumeGroupSnapshot accepts no snapshot ids" by "groups.delete_without_snapshots",
    GroupGetWithoutId: "GetVolumeGroupSnapshot accepts an empty id" by "required.get_group_id",
    GroupGetUnknownEmpty: "GetVolumeGroupSnapshot answers OK for an unknown group" by "groups.get_unknown",
    GroupGetOtherIds: "GetVolumeGroupSnapshot accepts ids of other snapshots" by "groups.get_with_other_snapshots",
    GroupGetIncomplete: "GetVolumeGroupSnapshot answers fewer members" by "groups.get_shows_the_group",

    // Snapshot metadata
    AllocatedWithoutId: "GetMetadataAllocated accepts an empty id" by "metadata.allocated_needs_a_snapshot",
    DeltaWithoutBase: "GetMetadataDelta accepts an empty base" by "metadata.delta_needs_a_base",
    AllocatedUnknownEmpty: "GetMetadataAllocated answers nothing for an unknown snapshot" by "metadata.allocated_of_nothing",
    DeltaUnknownEmpty: "GetMetadataDelta answers nothing for an unknown snapshot" by "metadata.delta_of_nothing",
    AllocatedOutOfOrder: "GetMetadataAllocated answers the ranges backwards" by "metadata.allocated_names_what_was_written",
    AllocatedOverlaps: "GetMetadataAllocated answers overlapping ranges" by "metadata.allocated_names_what_was_written",
    AllocatedMissesBlock: "GetMetadataAllocated misses a written block" by "metadata.allocated_names_what_was_written",
    DeltaMissesBlock: "GetMetadataDelta misses a changed block" by "metadata.delta_names_what_changed",
    DeltaMissesZeroed: "GetMetadataDelta misses a block that became zero" by "metadata.delta_names_what_became_zero",
    MetadataIgnoresMaximum: "a message has more ranges than max_results" by "metadata.allocated_keeps_to_the_maximum",
    MetadataIgnoresOffset: "the ranges start before starting_offset" by "metadata.allocated_resumes",
    MetadataBeyondEnd: "a starting_offset beyond the end is accepted" by "metadata.offset_is_within_the_volume",
    MetadataNegativeOffset: "a negative starting_offset is accepted" by "metadata.offset_is_not_negative",
    MetadataCapacityVaries: "the capacity differs from message to message" by "metadata.allocated_keeps_to_the_maximum",
    MetadataTypeUnknown: "the type of the ranges is UNKNOWN" by "metadata.allocated_names_what_was_written",
    MetadataPastCapacity: "the last range ends beyond the capacity" by "metadata.allocated_names_what_was_written",

    // NodeStageVolume and its inverse
    StageWithoutId: "NodeStageVolume accepts an empty volume id" by "required.stage_volume_id",
    StageWithoutPath: "NodeStageVolume accepts an empty path" by "required.stage_path",
    StageWithoutCapability: "NodeStageVolume accepts no capability" by "required.stage_capability",
    StageUnknownIsInternal: "NodeStageVolume answers INTERNAL for an unknown volume" by "stage.unknown_volume",
    StageRepeatFails: "a repeated NodeStageVolume fails" by "stage.repeat_is_idempotent",
    StageRepeatStacks: "a repeated NodeStageVolume mounts a second time" by "stage.repeat_is_idempotent",
    StageOtherCapability: "NodeStageVolume answers OK for another capability at the same path" by "stage.other_capability_is_another_request",
    StageFollowsLink: "NodeStageVolume follows a symlink at the staging path" by "paths.stage_follows_no_link",
    StageLosesData: "NodeStageVolume empties the volume" by "data.",
    UnstageWithoutId: "NodeUnstageVolume accepts an empty volume id" by "required.unstage_volume_id",
    UnstageWithoutPath: "NodeUnstageVolume accepts an empty path" by "required.unstage_path",
    UnstageRepeatFails: "a repeated NodeUnstageVolume fails" by "stage.undone_twice",
    UnstageKeepsMount: "NodeUnstageVolume answers OK and leaves the mount" by "stage.undone_leaves_no_mount",
    UnstageUnknownIsInternal: "NodeUnstageVolume answers INTERNAL for an unknown volume" by "stage.undone_for_unknown_volume",
    UnstageRemovesParent: "NodeUnstageVolume removes the files beside the staging path" by "paths.unstage_keeps_what_is_beside_it",

    // NodePublishVolume and its inverse
    PublishWithoutId: "NodePublishVolume accepts an empty volume id" by "required.publish_volume_id",
    PublishWithoutPath: "NodePublishVolume accepts an empty path" by "required.publish_path",
    PublishWithoutCapability: "NodePublishVolume accepts no capability" by "required.publish_capability",
    PublishUnknownIsInternal: "NodePublishVolume answers INTERNAL for an unknown volume" by "publish.unknown_volume",
    PublishUnstaged: "NodePublishVolume publishes a volume that is not staged" by "publish.without_staging",
    PublishRepeatFails: "a repeated NodePublishVolume fails" by "publish.repeat_is_idempotent",
    PublishRepeatStacks: "a repeated NodePublishVolume mounts a second time" by "publish.repeat_is_idempotent",
    PublishOtherArguments: "NodePublishVolume answers OK for other arguments at the same path" by "access.single_node_writer_same_path_other_arguments",
    PublishSecondPath: "NodePublishVolume shows a single-writer volume at a second path" by "access.single_node_single_writer_other_path",
    PublishSecondPathRefused: "NodePublishVolume refuses a multi-writer volume at a second path" by "access.single_node_multi_writer_other_path",
    PublishReadonlyWritable: "a volume published read-only is writable" by "read_only.mount_refuses_writes",
    PublishReaderWritable: "a volume published for readers only is writable" by "access.single_node_reader_only_refuses_writes",
    BlockReadonlyWritable: "a block volume published read-only is writable" by "read_only.block_refuses_writes",
    BlockIsFile: "a block volume is published as a regular file" by "block.works",
    PublishOtherVolume: "NodePublishVolume shows an empty folder instead of the volume" by "data.",
    PublishLongPathRefused: "NodePublishVolume refuses a target path of more than 128 bytes" by "names.long_paths",
    PublishFollowsLink: "NodePublishVolume follows a symlink at the target" by "paths.publish_follows_no_link",
    UnpublishWithoutId: "NodeUnpublishVolume accepts an empty volume id" by "required.unpublish_volume_id",
    UnpublishWithoutPath: "NodeUnpublishVolume accepts an empty path" by "required.unpublish_path",
    UnpublishRepeatFails: "a repeated NodeUnpublishVolume fails" by "publish.undone_twice",
    UnpublishKeepsFolder: "NodeUnpublishVolume leaves the target folder" by "publish.undone_removes_the_target",
    UnpublishKeepsMount: "NodeUnpublishVolume answers OK and leaves the mount" by "publish.undone_removes_the_target",
    UnpublishLosesData: "NodeUnpublishVolume removes the files in the volume" by "publish.undone_keeps_the_data",
    UnpublishRemovesForeign: "NodeUnpublishVolume removes files at a target that it never published" by "paths.unpublish_keeps_foreign_files",
    UnpublishFollowsLink: "NodeUnpublishVolume follows a symlink at the target" by "paths.unpublish_follows_no_link",
    UnpublishTakesAll: "NodeUnpublishVolume of one target unpublishes all" by "data. access.",
    UnpublishUnknownIsInternal: "NodeUnpublishVolume answers INTERNAL for an unknown volume" by "publish.undone_for_unknown_volume",

    // Facts about the node and its volumes
    StatsWithoutId: "NodeGetVolumeStats accepts an empty volume id" by "required.stats_volume_id",
    StatsWithoutPath: "NodeGetVolumeStats accepts an empty path" by "required.stats_path",
    StatsUnknown: "NodeGetVolumeStats answers OK for an unknown volume" by "stats.unknown_volume",
    StatsWrongPath: "NodeGetVolumeStats answers OK for a path where the volume is not" by "stats.wrong_path",
    StatsNegative: "NodeGetVolumeStats answers a negative number" by "stats.works audit.",
    StatsWithoutTotal: "NodeGetVolumeStats answers no total" by "stats.works",
    StatsUnitUnknown: "NodeGetVolumeStats answers an unknown unit" by "stats.works",
    StatsWithoutCondition: "NodeGetVolumeStats shows no condition" by "stats.tell_the_condition",
    NodeIdEmpty: "the node has no id" by "identity.node_has_an_id",
    NodeIdTooLong: "the node's id has 257 bytes" by "identity.node_has_an_id",
    NodeLimitNegative: "the node's volume limit is negative" by "identity.node_limit_is_not_negative",
    NodeTopologyMalformed: "the node's topology has a key with an upper-case prefix" by "identity.node_topology_is_well_formed",
    NodeCapabilityUnknown: "a node capability of type UNKNOWN is advertised" by "identity.node_capabilities_are_known",
    NodeExpandWithoutId: "NodeExpandVolume accepts an empty volume id" by "required.node_expand_volume_id",
    NodeExpandWithoutPath: "NodeExpandVolume accepts an empty path" by "required.node_expand_path",
    NodeExpandUnknownIsInternal: "NodeExpandVolume answers INTERNAL for an unknown volume" by "expand.node_unknown_volume",
    NodeExpandDoesNothing: "NodeExpandVolume answers OK and the file system stays small" by "expand.online_is_seen",
    NodeExpandLosesData: "NodeExpandVolume empties the volume" by "expand.online_keeps_data",
    NodeExpandRepeatFails: "a repeated NodeExpandVolume fails" by "expand.node_repeat_is_idempotent",

    // Timing
    CreateRaces: "parallel CreateVolume calls of one name make several volumes" by "parallel.create",
    SnapshotRaces: "parallel CreateSnapshot calls of one name make several snapshots" by "parallel.",
    ParallelFails: "a call that meets another answers INTERNAL" by "parallel.",
    CreateLate: "a CreateVolume given up by its caller takes effect after a later DeleteVolume" by "late.create_then_delete",
    AttachLate: "a ControllerPublishVolume given up by its caller takes effect after its inverse" by "late.attach_undone",
    StageLate: "a NodeStageVolume given up by its caller takes effect after its inverse" by "late.stage_undone",
    PublishLate: "a NodePublishVolume given up by its caller takes effect after its inverse" by "late.publish_undone",

    // Words
    SecretInError: "an error message holds a secret" by "secrets.create_volume_refusal",
    SecretInLog: "the log holds a secret" by "secrets.controller_log",
    SecretInContext: "the volume context holds a secret" by "secrets.contexts_are_public",
    TokenInLog: "the log holds a pod's token" by "secrets.token_log",
    MessageEmpty: "an error has no message" by "required.delete_volume_id audit.",
    StatusDetails: "an error has details" by "required.delete_volume_id audit.",
    MessagePanic: "an error message is a panic's" by "required.delete_volume_id audit.",

    // Capabilities
    ControllerCapabilityUnknown: "a controller capability of type UNKNOWN is advertised" by "identity.controller_capabilities_are_known",
    GroupCapabilityUnknown: "a group capability of type UNKNOWN is advertised" by "identity.group_capabilities_are_known",
    UnadvertisedWorks: "a call that is not advertised is answered with OK" by "unadvertised.list_volumes",
    UnadvertisedIsInternal: "a call that is not advertised is answered with INTERNAL" by "unadvertised.list_volumes",

    // Restart
    RestartForgetsVolumes: "a restarted driver knows no volumes" by "restart.volume_is_listed",
    RestartForgetsSnapshots: "a restarted driver knows no snapshots" by "restart.snapshot_is_known",
    RestartForgetsAttachments: "a restarted driver knows no attachments" by "restart.attachment_is_known",
    RestartForgetsNames: "a restarted driver makes a second volume for the same name" by "restart.name_is_known",
    RestartForgetsMounts: "a restarted driver does not undo the mounts from before" by "restart.unpublish_undoes_an_earlier_publish",
}
