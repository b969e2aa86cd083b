//! FlexVolumes' attacher: one turn of one attachment, and the driver's call in it.

use std::pin::pin;

use orlop_model::{Kind, VolumeAttachment, attachment::VolumeError, flex as names, well_known};
use orlop_runtime::{ApiError, EventType, Outcome, Patch, letting_go};
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::{info, warn};

use super::{super::AttachDetach, Flex, crowd::NEWS};
use crate::{
    attach_detach::{
        decide::Verdict,
        flex::{self, Call, Step, Trouble},
    },
    turn,
};

/// A longer message the API server refuses, and with it what it is about.
const LONGEST: usize = 1024;

/// A device's path, if the API server and the node take it.
fn accepted(device: String) -> Result<String, Trouble> {
    match device.len() {
        length if length > flex::LONGEST_DEVICE => Err(Trouble::Failed(format!(
            "the FlexVolume driver's device is no path: it has {length} bytes, and may have {}",
            flex::LONGEST_DEVICE
        ))),
        _ => Ok(device),
    }
}

fn shortened(message: &str) -> &str {
    let mut end = message.len().min(LONGEST);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    &message[..end]
}

impl AttachDetach {
    pub(super) async fn flex_turn(&self, flex: &Flex, name: String) -> Outcome {
        self.settle_flex(flex, &name)
            .await
            .unwrap_or_else(|error| turn::retry(&error))
    }

    async fn settle_flex(&self, flex: &Flex, name: &str) -> Result<Outcome, ApiError> {
        let Some(seen) = self.known.attachments.named(name) else {
            return Ok(Outcome::Done);
        };
        let Some(call) = self.call_for(&seen) else {
            return Ok(Outcome::Done);
        };
        match flex::step(&seen) {
            Step::None => Ok(Outcome::Done),
            Step::Attach => {
                let told = call.clone();
                let mut turn = pin!(self.call_to_attach(flex, &seen, call));
                if let Ok(ended) = timeout(NEWS, &mut turn).await {
                    return ended;
                }
                self.tell_of_waiting(&told);
                turn.await
            }
            Step::Detach => self.call_to_detach(flex, &seen, call).await,
        }
    }

    /// As far as the record tells it.
    fn call_for(&self, attachment: &VolumeAttachment) -> Option<Call> {
        let unique = flex::unique_name(attachment).filter(|_| flex::is_ours(attachment))?;
        let (driver, volume) = names::parts(unique)?;
        Some(Call {
            driver: driver.to_owned(),
            volume: volume.to_owned(),
            node: attachment.spec.node_name.clone(),
            options: None,
        })
    }

    async fn call_to_attach(
        &self,
        flex: &Flex,
        seen: &VolumeAttachment,
        mut call: Call,
    ) -> Result<Outcome, ApiError> {
        let place = flex.attaching.enter(&call.driver).await;
        if !self.is_still_to(seen, Step::Attach).await? {
            return Ok(Outcome::Done);
        }
        let name = &seen.metadata.name;
        // Before it is looked for: a wish that comes after the look is noticed.
        flex.lock().idle.insert(name.clone());
        let unique = names::unique_name(&call.driver, &call.volume);
        // A node that is gone, or attaches by itself by now, is attached nothing.
        let wishes = self.known.grantable(self.known.unit(&unique).wishes);
        let mut here = wishes.get(&call.node).into_iter().flatten();
        call.options = here.find_map(flex::options);
        let Some(options) = call.options.clone() else {
            return Ok(Outcome::Done);
        };
        flex.begins(name, options);
        let attached = place.run(flex.drivers.attach(&call)).await;
        match attached.and_then(accepted) {
            Ok(device) => {
                info!(volume = unique, node = call.node, "FlexVolume attached");
                let told = self.say_attached(seen, &device).await?;
                self.known.attachments.absorb(told);
                Ok(Outcome::Done)
            }
            Err(trouble) => {
                let (node, error) = (&call.node, trouble.to_string());
                warn!(volume = unique, node, error, "FlexVolume not attached");
                self.say_failed(seen, "attachError", &error).await
            }
        }
    }

    /// What takes long is told to those who wait for it, also if the driver is busy with other volumes.
    fn tell_of_waiting(&self, call: &Call) {
        let unique = names::unique_name(&call.driver, &call.volume);
        let text = format!(
            "FlexVolume driver {}: driver is still at attach after {} s; if it hangs, see what it waits for \
             where attach-detach runs",
            call.driver,
            NEWS.as_secs()
        );
        let wishes = self.known.unit(&unique).wishes.into_iter();
        for wish in wishes.filter(|wish| wish.pod.spec.node_name == call.node) {
            let told = Verdict::Refused(text.clone());
            if let Some(message) = told.news(&wish.volume.metadata.name, &wish.pod) {
                let reason = "FailedAttachVolume";
                let recorder = &self.recorder;
                recorder.say(&*wish.pod, EventType::Warning, reason, message);
            }
        }
    }

    async fn call_to_detach(
        &self,
        flex: &Flex,
        seen: &VolumeAttachment,
        mut call: Call,
    ) -> Result<Outcome, ApiError> {
        let place = flex.detaching.enter(&call.driver).await;
        if !self.is_still_to(seen, Step::Detach).await? {
            return Ok(Outcome::Done);
        }
        let name = &seen.metadata.name;
        let unique = names::unique_name(&call.driver, &call.volume);
        let told = flex.lock().options.get(name).cloned();
        call.options = told.or_else(|| {
            let object = self.known.flex_object(&unique)?;
            flex::options_of(&*self.known.volumes.named(&object)?)
        });
        match place.run(flex.drivers.detach(&call)).await {
            Ok(()) => {
                info!(volume = unique, node = call.node, "FlexVolume detached");
                if let Some(patch) = letting_go(seen, &[well_known::FLEX_ATTACHED]) {
                    let key = seen.key();
                    let free = self.cluster.patch::<VolumeAttachment>(&key, &patch).await;
                    match free {
                        Ok(free) => self.known.attachments.absorb_or_end(free),
                        Err(error) if error.is_not_found() => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(Outcome::Done)
            }
            Err(trouble) => {
                let (node, error) = (&call.node, trouble.to_string());
                warn!(volume = unique, node, error, "FlexVolume not detached");
                self.say_failed(seen, "detachError", &error).await
            }
        }
    }

    /// Asks the API server: another leader may have gone on, and even have let go of the volume.
    async fn is_still_to(&self, seen: &VolumeAttachment, step: Step) -> Result<bool, ApiError> {
        let live = self.cluster.get::<VolumeAttachment>(&seen.key()).await?;
        let Some(live) = live else {
            self.known.attachments.end(seen);
            return Ok(false);
        };
        let still = live.metadata.uid == seen.metadata.uid && flex::step(&live) == step;
        self.known.attachments.absorb(live);
        Ok(still)
    }

    pub(super) async fn say_attached(
        &self,
        attachment: &VolumeAttachment,
        device: &str,
    ) -> Result<VolumeAttachment, ApiError> {
        let metadata = json!({well_known::FLEX_DEVICE: device});
        let status = json!({"attached": true, "attachmentMetadata": metadata, "attachError": null});
        self.say(attachment, status).await
    }

    async fn say_failed(
        &self,
        attachment: &VolumeAttachment,
        what: &str,
        error: &str,
    ) -> Result<Outcome, ApiError> {
        let told = VolumeError {
            time: Some(self.clock.now_seconds()),
            message: shortened(error).to_owned(),
            error_code: None,
        };
        let status = json!({what: told});
        match self.say(attachment, status).await {
            Ok(told) => self.known.attachments.absorb(told),
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
        Ok(Outcome::Retry)
    }

    /// Of this very attachment, whatever else is said of it meanwhile.
    async fn say(
        &self,
        attachment: &VolumeAttachment,
        status: Value,
    ) -> Result<VolumeAttachment, ApiError> {
        let patch = Patch::Merge(json!({
            "metadata": {"uid": attachment.metadata.uid},
            "status": status,
        }));
        let key = attachment.key();
        self.cluster.patch_status(&key, &patch).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_as_long_as_the_api_server_takes_it() {
        assert_eq!(shortened("no such disk"), "no such disk");
        assert_eq!(shortened(&"x".repeat(2000)).len(), LONGEST);
        let wide = shortened(&"€".repeat(2000)).len();
        assert_eq!(wide, LONGEST - 1);
    }
}
