//! The registrar before a kubelet, over real sockets.

use std::{future::Future, path::Path, time::Duration};

use orlop_csi::{
    registration::{InfoRequest, RegistrationStatus, registration_client::RegistrationClient},
    server::{Services, Socket},
};
use orlop_sidecars::registrar::{self, Config, Introduction, Name};
use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};
use tonic::transport::{Channel, Endpoint};

use crate::driver::{Fake, NAME};

async fn soon<T>(what: impl Future<Output = T>) -> T {
    let waited = timeout(Duration::from_secs(20), what).await;
    waited.expect("it happens within seconds")
}

async fn appears(path: &Path) {
    soon(async {
        while !path.exists() {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

async fn kubelet(path: &Path) -> RegistrationClient<Channel> {
    let endpoint = format!("unix://{}", path.display());
    let channel = Endpoint::from_shared(endpoint).expect("it is an address");
    RegistrationClient::new(channel.connect().await.expect("somebody listens"))
}

fn serve_driver(fake: &Fake, path: &Path) {
    let socket = Socket::bind(&path.to_string_lossy()).expect("the folder is there");
    let services = Services::new().identity(fake.clone()).node(fake.clone());
    tokio::spawn(socket.serve(services, std::future::pending()));
}

#[tokio::test]
async fn the_kubelet_learns_of_the_driver_and_of_its_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let registry = folder.path().join("registry");
    std::fs::create_dir(&registry).expect("a folder");
    let driver = folder.path().join("csi.sock");
    let config = Config {
        csi_endpoint: format!("unix://{}", driver.display()),
        kubelet_registration_path: "/var/lib/kubelet/plugins/fake/csi.sock".into(),
        plugin_registration_dir: registry.clone(),
        timeout: Duration::from_secs(10),
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(registrar::serve(config, async {
        let _ = stopped.await;
    }));
    let socket = registry.join(format!("{NAME}-reg.sock"));
    sleep(Duration::from_millis(50)).await;
    assert!(!socket.exists(), "there is no driver yet");

    let fake = Fake::serving();
    serve_driver(&fake, &driver);
    appears(&socket).await;
    let mut kubelet = kubelet(&socket).await;
    let info = kubelet.get_info(InfoRequest {}).await.expect("it answers");
    let info = info.into_inner();
    assert_eq!(info.r#type, "CSIPlugin");
    assert_eq!(info.name, NAME);
    assert_eq!(info.endpoint, "/var/lib/kubelet/plugins/fake/csi.sock");
    assert_eq!(info.supported_versions, ["1.0.0"]);
    let yes = RegistrationStatus {
        plugin_registered: true,
        error: String::new(),
    };
    let noted = kubelet.notify_registration_status(yes).await;
    noted.expect("it takes note");
    assert!(socket.exists());

    drop(stop);
    soon(serving).await.expect("it does not panic");
    assert!(!socket.exists(), "the kubelet sees that the driver is gone");
}

#[tokio::test]
async fn a_driver_stays_introduced_while_it_is_gone() {
    let folder = tempfile::tempdir().expect("a folder");
    let driver = folder.path().join("csi.sock");
    let config = Config {
        csi_endpoint: driver.to_string_lossy().into_owned(),
        kubelet_registration_path: "/x".into(),
        plugin_registration_dir: folder.path().to_owned(),
        timeout: Duration::from_secs(10),
    };
    let name = Name::default();
    let look = || registrar::introduced(&config, &name);
    assert!(matches!(look().await, Introduction::Absent(_)));
    let bound = Socket::bind(&driver.to_string_lossy()).expect("the folder is there");
    let services = Services::new().identity(Fake::serving());
    let (gone, going) = oneshot::channel::<()>();
    let driving = tokio::spawn(bound.serve(services, async {
        let _ = going.await;
    }));
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(registrar::serve_as(config.clone(), name.clone(), async {
        let _ = stopped.await;
    }));
    let stands = || async {
        while look().await != Introduction::Stands {
            sleep(Duration::from_millis(5)).await;
        }
    };
    soon(stands()).await;
    drop(gone);
    let ended = soon(driving).await.expect("it does not panic");
    ended.expect("it ends well");
    assert!(!driver.exists());
    assert_eq!(look().await, Introduction::Stands);
    drop(stop);
    soon(serving).await.expect("it does not panic");
    assert!(matches!(look().await, Introduction::Absent(_)));
}

#[tokio::test]
async fn a_driver_that_was_turned_down_is_offered_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let driver = folder.path().join("csi.sock");
    let fake = Fake::serving();
    serve_driver(&fake, &driver);
    let config = Config {
        csi_endpoint: driver.to_string_lossy().into_owned(),
        kubelet_registration_path: "/x".into(),
        plugin_registration_dir: folder.path().to_owned(),
        timeout: Duration::from_secs(10),
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(registrar::serve(config, async {
        let _ = stopped.await;
    }));
    let socket = folder.path().join(format!("{NAME}-reg.sock"));
    appears(&socket).await;
    let mut first = kubelet(&socket).await;
    let no = RegistrationStatus {
        plugin_registered: false,
        error: "no room".into(),
    };
    let noted = first.notify_registration_status(no).await;
    noted.expect("it takes note");
    drop(first);
    soon(async {
        while socket.exists() {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    appears(&socket).await;
    let mut second = kubelet(&socket).await;
    assert!(second.get_info(InfoRequest {}).await.is_ok());
    drop(second);
    drop(stop);
    soon(serving).await.expect("it does not panic");
}

#[tokio::test]
async fn a_missing_folder_is_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let driver = folder.path().join("csi.sock");
    let fake = Fake::serving();
    serve_driver(&fake, &driver);
    let registry = folder.path().join("late");
    let config = Config {
        csi_endpoint: driver.to_string_lossy().into_owned(),
        kubelet_registration_path: "/x".into(),
        plugin_registration_dir: registry.clone(),
        timeout: Duration::from_secs(10),
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(registrar::serve(config, async {
        let _ = stopped.await;
    }));
    sleep(Duration::from_millis(150)).await;
    assert!(!serving.is_finished(), "a failure does not end it");
    std::fs::create_dir(&registry).expect("a folder");
    appears(&registry.join(format!("{NAME}-reg.sock"))).await;
    drop(stop);
    soon(serving).await.expect("it does not panic");
}

#[tokio::test]
async fn a_name_that_leads_out_of_the_folder_is_no_name() {
    let log = crate::log::Log::begin();
    let folder = tempfile::tempdir().expect("a folder");
    let registry = folder.path().join("registry");
    std::fs::create_dir(&registry).expect("a folder");
    let driver = folder.path().join("csi.sock");
    let fake = Fake::serving();
    fake.state().name = "../stray".into();
    serve_driver(&fake, &driver);
    let config = Config {
        csi_endpoint: format!("unix://{}", driver.display()),
        kubelet_registration_path: "/var/lib/kubelet/plugins/fake/csi.sock".into(),
        plugin_registration_dir: registry.clone(),
        timeout: Duration::from_secs(10),
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = tokio::spawn(registrar::serve(config, async {
        let _ = stopped.await;
    }));
    soon(async {
        while !log.text().contains("calls itself") {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(!folder.path().join("stray-reg.sock").exists());
    // Once it has come to its senses it is introduced.
    fake.state().name = NAME.into();
    appears(&registry.join(format!("{NAME}-reg.sock"))).await;
    drop(stop);
    soon(serving).await.expect("it ends");
}
