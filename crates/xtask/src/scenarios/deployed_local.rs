//! The local driver as `deploy/local` puts it on every node, with sidecars of the node's own.

use anyhow::Result;

use super::{
    deployed::{SYSTEM, containers, manifests, name_the_server, pods_are_gone},
    go_sidecars,
};
use crate::{
    kube::ORLOP,
    stage::{DAEMON_SET, Stage, documents},
};

const APP: &str = "csi-local";

pub(super) async fn run(stage: &Stage) -> Result<()> {
    stage.our_images().await?;
    stage.role("controller").await?;
    let pool = stage.folder().join("pool");
    std::fs::create_dir_all(&pool)?;
    let pool = pool.display().to_string();
    // The pool has one path inside and outside, so that what a failed run leaves can be found.
    let text = std::fs::read_to_string(manifests().join("local/local.yaml"))?
        .replace("local.csi.orlop.dev", &stage.driver_name())
        .replace("orlop:latest", ORLOP)
        .replace("/var/lib/orlop-local", &pool)
        // The folder of the scenario is on no shared mount, which propagation asks for.
        .replace(", mountPropagation: HostToContainer", "")
        .replace("mountPath: /pool", &format!("mountPath: {pool}"))
        .replace(
            "--pool=/pool",
            &format!(
                "--pool={pool}, --drivername={}, --reserve=0%, --overcommit=100",
                stage.driver_name()
            ),
        );
    for mut object in documents(&text)? {
        if object["kind"] == "DaemonSet" {
            name_the_server(containers(&mut object)?)?;
        }
        stage.apply_value(object).await?;
    }
    stage.registered().await?;
    stage.apply_value(go_sidecars::xfs(stage)).await?;
    go_sidecars::life(stage).await?;
    stage.delete_in(SYSTEM, DAEMON_SET, APP).await?;
    pods_are_gone(stage, &[APP]).await
}
