//! Whether the driver is still there, and the wait for one that went away.

use std::time::Duration;

use orlop_csi::client::Origin;
use orlop_csi::{Driver, Method, proto};
use tokio::time::Instant;

use crate::bench::Bench;

/// How long a driver that went away may take to come back: enough for whoever supervises it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A driver that lives answers a probe at once, or is too busy to be called dead.
const PROBE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);

/// What became of a driver that was not heard from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It answers; by itself, or after the restart command.
    Back,
    /// It doesn't; in words, what was done for it and how long it was waited for.
    Gone(String),
}

/// Whether something answers, with whatever words.
async fn answers(driver: &Driver, time: Duration) -> bool {
    match driver.call_raw(&proto::ProbeRequest {}, time).await {
        Ok(_) => true,
        Err(refusal) => matches!(refusal.origin, Origin::Driver | Origin::Reply),
    }
}

impl Bench {
    /// Whether the driver that a call went to answers a probe, in as long a time as any call has.
    pub(crate) async fn answers_probe(&self, method: Method) -> bool {
        answers(self.driver(method), PROBE.max(self.settings.timeout)).await
    }

    async fn is_there(&self) -> bool {
        answers(&self.settings.node, PROBE).await && answers(&self.settings.controller, PROBE).await
    }

    /// Waits until the driver answers; has it started where the run knows how. These calls are no
    /// case's, so that nothing of them is judged.
    pub(crate) async fn wait_for_driver(&self) -> Presence {
        if let Some(restart) = &self.settings.restart {
            restart.settled().await;
        }
        if self.is_there().await {
            return Presence::Back;
        }
        let tried = match &self.settings.restart {
            None => "it".to_owned(),
            Some(restart) => match restart.run().await {
                Ok(()) => format!("{} was run and succeeded, and it", restart.name()),
                Err(error) => format!("{} was run ({error}), and it", restart.name()),
            },
        };
        let ends = Instant::now() + PATIENCE;
        while Instant::now() < ends {
            if self.is_there().await {
                return Presence::Back;
            }
            tokio::time::sleep(PAUSE).await;
        }
        Presence::Gone(format!(
            "{tried} did not come back within {} s",
            PATIENCE.as_secs()
        ))
    }
}
