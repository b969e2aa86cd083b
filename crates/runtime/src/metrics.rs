//! The process's metrics, in Prometheus' text form.

use std::sync::{Arc, Mutex, MutexGuard};

use prometheus_client::{encoding::text::encode, registry::Registry};

use crate::panics::Panics;

/// The metrics of all roles of a process.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    pub(crate) panics: Panics,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let panics = Panics::register(&mut registry);
        Self {
            registry: Arc::new(Mutex::new(registry)),
            panics,
        }
    }
}

impl Metrics {
    /// The registry, to add to it.
    pub fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Everything, as text.
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing into a string can't fail.
        let _ = encode(&mut text, &self.registry());
        text
    }
}
