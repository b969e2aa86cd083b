//! The cluster: one API server, one driver, and processes that die and come back.
//!
//! Everything that a restart must find again lives outside of the processes: the API
//! server's store, the driver's backend and the folders of the nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use orlop_apiserver::{ApiServer, Config, Entropy, Storage};
use orlop_csi::{Driver, Turns};
use orlop_runtime::{Clock, Cluster, Process};
use tokio::sync::mpsc;

use crate::backend::Breach;
use crate::driver::{FakeDriver, Temper};
use crate::faults::{Fault, Member, Plan};
use crate::run::Script;
use crate::trace::Trace;
use crate::user::User;
use crate::wire::{Birth, Call, Ledger, Meddling, Wire};
use crate::witness::Witness;
use machines::Machines;

pub(crate) mod machines;
pub(crate) mod roles;
mod runner;

/// How long a process that died stays away.
const AWAY: Duration = Duration::from_secs(2);

/// How long one that was deposed goes on before it notices.
const LINGER: Duration = Duration::from_secs(12);

/// When every simulation begins.
const BEGINNING: i64 = 1_767_225_600;

/// What a world is made from.
#[derive(Clone)]
pub struct Making {
    /// Drives every random choice.
    pub seed: u64,
    /// What goes wrong on the way to the API server and the driver.
    pub plan: Plan,
    /// How the driver behaves.
    pub temper: Temper,
    /// How many nodes there are.
    pub nodes: u8,
    /// Attach-detach's role.
    pub attach_detach: StartRole,
    /// The provisioner's role.
    pub provisioner: StartSidecar,
    /// The resizer's role.
    pub resizer: StartSidecar,
    /// The roles that look after snapshots, if any do.
    pub snapshots: Option<Snapshots>,
    /// What the user does where the plan says that they meddle.
    pub meddling: Option<Script>,
}

/// The roles that look after snapshots.
#[derive(Debug, Clone, Copy)]
pub struct Snapshots {
    /// Beside the driver.
    pub snapshotter: StartSidecar,
    /// The other one.
    pub controller: StartRole,
}

/// Starts a role that needs no driver.
pub type StartRole = fn(&Process);

/// Starts a role that stands beside the driver.
pub type StartSidecar = fn(&Process, Driver);

/// A cluster.
#[derive(Clone)]
pub struct World {
    inner: Arc<Inner>,
}

struct Inner {
    server: ApiServer,
    trace: Trace,
    witness: Witness,
    driver: FakeDriver,
    clock: Clock,
    /// Shared where nothing goes wrong, as by the roles of one process. Where something does, each
    /// role is a process of its own: so they meet at the driver, too.
    turns: Option<Turns>,
    nodes: BTreeMap<Member, roles::NodePlace>,
    ledgers: BTreeMap<Member, Ledger>,
    attach_detach: StartRole,
    provisioner: StartSidecar,
    resizer: StartSidecar,
    snapshots: Option<Snapshots>,
    meddling: Option<Script>,
    deaths: mpsc::UnboundedSender<(Member, Fault)>,
    lives: Mutex<BTreeMap<Member, Process>>,
    /// Nodes that don't come back by themselves.
    away: Mutex<BTreeSet<Member>>,
}

impl World {
    /// Makes a cluster whose nodes keep their files below `root`, and starts it. Needs a
    /// tokio runtime whose clock is paused.
    pub async fn start(making: Making, root: &Path) -> Self {
        let Making {
            seed,
            plan,
            temper,
            nodes,
            attach_detach,
            provisioner,
            resizer,
            snapshots,
            meddling,
        } = making;
        let clock = Clock::simulated(Timestamp::from_second(BEGINNING).expect("a time"));
        let random = Mutex::new(fastrand::Rng::with_seed(seed));
        let config = Config {
            clock: orlop_apiserver::Clock::new(move || clock.now()),
            entropy: Entropy::new(move || {
                random
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .u128(..)
            }),
            ..Config::new(Storage::Memory)
        };
        let server = ApiServer::open(config)
            .await
            .expect("a store in memory opens");
        let trace = Trace::begin();
        let witness = Witness::new(server.store().clone(), trace.clone());
        let driver = FakeDriver::new(temper, witness.clone());
        let turns = plan.is_calm().then(Turns::default);
        let plan = Arc::new(plan);
        let ledger = |member| Ledger::new(member, Arc::clone(&plan), seed, trace.clone());
        let mut members = Member::all(nodes);
        if snapshots.is_some() {
            members.extend([Member::Snapshotter, Member::SnapshotController]);
        }
        let places = members
            .iter()
            .filter(|member| matches!(member, Member::Node(_)));
        let places = places.map(|member| {
            let name = member.to_string();
            let (folder, socket) = (root.join(&name), driver.serve_node(&name));
            let runner = runner::FakeRunner::new(clock, witness.clone());
            (*member, roles::NodePlace::new(name, folder, socket, runner))
        });
        let (deaths, dead) = mpsc::unbounded_channel();
        let inner = Inner {
            nodes: places.collect(),
            ledgers: members
                .iter()
                .map(|member| (*member, ledger(*member)))
                .collect(),
            turns,
            server,
            trace,
            witness,
            driver,
            clock,
            attach_detach,
            provisioner,
            resizer,
            snapshots,
            meddling,
            deaths,
            lives: Mutex::default(),
            away: Mutex::default(),
        };
        let world = Self {
            inner: Arc::new(inner),
        };
        for member in members {
            world.revive(member, false);
        }
        tokio::spawn(world.clone().supervise(dead));
        world
    }

    /// A user of this cluster.
    pub fn user(&self) -> User {
        let client = kube::Client::new(self.inner.server.service(), "default");
        User {
            cluster: Cluster::new(client),
            witness: self.inner.witness.clone(),
            driver: self.inner.driver.clone(),
            machines: Machines(Arc::downgrade(&self.inner)),
        }
    }

    /// Who sees everything.
    pub fn witness(&self) -> &Witness {
        &self.inner.witness
    }

    /// What was called so far.
    pub fn trace(&self) -> &Trace {
        &self.inner.trace
    }

    /// The storage's driver.
    pub fn driver(&self) -> &FakeDriver {
        &self.inner.driver
    }

    /// The calls that each process made so far.
    pub fn calls(&self) -> BTreeMap<Member, Vec<Call>> {
        self.inner
            .ledgers
            .iter()
            .map(|(member, ledger)| (*member, ledger.calls()))
            .collect()
    }

    async fn supervise(self, mut dead: mpsc::UnboundedReceiver<(Member, Fault)>) {
        while let Some((member, fault)) = dead.recv().await {
            let process = self.lives().remove(&member);
            let world = self.clone();
            if let Fault::Deposed(_) = fault {
                self.revive(member, false);
                tokio::spawn(async move {
                    tokio::time::sleep(LINGER).await;
                    process
                        .iter()
                        .for_each(|process| world.bury(member, process));
                });
                continue;
            }
            process
                .iter()
                .for_each(|process| self.bury(member, process));
            tokio::spawn(async move {
                if let Fault::MeddledAway(_) = fault {
                    world.meddling()().await;
                }
                tokio::time::sleep(AWAY).await;
                world.inner.trace.say(format!("{member} returns"));
                world.revive(member, matches!(fault, Fault::Travel(_)));
            });
        }
    }

    fn bury(&self, member: Member, process: &Process) {
        self.blame_panics(member, process);
        process.kill();
    }

    /// I18: no process panics, though it would live on.
    fn blame_panics(&self, member: Member, process: &Process) {
        let metrics = process.metrics.render();
        let counted = metrics
            .lines()
            .filter(|line| line.starts_with("orlop_controller_panics_total"));
        let breaches = counted.map(|line| Breach {
            rule: "I18",
            what: format!("{member}: {line}"),
        });
        self.inner.witness.blame(breaches.collect());
    }

    /// Takes in what shows only at the end: panics of those who still live.
    pub fn conclude(&self) {
        for (member, process) in &*self.lives() {
            self.blame_panics(*member, process);
        }
    }

    /// What the user does unasked.
    fn meddling(&self) -> Meddling {
        let (user, script) = (self.user(), self.inner.meddling);
        Arc::new(move || {
            let act = script.map(|script| script(user.clone()));
            Box::pin(async move {
                if let Some(act) = act {
                    let _what_they_wait_for_may_not_come = act.await;
                }
            })
        })
    }

    fn revive(&self, member: Member, in_the_past: bool) {
        let inner = &self.inner;
        if self.away().contains(&member) {
            return;
        }
        let birth = Birth {
            deaths: inner.deaths.clone(),
            meddling: self.meddling(),
            in_the_past,
        };
        let wire = Wire::new(inner.ledgers[&member].clone(), birth);
        let client = wire.client(inner.server.service(), inner.witness.clone());
        let process = Process::new(client, inner.clock);
        match member {
            Member::Control => roles::control(&process, inner.attach_detach),
            Member::Scheduler => roles::scheduler(&process),
            Member::Provisioner => (inner.provisioner)(&process, self.controller(&wire)),
            Member::Attacher => roles::attacher(&process, self.controller(&wire)),
            Member::Resizer => (inner.resizer)(&process, self.controller(&wire)),
            Member::Snapshotter => {
                if let Some(snapshots) = inner.snapshots {
                    (snapshots.snapshotter)(&process, self.controller(&wire));
                }
            }
            Member::SnapshotController => {
                if let Some(snapshots) = inner.snapshots {
                    (snapshots.controller)(&process);
                }
            }
            Member::Node(_) => inner.nodes[&member].start(&process, &wire),
        }
        self.lives().insert(member, process);
    }

    fn controller(&self, wire: &Wire) -> Driver {
        let socket = self.inner.driver.serve_controller(wire.deposed());
        let driver = Driver::in_memory(&socket).with_gate(wire.gate());
        match &self.inner.turns {
            Some(turns) => driver.with_turns(turns.clone()),
            None => driver,
        }
    }

    fn away(&self) -> std::sync::MutexGuard<'_, BTreeSet<Member>> {
        self.inner
            .away
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn lives(&self) -> std::sync::MutexGuard<'_, BTreeMap<Member, Process>> {
        self.inner
            .lives
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
