//! `ListSnapshots`: filters and pages.

use std::collections::BTreeSet;

use orlop_csi::client::ControllerCapability as Can;
use orlop_csi::proto;
use tonic::Code;

use super::CREATE;
use crate::case::{Case, Need, Trouble, ensure};
use crate::spec;
use crate::trial::Trial;

async fn list(
    t: &Trial,
    filter: proto::ListSnapshotsRequest,
) -> Result<Vec<proto::Snapshot>, Trouble> {
    let mut found = Vec::new();
    let mut starting_token = String::new();
    let mut tokens = BTreeSet::new();
    loop {
        let request = proto::ListSnapshotsRequest {
            starting_token,
            ..filter.clone()
        };
        let reply = t.call(request).await.ok()?;
        let most = usize::try_from(filter.max_entries).unwrap_or(0);
        ensure!(
            most == 0 || reply.entries.len() <= most,
            "max_entries is {most}, but a page has {} entries",
            reply.entries.len()
        );
        found.extend(reply.entries.into_iter().filter_map(|entry| entry.snapshot));
        if reply.next_token.is_empty() {
            return Ok(found);
        }
        ensure!(
            tokens.insert(reply.next_token.clone()),
            "next_token {:?} came twice: the list never ends",
            reply.next_token
        );
        starting_token = reply.next_token;
    }
}

async fn three(t: &Trial) -> Result<(proto::Volume, Vec<proto::Snapshot>), Trouble> {
    let volume = t.volume("v").await?;
    let mut made = Vec::new();
    for tag in ["a", "b", "c"] {
        made.push(t.snapshot(&volume.volume_id, tag).await?);
    }
    Ok((volume, made))
}

pub(super) fn cases() -> Vec<Case> {
    let alone = [Need::Controller(Can::ListSnapshots)];
    let needs = [
        CREATE,
        Need::Controller(Can::CreateDeleteSnapshot),
        Need::Controller(Can::ListSnapshots),
    ];
    let mut cases = vec![
        Case::must(
            "list_snapshots.works",
            spec::LIST_SNAPSHOTS,
            "ListSnapshots needs no arguments",
            &alone,
            |t| async move {
                t.call(proto::ListSnapshotsRequest::default())
                    .await
                    .ok()
                    .map(drop)
            },
        ),
        Case::must(
            "list_snapshots.invalid_token",
            spec::LIST_SNAPSHOTS,
            "a starting_token that was never given is ABORTED",
            &alone,
            |t| async move {
                for token in ["invalid-token", "-1", "99999999999999999999"] {
                    let request = proto::ListSnapshotsRequest {
                        starting_token: token.into(),
                        ..Default::default()
                    };
                    t.call(request)
                        .await
                        .refused(Code::Aborted, "the starting_token is invalid")?;
                }
                Ok(())
            },
        ),
        Case::must(
            "list_snapshots.negative_max_entries",
            spec::LIST_SNAPSHOTS,
            "a negative max_entries is refused with INVALID_ARGUMENT",
            &alone,
            |t| async move {
                let request = proto::ListSnapshotsRequest {
                    max_entries: -1,
                    ..Default::default()
                };
                t.call(request)
                    .await
                    .refused(Code::InvalidArgument, "max_entries must not be negative")
            },
        ),
        Case::must(
            "list_snapshots.unknown_id_is_empty",
            spec::LIST_SNAPSHOTS,
            "an unknown snapshot_id gives an empty list",
            &alone,
            |t| async move {
                let request = proto::ListSnapshotsRequest {
                    snapshot_id: "orlop-conformance-none".into(),
                    ..Default::default()
                };
                let reply = t.call(request).await.ok()?;
                ensure!(
                    reply.entries.is_empty(),
                    "{} snapshots have an id that was never given",
                    reply.entries.len()
                );
                Ok(())
            },
        ),
        Case::must(
            "list_snapshots.unknown_source_is_empty",
            spec::LIST_SNAPSHOTS,
            "an unknown source_volume_id gives an empty list",
            &alone,
            |t| async move {
                let request = proto::ListSnapshotsRequest {
                    source_volume_id: "orlop-conformance-none".into(),
                    ..Default::default()
                };
                let reply = t.call(request).await.ok()?;
                ensure!(
                    reply.entries.is_empty(),
                    "{} snapshots are of a volume that never was",
                    reply.entries.len()
                );
                Ok(())
            },
        ),
        Case::must(
            "list_snapshots.by_id",
            spec::LIST_SNAPSHOTS,
            "snapshot_id finds that snapshot alone, as CreateSnapshot told it",
            &needs,
            |t| async move {
                let (_, made) = three(&t).await?;
                for snapshot in &made {
                    let found = list(
                        &t,
                        proto::ListSnapshotsRequest {
                            snapshot_id: snapshot.snapshot_id.clone(),
                            ..Default::default()
                        },
                    )
                    .await?;
                    ensure!(
                        found.len() == 1,
                        "{} snapshots have the id {:?}",
                        found.len(),
                        snapshot.snapshot_id
                    );
                    ensure!(
                        found[0] == *snapshot,
                        "CreateSnapshot told {snapshot:?}, ListSnapshots {:?}",
                        found[0]
                    );
                }
                Ok(())
            },
        ),
        Case::must(
            "list_snapshots.by_source",
            spec::LIST_SNAPSHOTS,
            "source_volume_id finds that volume's snapshots alone",
            &needs,
            |t| async move {
                let (volume, made) = three(&t).await?;
                let other = t.volume("other").await?;
                t.snapshot(&other.volume_id, "other").await?;
                let found = list(
                    &t,
                    proto::ListSnapshotsRequest {
                        source_volume_id: volume.volume_id.clone(),
                        ..Default::default()
                    },
                )
                .await?;
                let found: BTreeSet<_> = found
                    .into_iter()
                    .map(|snapshot| snapshot.snapshot_id)
                    .collect();
                let wanted: BTreeSet<_> = made
                    .into_iter()
                    .map(|snapshot| snapshot.snapshot_id)
                    .collect();
                ensure!(
                    found == wanted,
                    "volume {:?} has snapshots {wanted:?}, but {found:?} are listed",
                    volume.volume_id
                );
                Ok(())
            },
        ),
        Case::must(
            "list_snapshots.by_both",
            spec::LIST_SNAPSHOTS,
            "both filters together find what fits both",
            &needs,
            |t| async move {
                let (volume, made) = three(&t).await?;
                let other = t.volume("other").await?;
                let ask = |source: &str| proto::ListSnapshotsRequest {
                    source_volume_id: source.to_owned(),
                    snapshot_id: made[0].snapshot_id.clone(),
                    ..Default::default()
                };
                let found = list(&t, ask(&volume.volume_id)).await?;
                ensure!(
                    found.len() == 1,
                    "{} snapshots fit id and source",
                    found.len()
                );
                let found = list(&t, ask(&other.volume_id)).await?;
                ensure!(
                    found.is_empty(),
                    "snapshot {:?} is listed for volume {:?}, which isn't its source",
                    made[0].snapshot_id,
                    other.volume_id
                );
                Ok(())
            },
        ),
        Case::must(
            "list_snapshots.new_ones_appear",
            spec::LIST_SNAPSHOTS,
            "a new snapshot is listed, once, and no longer once deleted",
            &needs,
            |t| async move {
                let (_, made) = three(&t).await?;
                let count = |found: &[proto::Snapshot]| {
                    found
                        .iter()
                        .filter(|snapshot| snapshot.snapshot_id == made[1].snapshot_id)
                        .count()
                };
                let times = count(&list(&t, Default::default()).await?);
                ensure!(
                    times == 1,
                    "snapshot {:?} is listed {times} times",
                    made[1].snapshot_id
                );
                t.call(proto::DeleteSnapshotRequest {
                    snapshot_id: made[1].snapshot_id.clone(),
                    ..Default::default()
                })
                .await
                .ok()?;
                let times = count(&list(&t, Default::default()).await?);
                ensure!(
                    times == 0,
                    "snapshot {:?} was deleted, but is still listed",
                    made[1].snapshot_id
                );
                Ok(())
            },
        ),
        Case::must(
            "list_snapshots.pages_by_source",
            spec::LIST_SNAPSHOTS,
            "pages of one volume's snapshots hold each once",
            &needs,
            |t| async move {
                let (volume, made) = three(&t).await?;
                let found = list(
                    &t,
                    proto::ListSnapshotsRequest {
                        source_volume_id: volume.volume_id,
                        max_entries: 2,
                        ..Default::default()
                    },
                )
                .await?;
                let unique: BTreeSet<_> =
                    found.iter().map(|snapshot| &snapshot.snapshot_id).collect();
                ensure!(
                    found.len() == made.len() && unique.len() == made.len(),
                    "the volume has {} snapshots; in pages of two {} entries with {} ids came",
                    made.len(),
                    found.len(),
                    unique.len()
                );
                Ok(())
            },
        ),
        Case::must(
            "list_snapshots.next_token_when_more",
            spec::LIST_SNAPSHOTS,
            "a page smaller than the list has a next_token",
            &needs,
            |t| async move {
                three(&t).await?;
                let reply = t
                    .call(proto::ListSnapshotsRequest {
                        max_entries: 1,
                        ..Default::default()
                    })
                    .await
                    .ok()?;
                ensure!(
                    reply.entries.len() <= 1,
                    "max_entries is 1, but {} entries came",
                    reply.entries.len()
                );
                ensure!(
                    !reply.next_token.is_empty(),
                    "three snapshots exist, but a page of one has no next_token"
                );
                Ok(())
            },
        ),
    ];
    for page in [1, 2, 3] {
        let title = format!("pages of {page} hold every snapshot once");
        cases.push(Case::must(
            format!("list_snapshots.pages_of_{page}"),
            spec::LIST_SNAPSHOTS,
            title,
            &needs,
            move |t| async move {
                let (_, made) = three(&t).await?;
                let found = list(
                    &t,
                    proto::ListSnapshotsRequest {
                        max_entries: page,
                        ..Default::default()
                    },
                )
                .await?;
                for snapshot in &made {
                    let times = found
                        .iter()
                        .filter(|listed| listed.snapshot_id == snapshot.snapshot_id)
                        .count();
                    ensure!(
                        times == 1,
                        "in pages of {page}, snapshot {:?} is listed {times} times",
                        snapshot.snapshot_id
                    );
                }
                Ok(())
            },
        ));
    }
    cases
}
