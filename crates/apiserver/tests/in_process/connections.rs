//! Connections that take and give nothing: each has to go by itself.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use orlop_apiserver::{ApiServer, Config, Limits, Pki, Storage};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How long a test waits for what must happen.
const BOUND: Duration = Duration::from_secs(20);
/// A limit that is soon reached.
const SOON: Duration = Duration::from_millis(200);

/// A server on a port of its own, and how its administrator reaches it.
struct Served {
    server: ApiServer,
    address: SocketAddr,
    kubeconfig: String,
    serving: tokio::task::JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(limits: Limits) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::new(Storage::Memory);
    config.limits = limits;
    let server = ApiServer::open(config).await.unwrap();
    let pki = Pki::open(folder.path(), jiff::Timestamp::now()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let kubeconfig = pki.kubeconfig(&format!("https://{address}")).unwrap();
    let tls = pki.tls(&[]).unwrap();
    let serving = tokio::spawn(server.serve(listener, tls, std::future::pending()));
    Served {
        server,
        address,
        kubeconfig,
        serving,
        _folder: folder,
    }
}

impl Served {
    async fn connect(&self) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        // What the kernel takes for a client that doesn't read is to be little.
        socket.set_recv_buffer_size(4 << 10).unwrap();
        socket.connect(self.address).await.unwrap()
    }

    async fn greet(&self, protocol: &str) -> io::Result<TlsStream<TcpStream>> {
        let pem = |field: &str| {
            let (_, rest) = self.kubeconfig.split_once(field).unwrap();
            let is_base64 = |c: &char| c.is_ascii_alphanumeric() || "+/=".contains(*c);
            let data = rest.chars().skip_while(|c| !is_base64(c));
            let data: String = data.take_while(is_base64).collect();
            STANDARD.decode(data).unwrap()
        };
        let certificate = |field| CertificateDer::from_pem_slice(&pem(field)).unwrap();
        let mut roots = RootCertStore::empty();
        roots
            .add(certificate("certificate-authority-data"))
            .unwrap();
        let key = PrivateKeyDer::from_pem_slice(&pem("client-key-data")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate("client-certificate-data")], key)
            .unwrap();
        config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
        let name = ServerName::try_from("localhost").unwrap();
        let stream = self.connect().await;
        let connector = TlsConnector::from(Arc::new(config));
        connector.connect(name, stream).await
    }
}

/// Waits until the other side has closed.
async fn closed(stream: &mut (impl tokio::io::AsyncRead + Unpin)) {
    let mut rest = Vec::new();
    // A reset is an end, too.
    let _ = tokio::time::timeout(BOUND, stream.read_to_end(&mut rest))
        .await
        .expect("the connection is still there");
}

#[tokio::test]
async fn a_client_that_does_not_greet_is_let_go() {
    let served = serve(Limits {
        handshake: SOON,
        ..Limits::default()
    })
    .await;
    let mut stream = served.connect().await;
    // The beginning of a greeting is none.
    stream.write_all(&[22, 3, 1]).await.unwrap();
    closed(&mut stream).await;
}

#[tokio::test]
async fn a_client_that_asks_for_nothing_is_let_go() {
    let served = serve(Limits {
        idle: SOON,
        ..Limits::default()
    })
    .await;
    for protocol in ["http/1.1", "h2"] {
        let mut stream = served.greet(protocol).await.unwrap();
        closed(&mut stream).await;
    }
}

#[tokio::test]
async fn a_client_that_does_not_finish_its_headers_is_let_go() {
    let served = serve(Limits {
        headers: SOON,
        ..Limits::default()
    })
    .await;
    let mut stream = served.greet("http/1.1").await.unwrap();
    stream
        .write_all(b"GET /version HTTP/1.1\r\nhost: x\r\n")
        .await
        .unwrap();
    closed(&mut stream).await;
}

#[tokio::test]
async fn headers_that_are_too_long_are_refused() {
    let served = serve(Limits::default()).await;
    let (mut read, mut write) = tokio::io::split(served.greet("http/1.1").await.unwrap());
    let sending = async {
        let mut sent = write
            .write_all(b"GET /version HTTP/1.1\r\nhost: x\r\nlong: ")
            .await;
        for _ in 0..32 {
            // The server may close before all is sent.
            sent = sent.and(write.write_all(&[b'x'; 64 << 10]).await);
        }
        drop(sent);
    };
    let mut answer = vec![0; 64];
    let reading = async {
        let length = read.read(&mut answer).await.unwrap();
        answer.truncate(length);
    };
    tokio::time::timeout(BOUND, async { tokio::join!(sending, reading) })
        .await
        .unwrap();
    assert!(
        answer.starts_with(b"HTTP/1.1 431"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
}

/// What the server answers to a request with these headers.
async fn answer_to(served: &Served, headers: &str) -> String {
    let (mut read, mut write) = tokio::io::split(served.greet("http/1.1").await.unwrap());
    let request = format!("GET /version HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}\r\n");
    let sending = async {
        write.write_all(request.as_bytes()).await.unwrap();
        write.flush().await.unwrap();
    };
    let mut answer = Vec::new();
    let both = async { tokio::join!(sending, read.read_to_end(&mut answer)).1 };
    // An end without a goodbye is an end, too.
    let _ = tokio::time::timeout(BOUND, both).await.unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn many_headers_are_taken_and_too_long_ones_get_a_status() {
    let served = serve(Limits::default()).await;
    let many: String = (0..300).map(|n| format!("x-{n}: y\r\n")).collect();
    let taken = answer_to(&served, &many).await;
    assert!(taken.starts_with("HTTP/1.1 200"), "{taken}");
    let long = format!("long: {}\r\n", "x".repeat(1 << 20));
    let refused = answer_to(&served, &long).await;
    assert!(refused.starts_with("HTTP/1.1 431"), "{refused}");
    assert!(refused.contains(r#""kind":"Status""#), "{refused}");
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_and_make_room_when_they_end() {
    let served = serve(Limits {
        connections: 1,
        ..Limits::default()
    })
    .await;
    let first = served.greet("http/1.1").await.unwrap();
    let second = tokio::time::timeout(BOUND, served.greet("http/1.1"))
        .await
        .unwrap();
    assert!(second.is_err(), "two connections");
    drop(first);
    let again = async {
        while served.greet("http/1.1").await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(BOUND, again).await.unwrap();
}

#[tokio::test]
async fn a_watcher_that_reads_nothing_is_let_go() {
    let served = serve(Limits {
        unread: SOON,
        ..Limits::default()
    })
    .await;
    let mut stream = served.greet("http/1.1").await.unwrap();
    stream
        .write_all(b"GET /api/v1/configmaps?watch=true HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    // More than the sockets hold, and less than makes the server end the watch itself.
    let client = kube::Client::new(served.server.service(), "default");
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::default_namespaced(client);
    for n in 0..12 {
        let map = json!({ "metadata": { "name": format!("m{n}") }, "data": { "x": "x".repeat(1 << 20) } });
        let map = serde_json::from_value(map).unwrap();
        maps.create(&PostParams::default(), &map).await.unwrap();
    }
    let gone = async {
        while stream.write_all(b"\r\n").await.is_ok() && stream.flush().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(BOUND, gone)
        .await
        .expect("the watcher is still there");
}

#[tokio::test]
async fn a_quiet_watch_outlives_the_limits_of_idle_connections() {
    let served = serve(Limits {
        idle: SOON,
        headers: SOON,
        unread: SOON,
        ..Limits::default()
    })
    .await;
    let mut stream = served.greet("http/1.1").await.unwrap();
    stream
        .write_all(b"GET /api/v1/configmaps?watch=true HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .unwrap();
    let mut text = Vec::new();
    let mut read_until = async |wanted: &str| {
        while !String::from_utf8_lossy(&text).contains(wanted) {
            let length = stream.read_buf(&mut text).await.unwrap();
            assert!(length > 0, "closed: {}", String::from_utf8_lossy(&text));
        }
    };
    tokio::time::timeout(BOUND, read_until("200 OK"))
        .await
        .unwrap();
    tokio::time::sleep(SOON * 5).await;
    let (kubeconfig, options) = (
        Kubeconfig::from_yaml(&served.kubeconfig).unwrap(),
        KubeConfigOptions::default(),
    );
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options);
    let client = kube::Client::try_from(config.await.unwrap()).unwrap();
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::default_namespaced(client);
    let map = serde_json::from_value(json!({ "metadata": { "name": "late" } })).unwrap();
    maps.create(&PostParams::default(), &map).await.unwrap();
    tokio::time::timeout(BOUND, read_until("late"))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_request_that_is_refused_unread_leaves_its_connection_to_the_next_one() {
    let served = serve(Limits::default()).await;
    let mut stream = served.greet("http/1.1").await.unwrap();
    let body = "x".repeat(100_000);
    for _ in 0..5 {
        let head = format!(
            "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nhost: x\r\nauthorization: \
             Bearer nobody\r\naccept: nothing/known\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        // The server has the head long before it has the body.
        tokio::task::yield_now().await;
        stream.write_all(body.as_bytes()).await.unwrap();
        let answer = answer(&mut stream).await;
        assert!(answer.starts_with("http/1.1 4"), "{answer}");
        assert!(!answer.contains("connection: close"), "{answer}");
    }
    // What is too much to throw away is told to end the connection.
    let head = "POST /nothing HTTP/1.1\r\nhost: x\r\ncontent-length: 9000000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = answer(&mut stream).await;
    assert!(answer.contains("connection: close"), "{answer}");
}

/// Reads one answer with its body; returns its head in lower case.
async fn answer(stream: &mut TlsStream<TcpStream>) -> String {
    let read = async {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let (_, rest) = head.split_once("content-length: ").unwrap();
        let length: usize = rest.lines().next().unwrap().parse().unwrap();
        let mut body = vec![0; length];
        stream.read_exact(&mut body).await.unwrap();
        head
    };
    tokio::time::timeout(BOUND, read).await.expect("no answer")
}
