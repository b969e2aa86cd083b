//! One operation per volume at a time.
//!
//! A second one is turned away at once (`ABORTED`) rather than queued: its caller retries, and by
//! then finds what the first one did.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::volume::VolumeId;

/// The volumes that something is being done with.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlight {
    volumes: Arc<Mutex<BTreeSet<VolumeId>>>,
}

/// The right to work on one volume; dropping it gives it back.
#[derive(Debug)]
pub(super) struct Turn {
    volume: VolumeId,
    volumes: Arc<Mutex<BTreeSet<VolumeId>>>,
}

/// Somebody else has the turn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another operation on volume {volume} is running; retry when it has ended")]
pub struct Busy {
    /// The volume.
    pub volume: VolumeId,
}

impl InFlight {
    /// Takes the turn for a volume, if nobody has it.
    pub(super) fn begin(&self, volume: &VolumeId) -> Result<Turn, Busy> {
        if locked(&self.volumes).insert(volume.clone()) {
            Ok(Turn {
                volume: volume.clone(),
                volumes: Arc::clone(&self.volumes),
            })
        } else {
            Err(Busy {
                volume: volume.clone(),
            })
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        locked(&self.volumes).remove(&self.volume);
    }
}

/// A set of ids is whole even if its last user panicked.
fn locked(volumes: &Mutex<BTreeSet<VolumeId>>) -> MutexGuard<'_, BTreeSet<VolumeId>> {
    volumes.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_is_busy_until_its_turn_is_dropped() {
        let in_flight = InFlight::default();
        let (one, two) = (VolumeId::of_name("1"), VolumeId::of_name("2"));
        let turn = in_flight.begin(&one).unwrap();
        assert_eq!(
            in_flight.begin(&one).unwrap_err(),
            Busy {
                volume: one.clone()
            }
        );
        in_flight.begin(&two).unwrap();
        drop(turn);
        in_flight.begin(&one).unwrap();
    }
}
