//! csi-sanity against our local driver.

use std::time::Duration;

use anyhow::{Result, bail};

use crate::stage::Stage;

pub(super) async fn run(stage: &Stage) -> Result<()> {
    stage.local_driver().await?;
    let folder = stage.folder();
    // The driver serves no path outside of the kubelet's folder.
    let mounts = stage.driver_socket().with_file_name("sanity");
    std::fs::create_dir_all(&mounts)?;
    // A mounted ext4 grows only with a capability that root may lack; xfs grows everywhere, and
    // has a least size.
    let class = folder.join("class.yaml");
    std::fs::write(&class, "fsType: xfs\n")?;
    let mutable = folder.join("mutable.yaml");
    std::fs::write(&mutable, "readAheadKiB: \"256\"\n")?;
    let sanity = stage.start(
        "csi-sanity",
        &stage.binary("csi-sanity"),
        [
            format!("--csi.endpoint={}", stage.driver_socket().display()),
            format!("--csi.mountdir={}", mounts.join("mount").display()),
            format!("--csi.stagingdir={}", mounts.join("staging").display()),
            format!("--csi.testvolumesize={}", 320 << 20),
            format!("--csi.testvolumeexpandsize={}", 400 << 20),
            format!("--csi.testvolumeparameters={}", class.display()),
            format!("--csi.testvolumemutableparameters={}", mutable.display()),
            "--ginkgo.no-color".to_owned(),
        ],
    )?;
    let status = sanity.finished(Duration::from_secs(240)).await?;
    let said = sanity.said();
    let summary = said
        .lines()
        .rfind(|line| line.contains("Passed"))
        .unwrap_or("no summary")
        .to_owned();
    if !status.success() {
        let failures: Vec<&str> = said
            .lines()
            .filter(|line| line.contains("[FAIL]") || line.contains("[Fail]"))
            .collect();
        bail!("csi-sanity: {summary} ({status})\n{}", failures.join("\n"));
    }
    println!("         sanity        {summary}");
    Ok(())
}
