//! `ListVolumes`: complete, in pages, without repeats.

use std::collections::BTreeSet;

use orlop_csi::client::ControllerCapability as Can;
use orlop_csi::proto;
use tonic::Code;

use super::{CREATE, volumes_listed};
use crate::case::{Case, Need, Trouble, ensure};
use crate::spec;
use crate::trial::Trial;

/// Walks pages of `page` entries; the ids in the order in which they came.
async fn walk(t: &Trial, page: i32) -> Result<Vec<String>, Trouble> {
    let mut ids = Vec::new();
    let mut token = String::new();
    let mut tokens = BTreeSet::new();
    loop {
        let request = proto::ListVolumesRequest {
            max_entries: page,
            starting_token: token,
        };
        let reply = t.call(request).await.ok()?;
        let most = usize::try_from(page).unwrap_or(usize::MAX);
        ensure!(
            reply.entries.len() <= most,
            "max_entries is {page}, but a page has {} entries",
            reply.entries.len()
        );
        ids.extend(
            reply
                .entries
                .into_iter()
                .filter_map(|entry| entry.volume)
                .map(|volume| volume.volume_id),
        );
        if reply.next_token.is_empty() {
            return Ok(ids);
        }
        ensure!(
            tokens.insert(reply.next_token.clone()),
            "next_token {:?} came twice: the list never ends",
            reply.next_token
        );
        ensure!(
            tokens.len() < 10_000,
            "the list has no end after 10,000 pages"
        );
        token = reply.next_token;
    }
}

async fn three(t: &Trial) -> Result<Vec<String>, Trouble> {
    let mut ids = Vec::new();
    for tag in ["a", "b", "c"] {
        ids.push(t.volume(tag).await?.volume_id);
    }
    Ok(ids)
}

pub(super) fn cases() -> Vec<Case> {
    let list = [Need::Controller(Can::ListVolumes)];
    let needs = [Need::Controller(Can::ListVolumes), CREATE];
    let mut cases = vec![
        Case::must(
            "list_volumes.works",
            spec::LIST_VOLUMES,
            "ListVolumes needs no arguments",
            &list,
            |t| async move {
                t.call(proto::ListVolumesRequest::default())
                    .await
                    .ok()
                    .map(drop)
            },
        ),
        Case::must(
            "list_volumes.invalid_token",
            spec::LIST_VOLUMES,
            "a starting_token that was never given is ABORTED",
            &list,
            |t| async move {
                for token in ["invalid-token", "-1", "99999999999999999999", "\u{FFFD}"] {
                    let request = proto::ListVolumesRequest {
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
            "list_volumes.negative_max_entries",
            spec::LIST_VOLUMES,
            "a negative max_entries is refused with INVALID_ARGUMENT",
            &list,
            |t| async move {
                let request = proto::ListVolumesRequest {
                    max_entries: -1,
                    ..Default::default()
                };
                t.call(request)
                    .await
                    .refused(Code::InvalidArgument, "max_entries must not be negative")
            },
        ),
        Case::must(
            "list_volumes.largest_max_entries",
            spec::LIST_VOLUMES,
            "the largest max_entries is taken",
            &list,
            |t| async move {
                let request = proto::ListVolumesRequest {
                    max_entries: i32::MAX,
                    ..Default::default()
                };
                t.call(request).await.ok().map(drop)
            },
        ),
        Case::must(
            "list_volumes.new_ones_appear",
            spec::LIST_VOLUMES,
            "a new volume is listed, once",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let listed = volumes_listed(&t).await?;
                let times = listed
                    .iter()
                    .filter(|entry| entry.volume_id == volume.volume_id)
                    .count();
                ensure!(
                    times == 1,
                    "volume {:?} is listed {times} times",
                    volume.volume_id
                );
                Ok(())
            },
        ),
        Case::must(
            "list_volumes.tells_what_create_told",
            spec::LIST_VOLUMES,
            "the list tells a volume's context and capacity as CreateVolume did",
            &needs,
            |t| async move {
                let volume = t.volume("v").await?;
                let listed = volumes_listed(&t).await?;
                let Some(entry) = listed
                    .into_iter()
                    .find(|entry| entry.volume_id == volume.volume_id)
                else {
                    ensure!(false, "volume {:?} is not listed", volume.volume_id);
                    return Ok(());
                };
                ensure!(
                    entry.capacity_bytes == volume.capacity_bytes || entry.capacity_bytes == 0,
                    "CreateVolume told {} bytes, ListVolumes {}",
                    volume.capacity_bytes,
                    entry.capacity_bytes
                );
                ensure!(
                    entry.volume_context == volume.volume_context,
                    "CreateVolume told the context {:?}, ListVolumes {:?}",
                    volume.volume_context,
                    entry.volume_context
                );
                Ok(())
            },
        ),
        Case::must(
            "list_volumes.no_repeats",
            spec::LIST_VOLUMES,
            "no volume is listed twice",
            &needs,
            |t| async move {
                three(&t).await?;
                let ids: Vec<_> = volumes_listed(&t)
                    .await?
                    .into_iter()
                    .map(|volume| volume.volume_id)
                    .collect();
                let unique: BTreeSet<_> = ids.iter().collect();
                ensure!(
                    unique.len() == ids.len(),
                    "{} entries, but only {} volumes",
                    ids.len(),
                    unique.len()
                );
                Ok(())
            },
        ),
        Case::must(
            "list_volumes.token_outlives_a_deletion",
            spec::LIST_VOLUMES,
            "a token stays usable, or is ABORTED, when volumes are deleted",
            &needs,
            |t| async move {
                let ours = three(&t).await?;
                let reply = t
                    .call(proto::ListVolumesRequest {
                        max_entries: 1,
                        ..Default::default()
                    })
                    .await
                    .ok()?;
                ensure!(
                    !reply.next_token.is_empty(),
                    "three volumes exist, but a page of one has no next_token"
                );
                for id in &ours {
                    t.call(t.delete_request(id)).await.ok()?;
                }
                let next = proto::ListVolumesRequest {
                    max_entries: 1,
                    starting_token: reply.next_token,
                };
                let reply = t
                    .call(next)
                    .await
                    .ok_or_any(&[Code::Aborted], "the list has changed")?;
                for entry in reply.map(|reply| reply.entries).unwrap_or_default() {
                    let id = entry.volume.unwrap_or_default().volume_id;
                    ensure!(
                        !ours.contains(&id),
                        "volume {id:?} was deleted, but the next page lists it"
                    );
                }
                Ok(())
            },
        ),
        Case::must(
            "list_volumes.page_as_large_as_the_list",
            spec::LIST_VOLUMES,
            "a page that holds all has no next_token",
            &needs,
            |t| async move {
                three(&t).await?;
                let all = volumes_listed(&t).await?.len();
                let request = proto::ListVolumesRequest {
                    max_entries: i32::try_from(all).unwrap_or(i32::MAX),
                    ..Default::default()
                };
                let reply = t.call(request).await.ok()?;
                ensure!(
                    reply.entries.len() <= all,
                    "{all} volumes exist, but a page of {all} has {} entries",
                    reply.entries.len()
                );
                if reply.entries.len() == all && !reply.next_token.is_empty() {
                    t.warn("the page holds every volume, and yet there is a next_token");
                }
                Ok(())
            },
        ),
    ];
    for page in [1, 2, 3, 5] {
        let title = format!("pages of {page} hold every volume once");
        cases.push(Case::must(
            format!("list_volumes.pages_of_{page}"),
            spec::LIST_VOLUMES,
            title,
            &needs,
            move |t| async move {
                let ours = three(&t).await?;
                let ids = walk(&t, page).await?;
                for id in &ours {
                    let times = ids.iter().filter(|listed| *listed == id).count();
                    ensure!(
                        times == 1,
                        "in pages of {page}, volume {id:?} is listed {times} times"
                    );
                }
                Ok(())
            },
        ));
    }
    cases
}
