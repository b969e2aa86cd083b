//! How many requests are at the API server at once: as many as it takes well.
//!
//! One more after each round of good answers while all places are taken; half as many, and
//! none for as long as it asks, when it says that it has too much to do; no more while its
//! answers take much longer than the best of them did.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

/// How many at first.
const FIRST: f64 = 32.0;
/// Never fewer.
const LEAST: f64 = 1.0;
/// Never more.
const MOST: f64 = 512.0;
/// Answers that take this many times as long as the best did are slow.
const SLOW: u32 = 8;
/// What a server that names no time is given.
const REST: Duration = Duration::from_secs(1);

/// How an answer was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The server is well.
    Good,
    /// It has too much to do, and may have said for how long.
    Busy(Option<Duration>),
}

/// The pace of a process; clones share it.
#[derive(Clone)]
pub(crate) struct Pace {
    state: Arc<Mutex<State>>,
    wake: Arc<Notify>,
    /// Told whenever nobody is at the server any more.
    idle: Arc<Notify>,
    /// Held by the one who is next: who comes later doesn't slip in before those who wait.
    door: Arc<tokio::sync::Mutex<()>>,
}

struct State {
    limit: f64,
    under_way: usize,
    /// Somebody had to wait for a place lately.
    crowded: bool,
    /// Nothing is sent before.
    rest: Option<Instant>,
    /// The quickest answer, slowly forgotten.
    best: Option<Duration>,
}

impl Default for Pace {
    fn default() -> Self {
        let state = State {
            limit: FIRST,
            under_way: 0,
            crowded: false,
            rest: None,
            best: None,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            wake: Arc::default(),
            idle: Arc::default(),
            door: Arc::default(),
        }
    }
}

/// What a request waits for.
enum Turn {
    Now,
    At(Instant),
    Another,
}

impl State {
    fn turn(&mut self, now: Instant) -> Turn {
        if let Some(rest) = self.rest {
            if rest > now {
                return Turn::At(rest);
            }
            self.rest = None;
        }
        if self.under_way as f64 >= self.limit.floor() {
            self.crowded = true;
            return Turn::Another;
        }
        if (self.under_way as f64) < self.limit / 2.0 {
            self.crowded = false;
        }
        self.under_way += 1;
        Turn::Now
    }

    fn learn(&mut self, answer: Answer, took: Duration, now: Instant) {
        match answer {
            Answer::Good => {
                let best = self.best.map_or(took, |best| best.min(took));
                let slow = took > best * SLOW && took > Duration::from_millis(100);
                // Forgotten by and by: a server may have become slower for good.
                self.best = Some(best + best / 256);
                if self.crowded && !slow {
                    self.limit = (self.limit + 1.0 / self.limit).min(MOST);
                }
            }
            Answer::Busy(wait) => {
                let until = now + wait.unwrap_or(REST);
                // Those that were under way together say the same thing once.
                if self.rest.is_none_or(|rest| rest <= now) {
                    self.limit = (self.limit / 2.0).max(LEAST);
                }
                self.rest = Some(self.rest.map_or(until, |rest| rest.max(until)));
            }
        }
    }
}

impl Pace {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a place, behind those who came before.
    pub(crate) async fn enter(&self) -> Place {
        let _next = self.door.lock().await;
        loop {
            let turn = self.lock().turn(Instant::now());
            match turn {
                Turn::Now => {
                    return Place {
                        pace: self.clone(),
                        since: Instant::now(),
                    };
                }
                Turn::At(time) => sleep_until(time).await,
                Turn::Another => self.wake.notified().await,
            }
        }
    }
}

impl Pace {
    /// Waits for a moment when nobody else is at the server, though not beyond a time; then for
    /// a place like everybody.
    pub(crate) async fn enter_idle(&self, latest: Instant) -> Place {
        loop {
            let idle = self.idle.notified();
            if self.lock().under_way == 0 || tokio::time::timeout_at(latest, idle).await.is_err() {
                return self.enter().await;
            }
        }
    }
}

/// A request's place; given back when it is dropped.
pub(crate) struct Place {
    pace: Pace,
    since: Instant,
}

impl Place {
    /// Tells how the answer was.
    pub(crate) fn answered(self, answer: Answer) {
        let now = Instant::now();
        self.pace.lock().learn(answer, now - self.since, now);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let left = {
            let mut state = self.pace.lock();
            state.under_way -= 1;
            state.under_way
        };
        self.pace.wake.notify_one();
        if left == 0 {
            self.pace.idle.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::*;

    /// Sends so many requests that each take as long; gives how long all took.
    async fn send(pace: &Pace, count: usize, takes: Duration, answer: Answer) -> Duration {
        let begun = Instant::now();
        let one = || async {
            let place = pace.enter().await;
            tokio::time::sleep(takes).await;
            place.answered(answer);
        };
        join_all((0..count).map(|_| one())).await;
        begun.elapsed()
    }

    const MS: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_well_gets_more_at_once() {
        let pace = Pace::default();
        let took = send(&pace, 32, 10 * MS, Answer::Good).await;
        assert_eq!(took, 10 * MS, "all at once");
        send(&pace, 4000, 10 * MS, Answer::Good).await;
        assert!(pace.lock().limit > 60.0, "{}", pace.lock().limit);
        assert_eq!(pace.lock().under_way, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_server_is_left_alone_as_long_as_it_asks_and_gets_half() {
        let pace = Pace::default();
        let wait = Duration::from_secs(7);
        send(&pace, 16, 10 * MS, Answer::Busy(Some(wait))).await;
        assert_eq!(pace.lock().limit, 16.0, "sixteen say it, once is meant");
        let took = send(&pace, 16, 10 * MS, Answer::Good).await;
        assert_eq!(took, wait + 10 * MS);
        for _ in 0..10 {
            send(&pace, 1, MS, Answer::Busy(None)).await;
        }
        assert_eq!(pace.lock().limit, LEAST, "but never none");
        send(&pace, 1, MS, Answer::Good).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_becomes_slow_gets_no_more() {
        let pace = Pace::default();
        send(&pace, 64, 10 * MS, Answer::Good).await;
        let before = pace.lock().limit;
        send(&pace, 500, 900 * MS, Answer::Good).await;
        assert_eq!(pace.lock().limit, before);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_first_is_served_first() {
        let pace = Pace::default();
        let second = 1000 * MS;
        // As many as there are places send one after the other, without a pause.
        let busy = async {
            let one = || async {
                for _ in 0..20 {
                    let place = pace.enter().await;
                    tokio::time::sleep(second).await;
                    place.answered(Answer::Good);
                }
            };
            join_all((0..64).map(|_| one())).await;
        };
        let late = async {
            tokio::time::sleep(3 * second).await;
            let came = Instant::now();
            drop(pace.enter().await);
            came.elapsed()
        };
        let (_, waited) = futures::join!(busy, late);
        assert!(waited <= 2 * second, "it waited for {waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_in_no_hurry_waits_until_nobody_else_is_there_but_not_for_ever() {
        let pace = Pace::default();
        let patience = 500 * MS;
        for (busy, waits) in [
            (30 * MS, 30 * MS),
            (10_000 * MS, patience),
            (Duration::ZERO, Duration::ZERO),
        ] {
            let others = async {
                let place = pace.enter().await;
                tokio::time::sleep(busy).await;
                drop(place);
            };
            let patient = async {
                tokio::task::yield_now().await;
                let came = Instant::now();
                drop(pace.enter_idle(came + patience).await);
                came.elapsed()
            };
            let (_, waited) = futures::join!(others, patient);
            assert_eq!(waited, waits, "while others were there for {busy:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_given_up_gives_its_place_back() {
        let pace = Pace::default();
        for _ in 0..100 {
            let gone = async {
                let _place = pace.enter().await;
                std::future::pending::<()>().await;
            };
            let _ = tokio::time::timeout(MS, gone).await;
        }
        assert_eq!(pace.lock().under_way, 0);
    }
}
