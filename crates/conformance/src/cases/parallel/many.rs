//! Different calls at once.

use std::collections::BTreeSet;

use futures::future::join_all;
use orlop_csi::proto;
use tonic::Code;

use crate::case::{Case, ensure};
use crate::cases::CREATE;
use crate::spec;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::must(
            "parallel.different_volumes",
            spec::CONCURRENCY,
            "16 volumes are made, listed and deleted at once, each its own",
            &[CREATE],
            |t| async move {
                let tags: Vec<String> = (0..16).map(|at| format!("v{at}")).collect();
                let made = join_all(tags.iter().map(|tag| t.volume(tag))).await;
                let mut ids = BTreeSet::new();
                for volume in made {
                    let volume = volume?;
                    ensure!(
                        ids.insert(volume.volume_id.clone()),
                        "two names gave volume {:?}",
                        volume.volume_id
                    );
                }
                let deleted = join_all(ids.iter().map(|id| t.call(t.delete_request(id)))).await;
                for answer in deleted {
                    answer.ok()?;
                }
                Ok(())
            },
        ),
        Case::must(
            "parallel.different_volumes_on_the_node",
            spec::CONCURRENCY,
            "8 volumes are staged, published, written and taken down at once",
            &[CREATE],
            |t| async move {
                let tags: Vec<String> = (0..8).map(|at| format!("v{at}")).collect();
                let lives = tags.iter().enumerate().map(|(at, tag)| {
                    let t = t.clone();
                    async move {
                        let (placed, target) = t.published(tag).await?;
                        let seed = at as u64 % 3;
                        crate::data::write(&target, seed).await?;
                        ensure!(
                            crate::data::holds(&target, seed).await?,
                            "what was written to volume {:?} can't be read back",
                            placed.id()
                        );
                        t.take_down(&placed, &target).await
                    }
                });
                join_all(lives).await.into_iter().collect()
            },
        ),
        Case::must(
            "parallel.same_name_different_sizes",
            spec::CREATE_VOLUME,
            "one name with many sizes at once gives one volume",
            &[CREATE],
            |t| async move {
                let requests = (1..=8).map(|times| proto::CreateVolumeRequest {
                    capacity_range: Some(crate::make::exactly(t.size() * times)),
                    ..t.create_request("v")
                });
                let answers = join_all(requests.map(|request| t.call(request))).await;
                let mut ids = BTreeSet::new();
                for answer in answers {
                    let reply = answer.ok_or_any(
                        &[
                            Code::AlreadyExists,
                            Code::Aborted,
                            Code::OutOfRange,
                            Code::ResourceExhausted,
                        ],
                        "another call has made the volume with another size",
                    )?;
                    ids.extend(
                        reply
                            .and_then(|reply| reply.volume)
                            .map(|volume| volume.volume_id),
                    );
                }
                ensure!(
                    ids.len() == 1,
                    "one name gave {} volumes: {ids:?}",
                    ids.len()
                );
                Ok(())
            },
        ),
    ]
}
