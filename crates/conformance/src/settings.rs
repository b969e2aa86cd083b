//! What a run is about: the driver, and what its volumes are made with.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use orlop_csi::{Driver, Method};

mod file;

pub use file::{FileError, read_parameters, read_secrets};

/// A way to kill the driver and start it again; ends when it is started.
#[derive(Clone)]
pub struct Restart {
    way: Arc<dyn Fn() -> BoxFuture<'static, Result<(), String>> + Send + Sync>,
    /// What it is, for those who read that it did not help.
    name: String,
    /// Whoever has it restarts the driver.
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl Restart {
    /// Restarts by a call.
    pub fn by<F>(restart: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        Self {
            way: Arc::new(move || restart().boxed()),
            name: "the restart".to_owned(),
            turn: Arc::default(),
        }
    }

    /// Restarts by a command line, as the user typed it.
    pub fn command(line: String, timeout: Duration) -> Self {
        let name = format!("the restart command {}", crate::words::short(&line));
        let by_line = Self::by(move || {
            let line = line.clone();
            async move {
                let mut command = tokio::process::Command::new("/bin/sh");
                command
                    .args(["-c", &line])
                    .stdin(std::process::Stdio::null())
                    .stdout(std::process::Stdio::null())
                    .stderr(std::process::Stdio::null())
                    .kill_on_drop(true);
                match tokio::time::timeout(timeout, command.status()).await {
                    Ok(Ok(status)) if status.success() => Ok(()),
                    Ok(Ok(status)) => Err(format!("the restart command ended with {status}")),
                    Ok(Err(error)) => Err(format!("the restart command did not start: {error}")),
                    Err(_) => Err(format!(
                        "the restart command did not end within {} s; it must start the driver in \
                         the background",
                        timeout.as_secs()
                    )),
                }
            }
        });
        Self { name, ..by_line }
    }

    /// What it is, in words.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Restarts it. Once begun it is done to its end, also when the caller is stopped: a driver that
    /// was killed is not left so.
    pub(crate) async fn run(&self) -> Result<(), String> {
        let turn = Arc::clone(&self.turn).lock_owned().await;
        let restart = (self.way)();
        let done = tokio::spawn(async move {
            let outcome = restart.await;
            drop(turn);
            outcome
        });
        done.await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Waits for the end of a restart that is under way.
    pub(crate) async fn settled(&self) {
        drop(self.turn.lock().await);
    }
}

impl fmt::Debug for Restart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Restart")
    }
}

/// Everything that a run needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the Node service is.
    pub node: Driver,
    /// Where the Controller, GroupController and SnapshotMetadata services are.
    pub controller: Driver,
    /// The socket's file, if there is one.
    pub socket: Option<PathBuf>,
    /// For `CreateVolume`.
    pub parameters: BTreeMap<String, String>,
    /// For `CreateSnapshot`.
    pub snapshot_parameters: BTreeMap<String, String>,
    /// For `ControllerModifyVolume`.
    pub mutable_parameters: BTreeMap<String, String>,
    /// Credentials by call.
    pub secrets: Secrets,
    /// The file system to ask for; empty for the driver's own choice.
    pub fs_type: String,
    /// Whether test volumes are raw block ones, for drivers without file systems.
    pub block: bool,
    /// The size of test volumes, in bytes.
    pub volume_size: i64,
    /// A folder for staging; the run makes its own folder in it.
    pub staging_folder: PathBuf,
    /// A folder for targets; the run makes its own folder in it.
    pub target_folder: PathBuf,
    /// How long a call may take.
    pub timeout: Duration,
    /// How to kill and start the driver.
    pub restart: Option<Restart>,
    /// Where the driver logs to, to be searched for secrets.
    pub driver_log: Option<PathBuf>,
    /// A second node that the controller can publish to.
    pub other_node_id: Option<String>,
}

impl Settings {
    /// A driver with all services at one place, and everything else as usual.
    pub fn new(driver: Driver, folder: PathBuf) -> Self {
        Self {
            node: driver.clone(),
            controller: driver,
            socket: None,
            parameters: BTreeMap::new(),
            snapshot_parameters: BTreeMap::new(),
            mutable_parameters: BTreeMap::new(),
            secrets: Secrets::default(),
            fs_type: String::new(),
            block: false,
            volume_size: 1 << 30,
            staging_folder: folder.clone(),
            target_folder: folder,
            timeout: Duration::from_secs(60),
            restart: None,
            driver_log: None,
            other_node_id: None,
        }
    }
}

/// Credentials by call. `Debug` does not show them.
#[derive(Clone, Default)]
pub struct Secrets(BTreeMap<Method, BTreeMap<String, String>>);

impl Secrets {
    /// For one call.
    pub fn insert(&mut self, method: Method, values: BTreeMap<String, String>) {
        self.0.insert(method, values);
    }

    /// What to send with a call.
    pub fn of(&self, method: Method) -> BTreeMap<String, String> {
        self.0.get(&method).cloned().unwrap_or_default()
    }

    /// Every value, to look for where it must not be.
    pub(crate) fn values(&self) -> impl Iterator<Item = &str> {
        self.0
            .values()
            .flat_map(BTreeMap::values)
            .map(String::as_str)
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secrets for {} calls", self.0.len())
    }
}
