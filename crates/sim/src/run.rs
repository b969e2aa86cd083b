//! One run of a scenario, from nothing to rest, and the sweep over every single fault.
//!
//! A run is judged by rules that hold at every moment ([`witness`](crate::witness)) and by
//! what is left at its end, which must be what is left without any fault.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use orlop_csi::Method;

use crate::backend::Breach;
use crate::driver::{Temper, Trouble, Troubles};
use crate::faults::{Member, Plan};
use crate::remains;
use crate::strikes::Strikes;
use crate::user::{Stuck, User};
use crate::wire::Call;
use crate::world::{Making, Snapshots, StartRole, StartSidecar, World, roles};

/// After the script, the world gets this long to come to rest.
const REST: Duration = Duration::from_secs(30);
/// And must then be silent this long.
const SILENCE: Duration = Duration::from_secs(60);
/// The longest that a call takes at the driver.
const LATENCY: Duration = Duration::from_millis(20);

/// A fault may cost a process this many calls, beside starting anew.
const CALLS: usize = 150;

/// What the user does in a scenario.
pub type Script = fn(User) -> Pin<Box<dyn Future<Output = Result<(), Stuck>> + Send>>;

/// A story to be told under faults.
#[derive(Clone)]
pub struct Scenario {
    /// Its name, for the replay line.
    pub name: &'static str,
    /// What the user does.
    pub script: Script,
    /// What goes wrong at the driver, in every run of it.
    pub troubles: Troubles,
    /// How many nodes there are.
    pub nodes: u8,
    /// Whether every node can reach every volume.
    pub anywhere: bool,
    /// Attach-detach's role, as it is or as it may be asked to be.
    pub attach_detach: StartRole,
    /// The provisioner's role: the real one, or a worse one to see whether it is noticed.
    pub provisioner: StartSidecar,
    /// The resizer's role, likewise.
    pub resizer: StartSidecar,
    /// The roles that look after snapshots, if any do.
    pub snapshots: Option<Snapshots>,
    /// What the user does where a plan says that they meddle.
    pub meddling: Option<Script>,
    /// Rules that may be broken in this story, as long as all ends well.
    pub tolerated: &'static [&'static str],
    /// Rules that the calls of who was deposed may break, likewise.
    pub tolerated_of_deposed: &'static [&'static str],
}

impl Scenario {
    /// A story on one node with a driver that works.
    pub fn new(name: &'static str, script: Script) -> Self {
        Self {
            name,
            script,
            troubles: Troubles::new(),
            nodes: 1,
            anywhere: false,
            attach_detach: orlop_control::attach_detach::start,
            provisioner: roles::provisioner,
            resizer: roles::resizer,
            snapshots: None,
            meddling: None,
            tolerated: &[],
            tolerated_of_deposed: &[],
        }
    }

    /// With trouble at a driver's call.
    #[must_use]
    pub fn trouble(mut self, method: Method, count: u64, trouble: Trouble) -> Self {
        self.troubles.insert((method, count), trouble);
        self
    }

    /// With so many nodes.
    #[must_use]
    pub fn nodes(self, nodes: u8) -> Self {
        Self { nodes, ..self }
    }

    /// With volumes that every node can reach.
    #[must_use]
    pub fn anywhere(self) -> Self {
        Self {
            anywhere: true,
            ..self
        }
    }

    /// With another attach-detach.
    #[must_use]
    pub fn attach_detach(self, attach_detach: StartRole) -> Self {
        Self {
            attach_detach,
            ..self
        }
    }

    /// With another provisioner.
    #[must_use]
    pub fn provisioner(self, provisioner: StartSidecar) -> Self {
        Self {
            provisioner,
            ..self
        }
    }

    /// With somebody who looks after snapshots.
    #[must_use]
    pub fn snapshots(self) -> Self {
        self.snapshots_by(roles::snapshotter, roles::snapshot_controller)
    }

    /// With these looking after snapshots.
    #[must_use]
    pub fn snapshots_by(self, snapshotter: StartSidecar, controller: StartRole) -> Self {
        let snapshots = Some(Snapshots {
            snapshotter,
            controller,
        });
        Self { snapshots, ..self }
    }

    /// With a user who does this where a plan says so.
    #[must_use]
    pub fn meddling(self, script: Script) -> Self {
        Self {
            meddling: Some(script),
            ..self
        }
    }

    /// In which these rules may be broken, as long as all ends well.
    #[must_use]
    pub fn tolerating(self, tolerated: &'static [&'static str]) -> Self {
        Self { tolerated, ..self }
    }

    /// In which these rules may be broken by the calls of who was deposed, as long as all ends well.
    #[must_use]
    pub fn tolerating_of_deposed(self, tolerated: &'static [&'static str]) -> Self {
        Self {
            tolerated_of_deposed: tolerated,
            ..self
        }
    }

    /// With another resizer.
    #[must_use]
    pub fn resizer(self, resizer: StartSidecar) -> Self {
        Self { resizer, ..self }
    }
}

/// How a run went.
#[derive(Debug)]
pub struct Report {
    /// Scenario, plan and seed: all that it takes to see this again.
    pub replay: String,
    /// Calls per process until the script ended.
    pub calls: BTreeMap<Member, Vec<Call>>,
    /// What the user waited for in vain.
    pub stuck: Option<Stuck>,
    /// Rules that were broken.
    pub breaches: Vec<Breach>,
    /// Changes when there should have been none.
    pub restless: u64,
    /// How often a driver without trouble was called while it was busy with the same thing.
    pub collisions: u64,
    /// What is left: objects, backend, folders, uids made comparable.
    pub end: String,
    /// What happened.
    pub trace: String,
    /// The trace as a number.
    pub hash: u64,
}

impl Report {
    /// What is wrong with the run, compared with what should be left; empty if nothing.
    pub fn complaints(&self, end: &str) -> Vec<String> {
        let mut complaints: Vec<String> = Vec::new();
        complaints.extend(self.stuck.as_ref().map(|stuck| format!("stuck: {stuck}")));
        let broken = self
            .breaches
            .iter()
            .map(|b| format!("{} broken: {}", b.rule, b.what));
        complaints.extend(broken);
        if self.restless > 0 {
            complaints.push(format!("{} changes while all should rest", self.restless));
        }
        if self.end != end {
            complaints.push(format!("left behind:\n{}\ninstead of:\n{end}", self.end));
        }
        complaints
    }

    /// As [`Report::complaints`], and whether some process called far more often than one of
    /// `calm` did: a fault costs some calls, but starts no loop.
    pub fn complaints_beside(&self, calm: &Self) -> Vec<String> {
        let mut complaints = self.complaints(&calm.end);
        for (member, calls) in &self.calls {
            let before = calm.calls.get(member).map_or(0, Vec::len);
            let most = 3 * before + CALLS;
            if calls.len() > most {
                let made = calls.len();
                complaints.push(format!(
                    "I24 broken: {member} made {made} calls, {before} if all goes well"
                ));
            }
        }
        complaints
    }
}

/// Runs a scenario once, in a runtime of its own on the calling thread.
pub fn run(scenario: &Scenario, plan: &Plan, seed: u64) -> Report {
    // The jitter of backoffs comes from the thread's own generator.
    fastrand::seed(seed);
    let root = tempfile::tempdir().expect("a temporary folder");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let making = Making {
        seed,
        plan: plan.clone(),
        temper: Temper {
            latency: LATENCY,
            troubles: scenario.troubles.clone(),
            anywhere: scenario.anywhere,
            seed,
        },
        nodes: scenario.nodes,
        attach_detach: scenario.attach_detach,
        provisioner: scenario.provisioner,
        resizer: scenario.resizer,
        snapshots: scenario.snapshots,
        meddling: scenario.meddling,
    };
    let replay = format!("scenario {}, seed {seed}, {plan}", scenario.name);
    runtime.block_on(tell(scenario, making, root.path(), replay))
}

async fn tell(scenario: &Scenario, making: Making, root: &Path, replay: String) -> Report {
    let world = World::start(making, root).await;
    let told = (scenario.script)(world.user()).await;
    let calls = world.calls();
    tokio::time::sleep(REST).await;
    let before = world.witness().count();
    tokio::time::sleep(SILENCE).await;
    world.witness().look();
    world.conclude();
    Report {
        replay,
        calls,
        stuck: told.err(),
        breaches: {
            let mut breaches = world.witness().breaches_by_deposed();
            breaches.retain(|breach| !scenario.tolerated_of_deposed.contains(&breach.rule));
            breaches.extend(world.witness().breaches());
            breaches.retain(|breach| !scenario.tolerated.contains(&breach.rule));
            breaches
        },
        restless: world.witness().count() - before,
        collisions: if scenario.troubles.is_empty() {
            world.driver().collisions()
        } else {
            0
        },
        end: remains::of(&world, root),
        trace: world.trace().text(),
        hash: world.trace().hash(),
    }
}

/// The result of a sweep.
#[derive(Debug)]
pub struct Sweep {
    /// The run without a fault.
    pub reference: Arc<Report>,
    /// How many runs there were, the reference not counted.
    pub runs: usize,
    /// Those that went wrong, with what is wrong.
    pub failures: Vec<(Report, Vec<String>)>,
}

/// How many of the possible runs a sweep makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All of them.
    Whole,
    /// As many as this, chosen by the seed; all of them where the environment says
    /// `ORLOP_SIM=whole`, and more where it says `ORLOP_SIM=100`.
    Sample(usize),
}

impl Extent {
    fn choose(self, seed: u64, mut plans: Vec<Plan>) -> Vec<Plan> {
        let said = std::env::var("ORLOP_SIM").unwrap_or_default();
        if let (Self::Sample(most), false) = (self, said == "whole") {
            fastrand::Rng::with_seed(seed).shuffle(&mut plans);
            plans.truncate(said.parse().unwrap_or(most).max(most));
        }
        plans
    }
}

/// Runs the scenario without a fault, then once for every call of every process and every
/// fault that `strikes` names, several at a time.
pub fn sweep(scenario: &Scenario, seed: u64, strikes: Strikes, extent: Extent) -> Sweep {
    let reference = Arc::new(run(scenario, &Plan::calm(), seed));
    sweep_beside(reference, scenario, seed, strikes, extent)
}

/// As [`sweep`], with the run without a fault made already.
pub fn sweep_beside(
    reference: Arc<Report>,
    scenario: &Scenario,
    seed: u64,
    strikes: Strikes,
    extent: Extent,
) -> Sweep {
    let mut plans = Vec::new();
    for (member, calls) in &reference.calls {
        for call in calls {
            let faults = strikes(*member, call).into_iter();
            plans.extend(faults.map(|fault| Plan::one(*member, call.number, fault)));
        }
    }
    let plans = extent.choose(seed, plans);
    let failures = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(plan) = plans.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let report = run(scenario, plan, seed);
                    let complaints = report.complaints_beside(&reference);
                    if !complaints.is_empty() {
                        failures
                            .lock()
                            .expect("no worker panics")
                            .push((report, complaints));
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().expect("no worker panics");
    failures.sort_by(|(a, _), (b, _)| a.replay.cmp(&b.replay));
    Sweep {
        runs: plans.len(),
        reference,
        failures,
    }
}

impl Sweep {
    /// Panics with what went wrong, how to see it again, and the trace of the first.
    pub fn must_hold(&self) {
        if let Some(wrong) = self.wrong() {
            panic!("{wrong}");
        }
    }

    /// What went wrong, if anything did: how to see it again, and the trace of the first.
    pub fn wrong(&self) -> Option<String> {
        let calm = &self.reference;
        let mut complaints = calm.complaints(&calm.end);
        if calm.collisions > 0 {
            let times = calm.collisions;
            complaints.push(format!("I19 broken: {times} calls while one was under way"));
        }
        if !complaints.is_empty() {
            return Some(format!(
                "{} without any fault: {complaints:#?}\n{}",
                calm.replay, calm.trace
            ));
        }
        let (first, _) = self.failures.first()?;
        let told = self.failures.iter().map(|(report, complaints)| {
            format!("replay: {}\n  {}\n", report.replay, complaints.join("\n  "))
        });
        Some(format!(
            "{} of {} runs went wrong.\nThe first one's trace:\n{}\n{}",
            self.failures.len(),
            self.runs,
            first.trace,
            told.collect::<String>()
        ))
    }
}
