//! Brings a pod's volumes to where its containers can see them.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::join_all;
use jiff::SignedDuration;
use orlop_model::pod::PodVolume;
use orlop_model::volume::{HostPathSource, NfsSource};
use orlop_model::well_known::PVC_PROTECTION;
use orlop_model::{Claim, ClaimPhase, Key, Pod, Volume, VolumeMode};
use orlop_runtime::{ApiError, EventType, Outcome};

use super::presence::Presence;
use super::record::{Place, State};
use super::waiting::{self, Failed, Wait};
use super::{Pods, later, until};
use crate::layout::{Layout, PodUid};
use crate::plugins::mounted::{self, Stands, Wanted};
use crate::plugins::{
    self, Doing, FlexError, FlexVolume, Freshness, Local, Shown, Source, VolumeError,
};
use crate::volumes::{self, DeviceKey, Lifetime, Readiness, Want};
use crate::words::chain;
use crate::workers::Hung;

/// How soon a token that could not be renewed is asked for again.
const RENEW_AGAIN: SignedDuration = SignedDuration::from_secs(30);

/// How long a pod may wait for its volumes before an event says for which, and why.
const SAID_AFTER: SignedDuration = SignedDuration::from_secs(10);

/// Why a volume is not there.
#[derive(Debug, thiserror::Error)]
enum SetUpError {
    #[error(transparent)]
    Volume(#[from] VolumeError),
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("claim {0} does not exist")]
    NoClaim(Key),
    #[error("claim {0} is being deleted")]
    ClaimDeleting(Key),
    #[error("claim {0} is not bound")]
    ClaimNotBound(Key),
    #[error("claim {0} belongs to another pod; delete it or rename the pod's volume")]
    NotOwner(Key),
    #[error("volume {volume} of claim {claim} does not exist")]
    NoVolume { volume: String, claim: Key },
    #[error("volume {volume} does not belong to claim {claim}")]
    NotOurs { volume: String, claim: Key },
    #[error(transparent)]
    Labels(#[from] crate::volumes::labels::Labels),
    #[error(transparent)]
    Flex(#[from] FlexError),
    #[error(transparent)]
    Hung(#[from] Hung),
    #[error("{0}")]
    Refused(&'static str),
    #[error("volume {0} is of a kind that this node cannot mount")]
    UnknownKind(String),
    #[error("volume {name:?} is {}, but the pod uses it as {}", mode_words(*has), mode_words(*wants))]
    Mode {
        name: String,
        has: VolumeMode,
        wants: VolumeMode,
    },
    #[error("no matching NodeSelectorTerms; it can be reached from nodes with {from} only")]
    OutOfReach { volume: String, from: String },
    #[error("the pod has no volume {0:?}")]
    NotListed(String),
    #[error("another volume of the pod lies under the name {0:?}; rename the pod's volume")]
    SamePlace(String),
    #[error("{0:?} cannot be the name of a volume")]
    BadName(String),
}

impl SetUpError {
    /// Whether the volume could not even be found out: in the kubelet's words, processed.
    fn is_unprocessed(&self) -> bool {
        match self {
            Self::Api(_)
            | Self::NoClaim(_)
            | Self::ClaimDeleting(_)
            | Self::ClaimNotBound(_)
            | Self::NotOwner(_)
            | Self::NoVolume { .. }
            | Self::NotOurs { .. }
            | Self::Labels(_)
            | Self::Refused(_)
            | Self::UnknownKind(_)
            | Self::Mode { .. }
            | Self::NotListed(_)
            | Self::SamePlace(_)
            | Self::BadName(_) => true,
            // What is mounted, and can't be.
            Self::Volume(_) | Self::Flex(_) | Self::Hung(_) | Self::OutOfReach { .. } => false,
        }
    }
}

fn mode_words(mode: VolumeMode) -> &'static str {
    match mode {
        VolumeMode::Filesystem => "a file system",
        VolumeMode::Block => "a block device",
    }
}

fn out_of_reach(volume: &Volume) -> SetUpError {
    let affinity = volume.spec.node_affinity.iter();
    let terms = affinity.filter_map(|affinity| affinity.required.as_ref());
    let terms = terms.flat_map(|selector| &selector.node_selector_terms);
    let told = terms.map(|term| {
        let all = term.match_expressions.iter().chain(&term.match_fields);
        let all: Vec<String> = all.map(ToString::to_string).collect();
        all.join(" and ")
    });
    let told: Vec<String> = told.collect();
    SetUpError::OutOfReach {
        volume: volume.metadata.name.clone(),
        from: told.join(", or "),
    }
}

impl Pods {
    /// Asks for every volume that a container uses. `None` when all are ready.
    pub(super) async fn set_up(&self, uid: &PodUid, pod: &Arc<Pod>) -> Option<Outcome> {
        let (files, devices) = used(pod);
        let mut waits = Vec::new();
        let mut failed = Vec::new();
        let slow: Mutex<BTreeSet<&String>> = Mutex::new(files.union(&devices).collect());
        // None waits for what another has to ask the API server.
        let placing = files.union(&devices).map(async |name| {
            let wants = if devices.contains(name) {
                VolumeMode::Block
            } else {
                VolumeMode::Filesystem
            };
            let placed = self.place(uid, pod, name, wants).await;
            lock(&slow).remove(name);
            (name, placed)
        });
        let placing = async { tokio::join!(join_all(placing), self.presence(uid, pod)) };
        let (placed, presence) = tokio::select! {
            placed = placing => placed,
            never = self.tell_of_slow(uid, pod, &slow) => match never {},
        };
        match presence {
            Presence::There => {}
            Presence::Gone => return None,
            Presence::Unclear => return Some(Outcome::Retry),
        }
        for (name, placed) in placed {
            match placed {
                Ok(Place::At(_)) => {}
                Ok(Place::Csi { key, .. }) => {
                    let wait = self.wait_for(uid, name, &key);
                    if wait.as_ref().is_some_and(|wait| wait.why.is_some()) {
                        self.look_out_for_secret(uid, pod, (name, &key)).await;
                    }
                    waits.extend(wait);
                }
                Err(error) => {
                    let message = match &error {
                        SetUpError::OutOfReach { volume, .. } => format!(
                            "MountVolume.NodeAffinity check failed for volume {volume:?} : {error}"
                        ),
                        error => {
                            // As the kubelet calls it once it knows the claim's volume.
                            let bound = match error.is_unprocessed() {
                                true => None,
                                false => self.bound_name(pod, name),
                            };
                            let called = bound.as_ref().unwrap_or(name);
                            let why = chain(error);
                            format!("MountVolume.SetUp failed for volume {called:?} : {why}")
                        }
                    };
                    self.trouble(uid, pod, "FailedMount", message);
                    failed.push(Failed {
                        name: name.clone(),
                        why: chain(&error),
                        unprocessed: error.is_unprocessed(),
                    });
                }
            }
        }
        let now = self.parts.clock.now();
        let mut records = self.records();
        let record = records.get_mut(uid)?;
        if waits.is_empty() && failed.is_empty() {
            record.volumes_ready = true;
            self.begin_measuring(record, pod);
            record.trouble = None;
            record.volumes_asked = None;
            return None;
        }
        let asked = *record.volumes_asked.get_or_insert(now);
        let tell_at = later(asked, SAID_AFTER);
        let said = (now >= tell_at).then(|| waiting::summary(&waits, &failed));
        let news = said.filter(|said| record.volumes_said.as_ref() != Some(said));
        if let Some(message) = news {
            record.volumes_said = Some(message.clone());
            let warning = orlop_runtime::EventType::Warning;
            self.parts
                .recorder
                .say(&**pod, warning, "FailedMount", message);
        }
        if !failed.is_empty() {
            return Some(Outcome::Retry);
        }
        // A wait that is just beginning is not worth a status of its own.
        let known = waits.iter().any(|wait| wait.why.is_some());
        record.trouble = known.then(|| waiting::words(&waits));
        if now < tell_at {
            return Some(Outcome::After(until(now, tell_at)));
        }
        Some(Outcome::Done)
    }

    /// A CSI driver's volume, unless it is ready.
    fn wait_for(&self, uid: &PodUid, name: &str, key: &DeviceKey) -> Option<Wait> {
        match self.parts.volumes.readiness(key, uid) {
            Readiness::NotYet { why, unattached } => Some(Wait {
                name: name.to_owned(),
                why,
                unattached,
            }),
            _ => None,
        }
    }

    /// A volume of the pod's own may lack its secret: it is looked at again when that comes.
    async fn look_out_for_secret(&self, uid: &PodUid, pod: &Pod, (name, key): (&str, &DeviceKey)) {
        let volume = pod.spec.volumes.iter().find(|volume| volume.name == name);
        let Some(Source::Inline(source)) = volume.map(Source::of) else {
            return;
        };
        let Some(secret) = &source.node_publish_secret_ref else {
            return;
        };
        let secret = Key::namespaced(&pod.metadata.namespace, &secret.name);
        let user = Shown {
            pod: uid.clone(),
            volume: name.to_owned(),
        };
        self.parts
            .sources
            .objects
            .look_out_for(&secret, &user)
            .await;
        let mut records = self.records();
        if records
            .get_mut(uid)
            .is_some_and(|record| record.stale.remove(name))
        {
            self.parts.volumes.queue.add(key.clone());
        }
    }

    /// Says which volumes keep the others from being looked at, since it takes long to find or to
    /// mount them; and again, ever more rarely, if something else does.
    async fn tell_of_slow(
        &self,
        uid: &PodUid,
        pod: &Arc<Pod>,
        slow: &Mutex<BTreeSet<&String>>,
    ) -> Infallible {
        let (mut said, mut wait) = (None, SAID_AFTER.unsigned_abs());
        loop {
            tokio::time::sleep(wait).await;
            wait *= 2;
            let slow: Vec<String> = lock(slow).iter().copied().cloned().collect();
            let doing = self.parts.flex.doing(uid);
            let news = Some((slow.clone(), doing.clone()));
            if slow.is_empty() || said == news {
                continue;
            }
            said = news;
            let mut waits: Vec<Wait> = slow
                .into_iter()
                .map(|name| Wait {
                    why: doing.get(&name).map(Doing::words),
                    unattached: doing.get(&name).is_some_and(Doing::attaches),
                    name,
                })
                .collect();
            let places = match self.records().get(uid) {
                Some(record) => record.places.clone(),
                None => continue,
            };
            waits.extend(places.iter().filter_map(|(name, place)| match place {
                Place::Csi { key, .. } => self.wait_for(uid, name, key),
                Place::At(_) => None,
            }));
            let message = waiting::summary(&waits, &[]);
            let warning = EventType::Warning;
            self.parts
                .recorder
                .say(&**pod, warning, "FailedMount", message);
            if let Some(record) = self.records().get_mut(uid) {
                record.trouble = Some(waiting::words(&waits));
            }
            self.report(uid, Outcome::Done).await;
        }
    }

    /// Where a volume of the pod is, or will be: found out once.
    async fn place(
        &self,
        uid: &PodUid,
        pod: &Arc<Pod>,
        name: &str,
        wants: VolumeMode,
    ) -> Result<Place, SetUpError> {
        if let Some(place) = self
            .records()
            .get(uid)
            .and_then(|record| record.places.get(name))
        {
            return Ok(place.clone());
        }
        let volume = pod.spec.volumes.iter().find(|volume| volume.name == name);
        let volume = volume.ok_or_else(|| SetUpError::NotListed(name.to_owned()))?;
        if !Layout::is_safe(name) {
            return Err(SetUpError::BadName(name.to_owned()));
        }
        let place = self.find(uid, pod, volume, wants).await?;
        if let Some(record) = self.records().get_mut(uid) {
            record.places.insert(name.to_owned(), place.clone());
        }
        Ok(place)
    }

    async fn find(
        &self,
        uid: &PodUid,
        pod: &Arc<Pod>,
        volume: &PodVolume,
        wants: VolumeMode,
    ) -> Result<Place, SetUpError> {
        let source = Source::of(volume);
        let files_only = !matches!(source, Source::Claim { .. });
        if files_only && wants == VolumeMode::Block {
            let (name, has) = (volume.name.clone(), VolumeMode::Filesystem);
            return Err(SetUpError::Mode { name, has, wants });
        }
        let local = self.local(uid, pod);
        match source {
            Source::EmptyDir(source) => Ok(Place::At(local.empty_dir(&volume.name, source)?)),
            Source::Files(files) => {
                let written = local.files(volume, files, Freshness::Live).await?;
                if let (Some(at), Some(record)) = (written.renew_at, self.records().get_mut(uid)) {
                    record.renew.insert(volume.name.clone(), at);
                }
                Ok(Place::At(written.path))
            }
            Source::HostPath(source) => Ok(Place::At(self.host_path(uid, source).await?)),
            Source::Nfs(source) => {
                let wanted = Wanted {
                    name: volume.name.clone(),
                    read_only: source.read_only,
                    options: Vec::new(),
                };
                Ok(Place::At(self.nfs(uid, source, wanted).await?))
            }
            Source::Flex(source) => {
                let flex = FlexVolume {
                    name: &volume.name,
                    called: &volume.name,
                    source,
                    read_only: source.read_only,
                };
                Ok(Place::At(self.parts.flex.set_up(pod, uid, flex).await?))
            }
            Source::Claim { read_only } => {
                let bound = self.bound_volume(pod, volume).await?;
                let has = bound.volume_mode();
                if has != wants {
                    return Err(SetUpError::Mode {
                        name: volume.name.clone(),
                        has,
                        wants,
                    });
                }
                // A pod that runs goes on, whatever became of the node's labels.
                if !self.any_running(uid) && !self.parts.volumes.reaches(&bound) {
                    return Err(out_of_reach(&bound));
                }
                if bound.spec.csi.is_none() {
                    let called = (&**pod, volume.name.as_str());
                    let path = self.place_other(uid, called, &bound, read_only).await?;
                    return Ok(Place::At(path));
                }
                let called = (pod, volume.name.as_str());
                self.place_bound(uid, called, bound, read_only, Lifetime::Persistent)
            }
            Source::Inline(source) => {
                let made = volumes::inline_volume(pod, uid, &volume.name, source);
                let called = (pod, volume.name.as_str());
                self.place_bound(uid, called, made, source.read_only, Lifetime::Ephemeral)
            }
            Source::Refused(why) => Err(SetUpError::Refused(why)),
            Source::Unknown => Err(SetUpError::UnknownKind(volume.name.clone())),
        }
    }

    fn local<'p>(&'p self, uid: &'p PodUid, pod: &'p Pod) -> Local<'p> {
        Local {
            layout: &self.parts.layout,
            sources: &self.parts.sources,
            pod,
            uid,
            now: self.parts.clock.now(),
        }
    }

    /// Writes the volumes anew whose tokens are about to end, or whose sources have changed. One
    /// that can't be written keeps its files and is tried again soon; the pod goes on meanwhile.
    pub(super) async fn renew(&self, uid: &PodUid, pod: &Pod) {
        let local = self.local(uid, pod);
        let due: BTreeSet<String> = match self.records().get_mut(uid) {
            Some(record) => {
                let due = record.renew.iter().filter(|(_, at)| **at <= local.now);
                let due = due.map(|(name, _)| name.clone());
                // Forgotten before the look: what changes after it is told anew.
                due.chain(std::mem::take(&mut record.stale)).collect()
            }
            None => return,
        };
        for name in due {
            let volume = pod.spec.volumes.iter().find(|volume| volume.name == name);
            let again = match volume.map(|volume| (volume, Source::of(volume))) {
                Some((volume, Source::Files(files))) => {
                    match local.files(volume, files, Freshness::Followed).await {
                        Ok(written) => written.renew_at,
                        Err(error) => {
                            let message = format!(
                                "MountVolume.SetUp failed for volume {name:?} : {}",
                                chain(&error)
                            );
                            let (warning, reason) = (EventType::Warning, "FailedMount");
                            self.parts.recorder.say(pod, warning, reason, message);
                            local.now.checked_add(RENEW_AGAIN).ok()
                        }
                    }
                }
                _ => None,
            };
            if let Some(record) = self.records().get_mut(uid) {
                match again {
                    Some(at) => record.renew.insert(name, at),
                    None => record.renew.remove(&name),
                };
            }
        }
    }

    /// The name of the volume behind a pod's claim, if the pod's volume is one.
    fn bound_name(&self, pod: &Pod, name: &str) -> Option<String> {
        let mut claims = pod.claims();
        let (_, key) = claims.find(|(volume, _)| volume.name == *name)?;
        self.parts.volumes.likely_volume(&key)
    }

    /// The volume behind a pod's claim, read from the API server and not from a cache:
    /// a cache may still show the claim's namesake of before, with another volume.
    async fn bound_volume(&self, pod: &Pod, volume: &PodVolume) -> Result<Volume, SetUpError> {
        let mut claims = pod.claims();
        let key = claims
            .find(|(of, _)| of.name == volume.name)
            .map(|(_, key)| key);
        let key = key.ok_or_else(|| SetUpError::NotListed(volume.name.clone()))?;
        let cluster = &self.parts.cluster;
        // The volume that the claim is likely to have is asked for at the same time.
        let likely = async {
            let name = self.parts.volumes.likely_volume(&key)?;
            cluster.get::<Volume>(&Key::cluster(name)).await.ok()?
        };
        let (claim, likely) = tokio::join!(cluster.get::<Claim>(&key), likely);
        let claim = claim?.ok_or_else(|| SetUpError::NoClaim(key.clone()))?;
        let meta = &claim.metadata;
        if meta.is_deleting() && !meta.has_finalizer(PVC_PROTECTION) {
            return Err(SetUpError::ClaimDeleting(key));
        }
        let owned = meta
            .controller()
            .is_some_and(|owner| owner.uid == pod.metadata.uid);
        if volume.ephemeral.is_some() && !owned {
            return Err(SetUpError::NotOwner(key));
        }
        let name = &claim.spec.volume_name;
        // The scheduler places a pod once its claims are bound; that the phase says so too may
        // be a write away. Whose the volume is, is checked below.
        let bound = match claim.phase() {
            ClaimPhase::Bound => true,
            ClaimPhase::Pending => claim.bind_completed(),
            ClaimPhase::Lost => false,
        };
        if !bound || name.is_empty() {
            return Err(SetUpError::ClaimNotBound(key));
        }
        let is_ours = |found: &Volume| {
            let reference = found.spec.claim_ref.as_ref();
            reference.is_some_and(|reference| reference.uid == meta.uid)
        };
        // One that was read before the claim may not show yet whose it is.
        let likely = likely.filter(|found| found.metadata.name == *name && is_ours(found));
        if let Some(found) = likely {
            return Ok(found);
        }
        let found = cluster.get::<Volume>(&Key::cluster(name)).await?;
        let found = found.ok_or_else(|| SetUpError::NoVolume {
            volume: name.clone(),
            claim: key.clone(),
        })?;
        if !is_ours(&found) {
            return Err(SetUpError::NotOurs {
                volume: name.clone(),
                claim: key,
            });
        }
        Ok(found)
    }

    /// Whether another of the pod's CSI volumes lies under a name: a PersistentVolume may be
    /// called as the pod calls a volume of its own.
    fn is_taken(&self, uid: &PodUid, name: &str, by: &DeviceKey) -> bool {
        let records = self.records();
        let mut places = records.get(uid).into_iter().flat_map(|r| r.places.values());
        places.any(|place| match place {
            Place::At(_) => false,
            Place::Csi { key, volume } => volume.metadata.name == name && key != by,
        })
    }

    /// Whether a container of the pod runs already: an earlier node role started it.
    fn any_running(&self, uid: &PodUid) -> bool {
        let records = self.records();
        let mut containers = records
            .get(uid)
            .into_iter()
            .flat_map(|r| r.containers.values());
        containers.any(|container| matches!(container.state, State::Running { .. }))
    }

    fn place_bound(
        &self,
        uid: &PodUid,
        (pod, called): (&Arc<Pod>, &str),
        volume: Volume,
        read_only: bool,
        lifetime: Lifetime,
    ) -> Result<Place, SetUpError> {
        if let Some(csi) = &volume.spec.csi {
            let label = self.parts.volumes.label(pod, called, (&volume, lifetime))?;
            let name = &volume.metadata.name;
            if !Layout::is_safe(&csi.driver) || !Layout::is_safe(name) {
                return Err(SetUpError::BadName(name.clone()));
            }
            let key = DeviceKey {
                driver: csi.driver.clone(),
                handle: csi.volume_handle.clone(),
            };
            if self.is_taken(uid, name, &key) {
                return Err(SetUpError::SamePlace(name.clone()));
            }
            let volume = Arc::new(volume);
            let want = Want {
                pod: pod.clone(),
                volume: volume.clone(),
                read_only,
                lifetime,
                label,
                in_use: self.any_running(uid),
                given_up: Arc::default(),
            };
            self.parts.volumes.want(&key, uid, want);
            return Ok(Place::Csi { key, volume });
        }
        Err(SetUpError::UnknownKind(volume.metadata.name))
    }

    /// A bound volume that is no CSI driver's.
    async fn place_other(
        &self,
        uid: &PodUid,
        (pod, called): (&Pod, &str),
        volume: &Volume,
        read_only: bool,
    ) -> Result<PathBuf, SetUpError> {
        let name = volume.metadata.name.as_str();
        if !Layout::is_safe(name) {
            return Err(SetUpError::BadName(name.to_owned()));
        }
        let wanted = Wanted {
            name: name.to_owned(),
            read_only,
            options: volume.spec.mount_options.clone(),
        };
        let spec = &volume.spec;
        if let Some(source) = &spec.host_path {
            return self.host_path(uid, source).await;
        }
        if let Some(source) = &spec.flex_volume {
            let flex = FlexVolume {
                name,
                called,
                source,
                read_only,
            };
            let path = self.parts.flex.set_up(pod, uid, flex).await?;
            if let Some(claim) = &spec.claim_ref {
                self.parts.flex.look_at_size(claim.key());
            }
            return Ok(path);
        }
        if let Some(source) = &spec.nfs {
            return self.nfs(uid, source, wanted).await;
        }
        let Some(source) = &spec.local else {
            return Err(SetUpError::UnknownKind(name.to_owned()));
        };
        let for_pods = &self.parts.for_pods;
        let (layout, pod_uid, source) = (self.parts.layout.clone(), uid.clone(), source.clone());
        if volume.volume_mode() == VolumeMode::Block {
            let work = move || mounted::local_device(&layout, &pod_uid, (&source, &wanted.name));
            return Ok(for_pods.run(uid, "bind a local device", work).await??);
        }
        let stands = Stands::at(volume);
        let work = move || mounted::local(&layout, &pod_uid, (&source, stands), &wanted);
        let path = for_pods.run(uid, "mount a local volume", work).await??;
        let context = pod.spec.security_context.as_ref();
        let group = context.and_then(|context| u32::try_from(context.fs_group?).ok());
        if let Some(group) = group.filter(|_| !read_only) {
            let given = for_pods.give(uid, path.clone(), group).await?;
            given.map_err(|source| VolumeError::Io {
                doing: "give to the pod's group",
                path: path.clone(),
                source,
            })?;
        }
        Ok(path)
    }

    /// Whatever the path leads to may not answer.
    async fn host_path(
        &self,
        uid: &PodUid,
        source: &HostPathSource,
    ) -> Result<PathBuf, SetUpError> {
        let source = source.clone();
        let work = move || plugins::host_path(&source);
        let found = self.parts.for_pods.run(uid, "look at a hostPath", work);
        Ok(found.await??)
    }

    /// The kernel waits for a server for as long as it takes; we don't.
    async fn nfs(
        &self,
        uid: &PodUid,
        source: &NfsSource,
        wanted: Wanted,
    ) -> Result<PathBuf, SetUpError> {
        let (layout, pod, of) = (self.parts.layout.clone(), uid.clone(), source.clone());
        let work = move || mounted::nfs(&layout, &pod, &of, &wanted);
        let mounted = self.parts.for_pods.run(uid, "mount an NFS share", work);
        match mounted.await {
            Err(Hung::Late { seconds, .. }) => Err(VolumeError::NfsHangs {
                server: source.server.clone(),
                seconds,
            }
            .into()),
            done => Ok(done??),
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The volumes that some container uses: as files, and as devices.
fn used(pod: &Pod) -> (BTreeSet<String>, BTreeSet<String>) {
    let containers = || pod.spec.init_containers.iter().chain(&pod.spec.containers);
    let files = containers().flat_map(|c| c.volume_mounts.iter().map(|mount| mount.name.clone()));
    let devices =
        containers().flat_map(|c| c.volume_devices.iter().map(|device| device.name.clone()));
    (files.collect(), devices.collect())
}
