//! Tells when a driver that was away is back, so that nobody waits any longer because of it.

use tokio::sync::watch;

use super::Driver;

/// The times in which a driver was away; noticed by the calls that failed then.
pub struct Absences {
    driver: Driver,
    lost: watch::Receiver<u64>,
}

impl Absences {
    pub(super) fn of(driver: Driver, lost: watch::Receiver<u64>) -> Self {
        Self { driver, lost }
    }

    /// Waits until a call finds nobody there, and then until the driver is back and ready.
    ///
    /// Cancel-safe, but for an absence that was noticed already.
    pub async fn over(&mut self) {
        // The sender lives as long as the driver, which is held here.
        let _ = self.lost.changed().await;
        let _lookout = self.driver.known.lookout.lock().await;
        // A driver without Probe has said so itself: it is there.
        let _ = self.driver.probe_until_ready().await;
    }
}
