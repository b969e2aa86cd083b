//! The CSI drivers that have registered on this node.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use orlop_csi::Driver;

/// How a driver is reached; in simulation, one in memory.
pub trait DriverConnector: Send + Sync + 'static {
    /// The driver at an endpoint. Nothing need be sent yet.
    ///
    /// # Errors
    /// In words, when the endpoint cannot be one.
    fn connect(&self, endpoint: &str) -> Result<Driver, String>;
}

/// Drivers at unix sockets.
#[derive(Clone, Default)]
pub struct SocketDrivers {
    metrics: Option<orlop_csi::metrics::Metrics>,
}

impl SocketDrivers {
    /// With a histogram that every call is counted in.
    pub fn measured(metrics: orlop_csi::metrics::Metrics) -> Self {
        Self {
            metrics: Some(metrics),
        }
    }
}

impl DriverConnector for SocketDrivers {
    fn connect(&self, endpoint: &str) -> Result<Driver, String> {
        let driver = Driver::connect(endpoint).map_err(|error| error.to_string())?;
        Ok(match &self.metrics {
            Some(metrics) => driver.with_metrics(metrics.clone()),
            None => driver,
        })
    }
}

/// The drivers by name. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Drivers {
    known: Arc<Mutex<BTreeMap<String, Driver>>>,
}

impl Drivers {
    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Driver>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, name: &str) -> Option<Driver> {
        self.known().get(name).cloned()
    }

    pub(crate) fn insert(&self, name: &str, driver: Driver) {
        self.known().insert(name.to_owned(), driver);
    }

    pub(crate) fn remove(&self, name: &str) {
        self.known().remove(name);
    }
}
