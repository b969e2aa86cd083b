//! `orlop down`: clears away what a killed `orlop up` left running or mounted. Objects and
//! volumes' data stay: the next `orlop up` goes on with them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use orlop_host::{
    LoopDevice, MountTable, Place, loopdev, mount,
    sandbox::{Adopted, Launcher, ShimCommand, StateDir},
};

use crate::{
    cli, proof,
    up::{Layout, preflight},
};

pub(crate) async fn run(args: cli::Down) -> Result<()> {
    preflight::root()?;
    let folder = match fs::canonicalize(&args.data_dir) {
        Ok(folder) => folder,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => {
            return Err(error)
                .with_context(|| format!("could not look at {}", args.data_dir.display()));
        }
    };
    let layout = Layout::new(folder.clone());
    let _lock = preflight::claim(&layout)?;
    for container in containers(&layout)? {
        end(&container).await?;
    }
    for mount in MountTable::read()?.beneath(&folder).rev() {
        Place::at(&mount.point)
            .and_then(|place| mount::unmount(&place))
            .with_context(|| format!("could not unmount {}", mount.point.display()))?;
        println!("unmounted {}", mount.point.display());
    }
    for device in loopdev::list()? {
        if device.backing_path.starts_with(&folder)
            && let Some(device) = LoopDevice::open(device.number)?
        {
            let path = device.path();
            device
                .detach()
                .with_context(|| format!("could not detach {}", path.display()))?;
            println!("detached {}", path.display());
        }
    }
    let left = proof::in_use(&folder)?;
    ensure!(left.is_empty(), "still in use: {}", left.join(", "));
    Ok(())
}

/// The state folders of all containers of all nodes.
fn containers(layout: &Layout) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for node in folders(&layout.nodes())? {
        for pod in folders(&node.join("pods"))? {
            for container in folders(&pod.join("containers"))? {
                found.extend(folders(&container)?);
            }
        }
    }
    Ok(found)
}

fn folders(parent: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(parent) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => {
            return Err(error).with_context(|| format!("could not look into {}", parent.display()));
        }
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

async fn end(container: &Path) -> Result<()> {
    let launcher = Launcher::new(ShimCommand {
        program: PathBuf::new(),
        args: Vec::new(),
    });
    let dir = StateDir::at(container);
    if let Adopted::Running(running) = launcher.adopt(&dir).await? {
        running.kill()?;
        running.wait().await?;
        println!("ended the container of {}", container.display());
    }
    Ok(())
}
