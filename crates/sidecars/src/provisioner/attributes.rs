//! The classes of attributes that claims wait for.

use std::sync::Once;

use orlop_model::{Claim, Key, Kind, VolumeAttributesClass};
use orlop_runtime::{ApiError, Change, Index, Process, Queue};
use tracing::info;

use crate::patience::UNTOLD;

/// Reads classes one by one, and watches them once a claim waits for one: most never do.
pub(super) struct AttributesClasses {
    process: Process,
    /// Claims without a volume, by the class that they name.
    naming: Index<Claim>,
    wake: Queue<Key>,
    begun: Once,
}

fn named(claim: &Claim) -> Vec<String> {
    let waiting = claim.spec.volume_name.is_empty();
    let name = claim.spec.volume_attributes_class_name.clone();
    name.filter(|name| waiting && !name.is_empty())
        .into_iter()
        .collect()
}

impl AttributesClasses {
    pub(super) fn new(process: &Process, wake: &Queue<Key>) -> Self {
        let claims = process.cache::<Claim>();
        Self {
            process: process.clone(),
            naming: claims.index("provisioner.attributes-class", named),
            wake: wake.clone(),
            begun: Once::new(),
        }
    }

    /// The class of a name. If there is none, whoever names it is woken when it comes.
    pub(super) async fn get(&self, name: &str) -> Result<Option<VolumeAttributesClass>, ApiError> {
        let found = self.process.cluster.get(&Key::cluster(name)).await?;
        if found.is_none() {
            self.begun.call_once(|| self.watch());
        }
        Ok(found)
    }

    fn watch(&self) {
        let (process, naming, wake) =
            (self.process.clone(), self.naming.clone(), self.wake.clone());
        self.process
            .spawn("attributes classes that are waited for", async move {
                // As their original, these provisioners may be allowed to read them alone.
                if !process.cluster.may_watch::<VolumeAttributesClass>().await {
                    info!(
                        "VolumeAttributesClasses may not be watched: claims that wait for one are \
                     looked at every {} s",
                        UNTOLD.as_secs()
                    );
                    return;
                }
                process
                    .cache::<VolumeAttributesClass>()
                    .subscribe(move |change| {
                        if let Change::Applied { old: None, new } = change {
                            let waiting = naming.get(&new.metadata.name);
                            waiting.iter().for_each(|claim| wake.add(claim.key()));
                        }
                    });
            });
    }
}
