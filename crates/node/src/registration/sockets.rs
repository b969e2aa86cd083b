//! Sightings from the kubelet's `plugins_registry` folder: a socket that comes into it
//! is asked who it is; one that leaves it is gone.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use orlop_csi::registration::registration_client::RegistrationClient;
use orlop_csi::registration::{InfoRequest, RegistrationStatus};
use orlop_host::folder_watch::{FolderEvent, FolderWatch};
use orlop_runtime::Backoff;
use tokio::net::UnixStream;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};
use tracing::{debug, error, warn};

use super::{Announcement, PluginId, Registrations, Sighting, Work};

/// A driver that does not answer within this is asked again later.
const PATIENCE: Duration = Duration::from_secs(10);

/// The kubelet's registration folder.
#[derive(Debug)]
pub struct SocketRegistrations {
    folder: PathBuf,
    watch: FolderWatch,
    /// Sockets that have to be asked, and when.
    asking: BTreeMap<String, Asking>,
    /// Sockets that have answered.
    known: BTreeMap<String, ()>,
    ready: VecDeque<Sighting>,
}

#[derive(Debug, Clone, Copy)]
struct Asking {
    failures: u32,
    due: Instant,
}

impl SocketRegistrations {
    /// Watches the folder, which is made if it is missing.
    ///
    /// # Errors
    /// If it cannot be made or watched.
    pub fn watch(folder: impl Into<PathBuf>) -> io::Result<Self> {
        let folder = folder.into();
        std::fs::create_dir_all(&folder)?;
        let watch = FolderWatch::new(&folder)?;
        let mut this = Self {
            folder,
            watch,
            asking: BTreeMap::new(),
            known: BTreeMap::new(),
            ready: VecDeque::new(),
        };
        this.look_at_everything()?;
        Ok(this)
    }

    fn look_at_everything(&mut self) -> io::Result<()> {
        let mut there = BTreeMap::new();
        for entry in std::fs::read_dir(&self.folder)? {
            if let Ok(name) = entry?.file_name().into_string() {
                there.insert(name, ());
            }
        }
        let left: Vec<String> = self
            .known
            .keys()
            .filter(|name| !there.contains_key(*name))
            .cloned()
            .collect();
        for name in left {
            self.left(&name);
        }
        self.asking.retain(|name, _| there.contains_key(name));
        for name in there.into_keys() {
            if !self.known.contains_key(&name) {
                self.came(name);
            }
        }
        Ok(())
    }

    fn came(&mut self, name: String) {
        use std::os::unix::fs::FileTypeExt as _;
        let path = self.folder.join(&name);
        let socket =
            std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
        // Sockets alone register, and hidden ones are still being made.
        if socket && !name.starts_with('.') {
            // A new socket in the place of an old one is another driver process.
            self.left(&name);
            self.asking.insert(
                name,
                Asking {
                    failures: 0,
                    due: Instant::now(),
                },
            );
        }
    }

    fn left(&mut self, name: &str) {
        self.asking.remove(name);
        if self.known.remove(name).is_some() {
            self.ready
                .push_back(Sighting::Left(PluginId(name.to_owned())));
        }
    }

    fn happened(&mut self, event: FolderEvent) -> io::Result<()> {
        match event {
            FolderEvent::Came(name) => {
                if let Ok(name) = name.into_string() {
                    self.came(name);
                }
                Ok(())
            }
            FolderEvent::Left(name) => {
                if let Ok(name) = name.into_string() {
                    self.left(&name);
                }
                Ok(())
            }
            FolderEvent::Overrun => self.look_at_everything(),
            FolderEvent::Gone => Err(io::Error::other("the folder was removed")),
        }
    }

    /// Asks the socket that is due; a failure puts it off.
    async fn ask(&mut self, name: String) {
        match tokio::time::timeout(PATIENCE, get_info(&self.folder.join(&name))).await {
            Ok(Ok(announcement)) => {
                self.asking.remove(&name);
                self.known.insert(name.clone(), ());
                self.ready
                    .push_back(Sighting::Came(PluginId(name), announcement));
            }
            refused => {
                let words = match refused {
                    Ok(Err(status)) => status.message().to_owned(),
                    _ => "no answer".to_owned(),
                };
                debug!(
                    socket = name,
                    error = words,
                    "a plugin socket does not answer"
                );
                if let Some(asking) = self.asking.get_mut(&name) {
                    let backoff = Backoff {
                        first: Duration::from_millis(50),
                        most: Duration::from_secs(10),
                    };
                    asking.failures += 1;
                    asking.due = Instant::now() + backoff.after(asking.failures);
                }
            }
        }
    }

    async fn sighting(&mut self) -> Option<Sighting> {
        loop {
            if let Some(sighting) = self.ready.pop_front() {
                return Some(sighting);
            }
            let due = self.asking.iter().min_by_key(|(_, asking)| asking.due);
            let due = due.map(|(name, asking)| (name.clone(), asking.due));
            let event = match due {
                None => self.watch.next().await,
                Some((name, due)) => {
                    tokio::select! {
                        event = self.watch.next() => event,
                        () = tokio::time::sleep_until(due) => {
                            self.ask(name).await;
                            continue;
                        }
                    }
                }
            };
            if let Err(error) = event.and_then(|event| self.happened(event)) {
                error!(folder = %self.folder.display(), %error, "drivers cannot register any more");
                return None;
            }
        }
    }
}

impl Registrations for SocketRegistrations {
    fn next(&mut self) -> Work<'_, Option<Sighting>> {
        Box::pin(self.sighting())
    }

    fn acknowledge(&self, plugin: PluginId, result: Result<(), String>) -> Work<'static, ()> {
        let path = self.folder.join(&plugin.0);
        Box::pin(async move {
            let status = RegistrationStatus {
                plugin_registered: result.is_ok(),
                error: result.err().unwrap_or_default(),
            };
            let mut client = RegistrationClient::new(dial(path));
            let told =
                tokio::time::timeout(PATIENCE, client.notify_registration_status(status)).await;
            if !matches!(told, Ok(Ok(_))) {
                warn!(
                    socket = plugin.0,
                    "could not tell a driver about its registration"
                );
            }
        })
    }
}

async fn get_info(socket: &Path) -> Result<Announcement, tonic::Status> {
    let mut client = RegistrationClient::new(dial(socket.to_owned()));
    let info = client.get_info(InfoRequest {}).await?.into_inner();
    let own = || format!("unix://{}", socket.display());
    Ok(Announcement {
        kind: info.r#type,
        name: info.name,
        // A plugin without an endpoint of its own is called at this socket.
        endpoint: if info.endpoint.is_empty() {
            own()
        } else {
            info.endpoint
        },
        versions: info.supported_versions,
    })
}

/// Every peer accepts this origin; many refuse a path as authority.
fn dial(socket: PathBuf) -> Channel {
    let connect = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(connect)
}
