//! Panics of roles: contained, counted, and told where people look.

use std::{
    any::Any,
    sync::{Arc, OnceLock},
};

use orlop_model::ObjectRef;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family},
    registry::Registry,
};
use tracing::error;

use crate::recorder::{EventType, Recorder};

tokio::task_local! {
    /// The role that the running task belongs to.
    static ROLE: Role;
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    controller: &'static str,
}

/// How many panics there were, by controller.
#[derive(Debug, Clone, Default)]
pub(crate) struct Panics(Family<Labels, Counter>);

impl Panics {
    pub(crate) fn register(registry: &mut Registry) -> Self {
        let panics = Self::default();
        // The registry adds `_total` to counters by itself.
        registry.register(
            "orlop_controller_panics",
            "Panics of a controller; each was contained, and what it did is done again",
            panics.0.clone(),
        );
        panics
    }
}

/// Who tells of panics, and at which object.
pub(crate) type Told = Arc<OnceLock<(Recorder, ObjectRef)>>;

/// A role, as far as its panics are concerned.
#[derive(Clone)]
pub(crate) struct Role {
    pub(crate) name: &'static str,
    pub(crate) panics: Panics,
    pub(crate) told: Told,
}

impl Role {
    /// Runs a task as part of the role.
    pub(crate) async fn scope<T>(self, task: impl Future<Output = T>) -> T {
        ROLE.scope(self, task).await
    }

    /// Counts and tells a panic.
    pub(crate) fn panicked(&self, what: &str, panic: &(dyn Any + Send)) {
        let said = words(panic);
        error!(role = self.name, "{what} panicked: {said}");
        let labels = Labels {
            controller: self.name,
        };
        self.panics.0.get_or_create(&labels).inc();
        if let Some((recorder, about)) = self.told.get() {
            recorder.say_of(
                about.clone(),
                EventType::Warning,
                "ControllerPanicked",
                format!(
                    "{}: {what} panicked and will be tried again: {said}",
                    self.name
                ),
            );
        }
    }
}

/// Counts and tells a panic in a turn of the role that is running.
pub(crate) fn in_a_turn(panic: &(dyn Any + Send)) {
    let told = ROLE.try_with(|role| role.panicked("a turn", panic));
    if told.is_err() {
        error!("a turn panicked: {}", words(panic));
    }
}

fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("it left no message")
}
