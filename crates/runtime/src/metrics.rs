//! The process's metrics, in Prometheus' text form.

use std::sync::{Arc, Mutex, MutexGuard};

use prometheus_client::{encoding::text::encode, registry::Registry};

use crate::{panics::Panics, queue::measure::Queues, this_process::ThisProcess};

/// The metrics of all roles of a process.
#[derive(Clone)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    pub(crate) panics: Panics,
    pub(crate) queues: Queues,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let panics = Panics::register(&mut registry);
        let queues = Queues::register(&mut registry);
        registry.register_collector(Box::new(ThisProcess));
        Self {
            registry: Arc::new(Mutex::new(registry)),
            panics,
            queues,
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Backoff, Outcome, Queue, work};

    #[tokio::test(start_paused = true)]
    async fn metrics_have_the_names_that_dashboards_select_on() {
        let metrics = Metrics::default();
        let queue = Queue::new(Backoff::default()).measured(&metrics, "claims");
        queue.add(1);
        queue.add(2);
        let turn = |key: i32| async move {
            match key {
                1 => Outcome::Retry,
                _ => {
                    tokio::time::sleep(Duration::from_secs(3600)).await;
                    Outcome::Done
                }
            }
        };
        let working = work(queue, 2, turn);
        let _still = tokio::time::timeout(Duration::from_millis(100), working).await;
        let text = metrics.render();
        for line in [
            "workqueue_adds_total{name=\"claims\"} 2",
            "workqueue_depth{name=\"claims\"} 0",
            "workqueue_retries_total{name=\"claims\"} 1",
            "workqueue_queue_duration_seconds_count{name=\"claims\"} 2",
            "workqueue_work_duration_seconds_count{name=\"claims\"} 1",
            "workqueue_unfinished_work_seconds{name=\"claims\"} ",
            "workqueue_longest_running_processor_seconds{name=\"claims\"} ",
            "process_start_time_seconds ",
            "process_resident_memory_bytes ",
            "process_cpu_seconds_total ",
            "process_open_fds ",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
