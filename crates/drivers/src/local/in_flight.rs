//! One operation per volume at a time.
//!
//! A second one is turned away at once (`ABORTED`) rather than queued: its caller retries, and by
//! then finds what the first one did. The turn is taken before the work is handed to a thread, and
//! kept until that thread is done with it: so work that was asked for first is never overtaken by
//! its own undoing.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use orlop_csi::proto;
use orlop_csi::server::CsiError;
use tonic::Code;

use super::volume::VolumeId;

/// Something that one operation at a time works on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subject {
    kind: &'static str,
    id: String,
}

impl Subject {
    /// A thing of this kind, such as a `snapshot`.
    pub(crate) fn new(kind: &'static str, id: impl Into<String>) -> Self {
        let id = id.into();
        Self { kind, id }
    }

    /// A volume.
    pub(super) fn volume(id: &VolumeId) -> Self {
        Self::new("volume", id.anywhere())
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.id)
    }
}

/// What a request works on. Those that only look work on nothing.
pub(super) trait Concerns {
    /// Everything that nobody else may work on meanwhile.
    fn subjects(&self) -> Vec<Subject>;
}

/// What is being worked on.
#[derive(Clone, Debug, Default)]
pub(crate) struct InFlight {
    subjects: Arc<Mutex<BTreeSet<Subject>>>,
}

/// The right to work on some things; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Turn {
    taken: Vec<Subject>,
    subjects: Arc<Mutex<BTreeSet<Subject>>>,
}

/// Somebody else has the turn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another operation on {subject} is running; retry when it has ended")]
pub(crate) struct Busy {
    subject: Subject,
}

impl CsiError for Busy {
    fn code(&self) -> Code {
        Code::Aborted
    }
}

impl InFlight {
    /// Takes the turn for all of them, or for none.
    pub(crate) fn begin(&self, mut wanted: Vec<Subject>) -> Result<Turn, Busy> {
        wanted.sort_unstable();
        wanted.dedup();
        let mut running = locked(&self.subjects);
        if let Some(subject) = wanted.iter().find(|it| running.contains(it)) {
            return Err(Busy {
                subject: subject.clone(),
            });
        }
        running.extend(wanted.iter().cloned());
        Ok(Turn {
            taken: wanted,
            subjects: Arc::clone(&self.subjects),
        })
    }
}

#[cfg(test)]
impl InFlight {
    /// Whether somebody has the turn. Unlike trying to take it, looking stands in nobody's way.
    pub(super) fn is_busy(&self, subject: &Subject) -> bool {
        locked(&self.subjects).contains(subject)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut running = locked(&self.subjects);
        for subject in &self.taken {
            running.remove(subject);
        }
    }
}

/// A set of names is whole even if its last user panicked.
fn locked(subjects: &Mutex<BTreeSet<Subject>>) -> MutexGuard<'_, BTreeSet<Subject>> {
    subjects.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The volume that an id names; what is no id of ours names nothing that could be worked on.
fn named(id: &str) -> Vec<Subject> {
    VolumeId::parse(id).iter().map(Subject::volume).collect()
}

macro_rules! concern_their_volume {
    ($($request:ident)+) => {
        $(impl Concerns for proto::$request {
            fn subjects(&self) -> Vec<Subject> {
                named(&self.volume_id)
            }
        })+
    };
}

concern_their_volume! {
    DeleteVolumeRequest
    ControllerPublishVolumeRequest
    ControllerUnpublishVolumeRequest
    ControllerExpandVolumeRequest
    ControllerModifyVolumeRequest
    NodeStageVolumeRequest
    NodeUnstageVolumeRequest
    NodeExpandVolumeRequest
}

/// An inline volume is made and removed under the id that the kubelet chose for it.
macro_rules! concern_any_volume {
    ($($request:ident)+) => {
        $(impl Concerns for proto::$request {
            fn subjects(&self) -> Vec<Subject> {
                match VolumeId::parse(&self.volume_id) {
                    Some(id) => vec![Subject::volume(&id)],
                    None => vec![Subject::volume(&VolumeId::of_inline(&self.volume_id))],
                }
            }
        })+
    };
}

concern_any_volume! {
    NodePublishVolumeRequest
    NodeUnpublishVolumeRequest
}

macro_rules! only_look {
    ($($request:ident)+) => {
        $(impl Concerns for proto::$request {
            fn subjects(&self) -> Vec<Subject> {
                Vec::new()
            }
        })+
    };
}

only_look! {
    ValidateVolumeCapabilitiesRequest
    ListVolumesRequest
    GetCapacityRequest
    ControllerGetVolumeRequest
    NodeGetVolumeStatsRequest
}

impl Concerns for proto::CreateVolumeRequest {
    fn subjects(&self) -> Vec<Subject> {
        use proto::volume_content_source::Type;
        let mut subjects = vec![Subject::volume(&VolumeId::of_name(&self.name))];
        let source = self.volume_content_source.as_ref();
        // A snapshot never changes, so that any number of volumes can be made from it at once. A
        // volume is held still.
        if let Some(Type::Volume(source)) = source.and_then(|it| it.r#type.as_ref()) {
            subjects.extend(named(&source.volume_id));
        }
        subjects
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_busy_until_its_turn_is_dropped() {
        let in_flight = InFlight::default();
        let [one, two] = ["1", "2"].map(|name| Subject::volume(&VolumeId::of_name(name)));
        let turn = in_flight.begin(vec![one.clone()]).unwrap();
        let busy = in_flight.begin(vec![two.clone(), one.clone()]).unwrap_err();
        assert_eq!(
            busy,
            Busy {
                subject: one.clone()
            }
        );
        // Nothing was taken by the one that was turned away.
        in_flight.begin(vec![two]).unwrap();
        drop(turn);
        in_flight.begin(vec![one.clone(), one]).unwrap();
    }

    #[test]
    fn an_id_that_is_not_ours_is_no_reason_to_wait() {
        let request = proto::NodeStageVolumeRequest {
            volume_id: "../etc".to_owned(),
            ..Default::default()
        };
        assert_eq!(request.subjects(), []);
    }

    #[test]
    fn making_a_volume_and_removing_it_exclude_each_other() {
        let make = proto::CreateVolumeRequest {
            name: "a".to_owned(),
            ..Default::default()
        };
        let remove = proto::DeleteVolumeRequest {
            volume_id: VolumeId::of_name("a").as_str().to_owned(),
            ..Default::default()
        };
        assert_eq!(make.subjects(), remove.subjects());
    }
}
