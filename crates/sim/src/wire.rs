//! The way of every call that a process makes, to the API server and to the driver.
//!
//! Each call is counted, delayed by a seeded while, written down and, where the plan says
//! so, struck. A request that was sent is carried out whatever becomes of its sender, as
//! over a network. A process whose time has come ends at that very call: nothing that it
//! still tries leaves it.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use orlop_apiserver::ApiService;
use orlop_csi::Gate;
use tokio::sync::mpsc;

use crate::faults::{Fault, Member, Phase, Plan};
use crate::trace::Trace;
use crate::witness::Witness;

mod api;
mod csi;
mod guard;

/// The longest that a message is under way; each takes a random share of it.
const LONGEST_WAY: u64 = 3;
/// How long one that is deposed holds its call up: its successor has just started then, and
/// both are at the same work.
const HOLD: Duration = Duration::from_millis(40);

/// A process across all its lives: its calls so far and what awaits it.
#[derive(Clone)]
pub struct Ledger {
    member: Member,
    plan: Arc<Plan>,
    trace: Trace,
    counted: Arc<Mutex<Counted>>,
}

struct Counted {
    calls: Vec<Call>,
    random: fastrand::Rng,
    /// The first list of each path, for who is sent back into the past.
    lists: BTreeMap<String, Bytes>,
}

/// What a call is to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nature {
    /// It may change something that somebody relies on.
    Effect,
    /// It changes nothing, or (an event for people) nothing that anybody relies on: dying
    /// before it and dying after it are the same.
    Look,
}

/// A call that a process made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Its number, from 1.
    pub number: u64,
    /// What was called.
    pub what: String,
    /// What it is to the world.
    pub nature: Nature,
}

impl Call {
    /// Whether it opens a watch.
    pub fn is_watch(&self) -> bool {
        self.what.starts_with("WATCH")
    }

    /// Whether it went to the driver rather than to the API server.
    pub fn is_to_driver(&self) -> bool {
        !self.what.contains(" /")
    }
}

impl Ledger {
    /// The ledger of a process that has not lived yet.
    pub fn new(member: Member, plan: Arc<Plan>, seed: u64, trace: Trace) -> Self {
        let mut salted = fastrand::Rng::with_seed(seed);
        for byte in member.to_string().bytes() {
            salted = fastrand::Rng::with_seed(salted.u64(..) ^ u64::from(byte));
        }
        let counted = Arc::new(Mutex::new(Counted {
            calls: Vec::new(),
            random: salted,
            lists: BTreeMap::new(),
        }));
        Self {
            member,
            plan,
            trace,
            counted,
        }
    }

    fn counted(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calls that it made.
    pub fn calls(&self) -> Vec<Call> {
        self.counted().calls.clone()
    }

    fn count(&self, what: &str, nature: Nature) -> (u64, Option<Fault>) {
        let mut counted = self.counted();
        let number = counted.calls.len() as u64 + 1;
        counted.calls.push(Call {
            number,
            what: what.to_owned(),
            nature,
        });
        (number, self.plan.at(self.member, number))
    }

    fn way(&self) -> Duration {
        let mut counted = self.counted();
        Duration::from_millis(counted.random.u64(0..=LONGEST_WAY))
    }
}

/// What the user does unasked.
pub type Meddling = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// How a life begins.
#[derive(Clone)]
pub struct Birth {
    /// Who is told of its end.
    pub deaths: mpsc::UnboundedSender<(Member, Fault)>,
    /// What the user does where the plan says so.
    pub meddling: Meddling,
    /// Whether it is shown the past first.
    pub in_the_past: bool,
}

/// One life of a process.
#[derive(Clone)]
pub struct Wire {
    ledger: Ledger,
    birth: Birth,
    ended: Arc<AtomicBool>,
    /// Nothing new is heard of any more.
    deaf: Arc<AtomicBool>,
    /// Paths whose past was shown in this life.
    shown: Arc<Mutex<BTreeSet<String>>>,
    /// Paths whose next watch can't be resumed.
    expired: Arc<Mutex<BTreeSet<String>>>,
}

impl Wire {
    /// A new life. Its end is told to those named at its birth.
    pub fn new(ledger: Ledger, birth: Birth) -> Self {
        Self {
            ledger,
            birth,
            ended: Arc::default(),
            deaf: Arc::default(),
            shown: Arc::default(),
            expired: Arc::default(),
        }
    }

    /// The API server through this wire.
    pub fn client(&self, api: ApiService, witness: Witness) -> kube::Client {
        let wire = api::ApiWire::new(self.clone(), api, witness);
        kube::Client::new(wire, "default")
    }

    /// Whether another has its place by now.
    pub fn deposed(&self) -> Arc<AtomicBool> {
        self.deaf.clone()
    }

    /// What stands between this process and its driver.
    pub fn gate(&self) -> Arc<dyn Gate> {
        Arc::new(csi::CsiWire::new(self.clone()))
    }

    /// Takes the next number for a call, and lets happen what comes before it; waits for
    /// ever if the process has ended or ends here.
    async fn begin(&self, what: &str, nature: Nature) -> (u64, Option<Fault>) {
        if self.ended.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        let (number, fault) = self.ledger.count(what, nature);
        let strike = fault.map(|fault| format!(" [{fault}]")).unwrap_or_default();
        self.ledger
            .trace
            .say(format!("{} #{number} {what}{strike}", self.ledger.member));
        if fault == Some(Fault::Meddled) {
            (self.birth.meddling)().await;
        }
        self.pass(fault, Phase::Before).await;
        (number, fault)
    }

    fn finish(&self, number: u64, outcome: &str) {
        self.ledger
            .trace
            .say(format!("{} #{number} = {outcome}", self.ledger.member));
    }

    /// On one side of a call: the process may die here, or be deposed.
    async fn pass(&self, fault: Option<Fault>, phase: Phase) {
        match fault {
            Some(fault) if fault.death() == Some(phase) => {
                if !self.ended.swap(true, Ordering::Relaxed) {
                    self.tell(fault, "dies");
                }
                std::future::pending().await
            }
            Some(fault) if fault == Fault::Deposed(phase) => {
                self.deaf.store(true, Ordering::Relaxed);
                self.tell(fault, "is deposed");
                tokio::time::sleep(HOLD).await;
            }
            _ => {}
        }
    }

    fn tell(&self, fault: Fault, what: &str) {
        let member = self.ledger.member;
        self.ledger.trace.say(format!("{member} {what}"));
        let _a_supervisor_that_is_gone_restarts_nothing = self.birth.deaths.send((member, fault));
    }
}
