//! `orlop down`: clears away what a killed `orlop up` left running or mounted. Objects and
//! volumes' data stay: the next `orlop up` goes on with them.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use orlop_host::{
    LoopDevice, MountTable, Place, loopdev, mount,
    sandbox::{Adopted, Launcher, ShimCommand, StateDir},
};

use tokio::time::timeout;

use crate::{
    cli, proof,
    up::{Layout, preflight},
    voice::say,
};

/// How long a killed container may take to be gone.
const PATIENCE: Duration = Duration::from_secs(10);

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
    // One thing that can't be cleared must not keep the others.
    let mut troubles = Vec::new();
    for container in containers(&layout)? {
        if let Err(error) = end(&container).await {
            troubles.push(format!("{error:#}"));
        }
    }
    for node in folders(&layout.nodes())? {
        match orlop_node::end_left_drivers(&node).await {
            Ok(0) => {}
            Ok(ended) => say(&format!("ended FlexVolume drivers' calls: {ended}")),
            Err(stay) => troubles.extend(stay),
        }
    }
    for mount in MountTable::read()?.beneath(&folder).rev() {
        let point = mount.point.display();
        match Place::at(&mount.point).and_then(|place| mount::unmount(&place)) {
            Ok(()) => say(&format!("unmounted {point}")),
            Err(error) => troubles.push(format!("could not unmount {point}: {error}")),
        }
    }
    troubles.extend(detach(&folder)?);
    troubles.extend(
        proof::in_use(&folder)?
            .into_iter()
            .map(|left| format!("still there: {left}")),
    );
    ensure!(troubles.is_empty(), "{}", troubles.join("; "));
    Ok(())
}

/// Detaches the loop devices of a folder's files, and tells which could not be.
fn detach(folder: &Path) -> Result<Vec<String>> {
    let here = || -> io::Result<Vec<u32>> {
        let mut listed = loopdev::list()?;
        listed.retain(|device| device.backing_path.starts_with(folder));
        Ok(listed.into_iter().map(|device| device.number).collect())
    };
    let (mut asked, mut troubles) = (Vec::new(), Vec::new());
    for number in here()? {
        let Some(device) = LoopDevice::open(number)? else {
            continue;
        };
        let path = device.path();
        match device.detach() {
            Ok(()) => asked.push((number, path)),
            Err(error) => troubles.push(format!("could not detach {}: {error}", path.display())),
        }
    }
    // One that somebody uses, wherever it is mounted, takes the wish and stays until then.
    let left = here()?;
    for (_, path) in asked.iter().filter(|(number, _)| !left.contains(number)) {
        say(&format!("detached {}", path.display()));
    }
    Ok(troubles)
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
        timeout(PATIENCE, running.wait())
            .await
            .with_context(|| format!("the container of {} does not end", container.display()))??;
        say(&format!("ended the container of {}", container.display()));
    }
    Ok(())
}
