//! How an attached volume comes to a node, step by step, and who decides on it.
//!
//! kube-controller-manager looks every half second whether what it asked for has come true. How much
//! of an attached volume's time that is, is seen by the steps, and by having our attach-detach in its
//! place.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Result;
use serde_json::Value;

use super::pods::{ATTACHMENTS, objects};
use crate::{
    bench::{client::Server, figures::Figures, follow::Follower},
    stage::{Program, Stage},
};

const MANAGER: &str = "kube-controller-manager";
const WITHOUT: &str = "--controllers=*,-persistentvolume-attach-detach-controller";
/// Between two attached pods: so long it may take until kube-controller-manager has seen that the
/// volume of the last one is detached, and it does not attach it before.
pub(super) const PAUSE: Duration = Duration::from_millis(1500);
/// The names of the steps' figures.
pub(super) const STEPS: [&str; 5] = ["asked", "attached", "in use", "told", "then"];

/// What is seen of one volume's way.
pub(super) struct Steps {
    attachments: Follower,
    nodes: Follower,
    /// There is an attachment.
    asked: Option<Instant>,
    /// It says that it is attached.
    attached: Option<Instant>,
    /// The node says that it uses the volume.
    in_use: Option<Instant>,
    /// The node's object says that it is attached.
    told: Option<Instant>,
}

impl Steps {
    /// Follows what happens from now on.
    pub(super) async fn follow(server: &Server) -> Result<Self> {
        Ok(Self {
            attachments: Follower::begin(server, ATTACHMENTS.to_owned()).await?,
            nodes: Follower::begin(server, "/api/v1/nodes".to_owned()).await?,
            asked: None,
            attached: None,
            in_use: None,
            told: None,
        })
    }

    /// Waits for news, and notes them.
    pub(super) async fn note(&mut self) -> Result<()> {
        tokio::select! {
            news = self.attachments.next() => for (attachment, now) in objects(news?) {
                self.asked.get_or_insert(now);
                if attachment["status"]["attached"] == true {
                    self.attached.get_or_insert(now);
                }
            },
            news = self.nodes.next() => for (node, now) in objects(news?) {
                if has(&node["status"]["volumesInUse"]) {
                    self.in_use.get_or_insert(now);
                }
                if has(&node["status"]["volumesAttached"]) {
                    self.told.get_or_insert(now);
                }
            },
        }
        Ok(())
    }

    /// How long after the pod was sent each step was seen, and what remained of it to the mount.
    pub(super) fn tell(&self, sent: Instant, mounted: Option<Instant>, figures: &mut Figures) {
        let steps = [self.asked, self.attached, self.in_use, self.told];
        for (name, at) in STEPS.into_iter().zip(steps) {
            if let Some(at) = at {
                figures.sample(name, vec![at.saturating_duration_since(sent)]);
            }
        }
        if let (Some(told), Some(mounted)) = (self.told.max(self.in_use), mounted) {
            let then = mounted.saturating_duration_since(told);
            figures.sample("then", vec![then]);
        }
    }
}

fn has(list: &Value) -> bool {
    list.as_array().is_some_and(|list| !list.is_empty())
}

/// Our attach-detach, while it has kube-controller-manager's place.
pub(super) struct Decider(Arc<Program>);

impl Decider {
    /// Takes the place. Nothing must be attached.
    pub(super) async fn ours(stage: &Stage) -> Result<Self> {
        let kubeconfig = stage.role("control").await?;
        stage.restart_component(MANAGER, &[WITHOUT]).await?;
        let arguments = [
            "--log=warn".to_owned(),
            "control".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            "--controllers=attach-detach".to_owned(),
        ];
        let orlop = stage.binary("orlop");
        Ok(Self(stage.start("control", &orlop, arguments)?))
    }

    /// Gives it back.
    pub(super) async fn end(self, stage: &Stage) -> Result<()> {
        self.0.end().await?;
        stage.restart_component(MANAGER, &[]).await
    }
}
