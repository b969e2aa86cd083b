//! The fake CSI driver: the services of a real one over the [`Backend`], served in memory.
//!
//! It is as strict as a careful driver (one call per volume at a time, folders of the node
//! really made and removed) and misbehaves only where [`Trouble`] says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use orlop_csi::{Method, memory, proto, server::Services};
use tonic::{Code, Request, Response, Status};

use crate::backend::{Backend, Breach, Refusal};
use crate::witness::Witness;

mod controller;
mod node;
mod snapshots;

/// The driver's name.
pub const NAME: &str = "sim.csi.orlop.dev";
/// The topology key that names a node.
pub const TOPOLOGY: &str = "topology.sim.csi.orlop.dev/node";

/// How one call goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// It is carried out, but answered with this code.
    DoneButAnswered(Code),
    /// It is carried out this much later, long after the caller gave up.
    DoneLate(Duration),
    /// It is answered with this code at once, and carried out this much later. Until then
    /// other calls for the same thing are told to wait.
    AnsweredThenDone(Code, Duration),
    /// It is answered with success, and nothing is done.
    Pretended,
    /// It is refused.
    Refused(Code),
}

/// The trouble of a driver: which call of which method, counted from 1.
pub type Troubles = BTreeMap<(Method, u64), Trouble>;

/// How fast and how well the driver works.
#[derive(Debug, Clone)]
pub struct Temper {
    /// The longest that a call takes; each takes a random share of it.
    pub latency: Duration,
    /// What goes wrong.
    pub troubles: Troubles,
    /// Whether every node can reach every volume, whatever was asked for.
    pub anywhere: bool,
    /// Where the random shares come from.
    pub seed: u64,
}

/// The driver, all its endpoints together.
#[derive(Clone)]
pub struct FakeDriver {
    shared: Arc<Mutex<Shared>>,
    witness: Witness,
    temper: Arc<Temper>,
}

struct Shared {
    backend: Backend,
    busy: BTreeSet<String>,
    calls: BTreeMap<Method, u64>,
    collisions: u64,
    random: fastrand::Rng,
}

impl FakeDriver {
    /// A driver over an empty backend.
    pub fn new(temper: Temper, witness: Witness) -> Self {
        let shared = Shared {
            backend: Backend::default(),
            busy: BTreeSet::new(),
            calls: BTreeMap::new(),
            collisions: 0,
            random: fastrand::Rng::with_seed(temper.seed),
        };
        Self {
            shared: Arc::new(Mutex::new(shared)),
            witness,
            temper: Arc::new(temper),
        }
    }

    /// Serves the controller's endpoint to a process, which is deposed when this says so.
    pub fn serve_controller(&self, deposed: Arc<AtomicBool>) -> memory::Socket {
        let served = Self {
            witness: self.witness.of_calls_by(deposed),
            ..self.clone()
        };
        serve(
            Services::new()
                .identity(served.clone())
                .controller(served.clone())
                .group_controller(served),
        )
    }

    /// Serves a node's endpoint.
    pub fn serve_node(&self, node: &str) -> memory::Socket {
        let on_node = node::NodeSide::new(self.clone(), node);
        serve(Services::new().identity(self.clone()).node(on_node))
    }

    /// Looks at the backend.
    pub fn look<T>(&self, look: impl FnOnce(&Backend) -> T) -> T {
        look(&self.lock().backend)
    }

    /// A node has lost its power.
    pub fn lose(&self, node: &str) {
        self.lock().backend.lose(node);
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often a call came while another for the same thing was under way.
    pub fn collisions(&self) -> u64 {
        self.lock().collisions
    }

    /// Carries a call out: one per volume at a time, after a while, and with its trouble. What
    /// was begun is done, whatever becomes of the caller.
    async fn carry_out<T: Default + Send + 'static>(
        &self,
        method: Method,
        volume: &str,
        act: impl FnOnce(&Self, &mut Backend) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let (wait, trouble) = {
            let mut shared = self.lock();
            let count = shared.calls.entry(method).or_default();
            *count += 1;
            let trouble = self.temper.troubles.get(&(method, *count)).copied();
            let most = u64::try_from(self.temper.latency.as_millis()).unwrap_or(u64::MAX);
            (Duration::from_millis(shared.random.u64(0..=most)), trouble)
        };
        let turn = Turn::take(self, volume)?;
        let late = match trouble {
            Some(Trouble::DoneLate(later) | Trouble::AnsweredThenDone(_, later)) => later,
            _ => Duration::ZERO,
        };
        match trouble {
            Some(Trouble::Refused(code)) => {
                tokio::time::sleep(wait).await;
                return Err(Status::new(code, "the simulation refuses this call"));
            }
            Some(Trouble::Pretended) => {
                tokio::time::sleep(wait).await;
                return Ok(Response::new(T::default()));
            }
            _ => {}
        }
        let work = tokio::spawn(async move {
            tokio::time::sleep(wait + late).await;
            turn.driver.act(act)
        });
        if let Some(Trouble::AnsweredThenDone(code, _)) = trouble {
            tokio::time::sleep(wait).await;
            return Err(Status::new(code, "it will be done, but not now"));
        }
        let outcome = work.await;
        match (trouble, outcome.expect("the backend doesn't panic")) {
            (Some(Trouble::DoneButAnswered(code)), Ok(_)) => {
                Err(Status::new(code, "done, but the answer is lost"))
            }
            (_, Ok(reply)) => Ok(Response::new(reply)),
            (_, Err(refusal)) => Err(Status::new(refusal.code, refusal.message)),
        }
    }

    fn act<T>(
        &self,
        act: impl FnOnce(&Self, &mut Backend) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let mut shared = self.lock();
        let outcome = act(self, &mut shared.backend);
        let breaches = shared.backend.take_breaches();
        self.witness.backend_is(&shared.backend, breaches);
        outcome
    }

    fn blame(&self, what: String) {
        self.witness.blame(vec![Breach { rule: "I10", what }]);
    }
}

fn serve(services: Services) -> memory::Socket {
    let socket = memory::Socket::new();
    let listener = socket.bind().expect("the socket is new");
    tokio::spawn(async move { listener.serve(services, std::future::pending()).await });
    socket
}

/// One volume's turn; a second call for the volume meanwhile is told to wait.
struct Turn {
    driver: FakeDriver,
    volume: String,
}

impl Turn {
    fn take(driver: &FakeDriver, volume: &str) -> Result<Self, Status> {
        let mut shared = driver.lock();
        if shared.busy.insert(volume.to_owned()) {
            Ok(Self {
                driver: driver.clone(),
                volume: volume.to_owned(),
            })
        } else {
            shared.collisions += 1;
            Err(Status::aborted(format!(
                "another call for {volume} is under way"
            )))
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.driver.lock().busy.remove(&self.volume);
    }
}

#[tonic::async_trait]
impl proto::identity_server::Identity for FakeDriver {
    async fn get_plugin_info(
        &self,
        _: Request<proto::GetPluginInfoRequest>,
    ) -> Result<Response<proto::GetPluginInfoResponse>, Status> {
        Ok(Response::new(proto::GetPluginInfoResponse {
            name: NAME.to_owned(),
            vendor_version: "1".to_owned(),
            ..Default::default()
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<proto::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<proto::GetPluginCapabilitiesResponse>, Status> {
        use proto::plugin_capability::{Service, Type, VolumeExpansion, service, volume_expansion};
        let capabilities = [
            service::Type::ControllerService,
            service::Type::GroupControllerService,
            service::Type::VolumeAccessibilityConstraints,
        ]
        .map(|service| {
            Type::Service(Service {
                r#type: service.into(),
            })
        });
        let online = Type::VolumeExpansion(VolumeExpansion {
            r#type: volume_expansion::Type::Online.into(),
        });
        let capabilities = capabilities
            .into_iter()
            .chain([online])
            .map(|kind| proto::PluginCapability { r#type: Some(kind) })
            .collect();
        Ok(Response::new(proto::GetPluginCapabilitiesResponse {
            capabilities,
        }))
    }

    async fn probe(
        &self,
        _: Request<proto::ProbeRequest>,
    ) -> Result<Response<proto::ProbeResponse>, Status> {
        Ok(Response::new(proto::ProbeResponse { ready: Some(true) }))
    }
}
