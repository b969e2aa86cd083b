//! A driver that comes back: whoever waits because it was away is served now, and not when its wait
//! is over.

use orlop_csi::Driver;
use orlop_runtime::Backoff;
use tokio::time::{Instant, sleep};
use tracing::info;

/// Ends waits whenever the driver was away and is back, for ever.
///
/// Not at once: turns whose calls failed just before have yet to begin their waits. And the more
/// rarely, the sooner the driver goes again: it may be that what waits is what ends it.
pub(crate) async fn hurry_when_back(driver: &Driver, retry: Backoff, hurry: impl Fn()) {
    let mut absences = driver.absences();
    let mut returns = 0;
    let mut last = Instant::now();
    loop {
        absences.over().await;
        if last.elapsed() > retry.most {
            returns = 0;
        }
        returns += 1;
        sleep(retry.after(returns)).await;
        last = Instant::now();
        info!("the driver is back: what waits is tried again");
        hurry();
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, time::Duration};

    use orlop_csi::{
        memory::Socket,
        proto::{GetCapacityRequest, identity_server::Identity},
        server::Services,
    };

    use super::*;

    struct Silent;
    #[tonic::async_trait]
    impl Identity for Silent {}

    /// As if what waits were what ends it.
    #[tokio::test(start_paused = true)]
    async fn a_driver_that_goes_whenever_it_is_asked_is_asked_ever_more_rarely() {
        let retry = Backoff {
            first: Duration::from_secs(1),
            most: Duration::from_secs(300),
        };
        let (socket, asked) = (Socket::new(), Cell::new(0));
        let driver = Driver::in_memory(&socket);
        let wake = tokio::sync::Notify::new();
        let hurry = || {
            asked.set(asked.get() + 1);
            wake.notify_one();
        };
        let crash_loop = async {
            loop {
                // Nobody listens while this call is made.
                let lost = driver.get_capacity(GetCapacityRequest::default()).await;
                assert!(lost.is_err());
                let listener = socket.bind().expect("nobody listens");
                let services = Services::new().identity(Silent);
                let served = listener.serve(services, wake.notified()).await;
                served.expect("it serves");
            }
        };
        let hour = Duration::from_secs(3600);
        tokio::select! {
            () = hurry_when_back(&driver, retry, hurry) => {}
            () = crash_loop => {}
            () = sleep(hour) => {}
        }
        let asked = asked.get();
        assert!((9..25).contains(&asked), "{asked} times in an hour");
    }
}
