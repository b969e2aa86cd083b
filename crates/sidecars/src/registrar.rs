//! Introduces a driver to the kubelet of its node.
//!
//! Owns the registration socket `<driver>-reg.sock` in the kubelet's folder: it is there
//! while the driver can be called and goes when the registrar stops, which is how the
//! kubelet learns that the driver is gone.
//!
//! Must never end because of a failure: it says what is wrong and tries again.

use std::{
    future::Future,
    path::PathBuf,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use orlop_csi::{
    Deadlines, Driver,
    registration::{
        InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
        registration_client::RegistrationClient, registration_server::Registration,
    },
    server::{ServeError, Services, Socket},
};
use orlop_runtime::Backoff;
use tokio::{sync::watch, time::sleep};
use tonic::{Request, Response, Status, async_trait};
use tracing::{info, warn};

use crate::words::words;

/// The version of plugin registration's own protocol, as CSI's place in it has it.
const SUPPORTED: &str = "1.0.0";

/// Waits between tries. Nothing tells when a driver, a folder or the kubelet recovers.
const RETRY: Backoff = Backoff {
    first: Duration::from_millis(100),
    most: Duration::from_secs(10),
};

/// Where driver and kubelet are.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where the driver is called from here.
    pub csi_endpoint: String,
    /// Where the kubelet calls the driver: its socket's path on the host.
    pub kubelet_registration_path: String,
    /// The folder that the kubelet watches for registration sockets.
    pub plugin_registration_dir: PathBuf,
    /// How long the driver may take to say who it is.
    pub timeout: Duration,
}

/// The name that the driver last registered under: whether it is still introduced can be said
/// without asking it again.
#[derive(Debug, Clone, Default)]
pub struct Name(Arc<Mutex<Option<String>>>);

impl Name {
    fn get(&self) -> Option<String> {
        let name = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        name.clone()
    }

    fn set(&self, name: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some(name.to_owned());
    }
}

/// What the kubelet finds when it looks for the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Introduction {
    /// The driver, under its name.
    Stands,
    /// No socket, for this reason.
    Absent(String),
    /// Something else, which is this.
    Wrong(String),
}

/// Looks as the kubelet does. The driver itself is not asked: it may be hung, or gone.
pub async fn introduced(config: &Config, name: &Name) -> Introduction {
    let asked = async {
        let name = name.get().ok_or_else(|| {
            Introduction::Absent("the driver has not said yet who it is".to_owned())
        })?;
        let path = socket_of(config, &name);
        if !path.exists() {
            return Err(Introduction::Absent(format!(
                "socket path {} does not exist",
                path.display()
            )));
        }
        let channel = orlop_csi::client::channel(&path.to_string_lossy())
            .map_err(|error| Introduction::Wrong(error.to_string()))?;
        let said = RegistrationClient::new(channel)
            .get_info(InfoRequest {})
            .await
            .map_err(|status| Introduction::Wrong(status.message().to_owned()))?;
        match said.into_inner().name {
            said if said == name => Ok(()),
            other => Err(Introduction::Wrong(format!(
                "the socket introduces {other:?} rather than {name:?}"
            ))),
        }
    };
    match tokio::time::timeout(config.timeout, asked).await {
        Ok(Ok(())) => Introduction::Stands,
        Ok(Err(other)) => other,
        Err(_) => Introduction::Wrong("no answer in time".to_owned()),
    }
}

fn driver(config: &Config) -> Result<Driver, orlop_csi::client::EndpointError> {
    Ok(Driver::connect(&config.csi_endpoint)?.with_deadlines(Deadlines::all(config.timeout)))
}

fn socket_of(config: &Config, driver: &str) -> PathBuf {
    config
        .plugin_registration_dir
        .join(format!("{driver}-reg.sock"))
}

/// What the kubelet made of the registration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Registered {
    /// It hasn't said yet.
    #[default]
    Waiting,
    /// It accepts the driver.
    Yes,
    /// It doesn't, for this reason.
    No(String),
}

/// Serves registration until `shutdown`, then removes the socket. Failures are reported
/// and tried again.
pub async fn serve(config: Config, shutdown: impl Future<Output = ()>) {
    serve_as(config, Name::default(), shutdown).await;
}

/// As [`serve`], and tells the driver's name.
pub async fn serve_as(config: Config, name: Name, shutdown: impl Future<Output = ()>) {
    let mut shutdown = pin!(shutdown);
    let mut failures = 0;
    loop {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let mut attempt = pin!(register(&config, &name, async {
            // The sender is only ever dropped or sent when it is time to stop.
            let _ = stopped.await;
        }));
        let ended = tokio::select! {
            ended = &mut attempt => ended,
            () = &mut shutdown => {
                drop(stop);
                // The attempt now ends by itself and takes its socket along.
                if let Err(error) = attempt.await {
                    warn!(error = words(&error), "the registration socket did not end well");
                }
                return;
            }
        };
        failures += 1;
        let wait = RETRY.after(failures);
        match ended {
            Ok(()) => info!("registering the driver again"),
            Err(error) => warn!(error = words(&error), ?wait, "the driver is not registered"),
        }
        tokio::select! {
            () = sleep(wait) => {}
            () = &mut shutdown => return,
        }
    }
}

/// Why a driver could not be introduced.
#[derive(Debug, thiserror::Error)]
enum RegisterError {
    #[error(transparent)]
    Endpoint(#[from] orlop_csi::client::EndpointError),
    #[error("the driver does not say who it is")]
    Driver(#[source] orlop_csi::CallError),
    // Nor is it part of a path.
    #[error(
        "the driver calls itself {0:?}, which no object can refer to it by; this is an error of the driver"
    )]
    Name(String, #[source] orlop_csi::limits::LimitError),
    #[error("registration could not be served")]
    Serve(#[source] ServeError),
}

/// One life of the registration socket. Ends with `Ok` at `stop`, or when the kubelet
/// turned the driver down: a new socket makes it look again.
async fn register(
    config: &Config,
    name: &Name,
    stop: impl Future<Output = ()>,
) -> Result<(), RegisterError> {
    let mut stop = pin!(stop);
    let driver = driver(config)?;
    let asked = async {
        // A driver without Probe is taken to be ready.
        let _ = driver.probe_until_ready().await;
        driver.info().await.map_err(RegisterError::Driver)
    };
    let info = tokio::select! {
        info = asked => info?,
        () = &mut stop => return Ok(()),
    };
    orlop_csi::limits::plugin_name(&info.name)
        .map_err(|error| RegisterError::Name(info.name.clone(), error))?;
    let (says, heard) = watch::channel(Registered::Waiting);
    let answers = Answers {
        driver: info.name.clone().into(),
        endpoint: config.kubelet_registration_path.clone().into(),
        says,
    };
    let path = socket_of(config, &info.name);
    let socket = Socket::bind(&path.to_string_lossy())
        .map_err(|error| RegisterError::Serve(error.into()))?;
    name.set(&info.name);
    info!(driver = info.name, socket = %path.display(), "waiting for the kubelet");
    let until = async {
        tokio::select! {
            () = stop => {}
            () = refused(heard) => {}
        }
    };
    socket
        .serve(Services::new().registration(answers), until)
        .await
        .map_err(RegisterError::Serve)
}

async fn refused(mut heard: watch::Receiver<Registered>) {
    let no = heard.wait_for(|said| matches!(said, Registered::No(_)));
    if no.await.is_err() {
        // Nobody is left to refuse.
        std::future::pending::<()>().await;
    }
}

/// What the kubelet is told.
struct Answers {
    driver: Arc<str>,
    endpoint: Arc<str>,
    says: watch::Sender<Registered>,
}

#[async_trait]
impl Registration for Answers {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: self.driver.to_string(),
            endpoint: self.endpoint.to_string(),
            supported_versions: vec![SUPPORTED.to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        if status.plugin_registered {
            info!(driver = %self.driver, "the kubelet knows the driver");
            self.says.send_replace(Registered::Yes);
        } else {
            warn!(driver = %self.driver, reason = status.error, "the kubelet turned the driver down");
            self.says.send_replace(Registered::No(status.error));
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
