//! A volume's turn.

use std::sync::Arc;

use orlop_model::Claim;
use orlop_runtime::{ApiError, Outcome};
use tracing::debug;

use super::{Binder, Item};
use crate::{
    Evidence,
    binder::{News, volume},
};

impl Binder {
    pub(super) async fn volume_turn(&self, name: &str) -> Result<Outcome, ApiError> {
        self.dismiss_stray(name).await?;
        let Some(volume) = self.volumes.named(name) else {
            return Ok(Outcome::Done);
        };
        let named = volume.spec.claim_ref.clone().unwrap_or_default();
        let owner = self.claims.get(&named.key());
        let mut view = volume::View {
            owner: owner.filter(|c| c.metadata.uid == named.uid),
            volume,
            evidence: Evidence::Cached,
        };
        let mut decision = volume::decide(&view);
        if decision.needs_live_evidence() {
            let owner = match self.claims.saw_end_of(&named.uid) {
                true => None,
                false => self.cluster.get::<Claim>(&named.key()).await?,
            };
            view.owner = owner.filter(|c| c.metadata.uid == named.uid).map(Arc::new);
            view.evidence = Evidence::Live;
            decision = volume::decide(&view);
        }
        debug!(volume = name, because = ?decision.because, steps = ?decision.steps, "decided");
        if decision.because == volume::Because::WrongMode {
            self.say_wrong_mode(&view);
        }
        self.metrics
            .volume_turn(&view.volume, &decision, &self.classes);
        let recycle = decision.steps.contains(&volume::Step::Recycle);
        if !recycle && self.may_be_emptied(&view.volume) {
            self.end_scrubbing(&view.volume).await?;
            return Ok(Outcome::Done);
        }
        let mut outcome = Outcome::Done;
        for step in &decision.steps {
            if let volume::Step::MarkFailed(news) = step {
                self.say(&*view.volume, news);
            }
            match (step, step.write()) {
                (_, Some(write)) => {
                    view.volume = self.write(&self.volumes, &*view.volume, write).await?;
                }
                (volume::Step::Recycle, None) => outcome = self.recycle(&view.volume).await?,
                (_, None) => self.queue.add(Item::Claim(named.key())),
            }
        }
        Ok(outcome)
    }

    fn say_wrong_mode(&self, view: &volume::View) {
        let Some(claim) = &view.owner else { return };
        let (volume, name) = (&view.volume, &claim.metadata.name);
        let message = format!(
            "Cannot bind PersistentVolume to requested PersistentVolumeClaim \"{name}\" due to \
             incompatible volumeMode."
        );
        self.say(&**volume, &News::warning("VolumeMismatch", message));
        let message = format!(
            "Cannot bind PersistentVolume \"{}\" to requested PersistentVolumeClaim due to \
             incompatible volumeMode.",
            volume.metadata.name
        );
        self.say(&**claim, &News::warning("VolumeMismatch", message));
    }
}
