//! Every case, one file per group, in the order in which they run.

use orlop_csi::client::ControllerCapability;
use orlop_csi::proto;
use proto::volume_capability::access_mode::Mode;

use crate::case::{Case, Need, Trouble, ensure};
use crate::trial::Trial;

mod attach;
mod capacity;
mod create;
mod delete;
mod get_volume;
mod groups;
mod identity;
mod list_volumes;
mod metadata;
mod modify;
mod names;
mod paths;
mod required;
mod restart;
mod secrets;
mod topology;
mod unadvertised;
mod validate;

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
        create::cases(),
        capacity::cases(),
        names::cases(),
        delete::cases(),
        validate::cases(),
        list_volumes::cases(),
        get_volume::cases(),
        modify::cases(),
        attach::cases(),
        groups::cases(),
        metadata::cases(),
        restart::cases(),
        paths::cases(),
        secrets::cases(),
        topology::cases(),
        unadvertised::cases(),
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

async fn volumes_listed(t: &Trial) -> Result<Vec<proto::Volume>, Trouble> {
    let entries = entries_listed(t).await?;
    Ok(entries
        .into_iter()
        .filter_map(|entry| entry.volume)
        .collect())
}
