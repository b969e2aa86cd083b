//! A claim's turn.

use std::{
    collections::BTreeSet,
    ops::ControlFlow,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use orlop_model::{
    Claim, Key, Kind, Volume, class, matching,
    selector::{LabelSelector, Requirement},
};
use orlop_runtime::{ApiError, Outcome};
use tokio::task::yield_now;
use tracing::debug;

use super::{Binder, Item};
use crate::{
    Evidence,
    binder::{
        claim,
        courtesy::Wait,
        explain::{self, Survey},
        spelling,
        write::Party,
    },
};

/// What keeps a claim waiting is said again after so long: API servers keep events for an hour.
pub(super) const REMINDER: Duration = Duration::from_secs(30 * 60);

/// So many shelves are looked at for what might fit a claim.
const SHELVES: usize = 64;
/// So many of a selector's requirements are looked at one by one, to say which one nothing has.
/// An event has no room for more.
pub(super) const EXPLAINED: usize = 20;
/// So many volumes are looked at for each of them; if there are more, it isn't said that none has it.
pub(super) const ASKED: usize = 100;
/// With so many names of volumes a misspelt one is compared.
const COMPARED: usize = 1000;

impl Binder {
    pub(super) async fn claim_turn(&self, key: &Key) -> Result<Outcome, ApiError> {
        let Some(claim) = self.claims.get(key) else {
            self.courtesy.over(key);
            self.mentions.over(key);
            return Ok(Outcome::Done);
        };
        let named = self.volumes.named(&claim.spec.volume_name);
        let mut view = self.claim_view(claim, named, Evidence::Cached);
        let mut decision = claim::decide(&view);
        if decision.needs_live_evidence() {
            let Some(claim) = self.cluster.get::<Claim>(key).await? else {
                return Ok(Outcome::Done);
            };
            let named = Key::cluster(claim.spec.volume_name.as_str());
            let named = match named.name.as_str() {
                "" => None,
                _ => self.cluster.get::<Volume>(&named).await?.map(Arc::new),
            };
            view = self.claim_view(Arc::new(claim), named, Evidence::Live);
            decision = claim::decide(&view);
        }
        debug!(claim = %key, because = ?decision.because, steps = ?decision.steps, "decided");
        let mut outcome = self.wait(key, &mut decision);
        if outcome == Outcome::Done {
            let survey = match &decision.because {
                because if because.wants_survey() => self.survey(&view),
                // Thousands may wait for a provisioner, and only this is told of it.
                claim::Because::Provisioning(_) => Survey {
                    drivers: self.drivers(),
                    ..Survey::default()
                },
                _ => Survey::default(),
            };
            let news = explain::news(&view.claim, &decision.because, &survey);
            let named = news.as_ref().map(|news| explain::named(news, &survey));
            self.mentions.told(key, named.unwrap_or_default());
            if let Some(news) = news {
                self.say(&*view.claim, &news);
                outcome = Outcome::After(REMINDER);
            }
        }
        let promise = self.promise(&decision);
        let carried_out = self.carry_out(&view.claim, &decision).await;
        drop(promise);
        self.metrics.claim_turn(key, &decision, &carried_out);
        if carried_out.is_err() && decision.steps.contains(&claim::Step::ReserveVolume) {
            // The volume that was promised may be free after all.
            let class = view.claim.class().unwrap_or_default();
            self.queue.add(Item::Shelf(class.to_owned()));
        }
        carried_out.map(|()| outcome)
    }

    async fn carry_out(
        &self,
        claim: &Arc<Claim>,
        decision: &claim::Decision,
    ) -> Result<(), ApiError> {
        let mut claim = claim.clone();
        let mut volume = decision.volume.clone();
        for step in &decision.steps {
            let Some(write) = step.write(&claim, volume.as_deref()) else {
                continue;
            };
            match (write.of, &volume) {
                (Party::Claim, _) => claim = self.write(&self.claims, &*claim, write).await?,
                (Party::Volume, Some(seen)) => {
                    volume = Some(self.write(&self.volumes, &**seen, write).await?);
                }
                (Party::Volume, None) => {}
            }
        }
        Ok(())
    }

    pub(super) fn survey(&self, view: &claim::View) -> Survey {
        let classes = self.classes.all();
        Survey {
            largest: self.free_volumes.lasts(matching::group, SHELVES),
            reserved: view.candidates.clone(),
            named: view.named.clone(),
            released: self.released_volumes.lasts(matching::group, SHELVES),
            meant: self.meant(view),
            classes: classes.iter().map(|c| c.metadata.name.clone()).collect(),
            drivers: Vec::new(),
            unmet: self.unmet(&view.claim),
        }
    }

    fn drivers(&self) -> Vec<String> {
        let drivers = self.drivers.all();
        drivers.iter().map(|d| d.metadata.name.clone()).collect()
    }

    /// The free volume whose name is nearly the one that the claim names in vain.
    fn meant(&self, view: &claim::View) -> Option<String> {
        let missing = view.claim.spec.volume_name.as_str();
        if missing.is_empty() || view.named.is_some() {
            return None;
        }
        let mut names = Vec::new();
        let mut visit = |volume: &Arc<Volume>| {
            names.push(volume.metadata.name.clone());
            match names.len() < COMPARED {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        self.free_volumes.scan("", "", &mut visit);
        let names = names.iter().map(String::as_str);
        spelling::meant(missing, names).map(str::to_owned)
    }

    /// What the claim's selector asks for and none of the volumes has that would fit otherwise, as
    /// far as a few looks tell: only a sentence hangs on it, and others wait meanwhile.
    pub(super) fn unmet(&self, claim: &Claim) -> Vec<Requirement> {
        let selector = claim.spec.selector.iter();
        let each = selector.flat_map(LabelSelector::requirements);
        let mut alone = claim.clone();
        each.take(EXPLAINED)
            .filter(|requirement| {
                alone.spec.selector = Some(requirement.clone().into());
                let search = self.search_among(&alone, ASKED);
                search.found.is_none() && search.looked_at < ASKED
            })
            .collect()
    }

    /// Wakes the claims of a class that a free volume would do for. The rest would only look
    /// around and wait on.
    pub(super) async fn wake_for_volumes(&self, class: &str) {
        for claim in self.claims_by_class.get(class) {
            if self.best_free(&claim).is_some() {
                self.queue.add(Item::Claim(claim.key()));
            }
            // There may be thousands, and other roles share the thread.
            yield_now().await;
        }
    }

    /// Leaves out what a provisioner is given a moment for; answers with when to look again.
    fn wait(&self, key: &Key, decision: &mut claim::Decision) -> Outcome {
        let claim::Because::Provisioning(provisioner) = &decision.because else {
            self.courtesy.over(key);
            return Outcome::Done;
        };
        match self.courtesy.waits(key, provisioner) {
            Wait::Late => Outcome::Done,
            Wait::Quiet { rest, ask } => {
                let asks = |step: &claim::Step| matches!(step, claim::Step::AskProvisioner(_));
                decision.steps.retain(|step| ask || !asks(step));
                Outcome::After(rest)
            }
        }
    }

    pub(super) fn claim_view(
        &self,
        claim: Arc<Claim>,
        named: Option<Arc<Volume>>,
        evidence: Evidence,
    ) -> claim::View {
        let key = claim.key().to_string();
        let open = claim.spec.volume_name.is_empty() && !claim.bind_completed();
        let class = claim.class().and_then(|name| self.classes.named(name));
        let (mut candidates, mut unplaced_pods) = (Vec::new(), Vec::new());
        if open {
            candidates = self.claimed_volumes.get(&key);
            // For a late claim it is the scheduler who looks among the free ones.
            if class.as_ref().is_none_or(|c| !c.waits_for_consumer()) {
                candidates.extend(self.best_free(&claim));
            }
            let pods = self.pods_by_claim.get(&key);
            let waiting = pods.iter().filter(|p| !p.is_placed() && !p.is_finished());
            unplaced_pods = waiting.map(|p| p.metadata.name.clone()).collect();
        }
        let all = named.iter().chain(&candidates);
        let emptied = all.filter(|volume| self.may_be_emptied(volume));
        let emptied = emptied.map(|volume| volume.metadata.name.clone()).collect();
        let defaults = self.default_classes.get("");
        let default = class::default_class(defaults.iter().map(|c| &**c));
        let default_name = default.map(|c| c.metadata.name.clone());
        claim::View {
            named,
            candidates,
            class,
            default_class: default_name.and_then(|name| self.classes.named(&name)),
            emptied,
            unplaced_pods,
            evidence,
            claim,
        }
    }

    fn best_free(&self, claim: &Claim) -> Option<Arc<Volume>> {
        self.search(claim).found
    }

    /// The best of the free volumes that nobody was promised: the first that will do, since
    /// they stand in the order of preference.
    pub(super) fn search(&self, claim: &Claim) -> Search {
        self.search_among(claim, usize::MAX)
    }

    /// As `search`, but gives up after so many volumes.
    pub(super) fn search_among(&self, claim: &Claim, most: usize) -> Search {
        let promised = self.promised.lock().unwrap_or_else(PoisonError::into_inner);
        let (place, timing) = (matching::Place::Anywhere, matching::Timing::Now);
        let seeker = matching::Seeker::new(claim);
        let mut looked_at = 0;
        let mut visit = |volume: &Arc<Volume>| {
            if looked_at == most {
                return ControlFlow::Break(None);
            }
            looked_at += 1;
            let fits = !promised.contains(&volume.metadata.name)
                && seeker.best([&**volume], place, timing).is_some();
            match fits {
                true => ControlFlow::Break(Some(volume.clone())),
                false => ControlFlow::Continue(()),
            }
        };
        let found = match matching::labelled_stretches(claim) {
            Some(stretches) => {
                let index = &self.labelled_volumes;
                let mut stretches = stretches.into_iter();
                stretches.find_map(|(from, prefix)| index.scan(&from, &prefix, &mut visit))
            }
            None => {
                let index = &self.free_volumes;
                let mut stretches = matching::stretches(claim);
                stretches.find_map(|(from, prefix)| index.scan(&from, &prefix, &mut visit))
            }
        };
        Search {
            found: found.flatten(),
            looked_at,
        }
    }

    fn promise(&self, decision: &claim::Decision) -> Option<Promise> {
        let volume = decision.volume.as_ref()?;
        if !decision.steps.contains(&claim::Step::ReserveVolume) {
            return None;
        }
        let name = volume.metadata.name.clone();
        let promised = self.promised.clone();
        promised
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(name.clone());
        Some(Promise { promised, name })
    }
}

/// What a search among the free volumes came to.
pub(super) struct Search {
    pub(super) found: Option<Arc<Volume>>,
    /// How many were looked at one by one.
    pub(super) looked_at: usize,
}

/// Holds a volume promised until the turn is over, however it ends.
struct Promise {
    promised: Arc<Mutex<BTreeSet<String>>>,
    name: String,
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.promised
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.name);
    }
}
