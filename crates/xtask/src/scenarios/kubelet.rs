//! The real kubelet and real containers with our driver and our registrar.

use anyhow::Result;

use crate::stage::{CLAIM, POD, Stage, VOLUME, claim, reader, writer};

pub(super) async fn run(stage: &Stage) -> Result<()> {
    stage.local_driver().await?;
    stage.our_controller().await?;
    stage.our_registrar().await?;

    stage
        .apply_value(claim("data", stage.namespace(), "64Mi"))
        .await?;
    stage.apply_value(writer("writer", "data", "ahoy")).await?;
    let volume = stage.bound("data").await?;
    stage.succeeded("writer").await?;
    stage.remove(POD, &["writer"]).await?;

    stage.apply_value(reader("reader", "data", "ahoy")).await?;
    stage.succeeded("reader").await?;
    stage.remove(POD, &["reader"]).await?;
    stage.remove(CLAIM, &["data"]).await?;
    stage.gone(VOLUME, &volume).await
}
