//! A small CSI driver that keeps the whole contract, except for the one clause that it is told to
//! break.
//!
//! The suite's own test: it must find nothing in the model as such, and something in each of its
//! faulty variants. State is in memory and outlives a [`Model::restart`], as a disk's would; data is
//! real, in mounts and behind loop devices. All calls take turns.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use orlop_csi::server::{Services, Socket};
use orlop_csi::{CsiRequest, Driver, Method, SERVICE_ACCOUNT_TOKENS, code_name};
use tokio::task::JoinHandle;
use tonic::{Code, Response, Status};

mod attach;
mod create;
mod delete;
mod fault;
mod groups;
mod identity;
mod list;
mod metadata;
mod modify;
mod node_facts;
mod publish;
mod refuse;
mod service;
mod snapshots;
mod stage;
mod state;
mod store;
mod valve;

pub(crate) use fault::Fault;
pub(crate) use store::unmount_all;
pub(crate) use valve::Valve;

use state::{Map, State};
use store::Store;

/// The node that the model runs on.
pub(crate) const NODE: &str = "model-node-a";
/// Another node that its controller knows.
pub(crate) const OTHER_NODE: &str = "model-node-b";

/// How long a late call is late: longer than callers of the suite wait before they give up, far
/// shorter than they wait for an answer.
const LATE: Duration = Duration::from_millis(200);

/// How long a race's window is open.
const RACE: Duration = Duration::from_millis(20);

/// What the model can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Everything.
    Full,
    /// Everything, but a volume in use is neither snapshotted nor cloned: a driver may be so.
    AtRest,
    /// Volumes that are made, published on a node, and deleted; nothing else.
    Least,
}

/// The driver, as its services and its tests see it.
#[derive(Clone)]
pub(crate) struct Model(Arc<Shared>);

pub(crate) struct Shared {
    fault: Option<Fault>,
    profile: Profile,
    store: Store,
    log: Mutex<File>,
    /// The names of volumes that were ever asked for.
    seen: Mutex<BTreeSet<String>>,
    state: tokio::sync::Mutex<State>,
}

/// A model that is served at a socket.
pub(crate) struct Running {
    model: Model,
    socket: PathBuf,
    log: PathBuf,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Running {
    /// Starts a model with everything of its own in `folder`.
    pub(crate) fn start(folder: &Path, fault: Option<Fault>, profile: Profile) -> Arc<Self> {
        let log = folder.join("driver.log");
        let shared = Shared {
            fault,
            profile,
            store: Store::open(&folder.join("store")).expect("a tmpfs is mounted; run as root"),
            log: Mutex::new(File::create(&log).expect("a log")),
            seen: Mutex::default(),
            state: tokio::sync::Mutex::default(),
        };
        let sockets = folder.join("socket");
        std::fs::create_dir(&sockets).expect("a folder");
        let running = Arc::new(Self {
            model: Model(Arc::new(shared)),
            socket: sockets.join("csi.sock"),
            log,
            task: Mutex::new(None),
        });
        running.serve();
        running
    }

    fn serve(&self) {
        let endpoint = format!("unix://{}", self.socket.display());
        let socket = Socket::bind(&endpoint).expect("the socket is free");
        let services = self.model.services();
        let task = tokio::spawn(async move {
            socket
                .serve(services, std::future::pending())
                .await
                .expect("serves");
        });
        *self.task() = Some(task);
    }

    /// Ends the server in the middle of whatever it does, and starts it again.
    pub(crate) async fn restart(&self) {
        self.stop().await;
        self.model.forget().await;
        self.serve();
    }

    /// Ends the server.
    pub(crate) async fn stop(&self) {
        let task = self.task().take();
        if let Some(task) = task {
            task.abort();
            let _ = task.await;
        }
    }

    fn task(&self) -> std::sync::MutexGuard<'_, Option<JoinHandle<()>>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn log(&self) -> &Path {
        &self.log
    }

    pub(crate) fn driver(&self) -> Driver {
        Driver::connect(&format!("unix://{}", self.socket.display())).expect("an endpoint")
    }
}

impl Model {
    fn services(&self) -> Services {
        let services = Services::new().grace(Duration::ZERO).identity(self.clone());
        match self.0.profile {
            Profile::Full | Profile::AtRest => services
                .controller(self.clone())
                .group_controller(self.clone())
                .snapshot_metadata(self.clone())
                .node(self.clone()),
            Profile::Least => {
                let least = service::Least(self.clone());
                services.controller(least.clone()).node(least)
            }
        }
    }

    /// What a restart costs, which is nothing without a fault.
    async fn forget(&self) {
        let mut state = self.0.state.lock().await;
        match self.0.fault {
            Some(Fault::RestartForgetsVolumes) => state.volumes.clear(),
            Some(Fault::RestartForgetsSnapshots) => state.snapshots.clear(),
            Some(Fault::RestartForgetsAttachments) => {
                state.volumes.values_mut().for_each(|v| v.attached.clear());
            }
            Some(Fault::RestartForgetsNames) => {
                state
                    .volumes
                    .values_mut()
                    .for_each(|v| v.asked.name.clear());
            }
            Some(Fault::RestartForgetsMounts) => {
                for volume in state.volumes.values_mut() {
                    volume.published.clear();
                    volume.staged = None;
                }
            }
            _ => {}
        }
    }

    /// One call: waits for its turn, does its work, says so in the log.
    async fn turn<Q: CsiRequest>(
        &self,
        request: Q,
        private: &Private,
        work: fn(&Shared, &mut State, &Q) -> Result<Q::Reply, Status>,
    ) -> Result<Response<Q::Reply>, Status> {
        let shared = &self.0;
        let method = Q::METHOD;
        let busy = shared.has(Fault::ParallelFails) && shared.state.try_lock().is_err();
        if busy {
            return Err(Status::internal("something else is going on"));
        }
        if shared.is_late(method, request.subject()) {
            tokio::time::sleep(LATE).await;
        }
        let blind = shared.race(method, request.subject()).await;
        let mut state = shared.state.lock().await;
        state.blind = blind;
        if shared.has(Fault::ParallelFails) {
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
        state.calls += 1;
        let outcome = work(shared, &mut state, &request);
        drop(state);
        let word = outcome
            .as_ref()
            .map_or_else(|status| code_name(status.code()), |_| "OK");
        shared.note(method, word, private);
        outcome
            .map(Response::new)
            .map_err(|status| shared.spoil(&status, private))
    }
}

/// What a request says in confidence.
#[derive(Debug, Default)]
pub(crate) struct Private {
    pub(crate) secrets: Map,
    pub(crate) context: Map,
}

impl Shared {
    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn is_late(&self, method: Method, name: &str) -> bool {
        if let (Some(Fault::CreateLate), Method::CreateVolume) = (self.fault, method) {
            // Only the first: who repeats the call overtakes it.
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            return seen.insert(name.to_owned());
        }
        matches!(
            (self.fault, method),
            (Some(Fault::AttachLate), Method::ControllerPublishVolume)
                | (Some(Fault::StageLate), Method::NodeStageVolume)
                | (Some(Fault::PublishLate), Method::NodePublishVolume)
        )
    }

    /// Looks whether a name is known and lets others by before the call acts on what it saw; true if
    /// the call shall make something new.
    async fn race(&self, method: Method, name: &str) -> bool {
        let state = self.state.lock().await;
        let known = match (self.fault, method) {
            (Some(Fault::CreateRaces), Method::CreateVolume) => state
                .volumes
                .values()
                .any(|volume| volume.asked.name == name),
            (Some(Fault::SnapshotRaces), Method::CreateSnapshot) => state
                .snapshots
                .values()
                .any(|snapshot| snapshot.name == name),
            _ => return false,
        };
        drop(state);
        if !known {
            tokio::time::sleep(RACE).await;
        }
        !known
    }

    fn note(&self, method: Method, word: &str, private: &Private) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writeln!(log, "{} {word}", method.name());
        if self.has(Fault::SecretInLog) {
            let _ = writeln!(log, "with {:?}", private.secrets);
        }
        if self.has(Fault::TokenInLog) {
            let _ = writeln!(
                log,
                "with {:?}",
                private.context.get(SERVICE_ACCOUNT_TOKENS)
            );
        }
    }

    fn spoil(&self, status: &Status, private: &Private) -> Status {
        let (code, message) = (status.code(), status.message());
        match self.fault {
            Some(Fault::SecretInError) => {
                let values: Vec<_> = private.secrets.values().cloned().collect();
                Status::new(code, format!("{message} ({})", values.join(", ")))
            }
            Some(Fault::MessageEmpty) => Status::new(code, ""),
            Some(Fault::MessagePanic) if code != Code::Unimplemented => Status::new(
                code,
                "panic: runtime error: invalid memory address or nil pointer dereference\n\
                 goroutine 1 [running]:",
            ),
            Some(Fault::StatusDetails) => {
                Status::with_details(code, message, bytes::Bytes::from_static(b"\x08\x03"))
            }
            _ => status.clone(),
        }
    }
}
