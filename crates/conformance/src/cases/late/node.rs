//! Calls to the node whose caller gave up.

use std::time::Duration;

use orlop_csi::client::NodeCapability;

use super::given_up;
use crate::case::{Case, Need, ensure};
use crate::cases::CREATE;
use crate::cases::parallel::nothing_mounted;
use crate::spec;

pub(super) fn cases(word: &'static str, patience: Duration) -> Vec<Case> {
    let id = |call: &str| format!("late.{call}_given_up_{word}");
    let title = |spec: &str| {
        format!(
            "{spec} can be repeated after its caller gave up {}",
            word.replace('_', " ")
        )
    };
    let stage = Need::Node(NodeCapability::StageUnstageVolume);
    vec![
        Case::must(
            id("stage"),
            spec::TIMEOUTS,
            title(spec::STAGE),
            &[CREATE, stage],
            move |t| async move {
                let volume = t.volume("v").await?;
                let placed = t.attached(volume, t.capability()).await?;
                given_up(&t, placed.stage_request(), patience).await?;
                t.call(placed.unstage_request()).await.ok()?;
                nothing_mounted(&placed.staging, "NodeUnstageVolume")
            },
        ),
        Case::must(
            id("unstage"),
            spec::TIMEOUTS,
            title(spec::UNSTAGE),
            &[CREATE, stage],
            move |t| async move {
                let placed = t.staged_volume("v").await?;
                given_up(&t, placed.unstage_request(), patience).await?;
                nothing_mounted(&placed.staging, "NodeUnstageVolume")
            },
        ),
        Case::must(
            id("publish"),
            spec::TIMEOUTS,
            title(spec::PUBLISH),
            &[CREATE],
            move |t| async move {
                let placed = t.staged_volume("v").await?;
                let target = t.target("v")?;
                given_up(&t, placed.publish_request(&target), patience).await?;
                crate::data::write(&target, 1).await?;
                t.call(placed.unpublish_request(&target)).await.ok()?;
                nothing_mounted(&target, "NodeUnpublishVolume")
            },
        ),
        Case::must(
            id("unpublish"),
            spec::TIMEOUTS,
            title(spec::UNPUBLISH),
            &[CREATE],
            move |t| async move {
                let (placed, target) = t.published("v").await?;
                given_up(&t, placed.unpublish_request(&target), patience).await?;
                ensure!(
                    !std::path::Path::new(&target).exists(),
                    "NodeUnpublishVolume left {target}"
                );
                Ok(())
            },
        ),
    ]
}
