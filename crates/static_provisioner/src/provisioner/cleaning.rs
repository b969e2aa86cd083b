//! One volume's cleaning: asked for live, carried out aside, its progress kept on the volume.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use orlop_model::{Claim, Key, Kind, Volume, well_known};
use orlop_runtime::{ApiError, EventType, Outcome, Patch};
use serde_json::json;
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tracing::warn;

use super::{Provisioner, SOON, absent, blocking, chain, path_of};
use crate::{
    clean::{self, CleanError, Cleaned, Job, Taken},
    config::BlockCleaner,
    record::Record,
    volume::{self, Step},
};

/// Progress is written when it has come so many hundredths further, or so much time passed.
const FURTHER: u64 = 10;
const WHILE: Duration = Duration::from_secs(60);

/// Ends the work when nobody waits for it any more.
struct StopWithMe(Arc<AtomicBool>);

impl Drop for StopWithMe {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Provisioner {
    pub(super) async fn cleaning_turn(&self, name: String) -> Outcome {
        match self.clean(&name).await {
            Ok(outcome) => outcome,
            Err(error) if error.is_conflict() || error.is_not_found() => Outcome::After(SOON),
            Err(error) => {
                warn!(volume = name, error = error.chain(), "will be tried again");
                Outcome::Retry
            }
        }
    }

    async fn clean(&self, name: &str) -> Result<Outcome, ApiError> {
        let Some(seen) = self.volumes.named(name) else {
            return Ok(Outcome::Done);
        };
        let taken = match self.disk(&seen) {
            Err(why) => Err(why),
            Ok((path, cleaner)) => {
                let taken = blocking(move || Ok(clean::take(&path, &cleaner))).await;
                taken.map_err(CleanError::Broken).flatten()
            }
        };
        // What can't be undone is decided on what is so now, not on a cache; and now that we
        // have the disk: until then another may have cleaned it, and it may be somebody's again.
        let Some(volume) = self.released(name).await? else {
            return Ok(Outcome::Done);
        };
        if let Some(claim) = self.claimant(&volume).await? {
            let message = format!(
                "claim {} still exists: the disk is not cleaned",
                claim.key()
            );
            self.recorder
                .say(&volume, EventType::Warning, "VolumeFailedDelete", message);
            return Ok(Outcome::Retry);
        }
        let taken = match taken {
            Ok(taken) if volume.spec.local == seen.spec.local => Arc::new(taken),
            Ok(_) => return Ok(Outcome::After(SOON)),
            Err(error) => return self.failed(&volume, &error).await,
        };
        if let Err(error) = self.is_alone(&volume, taken.disk()).await {
            return self.failed(&volume, &error).await;
        }
        self.recorder.say(
            &volume,
            EventType::Normal,
            "VolumeDelete",
            format!("Starting cleanup of PV \"{name}\", this may take a while"),
        );
        let started = Instant::now();
        let outcome = match self.carry_out(&volume, taken.clone()).await {
            Ok(cleaned) => self.finished(&volume, cleaned, started.elapsed()).await,
            Err(error) => self.failed(&volume, &error).await,
        };
        // Not before that is on record: whoever has the disk next asks the record.
        drop(taken);
        outcome
    }

    /// The volume, if its disk is still to be cleaned.
    async fn released(&self, name: &str) -> Result<Option<Volume>, ApiError> {
        let me = self.shared().me.clone();
        let volume = self.cluster.get::<Volume>(&Key::cluster(name)).await?;
        Ok(me.zip(volume).and_then(|(me, volume)| {
            let step = volume::decide(&volume, me.identity.whose(&volume));
            (step == Step::Clean).then_some(volume)
        }))
    }

    /// The claim that the volume belongs to, if it exists after all.
    async fn claimant(&self, volume: &Volume) -> Result<Option<Claim>, ApiError> {
        let Some(owner) = &volume.spec.claim_ref else {
            return Ok(None);
        };
        let claim = self.cluster.get::<Claim>(&owner.key()).await?;
        Ok(claim.filter(|claim| claim.metadata.uid == owner.uid))
    }

    /// Where a volume's disk is, and how it is cleaned if it is a device.
    fn disk(&self, volume: &Volume) -> Result<(PathBuf, BlockCleaner), CleanError> {
        let class = volume.class();
        let config = self.shared().config.clone();
        let config = config
            .classes
            .get(class)
            .ok_or_else(|| CleanError::NoPlace(format!("Unknown storage class name {class}")))?;
        let file = absent::file_in(&config.host_dir, volume).ok_or_else(|| {
            let path = path_of(volume).pop().unwrap_or_default();
            let folder = config.host_dir.display();
            CleanError::NoPlace(format!(
                "{path} is not in the folder {folder} of class {class}"
            ))
        })?;
        Ok((config.mount_dir.join(file), config.cleaner.clone()))
    }

    async fn carry_out(&self, volume: &Volume, taken: Arc<Taken>) -> Result<Cleaned, CleanError> {
        let name = &volume.metadata.name;
        let running = self.metrics.begun(name);
        let (send, mut heard) = watch::channel(Record::default());
        let stop = Arc::new(AtomicBool::new(false));
        let _stop = StopWithMe(stop.clone());
        let job = Job {
            claim: claim_uid(volume),
            before: Record::of(volume),
            stop,
        };
        let mut working = tokio::task::spawn_blocking(move || {
            taken.clean(&job, |record| {
                send.send_replace(record.clone());
            })
        });
        let mut written = (0, Instant::now());
        loop {
            tokio::select! {
                done = &mut working => return done.unwrap_or_else(|panic| {
                    Err(CleanError::Broken(std::io::Error::other(panic)))
                }),
                () = sleep(self.silence) => self.tell_silence(volume),
                Ok(()) = heard.changed() => {
                    let record = heard.borrow_and_update().clone();
                    running.reached(record.percent());
                    let far = record.percent() >= written.0 + FURTHER;
                    if record.percent() < 100 && (far || written.1.elapsed() > WHILE) {
                        written = (record.percent(), Instant::now());
                        self.note(volume, &record).await;
                    }
                }
            }
        }
    }

    /// A disk or a command that hangs is a person's to look at.
    fn tell_silence(&self, volume: &Volume) {
        let seconds = self.silence.as_secs();
        let message = format!(
            "Nothing was heard of the cleaning for {seconds} s. If it is a command that hangs, end it, \
             and it is tried again"
        );
        self.recorder
            .say(volume, EventType::Warning, "VolumeCleaningSilent", message);
    }

    /// Keeps progress on the volume. A restart goes on from it; nothing hangs on it but time.
    async fn note(&self, volume: &Volume, record: &Record) {
        let message = format!("Cleaning the disk: {}% done", record.percent());
        self.recorder
            .say(volume, EventType::Normal, "VolumeCleaning", message);
        let body = json!({"metadata": {
            "uid": volume.metadata.uid,
            "annotations": {well_known::LOCAL_CLEANING: record.text()},
        }});
        let written = self.cluster.patch(&volume.key(), &Patch::Merge(body)).await;
        match written {
            Ok(answer) => self.volumes.absorb(answer),
            Err(error) => warn!(error = error.chain(), "progress could not be written"),
        }
    }

    /// The disk is clean; that goes on record, and then the volume goes.
    async fn finished(
        &self,
        volume: &Volume,
        cleaned: Cleaned,
        took: Duration,
    ) -> Result<Outcome, ApiError> {
        let name = &volume.metadata.name;
        let now = self.released(name).await?;
        let same = |now: &Volume| {
            now.metadata.uid == volume.metadata.uid && claim_uid(now) == claim_uid(volume)
        };
        let Some(now) = now.filter(same) else {
            return Ok(Outcome::Done);
        };
        let body = json!({"metadata": {
            "annotations": {well_known::LOCAL_CLEANING: cleaned.record.text()},
        }});
        let patch = Patch::merge_on(&now, body);
        let answer = self.cluster.patch::<Volume>(&now.key(), &patch).await?;
        let seconds = took.as_secs_f64();
        self.recorder.say(
            &now,
            EventType::Normal,
            "VolumeCleaned",
            format!("The disk was cleaned by {} in {seconds:.1} s", cleaned.how),
        );
        self.metrics.cleaned(cleaned.mode, &cleaned.how, took);
        self.volumes.absorb(answer);
        Ok(Outcome::Done)
    }

    async fn failed(&self, volume: &Volume, error: &CleanError) -> Result<Outcome, ApiError> {
        let name = &volume.metadata.name;
        let message = format!("Error cleaning PV \"{name}\": {}", chain(error));
        self.recorder
            .say(volume, EventType::Warning, "VolumeFailedDelete", message);
        self.metrics.failed(volume.volume_mode());
        self.shared().stuck.insert(name.clone());
        // What is on record as done may hold somebody's data again.
        if error.is_in_use() {
            let body = json!({"metadata": {
                "uid": volume.metadata.uid,
                "annotations": {well_known::LOCAL_CLEANING: null},
            }});
            let patch = Patch::Merge(body);
            let answer = self.cluster.patch(&volume.key(), &patch).await?;
            self.volumes.absorb(answer);
        }
        Ok(Outcome::Retry)
    }
}

fn claim_uid(volume: &Volume) -> String {
    let owner = volume.spec.claim_ref.as_ref();
    owner.map(|owner| owner.uid.clone()).unwrap_or_default()
}
