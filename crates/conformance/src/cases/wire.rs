//! The wire itself: what no well-behaved caller sends, and the socket.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::time::Duration;

use bytes::Bytes;
use orlop_csi::{Driver, Method, proto};
use tonic::Code;

use crate::case::{Case, Need, Outcome, ensure};
use crate::make::io;
use crate::spec;
use crate::trial::Trial;

async fn alive(t: &Trial, after: &str) -> Outcome {
    let answer = t.call(proto::ProbeRequest {}).await;
    ensure!(
        answer.is_ok(),
        "Probe was answered with {} after {after}",
        answer.words()
    );
    Ok(())
}

pub(super) fn cases() -> Vec<Case> {
    [messages(), socket()].concat()
}

fn messages() -> Vec<Case> {
    vec![
        Case::must(
            "wire.unknown_method",
            spec::ERRORS,
            "an unknown method is UNIMPLEMENTED",
            &[],
            |t| async move {
                for path in [
                    "/csi.v1.Node/NodeFly",
                    "/csi.v9.Identity/Probe",
                    "/orlop.Nothing/Nothing",
                ] {
                    let sent = t
                        .bench()
                        .settings
                        .node
                        .send_raw(path, Bytes::new(), t.bench().settings.timeout)
                        .await;
                    let code = sent.err().map_or(Code::Ok, |refusal| refusal.code);
                    ensure!(
                        code == Code::Unimplemented,
                        "{path} was answered with {code:?}; there is no such method"
                    );
                }
                alive(&t, "unknown methods").await
            },
        ),
        Case::must(
            "wire.garbage",
            spec::ERRORS,
            "a body that is no message is refused, and the driver stays",
            &[],
            |t| async move {
                for method in [
                    Method::GetPluginInfo,
                    Method::NodeGetInfo,
                    Method::NodePublishVolume,
                    Method::NodeUnpublishVolume,
                ] {
                    let garbage = Bytes::from_static(b"\xff\xff\xff\xff\x0f\x0a\x7fgarbage");
                    let sent = t
                        .bench()
                        .settings
                        .node
                        .send_raw(method.path(), garbage, t.bench().settings.timeout)
                        .await;
                    ensure!(
                        sent.is_err(),
                        "{method} took a body that is no protobuf message"
                    );
                }
                alive(&t, "garbage").await
            },
        ),
        Case::must(
            "wire.unknown_fields",
            spec::ERRORS,
            "fields of a later version of the protocol are ignored",
            &[],
            |t| async move {
                // Field 1000, a string: no request has it yet.
                let later = Bytes::from_static(b"\xc2\x3e\x05later");
                for method in [Method::GetPluginInfo, Method::Probe, Method::NodeGetInfo] {
                    let sent = t
                        .bench()
                        .settings
                        .node
                        .send_raw(method.path(), later.clone(), t.bench().settings.timeout)
                        .await;
                    if let Err(refusal) = sent {
                        ensure!(
                            false,
                            "{method} with an unknown field was answered with {}",
                            crate::words::refusal(&refusal)
                        );
                    }
                }
                Ok(())
            },
        ),
        Case::must(
            "wire.not_utf8",
            spec::ERRORS,
            "a string that is no UTF-8 is refused, and the driver stays",
            &[],
            |t| async move {
                let body = Bytes::from_static(b"\x0a\x04\xff\xfe\xfd\xfc\x12\x04/tmp");
                let sent = t
                    .bench()
                    .settings
                    .node
                    .send_raw(
                        Method::NodeUnpublishVolume.path(),
                        body,
                        t.bench().settings.timeout,
                    )
                    .await;
                ensure!(
                    sent.is_err(),
                    "NodeUnpublishVolume took a volume_id that is no UTF-8"
                );
                alive(&t, "a string that is no UTF-8").await
            },
        ),
        Case::must(
            "wire.large_message",
            spec::ERRORS,
            "a request of 8 MiB is refused, and the driver stays",
            &[],
            |t| async move {
                let request = proto::NodeUnpublishVolumeRequest {
                    volume_id: "x".repeat(8 << 20),
                    target_path: t.target("x")?,
                };
                // Not by a call: the client can't tell the server's own word for "too large"
                // from its own.
                let body = Bytes::from(prost::Message::encode_to_vec(&request));
                let path = Method::NodeUnpublishVolume.path();
                let timeout = t.bench().settings.timeout;
                let sent = t.bench().settings.node.send_raw(path, body, timeout);
                ensure!(
                    sent.await.is_err(),
                    "NodeUnpublishVolume took a volume_id of 8 MiB"
                );
                alive(&t, "a request of 8 MiB").await
            },
        ),
        Case::must(
            "wire.unknown_enum_values",
            spec::ERRORS,
            "an access mode that doesn't exist is refused with INVALID_ARGUMENT",
            &[super::CREATE],
            |t| async move {
                let mut capability = t.capability();
                capability.access_mode = Some(proto::volume_capability::AccessMode { mode: 99 });
                let request = proto::CreateVolumeRequest {
                    volume_capabilities: vec![capability],
                    ..t.create_request("v")
                };
                t.call(request)
                    .await
                    .refused(Code::InvalidArgument, "there is no access mode 99")
            },
        ),
        Case::must(
            "wire.many_calls_on_one_connection",
            spec::CONCURRENCY,
            "200 calls at once on one connection are all answered",
            &[],
            |t| async move {
                let calls = (0..200).map(|_| t.call(proto::GetPluginInfoRequest {}));
                for answer in futures::future::join_all(calls).await {
                    answer.ok()?;
                }
                Ok(())
            },
        ),
    ]
}

fn socket() -> Vec<Case> {
    vec![
        Case::must(
            "wire.socket_is_protected",
            spec::UNIX_SOCKET,
            "others than its owner's group can't reach the socket",
            &[Need::SocketFile],
            |t| async move {
                let Some(path) = t.bench().settings.socket.clone() else {
                    return Ok(());
                };
                let metadata =
                    std::fs::metadata(&path).map_err(io("could not look at the socket"))?;
                ensure!(
                    metadata.file_type().is_socket(),
                    "{} is no socket",
                    path.display()
                );
                let open = metadata.mode() & 0o002 != 0;
                let parent = path
                    .parent()
                    .and_then(|parent| std::fs::metadata(parent).ok());
                let closed_above = parent.is_some_and(|parent| parent.mode() & 0o001 == 0);
                if open && !closed_above {
                    t.warn(format!(
                        "{} has mode {:o}: every user of the host can call the driver",
                        path.display(),
                        metadata.mode() & 0o777
                    ));
                }
                Ok(())
            },
        ),
        Case::must(
            "wire.many_connections",
            spec::UNIX_SOCKET,
            "64 connections at once are all served",
            &[Need::SocketFile],
            |t| async move {
                let Some(path) = t.bench().settings.socket.clone() else {
                    return Ok(());
                };
                let endpoint = path.display().to_string();
                let drivers: Vec<Driver> = (0..64)
                    .filter_map(|_| Driver::connect(&endpoint).ok())
                    .collect();
                let calls = drivers.iter().map(|driver| {
                    driver.call_raw(&proto::ProbeRequest {}, t.bench().settings.timeout)
                });
                for outcome in futures::future::join_all(calls).await {
                    if let Err(refusal) = outcome {
                        ensure!(
                            false,
                            "one of 64 connections was answered with {}",
                            crate::words::refusal(&refusal)
                        );
                    }
                }
                Ok(())
            },
        ),
        Case::must(
            "wire.idle_connections",
            spec::UNIX_SOCKET,
            "connections that say nothing don't keep others out",
            &[Need::SocketFile],
            |t| async move {
                let Some(path) = t.bench().settings.socket.clone() else {
                    return Ok(());
                };
                let mut idle = Vec::new();
                for _ in 0..100 {
                    idle.push(
                        tokio::net::UnixStream::connect(&path)
                            .await
                            .map_err(io("could not connect"))?,
                    );
                }
                alive(&t, "100 idle connections").await?;
                drop(idle);
                alive(&t, "100 connections were closed").await
            },
        ),
        Case::must(
            "wire.rude_connections",
            spec::UNIX_SOCKET,
            "connections that speak no HTTP/2 don't disturb others",
            &[Need::SocketFile],
            |t| async move {
                use tokio::io::AsyncWriteExt as _;
                let Some(path) = t.bench().settings.socket.clone() else {
                    return Ok(());
                };
                for _ in 0..10 {
                    let mut rude = tokio::net::UnixStream::connect(&path)
                        .await
                        .map_err(io("could not connect"))?;
                    // The driver may hang up before it has read all of it.
                    let _ = tokio::time::timeout(
                        Duration::from_secs(1),
                        rude.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
                    )
                    .await;
                }
                alive(&t, "connections that speak HTTP/1").await
            },
        ),
    ]
}
