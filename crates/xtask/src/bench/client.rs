//! A client that costs little: HTTP/1.1 over TLS, and bodies that are read but not parsed.
//!
//! The same code talks to both servers, in a process of its own, so that what it costs can be told
//! apart from what the servers cost.

use std::{path::Path, sync::Arc};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use kube::{client::ConfigExt as _, config::Kubeconfig};
use rustls::pki_types::ServerName;
use tokio::{
    io::AsyncWriteExt as _,
    net::{TcpSocket, TcpStream},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// A server, and who the client is to it.
#[derive(Clone)]
pub(super) struct Server {
    address: std::net::SocketAddr,
    name: ServerName<'static>,
    tls: TlsConnector,
}

/// One connection, used for one request at a time.
pub(super) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    host: String,
}

impl Server {
    /// The server that a kubeconfig names.
    pub(super) async fn of(kubeconfig: &Path) -> Result<Self> {
        let read = Kubeconfig::read_from(kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(read, &Default::default()).await?;
        let authority = config.cluster_url.authority();
        let address = authority.context("a server without an address")?.as_str();
        let address: std::net::SocketAddr = address.parse().context("a server without a port")?;
        let mut tls = config.rustls_client_config()?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self {
            address,
            name: ServerName::from(address.ip()),
            tls: TlsConnector::from(Arc::new(tls)),
        })
    }

    pub(super) async fn connect(&self) -> Result<Connection> {
        let stream = self.stream(None).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            // Whoever waits for an answer learns of the failure there.
            let _ = connection.await;
        });
        Ok(Connection {
            sender,
            host: self.address.to_string(),
        })
    }

    /// A GET whose answer nobody will ever read.
    pub(super) async fn stuck(&self, path: &str) -> Result<TlsStream<TcpStream>> {
        let mut stream = self.stream(Some(4096)).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).await?;
        stream.flush().await?;
        Ok(stream)
    }

    async fn stream(&self, receive_buffer: Option<u32>) -> Result<TlsStream<TcpStream>> {
        let socket = match self.address {
            std::net::SocketAddr::V4(_) => TcpSocket::new_v4()?,
            std::net::SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        if let Some(bytes) = receive_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        let stream = socket.connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(self.tls.connect(self.name.clone(), stream).await?)
    }
}

impl Connection {
    /// Sends a request; answers when the head of the response is there.
    pub(super) async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Response<Incoming>> {
        let kind = match method {
            Method::PATCH => "application/merge-patch+json",
            _ => "application/json",
        };
        self.sender.ready().await?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.host)
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, kind)
            .header(header::USER_AGENT, "bench/1")
            .body(Full::new(body))?;
        Ok(self.sender.send_request(request).await?)
    }

    /// Sends a request and reads the whole answer; an answer that isn't a success is an error.
    pub(super) async fn ask(&mut self, method: Method, path: &str, body: Bytes) -> Result<Bytes> {
        let response = self.send(method, path, body).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if !status.is_success() {
            bail!("{path}: {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(body)
    }

    /// Begins a watch; the connection is used up by it.
    pub(super) async fn watch(mut self, path: &str) -> Result<Watch> {
        let response = self.send(Method::GET, path, Bytes::new()).await?;
        let status = response.status();
        if !status.is_success() {
            bail!("{path}: {status}");
        }
        Ok(Watch {
            body: response.into_body(),
            _connection: self,
        })
    }
}

/// A running watch.
pub(super) struct Watch {
    body: Incoming,
    _connection: Connection,
}

impl Watch {
    /// Waits for bytes; answers with how many events ended in them.
    pub(super) async fn events(&mut self) -> Result<usize> {
        let data = self.bytes().await?;
        Ok(data.iter().filter(|byte| **byte == b'\n').count())
    }

    /// Waits for bytes.
    pub(super) async fn bytes(&mut self) -> Result<Bytes> {
        let frame = self.body.frame().await.context("a watch ended")??;
        Ok(frame.into_data().unwrap_or_default())
    }
}
