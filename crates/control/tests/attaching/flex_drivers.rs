//! A FlexVolume driver that is played: what it has attached stays, whatever becomes of the role.

use std::{
    collections::BTreeMap,
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use orlop_control::attach_detach::{
    Config,
    flex::{Ability, Call, FlexDrivers, Trouble},
};
use tokio::sync::Notify;

/// How long a real call may take before it is ended.
const HANGS: Duration = Duration::from_secs(600);

pub(crate) const DRIVER: &str = "example.org/disk";

/// What a driver does when it is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mood {
    #[default]
    Well,
    Missing,
    LeavesIt,
    Fails,
    Hangs,
    /// It does what it is asked for, and never answers.
    FallsSilent,
    /// It attaches, and says far too much.
    Raves,
}

#[derive(Debug, Default)]
struct State {
    mood: BTreeMap<&'static str, Mood>,
    /// Of one volume only.
    ill: Option<(String, Mood)>,
    attached: BTreeSet<(String, String)>,
    /// Calls that run, by volume and node.
    running: BTreeSet<(String, String)>,
    most_running: usize,
    calls: Vec<String>,
    asked: usize,
}

#[derive(Default)]
pub(crate) struct Drivers {
    state: Mutex<State>,
    came: Notify,
}

impl fmt::Debug for Drivers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Drivers")
    }
}

struct Running<'a>(&'a Drivers, (String, String));

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.lock().running.remove(&self.1);
    }
}

impl Drivers {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn config(self: &Arc<Self>) -> Config {
        Config {
            flex: Some(self.clone()),
            ..Config::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on, for a command: `init`, `attach` or `detach`.
    pub(crate) fn is(&self, command: &'static str, mood: Mood) {
        self.is_unheard(command, mood);
        self.came.notify_one();
    }

    /// As [`Drivers::is`], and nobody is told.
    pub(crate) fn is_unheard(&self, command: &'static str, mood: Mood) {
        self.lock().mood.insert(command, mood);
    }

    /// From now on, for calls about one volume.
    pub(crate) fn is_for(&self, volume: &str, mood: Mood) {
        self.lock().ill = Some((volume.to_owned(), mood));
    }

    /// What is attached, as `volume@node`.
    pub(crate) fn attached(&self) -> Vec<String> {
        let state = self.lock();
        let all = state.attached.iter();
        all.map(|(volume, node)| format!("{volume}@{node}"))
            .collect()
    }

    /// Attaches a volume as another controller did, long ago.
    pub(crate) fn had(&self, volume: &str, node: &str) {
        let of = (volume.to_owned(), node.to_owned());
        self.lock().attached.insert(of);
    }

    /// How often it was asked what it does.
    pub(crate) fn asked(&self) -> usize {
        self.lock().asked
    }

    /// How many calls ran at once, at most.
    pub(crate) fn most_running(&self) -> usize {
        self.lock().most_running
    }

    /// What it was called for, options left out.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.lock().calls.clone()
    }

    fn begin(&self, command: &'static str, call: &Call) -> (Mood, Running<'_>) {
        let mut state = self.lock();
        let of = (call.volume.clone(), call.node.clone());
        assert!(
            state.running.insert(of.clone()),
            "two calls at once: {call:?}"
        );
        state.most_running = state.most_running.max(state.running.len());
        let (volume, node) = (&call.volume, &call.node);
        let said = format!("{command} {volume}@{node}");
        state.calls.push(said);
        let mood = match &state.ill {
            Some((ill, mood)) if ill == volume => *mood,
            _ => state.mood.get(command).copied().unwrap_or_default(),
        };
        (mood, Running(self, of))
    }

    async fn answers(&self, mood: Mood) -> Result<(), Trouble> {
        match mood {
            Mood::Well | Mood::LeavesIt | Mood::Raves => Ok(()),
            Mood::Missing => Err(Trouble::Missing("the driver is not installed".into())),
            Mood::Fails => Err(Trouble::Failed("no such disk".into())),
            Mood::Hangs | Mood::FallsSilent => {
                tokio::time::sleep(HANGS).await;
                Err(Trouble::Failed("it was killed".into()))
            }
        }
    }
}

impl FlexDrivers for Drivers {
    fn ability<'a>(&'a self, driver: &'a str) -> BoxFuture<'a, Result<Ability, Trouble>> {
        self.lock().asked += 1;
        let mood = self.lock().mood.get("init").copied().unwrap_or_default();
        async move {
            self.answers(mood).await?;
            Ok(match mood == Mood::LeavesIt || driver != DRIVER {
                true => Ability::LeftToNodes,
                false => Ability::Attaches,
            })
        }
        .boxed()
    }

    fn attach<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<String, Trouble>> {
        async move {
            let (mood, _running) = self.begin("attach", call);
            let told = serde_json::from_str::<serde_json::Value>(call.options.as_ref().unwrap());
            assert_eq!(told.unwrap()["kubernetes.io/pvOrVolumeName"], call.volume);
            tokio::time::sleep(Duration::from_millis(50)).await;
            if matches!(mood, Mood::Well | Mood::FallsSilent | Mood::Raves) {
                let of = (call.volume.clone(), call.node.clone());
                self.lock().attached.insert(of);
            }
            self.answers(mood).await?;
            Ok(match mood {
                Mood::Raves => "/x".repeat(450_000),
                _ => format!("/dev/{}", call.volume),
            })
        }
        .boxed()
    }

    fn detach<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<(), Trouble>> {
        async move {
            let (mood, _running) = self.begin("detach", call);
            tokio::time::sleep(Duration::from_millis(50)).await;
            if matches!(mood, Mood::Well | Mood::FallsSilent) {
                let of = (call.volume.clone(), call.node.clone());
                self.lock().attached.remove(&of);
            }
            self.answers(mood).await
        }
        .boxed()
    }

    fn came(&self) -> BoxFuture<'_, ()> {
        self.came.notified().boxed()
    }
}
