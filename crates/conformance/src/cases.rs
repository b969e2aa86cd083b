//! Every case, one file per group, in the order in which they run.

use orlop_csi::client::ControllerCapability;
use orlop_csi::proto;
use proto::volume_capability::access_mode::Mode;

use crate::case::{Case, Need, Trouble, ensure};
use crate::trial::Trial;

mod access;
mod attach;
mod audit;
mod block;
mod capacity;
mod conflict;
mod create;
mod data_kept;
mod delete;
mod expand;
mod get_volume;
mod groups;
mod identity;
mod late;
mod list_snapshots;
mod list_volumes;
mod metadata;
mod modify;
mod names;
mod order;
mod parallel;
mod paths;
mod publish;
mod read_only;
mod required;
mod restart;
mod secrets;
mod snapshots;
mod sources;
mod stage;
mod stats;
mod topology;
mod unadvertised;
mod validate;
mod wire;

const CREATE: Need = Need::Controller(ControllerCapability::CreateDeleteVolume);

/// Every access mode, with its word in a case's name.
const MODES: [(&str, Mode); 7] = [
    ("single_node_writer", Mode::SingleNodeWriter),
    ("single_node_reader_only", Mode::SingleNodeReaderOnly),
    ("multi_node_reader_only", Mode::MultiNodeReaderOnly),
    ("multi_node_single_writer", Mode::MultiNodeSingleWriter),
    ("multi_node_multi_writer", Mode::MultiNodeMultiWriter),
    ("single_node_single_writer", Mode::SingleNodeSingleWriter),
    ("single_node_multi_writer", Mode::SingleNodeMultiWriter),
];

pub(crate) fn all() -> Vec<Case> {
    [
        identity::cases(),
        required::cases(),
        unadvertised::cases(),
        wire::cases(),
        create::cases(),
        capacity::cases(),
        names::cases(),
        topology::cases(),
        delete::cases(),
        validate::cases(),
        list_volumes::cases(),
        get_volume::cases(),
        modify::cases(),
        attach::cases(),
        snapshots::cases(),
        list_snapshots::cases(),
        sources::cases(),
        groups::cases(),
        stage::cases(),
        publish::cases(),
        access::cases(),
        read_only::cases(),
        block::cases(),
        stats::cases(),
        expand::cases(),
        data_kept::cases(),
        metadata::cases(),
        order::cases(),
        paths::cases(),
        parallel::cases(),
        conflict::cases(),
        late::cases(),
        restart::cases(),
        secrets::cases(),
        audit::cases(),
    ]
    .concat()
}

/// The whole list, as few pages as the driver likes.
async fn entries_listed(t: &Trial) -> Result<Vec<proto::list_volumes_response::Entry>, Trouble> {
    let mut entries = Vec::new();
    let mut starting_token = String::new();
    for _ in 0..10_000 {
        let request = proto::ListVolumesRequest {
            max_entries: 0,
            starting_token,
        };
        let reply = t.call(request).await.ok()?;
        entries.extend(reply.entries);
        if reply.next_token.is_empty() {
            return Ok(entries);
        }
        starting_token = reply.next_token;
    }
    ensure!(false, "ListVolumes has no end after 10,000 pages");
    Ok(entries)
}

/// The volume's entry in the list.
async fn entry_listed(
    t: &Trial,
    volume_id: &str,
) -> Result<Option<proto::list_volumes_response::Entry>, Trouble> {
    let entries = entries_listed(t).await?;
    Ok(entries.into_iter().find(|entry| {
        let listed = entry.volume.as_ref();
        listed.is_some_and(|listed| listed.volume_id == volume_id)
    }))
}

/// The nodes that a volume is on, as the list tells.
async fn nodes_listed(t: &Trial, volume_id: &str) -> Result<Vec<String>, Trouble> {
    let entry = entry_listed(t, volume_id).await?;
    let status = entry.and_then(|entry| entry.status).unwrap_or_default();
    Ok(status.published_node_ids)
}

async fn volumes_listed(t: &Trial) -> Result<Vec<proto::Volume>, Trouble> {
    let entries = entries_listed(t).await?;
    Ok(entries
        .into_iter()
        .filter_map(|entry| entry.volume)
        .collect())
}
