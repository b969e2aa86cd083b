//! How many requests are worked on at once, in all and for each user.
//!
//! Watches and logs that are followed aren't counted: they wait more than they work. Nor is
//! whoever may do everything, so that a server that is swamped can still be helped.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Which of the two lanes a request takes, so that readers can't keep writers out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    Reading,
    Writing,
}

/// The requests that are being worked on.
#[derive(Debug)]
pub(crate) struct InFlight {
    reading: Arc<Track>,
    writing: Arc<Track>,
}

#[derive(Debug)]
struct Track {
    most: usize,
    /// By user; none is kept that has nothing in flight.
    users: Mutex<HashMap<String, usize>>,
}

/// A request that is being worked on; dropping it ends it.
#[derive(Debug)]
pub(super) struct Turn {
    track: Arc<Track>,
    user: String,
}

impl InFlight {
    pub(crate) fn new(reading: usize, writing: usize) -> Self {
        let track = |most| {
            let users = Mutex::default();
            Arc::new(Track { most, users })
        };
        Self {
            reading: track(reading),
            writing: track(writing),
        }
    }

    /// Begins a request of a user; none if there are too many. One user gets at most half of
    /// a lane.
    pub(super) fn begin(&self, lane: Lane, user: &str) -> Option<Turn> {
        let track = match lane {
            Lane::Reading => &self.reading,
            Lane::Writing => &self.writing,
        };
        let mut users = track.users.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = users.values().sum();
        let own = users.get(user).copied().unwrap_or(0);
        if all >= track.most || own >= track.most.div_ceil(2) {
            return None;
        }
        users.insert(user.to_owned(), own + 1);
        Some(Turn {
            track: Arc::clone(track),
            user: user.to_owned(),
        })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let users = self.track.users.lock();
        let mut users = users.unwrap_or_else(PoisonError::into_inner);
        match users.get_mut(&self.user) {
            Some(own) if *own > 1 => *own -= 1,
            _ => {
                users.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_is_full_at_its_limit_and_for_one_user_at_half_of_it() {
        let all = InFlight::new(4, 2);
        let mut turns: Vec<_> = (0..2).map(|_| all.begin(Lane::Reading, "a")).collect();
        assert!(turns.iter().all(Option::is_some));
        assert!(all.begin(Lane::Reading, "a").is_none(), "half is taken");
        turns.extend((0..2).map(|_| all.begin(Lane::Reading, "b")));
        assert!(turns.iter().all(Option::is_some));
        assert!(all.begin(Lane::Reading, "c").is_none(), "all is taken");
        assert!(
            all.begin(Lane::Writing, "a").is_some(),
            "the other lane is free"
        );
        turns.pop();
        assert!(all.begin(Lane::Reading, "c").is_some());
        drop(turns);
        assert!(all.reading.users.lock().expect("whole").is_empty());
    }
}
