//! Calls of drivers, while they run: by whom they are asked for, and since when.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use super::lock;
use crate::layout::PodUid;

/// What a driver is called for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Purpose<'a> {
    pub(super) pod: &'a PodUid,
    /// The volume's name in the pod, as far as it is known.
    pub(super) called: &'a str,
    /// The driver's name of it.
    pub(super) volume: &'a str,
}

/// What a driver does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Doing {
    pub(crate) command: &'static str,
    pub(crate) since: Instant,
}

impl Doing {
    /// Of a command that the attaching of a volume consists of.
    pub(crate) fn attaches(&self) -> bool {
        matches!(self.command, "attach" | "waitforattach")
    }

    /// For the one who waits for it.
    pub(crate) fn words(&self) -> String {
        let seconds = self.since.elapsed().as_secs_f64().round();
        let command = self.command;
        format!("its driver's {command} command has been running for {seconds} s")
    }
}

type ByName = BTreeMap<(PodUid, String), Doing>;

/// All that run.
#[derive(Debug, Default, Clone)]
pub(super) struct Calls {
    running: Arc<Mutex<ByName>>,
}

impl Calls {
    pub(super) fn begin(&self, purpose: Purpose<'_>, command: &'static str) -> Call {
        let name = (purpose.pod.clone(), purpose.called.to_owned());
        let since = Instant::now();
        lock(&self.running).insert(name.clone(), Doing { command, since });
        let all = self.clone();
        Call { all, name }
    }

    /// By their volumes' names in the pod.
    pub(super) fn of(&self, pod: &PodUid) -> BTreeMap<String, Doing> {
        let running = lock(&self.running);
        let of_pod = running.iter().filter(|((of, _), _)| of == pod);
        of_pod
            .map(|((_, called), doing)| (called.clone(), *doing))
            .collect()
    }
}

/// One that runs; it ends with this.
pub(super) struct Call {
    all: Calls,
    name: (PodUid, String),
}

impl Drop for Call {
    fn drop(&mut self) {
        lock(&self.all.running).remove(&self.name);
    }
}
