//! One case's hands: it calls the driver, remembers what was said and made, and cleans up.

use std::any::Any;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use orlop_csi::client::{Origin, Refusal};
use orlop_csi::{Method, Streams, Unary, proto};
use tokio::sync::Notify;

use crate::answer::Answer;
use crate::bench::Bench;
use crate::folder::CaseFolder;
use crate::ledger::Ledger;
use crate::remains::{Remain, Remains};
use crate::settings::Secrets;
use crate::words;

/// Between a call and its answer.
pub(crate) const ANSWER: &str = " → ";

/// The last calls of a case, for its report.
const LONGEST_TRANSCRIPT: usize = 40;

#[derive(Clone, Debug)]
pub(crate) struct Trial(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    bench: Arc<Bench>,
    number: u64,
    folder: CaseFolder,
    ledger: Ledger,
    transcript: Mutex<Vec<String>>,
    warnings: Mutex<Vec<String>>,
    /// The first call that the driver was not there for.
    lost: Mutex<Option<String>>,
    /// Told when the driver does not answer at all any more.
    hung: Notify,
}

impl Trial {
    pub(crate) fn new(bench: Arc<Bench>) -> std::io::Result<Self> {
        let number = bench.next_number();
        let folder = bench.folder.for_case(number)?;
        Ok(Self(Arc::new(Inner {
            bench,
            number,
            folder,
            ledger: Ledger::default(),
            transcript: Mutex::default(),
            warnings: Mutex::default(),
            lost: Mutex::default(),
            hung: Notify::new(),
        })))
    }

    pub(crate) fn bench(&self) -> &Bench {
        &self.0.bench
    }

    pub(crate) fn folder(&self) -> &CaseFolder {
        &self.0.folder
    }

    /// A name that nothing else of this or another run has.
    pub(crate) fn name(&self, tag: &str) -> String {
        format!(
            "orlop-conformance-{}-{}-{tag}",
            self.bench().tag,
            self.0.number
        )
    }

    /// Something that the driver should do otherwise.
    pub(crate) fn warn(&self, words: impl Into<String>) {
        let mut warnings = self
            .0
            .warnings
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        warnings.push(words.into());
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        let warnings = self
            .0
            .warnings
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        warnings.clone()
    }

    pub(crate) fn transcript(&self) -> Vec<String> {
        let transcript = self
            .0
            .transcript
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        transcript.clone()
    }

    /// The first call that got no answer because the connection was gone, and what was seen of it.
    pub(crate) fn lost(&self) -> Option<String> {
        let lost = self.0.lost.lock().unwrap_or_else(PoisonError::into_inner);
        lost.clone()
    }

    /// Ends when a call had all its time and got no answer, and a probe after it got none either.
    pub(crate) async fn hung(&self) {
        self.0.hung.notified().await;
    }

    /// Notes what a refusal says about the driver's presence. `whole` if the call had all the time
    /// that the settings give.
    async fn note_lost(&self, method: Method, refusal: &Refusal, whole: bool) {
        let hangs = match refusal.origin {
            Origin::Connection => false,
            Origin::Timer if whole && !self.bench().answers_probe(method).await => true,
            Origin::Timer | Origin::Driver | Origin::Reply => return,
        };
        let nor = if hangs {
            ", and Probe with nothing"
        } else {
            ""
        };
        let words = || {
            format!(
                "{method} was answered with {}{nor}",
                words::refusal(refusal)
            )
        };
        self.0
            .lost
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert_with(words);
        if hangs {
            self.0.hung.notify_one();
            // Whoever runs the case ends it here.
            std::future::pending::<()>().await;
        }
    }

    fn say(&self, line: String) {
        let mut transcript = self
            .0
            .transcript
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if transcript.len() == LONGEST_TRANSCRIPT {
            transcript.remove(0);
        }
        transcript.push(line);
    }

    /// Calls the driver with the time that the settings give.
    pub(crate) async fn call<R: Unary + Debug>(&self, request: R) -> Answer<R>
    where
        R::Reply: Debug,
    {
        self.call_within(request, self.bench().settings.timeout)
            .await
    }

    /// Calls the driver; cancels the call after the time given.
    pub(crate) async fn call_within<R: Unary + Debug>(
        &self,
        mut request: R,
        time: Duration,
    ) -> Answer<R>
    where
        R::Reply: Debug,
    {
        fill_secrets(&mut request, &self.bench().settings.secrets);
        let asked = words::message(&request);
        let new = self.0.ledger.before(&request);
        let driver = self.bench().driver(R::METHOD);
        let result = driver.call_raw(&request, time).await;
        let seen = result.as_ref().map(|reply| reply as &dyn Any);
        self.0.ledger.after(&request, new, seen);
        if let Ok(reply) = seen {
            self.bench().room().look(&request, reply);
        }
        if let Ok(reply) = seen
            && let Some(reply) = reply.downcast_ref::<proto::CreateVolumeResponse>()
            && let Some(volume) = &reply.volume
        {
            self.bench().add_made(volume.volume_id.clone());
        }
        self.bench()
            .observed
            .look(R::METHOD, &asked, seen, &self.bench().secrets());
        self.say(match &result {
            Ok(reply) => format!("{asked}{ANSWER}OK {}", words::message(reply)),
            Err(refusal) => format!("{asked}{ANSWER}{}", words::refusal(refusal)),
        });
        if let Err(refusal) = &result {
            let whole = time >= self.bench().settings.timeout;
            self.note_lost(R::METHOD, refusal, whole).await;
        }
        Answer { asked, result }
    }

    /// Reads a whole stream.
    pub(crate) async fn stream<R: Streams + Debug>(
        &self,
        mut request: R,
    ) -> (Vec<R::Reply>, Result<(), Refusal>) {
        fill_secrets(&mut request, &self.bench().settings.secrets);
        let asked = words::message(&request);
        let driver = self.bench().driver(R::METHOD);
        let time = self.bench().settings.timeout;
        let (replies, end) = driver.stream_raw(&request, time).await;
        let seen = end.as_ref().map(|()| &() as &dyn Any);
        self.bench()
            .observed
            .look(R::METHOD, &asked, seen, &self.bench().secrets());
        self.say(match &end {
            Ok(()) => format!(
                "{asked}{ANSWER}OK {} messages, then a clean end",
                replies.len()
            ),
            Err(refusal) => {
                format!(
                    "{asked}{ANSWER}{} messages, then {}",
                    replies.len(),
                    words::refusal(refusal)
                )
            }
        });
        if let Err(refusal) = &end {
            self.note_lost(R::METHOD, refusal, true).await;
        }
        (replies, end)
    }

    /// Removes what the case made; says what is left.
    pub(crate) async fn clean(&self) -> Remains {
        let left = self.0.ledger.clean(self).await;
        self.clean_folder(left).await
    }

    /// Removes what can be removed without the driver; says what is left.
    pub(crate) async fn abandon(&self) -> Remains {
        self.clean_folder(self.0.ledger.remains()).await
    }

    /// Cleans up the case's folders after what is `left` at the driver.
    async fn clean_folder(&self, mut left: Vec<Remain>) -> Remains {
        let folder = self.0.folder.clone();
        let of_folder = tokio::task::spawn_blocking(move || {
            let mut remains = folder.unmount_all();
            remains.left.extend(folder.remove());
            remains
        });
        let mut remains = of_folder.await.unwrap_or_else(|error| Remains {
            left: vec![Remain::at_driver(format!("the case's folders: {error}"))],
            taken_away: Vec::new(),
        });
        left.append(&mut remains.left);
        remains.left = left;
        remains.settle()
    }
}

/// Puts the user's credentials into a request that has none of its own.
fn fill_secrets(request: &mut dyn Any, secrets: &Secrets) {
    macro_rules! fill {
        ($($method:ident: $request:ident,)+) => {
            $(if let Some(request) = request.downcast_mut::<proto::$request>() {
                if request.secrets.is_empty() {
                    request.secrets = secrets.of(Method::$method);
                }
                return;
            })+
        };
    }
    fill! {
        CreateVolume: CreateVolumeRequest,
        DeleteVolume: DeleteVolumeRequest,
        ControllerPublishVolume: ControllerPublishVolumeRequest,
        ControllerUnpublishVolume: ControllerUnpublishVolumeRequest,
        ValidateVolumeCapabilities: ValidateVolumeCapabilitiesRequest,
        ControllerModifyVolume: ControllerModifyVolumeRequest,
        CreateSnapshot: CreateSnapshotRequest,
        DeleteSnapshot: DeleteSnapshotRequest,
        ListSnapshots: ListSnapshotsRequest,
        GetSnapshot: GetSnapshotRequest,
        ControllerExpandVolume: ControllerExpandVolumeRequest,
        CreateVolumeGroupSnapshot: CreateVolumeGroupSnapshotRequest,
        DeleteVolumeGroupSnapshot: DeleteVolumeGroupSnapshotRequest,
        GetVolumeGroupSnapshot: GetVolumeGroupSnapshotRequest,
        GetMetadataAllocated: GetMetadataAllocatedRequest,
        GetMetadataDelta: GetMetadataDeltaRequest,
        NodeStageVolume: NodeStageVolumeRequest,
        NodePublishVolume: NodePublishVolumeRequest,
        NodeExpandVolume: NodeExpandVolumeRequest,
    }
}
