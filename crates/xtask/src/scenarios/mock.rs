//! Our provisioner and attacher, a driver that nobody here wrote, the real control plane.

use anyhow::Result;

use super::host_path::attached_life;
use crate::stage::Stage;

pub(super) async fn run(stage: &Stage) -> Result<()> {
    let socket = stage.driver_socket().display().to_string();
    stage
        .driver(
            &stage.binary("mock-driver"),
            &["--endpoint", &socket, "--name", &stage.driver_name()],
        )
        .await?;
    attached_life(stage).await
}
