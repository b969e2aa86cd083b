//! The protocol is what the rest of the world speaks: every name and number is
//! pinned, and some bytes.

mod support;

use orlop_csi::proto::{CreateVolumeRequest, VolumeCapability, volume_capability};
use orlop_csi::registration::registration_client::RegistrationClient;
use orlop_csi::registration::registration_server::Registration;
use orlop_csi::registration::{
    InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
};
use orlop_csi::server::Services;
use orlop_csi::{Secrets, memory};
use prost::Message as _;
use tonic::{Request, Response, Status};

/// The facts of CSI 1.12.0 as Go's bindings print them; see `go-peer describe`.
const CSI_1_12: &str = include_str!("wire.txt");

#[test]
fn the_proto_is_csi_1_12_to_the_last_number() {
    let ours = support::facts("csi.v1");
    let missing: Vec<_> = CSI_1_12
        .lines()
        .filter(|line| !ours.lines().any(|l| l == *line))
        .collect();
    let added: Vec<_> = ours
        .lines()
        .filter(|line| !CSI_1_12.lines().any(|l| l == *line))
        .collect();
    assert!(
        missing.is_empty() && added.is_empty(),
        "missing {missing:#?}, added {added:#?}"
    );
    assert_eq!(ours, CSI_1_12.trim_end());
}

#[test]
fn a_request_has_the_bytes_that_others_read() {
    let request = CreateVolumeRequest {
        name: "v".into(),
        volume_capabilities: vec![VolumeCapability {
            access_type: Some(volume_capability::AccessType::Block(
                volume_capability::BlockVolume {},
            )),
            access_mode: Some(volume_capability::AccessMode { mode: 7 }),
        }],
        secrets: Secrets::from_iter([("k".to_owned(), "s".to_owned())]).into_request(),
        mutable_parameters: [("i".to_owned(), "9".to_owned())].into(),
        ..Default::default()
    };
    let bytes = b"\x0a\x01v\x1a\x06\x0a\x00\x1a\x02\x08\x07\x2a\x06\x0a\x01k\x12\x01s\x42\x06\x0a\x01i\x12\x019";
    assert_eq!(request.encode_to_vec(), bytes);
    assert_eq!(
        CreateVolumeRequest::decode(bytes.as_slice()).unwrap(),
        request
    );
}

#[test]
fn registration_is_the_kubelets_version_1() {
    assert_eq!(
        support::facts("pluginregistration"),
        "call pluginregistration.Registration.GetInfo pluginregistration.InfoRequest -> pluginregistration.PluginInfo\n\
         call pluginregistration.Registration.NotifyRegistrationStatus pluginregistration.RegistrationStatus -> pluginregistration.RegistrationStatusResponse\n\
         field pluginregistration.PluginInfo.endpoint = 3 optional string\n\
         field pluginregistration.PluginInfo.name = 2 optional string\n\
         field pluginregistration.PluginInfo.supported_versions = 4 repeated string\n\
         field pluginregistration.PluginInfo.type = 1 optional string\n\
         field pluginregistration.RegistrationStatus.error = 2 optional string\n\
         field pluginregistration.RegistrationStatus.plugin_registered = 1 optional bool\n\
         message pluginregistration.InfoRequest\n\
         message pluginregistration.PluginInfo\n\
         message pluginregistration.RegistrationStatus\n\
         message pluginregistration.RegistrationStatusResponse"
    );
}

struct Registrar;

#[tonic::async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            name: "local.orlop.io".into(),
            ..Default::default()
        }))
    }

    async fn notify_registration_status(
        &self,
        status: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        match status.into_inner() {
            RegistrationStatus {
                plugin_registered: true,
                ..
            } => Ok(Response::new(RegistrationStatusResponse {})),
            refused => Err(Status::failed_precondition(refused.error)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_plugin_registers() {
    let socket = memory::Socket::new();
    let services = Services::new().registration(Registrar);
    let server = tokio::spawn(
        socket
            .bind()
            .unwrap()
            .serve(services, std::future::pending()),
    );
    let mut client = RegistrationClient::new(socket.channel());
    let info = client.get_info(InfoRequest {}).await.unwrap().into_inner();
    assert_eq!(info.name, "local.orlop.io");
    let refused = RegistrationStatus {
        plugin_registered: false,
        error: "no".into(),
    };
    let status = client
        .notify_registration_status(refused)
        .await
        .unwrap_err();
    assert_eq!(status.message(), "no");
    let accepted = RegistrationStatus {
        plugin_registered: true,
        error: String::new(),
    };
    client.notify_registration_status(accepted).await.unwrap();
    server.abort();
}
