//! Kinds that an API server may not know yet, because somebody has to define them.

use std::time::Duration;

use orlop_model::Kind;
use orlop_runtime::{Backoff, Cluster};
use tokio::time::sleep;
use tracing::{debug, info};

/// Waits between looks for a definition. Nothing tells when one comes to those who may not watch
/// definitions.
const LOOKS: Backoff = Backoff {
    first: Duration::from_secs(1),
    most: Duration::from_secs(30),
};

/// Waits until the API server serves a kind.
pub(crate) async fn until_served<K: Kind>(cluster: &Cluster) {
    let mut failures = 0;
    while let Err(error) = cluster.list::<K>(Some("default")).await {
        // What can't be read now may be served all the same.
        if !error.is_not_found() {
            debug!(kind = K::KIND, error = error.chain(), "not listed");
            return;
        }
        if failures == 0 {
            info!(
                kind = K::KIND,
                group = K::GROUP,
                "not defined at the API server; waiting for its CustomResourceDefinition"
            );
        }
        failures += 1;
        sleep(LOOKS.after(failures)).await;
    }
}
